"""Options of the trainers on the shipped base: what they may change, and what they must not."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_model
from judgetrain.train import stage
from judgetrain.train.config import AdapterConfig
from judgetrain.train.distributed import ProcessGroup
from judgetrain.train.run import trainable
from judgetrain.train.stages import InitialSettings
from tests.builders.train import config, run_initial, same, sft_rows, weights


def test_adapters_are_merged_and_moved_the_weights(tmp_path: Path) -> None:
    out = run_initial(tmp_path, config(max_steps=4, lora=AdapterConfig(enabled=True)), sft_rows(16))
    assert not list(out.path("model").glob("adapter*")), "a whole model"
    moved, base = weights(out.directory), load_model(ModelConfig(path="world")).state_dict()
    assert moved.keys() == base.keys() and "judgetrain" in (out.path("model") / "README.md").read_text()
    changed = {name for name in base if not torch.equal(moved[name], base[name])}
    assert changed and all(name.rpartition(".")[0].endswith("_proj") for name in changed)


def test_the_same_seed_gives_the_same_weights_whatever_else_drew_random_numbers(tmp_path: Path) -> None:
    """Adapters start at random, and the order of the data is random: all from one seed."""
    lora = AdapterConfig(enabled=True)

    def run(name: str, seed: int) -> dict[str, torch.Tensor]:
        for disturb in (random.seed, np.random.seed, torch.manual_seed):
            disturb(len(name))
        settings = config(lora=lora, max_steps=3)
        return weights(run_initial(tmp_path, settings, sft_rows(24), name, seed).directory)

    first = run("a", 1)
    assert same(first, run("another", 1))
    assert not same(first, run("b", 2))


def test_the_result_loads_in_transformers_as_it_is(tmp_path: Path) -> None:
    out = run_initial(tmp_path, config(max_steps=2), sft_rows(8))
    model = AutoModelForCausalLM.from_pretrained(out.path("model"))
    tokenizer = AutoTokenizer.from_pretrained(out.path("model"))
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "the cat reads"}], add_generation_prompt=True, return_tensors="pt"
    )
    ids = ids if isinstance(ids, torch.Tensor) else ids["input_ids"]
    with torch.no_grad():
        assert torch.equal(model.eval()(ids).logits, load_model(ModelConfig(path=str(out.path("model"))))(ids).logits)
    assert model.generation_config.pad_token_id == tokenizer.pad_token_id


def test_flash_attention_is_taken_where_it_is_installed_and_training_is_in_half_precision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = ModelConfig(path="world")
    assert trainable(start, True, False) == ModelConfig(path="world", dtype="float32")
    monkeypatch.setattr("transformers.utils.import_utils.is_flash_attn_2_available", lambda: True)
    assert trainable(start, True, False).attn_implementation == "flash_attention_2"
    assert trainable(start, False, False).attn_implementation is None
    asked = ModelConfig(path="world", attn_implementation="eager")
    assert trainable(asked, True, False) == ModelConfig(path="world", dtype="float32", attn_implementation="eager")
    assert trainable(start, True, True) == start


@pytest.mark.parametrize("dtype", ["auto", "bfloat16", "float16"])
def test_weights_that_are_all_trained_are_in_float32_but_where_deepspeed_keeps_a_copy(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = ModelConfig(path="world", dtype=dtype)
    assert {p.dtype for p in load_model(trainable(start, True, False)).parameters()} == {torch.float32}
    assert trainable(start, None, True) == start
    monkeypatch.setattr("judgetrain.train.run.current", lambda: ProcessGroup(deepspeed="zero3.json"))
    assert trainable(start, True, False).dtype == ("float32" if dtype == "auto" else dtype)


def test_the_card_and_the_arguments_hold_the_whole_lineage_and_no_place(tmp_path: Path) -> None:
    """A teacher's artifact made from responses made from dialogues: all three are in the card."""
    for name, upstream in (("dialogues", {}), ("responses", {"dialogues": "d1a"})):
        directory = tmp_path / name / {"dialogues": "d1a", "responses": "4e5"}[name]
        directory.mkdir(parents=True)
        (directory / "manifest.json").write_text(json.dumps({"upstream": upstream}))
    teacher = StageRun(tmp_path / "teacher" / "7ea", "teacher", 0, Console())
    teacher.write_rows("examples", sft_rows(8))
    (teacher.directory / "manifest.json").write_text(json.dumps({"upstream": {"responses": "4e5"}}))
    out = StageRun(tmp_path / "initial" / "111", "initial", 0, Console())
    stage.run_initial(InitialSettings.of(config(max_steps=1)), {"teacher": teacher.directory}, out)
    card = (out.path("model") / "README.md").read_text()
    lines = ["- `teacher`: `7ea`", "- `responses`: `4e5`", "- `dialogues`: `d1a`"]
    assert "\n".join(lines) in card
    texts = [p.read_text() for p in out.path("model").iterdir() if p.suffix in (".json", ".yaml", ".md", ".jinja")]
    assert len(texts) >= 6 and not any(str(tmp_path) in text or str(Path.home()) in text for text in texts)
