"""A judge that is written is the one that was trained, DPO starts at its reference, and figures do not show batches."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.config import WORLD_BASE, ModelConfig
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.errors import TrainingError
from judgetrain.extras.rl.config import RlConfig
from judgetrain.extras.rl.run import branch_arguments
from judgetrain.judges.config import StepsConfig
from judgetrain.train import checkpoints, run, stage
from judgetrain.train.checkpoints import AtReference
from judgetrain.train.config import AdapterConfig, DpoConfig, TrainConfig
from judgetrain.train.data import fitting
from judgetrain.train.run import Job, policy_of
from judgetrain.train.stages import SftSettings
from tests.builders.train import (
    artifact,
    config,
    logged,
    pair_rows,
    run_dpo,
    run_initial,
    run_reference,
    sft_rows,
    templated,
)

ENDS_FIRST = (
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}<end>{% endif %}{{ m.content }}<end>"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="module")
def initial(tmp_path_factory: pytest.TempPathFactory) -> StageRun:
    place = tmp_path_factory.mktemp("initial")
    return run_initial(place, config(num_train_epochs=4, learning_rate=3e-3), sft_rows(40))


def other_weights(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor * 1.02 if "layers.1" in name else tensor for name, tensor in state.items()}


def half(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.to(torch.float8_e4m3fn).to(tensor.dtype) for name, tensor in state.items()}


@pytest.mark.parametrize("damage", [other_weights, half])
def test_a_judge_that_is_written_otherwise_than_trained_is_refused(
    damage: Callable[[Any], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = run.whole_model

    @contextmanager
    def damaged(trainer: Any) -> Iterator[Any]:
        with real(trainer) as (model, state):
            yield model, damage(state)

    monkeypatch.setattr(run, "whole_model", damaged)
    said = r"not the one that was trained: it gives a training row -\d+\.\d{4} nats a token, and the one in memory -\d"
    with pytest.raises(TrainingError, match=said):
        run_initial(tmp_path, config(max_steps=2), sft_rows(8))
    assert not (tmp_path / "initial" / "model").exists()
    assert (tmp_path / "initial" / "checkpoints" / "checkpoint-2" / "complete").exists(), "what was good is kept"
    monkeypatch.setattr(run, "whole_model", real)
    assert run_initial(tmp_path, config(max_steps=2), sft_rows(8)).path("model").exists()


def test_a_tokenizer_that_is_written_otherwise_is_refused(initial: StageRun, monkeypatch: pytest.MonkeyPatch) -> None:
    start, judge = ModelConfig(path="world"), initial.path("model")
    tokenizer = load_tokenizer(start)
    rows = [tokenizer("the cat reads")["input_ids"]]
    here = checkpoints.logprobs(load_model(start.at(judge)), rows)
    assert not checkpoints.check_saved(judge, start, tokenizer, rows, here, 1e-3)
    monkeypatch.setattr(checkpoints.os, "sysconf", lambda name: 1000)
    assert "are not loaded again to be compared, in 0.001 GB of memory" in checkpoints.check_saved(
        judge, start, tokenizer, rows, here, 1e-3
    )
    tokenizer.chat_template = "other"
    with pytest.raises(TrainingError, match="the tokenizer that was written reads texts, or ends answers, otherwise"):
        checkpoints.check_saved(judge, start, tokenizer, rows, here, 1e-3)


def test_a_judge_brings_no_sampling_of_its_base(initial: StageRun, tmp_path: Path) -> None:
    """Qwen2.5's generation_config has penalties; generate() and vLLM's server would take them over."""
    base = Path(templated(tmp_path / "base", (WORLD_BASE / "chat_template.jinja").read_text()))
    file = base / "generation_config.json"
    wanted = json.loads(file.read_text()) | {"repetition_penalty": 1.1, "top_k": 20, "temperature": 0.7}
    file.write_text(json.dumps(wanted | {"do_sample": True}))
    settings = config(max_steps=1)
    settings.train.base.path = str(base)
    made = json.loads((run_initial(tmp_path, settings, sft_rows(8)).path("model") / file.name).read_text())
    assert made["eos_token_id"] == [load_tokenizer(settings.train.base).eos_token_id]
    assert not {"repetition_penalty", "top_k", "temperature", "do_sample"} & made.keys()


def test_adapters_of_a_base_in_half_precision_are_merged_in_full(initial: StageRun, tmp_path: Path) -> None:
    settings = config(max_steps=6, learning_rate=5e-5, lora=AdapterConfig(enabled=True))
    settings.train.base.dtype = "bfloat16"
    tuned = run_dpo(tmp_path, settings, initial.directory, data=pair_rows(24), heldout=[])
    before, after = (load_file(r.path("model") / "model.safetensors") for r in (initial, tuned))
    moved = {name: after[name] - before[name].bfloat16().float() for name in after if "proj" in name}
    assert {tensor.dtype for tensor in after.values()} == {torch.float32}
    assert min(float((m != 0).float().mean()) for m in moved.values()) > 0.9, "bfloat16 would keep a few per cent"


def test_dpo_starts_at_its_reference_or_not_at_all(initial: StageRun, tmp_path: Path) -> None:
    other = run_initial(tmp_path / "other", config(max_steps=3), sft_rows(12))
    pairs, settings = pair_rows(12), config(max_steps=2)
    right, wrong = (
        run_reference(tmp_path / name, settings, start.directory, pairs)
        for name, start in (("right", initial), ("wrong", other))
    )
    made = run_dpo(tmp_path / "a", settings, initial.directory, data=pairs, heldout=[], reference=right.directory)
    assert logged(made)[0]["loss"] == pytest.approx(math.log(2), abs=1e-4)
    with pytest.raises(TrainingError, match=r"nats a token from its reference .* \(DPO's is ln 2 = 0\.6931 there"):
        run_dpo(tmp_path / "b", settings, initial.directory, data=pairs, heldout=[], reference=wrong.directory)


@pytest.mark.parametrize("settings", [DpoConfig(), RlConfig(), TrainConfig()], ids=["dpo", "rl", "sft"])
def test_dropout_within_layers_is_for_supervised_training_alone(tmp_path: Path, settings: Any) -> None:
    """TRL switches modules off; attention's dropout is a number that every layer has."""
    shutil.copytree(WORLD_BASE, tmp_path / "m")
    file = tmp_path / "m" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"attention_dropout": 0.3}))
    start = ModelConfig(path=str(tmp_path / "m"))
    model, ids = policy_of(Job(start=start, config=settings, key="k"), load_tokenizer(start)), torch.arange(3, 40)[None]
    assert model.training and model.config.attention_dropout == 0.3, "as it is saved again"
    assert torch.equal(model(ids).logits, model(ids).logits) == (type(settings) is not TrainConfig)


@pytest.mark.parametrize(("step", "kl", "refused"), [(1, 0.4, True), (1, 1e-5, False), (2, 0.4, False)])
def test_rl_starts_at_its_reference(step: int, kl: float, refused: bool) -> None:
    model, args = SimpleNamespace(dtype=torch.float32), SimpleNamespace(use_cpu=True, bf16=False)
    watch: Any = AtReference(0.1)
    with pytest.raises(TrainingError, match=r"0\.4 nats a token") if refused else nullcontext():
        watch.on_log(args, SimpleNamespace(global_step=step), None, logs={"loss": 0.0, "kl": kl}, model=model)
    assert branch_arguments(RlConfig(), StepsConfig())["disable_dropout"], "what is learned from is what sampled"


def test_an_answer_that_ends_before_it_begins_is_refused(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(ModelConfig(path=templated(tmp_path / "m", ENDS_FIRST)))
    with pytest.raises(TrainingError, match=r"generation would return '': the chat template cuts answers or writes"):
        fitting(pair_rows(4), tokenizer, 256, "rows")


def test_the_held_out_loss_is_the_mean_over_tokens_however_they_are_batched(initial: StageRun, tmp_path: Path) -> None:
    held = sft_rows(9)
    for place, row in enumerate(held):
        words = ["clear example"] if place % 4 else ["no example of the book"] * 9
        row["completion"] = [{"role": "assistant", "content": " ".join(words)}]
    label = artifact(tmp_path, "label", {"sft-train": sft_rows(12), "sft-heldout": held})
    found = []
    for batch in (1, 2, 4):
        settings = config(learning_rate=1e-9, max_steps=1, per_device_train_batch_size=batch, eval_steps=1)
        out = StageRun(tmp_path / f"sft{batch}", "sft", 0, Console())
        stage.run_sft(SftSettings.of(settings), {"initial": initial.directory, "label": label}, out)
        found += [row["eval_loss"] for row in logged(out) if "eval_loss" in row][-1:]
    judge = ModelConfig(path=str(initial.path("model")))
    model, tokenizer = load_model(judge), load_tokenizer(judge)
    lost: list[float] = []
    for row in fitting(held, tokenizer, 256, "rows").data:
        with torch.no_grad():
            said = model(input_ids=torch.tensor([row["input_ids"]])).logits[0].log_softmax(-1)
        where = [i for i, kept in enumerate(row["completion_mask"]) if kept]
        lost += [-float(said[i - 1, row["input_ids"][i]]) for i in where]
    assert found == pytest.approx([sum(lost) / len(lost)] * 3, abs=1e-4)


def test_the_supervised_term_of_dpo_is_the_mean_over_the_tokens_of_a_step(initial: StageRun, tmp_path: Path) -> None:
    pairs = pair_rows(8)
    for place, row in enumerate(pairs):
        row["chosen"] = [{"role": "assistant", "content": " ".join(["clear example"] * (1 + 5 * (place % 3)))}]
    losses = []
    for batch in (8, 2, 1):
        settings = config(
            max_steps=2, per_device_train_batch_size=batch, global_accumulation_steps=8 // batch, sft_weight=1.0
        )
        made = run_dpo(tmp_path / str(batch), settings, initial.directory, data=pairs, heldout=[])
        losses.append([row["loss"] for row in logged(made) if "loss" in row])
    assert losses[1:] == [pytest.approx(losses[0], abs=2e-4)] * 2


def test_examples_longer_than_the_context_of_the_base_are_left_out(tmp_path: Path) -> None:
    base = Path(templated(tmp_path / "base", (WORLD_BASE / "chat_template.jinja").read_text()))
    own = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(own | {"max_position_embeddings": 64}))
    rows, settings = sft_rows(8), config(max_steps=1)
    settings.train.base.path = str(base)
    for row in rows[:3]:
        row["prompt"][0]["content"] += " the cat reads a book for my sister" * 10
    made = run_initial(tmp_path, settings, rows)
    assert made.totals()["counts"]["dropped"] == {"too_long": 3}


@pytest.mark.parametrize(("kind", "experts"), [("mixtral", False), ("gpt_oss", True)])
def test_what_adapters_leave_as_it_is_is_said(
    kind: str, experts: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(WORLD_BASE)
    size = dict(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1, head_dim=8)
    own = dict(num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **size, **own))
    model.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    settings = config(max_steps=1, lora=AdapterConfig(enabled=True))
    settings.train.base.path = str(tmp_path / "base")
    run_initial(tmp_path, settings, sft_rows(8))
    assert ("weights of experts as they are" in capsys.readouterr().out) == experts
