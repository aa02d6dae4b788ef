"""Training settings that do not go together are refused before anything runs."""

import dataclasses
import functools
import json
import random
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.fingerprint import by_key, plain
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_model
from judgetrain.errors import ConfigError, TrainingError
from judgetrain.extras.rl.config import RlConfig
from judgetrain.pipeline.config import Config
from judgetrain.train import stage, stages
from judgetrain.train.arguments import shared_out, trainable, training_arguments
from judgetrain.train.config import DpoConfig, TrainConfig, TrainerConfig
from judgetrain.train.distributed import ProcessGroup
from judgetrain.train.stage import run_next
from tests.builders.pipeline import check_stage
from tests.builders.train import config, run_initial, same, sft_rows, weights


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (DpoConfig(trainer={"beta": 0.2}), r"k\.trainer\.beta: is not given here; see k\.beta"),
        (TrainConfig(trainer={"padding_free": True}), r"k\.trainer\.padding_free: judgetrain decides it; leave it out"),
        (DpoConfig(trainer={"ld_alpha": 0.5}), r"k\.trainer\.ld_alpha: judgetrain decides it"),
        (RlConfig(trainer={"temperature": 0.5}), r"k\.trainer\.temperature: judgetrain decides it"),
        (DpoConfig(), ""),
        (TrainConfig(per_device_train_batch_size=4, min_steps=5, trainer={"optim": "sgd"}), ""),
    ],
)
def test_settings_that_do_not_go_together_are_refused(config: TrainerConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message) if message else nullcontext():
        stages.check_training("k", config)


@pytest.mark.parametrize(
    ("of", "processes", "each"),
    [((8, 4), 1, (8, 4)), ((8, 4), 2, (8, 2)), ((8, 1), 2, (4, 1)), ((8, 2), 4, (4, 1)), ((1, 256), 8, (1, 32))],
)
def test_the_global_batch_is_shared_out_over_any_number_of_processes(
    of: tuple[int, int], processes: int, each: tuple[int, int]
) -> None:
    config = TrainConfig(per_device_train_batch_size=of[0], global_accumulation_steps=of[1])
    stages.check_shared("k", config, processes)
    with pytest.raises(ConfigError, match=r"over 8 processes: set k\.per_device_train_batch_size=8$"):
        stages.check_shared("k", TrainConfig(per_device_train_batch_size=6, global_accumulation_steps=2), 8)
    assert shared_out(config, processes) == each and each[0] * each[1] * processes == of[0] * of[1]


def test_what_trl_does_not_take_is_said(tmp_path: Path) -> None:
    other: Any = training_arguments(DpoConfig(trainer={"loss_type": "ipo"}), "k", tmp_path, 0, evaluate=False)
    assert other.loss_type == ["ipo"]
    further = {"warmup_steps": 7, "weight_decay": 0.25}
    arguments: Any = training_arguments(TrainConfig(trainer=further), "k", tmp_path, 0, evaluate=False)
    assert (arguments.warmup_steps, arguments.weight_decay, arguments.lr_scheduler_type) == (7, 0.25, "cosine")
    with pytest.raises(ConfigError, match=r"k\.trainer=\{'optim': 'nothing'\}: nothing is not a valid"):
        training_arguments(TrainConfig(trainer={"optim": "nothing"}), "k", tmp_path, 0, evaluate=False)
    with pytest.raises(ConfigError, match=r"k\.trainer\.warmup_stesp: TRL's SFTConfig .* did you mean warmup_steps"):
        stages.check_trainer("k", TrainConfig(trainer={"warmup_stesp": 1}), "SFTConfig")
    stages.check_trainer("k", TrainConfig(trainer=further), "SFTConfig")


def test_no_argument_that_is_decided_here_can_be_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Every argument that stages hand to TRL is a key, a default that may be set, or refused.
    import trl

    from judgetrain.extras.rl.run import branch_arguments
    from judgetrain.judges.trees.config import StepsConfig
    from judgetrain.train import arguments

    given_arguments: dict[str, set[str]] = {}

    def recorded(name: str) -> Any:
        real = getattr(trl, name)

        def make(**settings: Any) -> Any:
            given_arguments[name] = set(settings)
            return real(**settings)

        make.__dataclass_fields__ = real.__dataclass_fields__  # type: ignore[attr-defined]
        return make

    for settings, name in ((TrainConfig(), "SFTConfig"), (DpoConfig(keep_best=True), "DPOConfig")):
        monkeypatch.setattr(trl, name, recorded(name))
        training_arguments(settings, "k", tmp_path, 0, evaluate=True)
        free = given_arguments[name] - {field.name for field in fields(settings)} - stages.DECIDED_HERE
        assert free == {*arguments.DEFAULTS, *(["loss_type"] if name == "DPOConfig" else [])}
    with_keys = {field.name for field in fields(RlConfig)}
    assert set(branch_arguments(RlConfig(), StepsConfig())) <= with_keys | stages.DECIDED_HERE


def test_a_best_checkpoint_needs_held_out_pairs() -> None:
    config = Config()
    config.train.dpo.keep_best = True
    check_stage("dpo", config)
    config.label.holdout = 0.0
    with pytest.raises(ConfigError, match=r"train\.dpo\.keep_best=true: label\.holdout=0"):
        check_stage("dpo", config)


def test_adapters_are_merged_and_moved_the_weights(tmp_path: Path) -> None:
    out = run_initial(tmp_path, config(max_steps=4, lora=True), sft_rows(16))
    assert not list(out.path("model").glob("adapter*")), "a whole model"
    moved = weights(out.directory)
    base = load_model(ModelConfig(path="world")).state_dict()
    assert moved.keys() == base.keys() and "judgetrain" in (out.path("model") / "README.md").read_text()
    changed = {name for name in base if not torch.equal(moved[name], base[name])}
    assert changed and all(name.rpartition(".")[0].endswith("_proj") for name in changed)


def test_frozen_embeddings_stay_as_they_are_and_the_blocks_learn(tmp_path: Path) -> None:
    settings = config(max_steps=4, freeze_embeddings=True)
    out = run_initial(tmp_path, settings, sft_rows(16))
    moved = weights(out.directory)
    base = load_model(ModelConfig(path="world"))
    changed = {name for name, weight in base.state_dict().items() if not torch.equal(moved[name], weight)}
    kept = {name for name, _ in base.named_parameters() if "embed" in name or "lm_head" in name}
    assert kept
    assert changed == {name for name, _ in base.named_parameters()} - kept


def test_adapters_refuse_to_freeze_what_they_do_not_train() -> None:
    settings = TrainConfig(lora=True, freeze_embeddings=True)
    with pytest.raises(ConfigError, match=r"^k\.freeze_embeddings=true and k\.lora=true: .* leave one of the two out$"):
        stages.check_stage(config().train, "k", settings)


def test_the_same_seed_gives_the_same_weights_whatever_else_drew_random_numbers(tmp_path: Path) -> None:
    """Adapters start at random, and the order of the data is random: all from one seed."""
    lora = True

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
    model_config = ModelConfig(path="world", attn_implementation="eager")
    assert trainable(model_config, True, False) == ModelConfig(
        path="world", dtype="float32", attn_implementation="eager"
    )
    assert trainable(start, True, True) == start


@pytest.mark.parametrize("dtype", ["auto", "bfloat16", "float16"])
def test_weights_that_are_all_trained_are_in_float32_but_where_deepspeed_keeps_a_copy(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = ModelConfig(path="world", dtype=dtype)
    assert {p.dtype for p in load_model(trainable(start, True, False)).parameters()} == {torch.float32}
    assert trainable(start, None, True) == start
    monkeypatch.setattr("judgetrain.train.arguments.current", lambda: ProcessGroup(deepspeed="zero3.json"))
    assert trainable(start, True, False).dtype == ("float32" if dtype == "auto" else dtype)


def test_the_card_and_the_arguments_hold_the_whole_lineage_and_no_place(tmp_path: Path) -> None:
    # A teacher's artifact made from responses made from dialogues: all three are in the card.
    for name, upstream in (("dialogues", {}), ("responses", {"dialogues": "d1a"})):
        directory = tmp_path / name / {"dialogues": "d1a", "responses": "4e5"}[name]
        directory.mkdir(parents=True)
        (directory / "manifest.json").write_text(json.dumps({"upstream": upstream}))
    teacher = StageRun(tmp_path / "teacher" / "7ea", "teacher", 0, Console())
    teacher.write_rows("examples", sft_rows(8))
    (teacher.directory / "manifest.json").write_text(json.dumps({"upstream": {"responses": "4e5"}}))
    out = StageRun(tmp_path / "initial" / "111", "initial", 0, Console())
    stage.run_initial(stages.InitialSettings.of(config(max_steps=1)), {"teacher": teacher.directory}, out)
    card = (out.path("model") / "README.md").read_text()
    lines = ["- `teacher`: `7ea`", "- `responses`: `4e5`", "- `dialogues`: `d1a`"]
    assert "\n".join(lines) in card
    texts = [p.read_text() for p in out.path("model").iterdir() if p.suffix in (".json", ".yaml", ".md", ".jinja")]
    assert len(texts) >= 6 and not any(str(tmp_path) in text or str(Path.home()) in text for text in texts)


PROCESSES = {"train.distributed", "train.processes"}
SETTINGS: dict[str, type[stages.TrainingSettings]] = {
    "initial": stages.InitialSettings,
    "sft": stages.SftSettings,
    "reference": stages.ReferenceSettings,
    "dpo": stages.DpoSettings,
}


def config_with(*changes: str) -> Config:
    """Return the defaults, in float32, with changes in Hydra's notation."""
    config = Config()
    for name in ("initial", "sft", "dpo"):
        getattr(config.train, name).bf16 = False
        getattr(config.train, name).global_accumulation_steps = 2
    for change in changes:
        key, _, text = change.partition("=")
        *parents, name = key.split(".")
        owner = functools.reduce(getattr, parents, config)
        value = yaml.safe_load(text)
        if dataclasses.is_dataclass(getattr(owner, name)):
            value = dataclasses.replace(getattr(owner, name), **value)
        setattr(owner, name, value)
    return config


def of(stage: str, *changes: str) -> Any:
    """Return the settings of a stage as plain data."""
    return plain(SETTINGS[stage].of(config_with(*changes)))


def held(stage: str, *changes: str) -> set[str]:
    """Return the keys that a stage's settings hold."""
    return set(by_key(SETTINGS[stage].of(config_with(*changes))))


NOISE = "trainer={neftune_noise_alpha: 5}"
DDP = ("train.distributed=ddp", "train.processes=2")


@pytest.mark.parametrize("stage", SETTINGS)
@pytest.mark.parametrize("mode", ["ddp", "fsdp", "zero2", "zero3"])
def test_how_many_processes_train_in_float32_is_left_out_and_what_is_summed_in_bfloat16_is_not(
    stage: str, mode: str
) -> None:
    several = f"train.distributed={mode}", "train.processes=2"
    assert of(stage, *several) == of(stage)
    assert not PROCESSES & held(stage, *several)
    half = f"train.{'dpo' if stage == 'reference' else stage}.bf16=null"
    assert (of(stage, half, *several) == of(stage, half)) == (mode == "ddp")


@pytest.mark.parametrize(
    ("stage", "change", "decide"),
    [
        ("initial", f"train.initial.{NOISE}", True),
        ("sft", f"train.sft.{NOISE}", True),
        ("sft", "train.sft.lora=true", False),
        ("sft", "train.sft.trainer={adam_beta2: 0.95}", False),
        ("sft", "train.sft.global_accumulation_steps=1", True),
        ("dpo", "train.dpo.keep_best=true", False),
        ("reference", "train.dpo.keep_best=true", False),
    ],
)
def test_processes_count_where_noise_makes_them_decide(stage: str, change: str, decide: bool) -> None:
    assert (of(stage, change, *DDP) != of(stage, change)) == decide
    assert (held(stage, change, *DDP) >= PROCESSES) == decide


@pytest.mark.parametrize(
    "change", ["judge.score=expected", "tree.criteria=3", "judge.temperature=0.5", "judge.rubric=first"]
)
def test_how_a_judge_is_asked_trains_no_judge_again(change: str) -> None:
    for name in SETTINGS:
        assert of(name, change) == of(name)
    changed, before = (stages.InitialSettings.of(config_with(*overrides)) for overrides in ([change], []))
    assert (changed.judge, changed.criteria) != (before.judge, before.criteria), "it is written beside the weights"


READ = (
    *("train.dpo.max_length=64", "train.dpo.bf16=true", "seed=5", "train.dpo.lora=true"),
    *("train.base.dtype=float32", "train.base.attn_implementation=eager"),
)
LEFT = (
    *("train.dpo.beta=0.5", "train.dpo.learning_rate=1e-4", "train.dpo.keep_best=true", "train.dpo.num_train_epochs=3"),
    *("train.dpo.trainer={optim: sgd}", "train.dpo.sft_weight=0.5", "train.dpo.per_device_train_batch_size=1"),
    *("train.base.path=owner/other", "train.sft.learning_rate=1e-4"),
)


@pytest.mark.parametrize(("change", "same"), [*((c, False) for c in READ), *((c, True) for c in LEFT)])
def test_what_decides_the_reference_is_held_and_nothing_else(change: str, same: bool) -> None:
    # tests/pipeline/test_fingerprints.py shows the same of the other stages.
    assert (of("reference", change) == of("reference")) == same


@pytest.mark.parametrize(
    ("skipped", "heldout", "expected"),
    [
        (
            {"judgment:no_consensus": 40, "criteria:no_contrast": 3},
            [],
            r"no preference pairs to train on: stage label left out 40 judgment:no_consensus, 3 "
            r"criteria:no_contrast; raise tree\.judgments",
        ),
        ({"judgment:over_cap": 0}, [], r"no preference pairs to train on: raise tree\.judgments"),
        ({}, [{"prompt": []}], r"all 1 are held out; lower label\.holdout"),
    ],
)
def test_without_a_pair_the_reason_that_took_most_is_named(
    skipped: dict[str, int], heldout: list[dict[str, Any]], expected: str, tmp_path: Path
) -> None:
    label = StageRun(tmp_path / "label", "label", 0, Console())
    for split, rows in (("train", []), ("heldout", heldout)):
        label.write_rows(f"pairs-{split}", rows)
    label.write_json("yield", {"pairs_skipped": skipped})
    inputs = {"sft": tmp_path / "sft", "label": label.directory}
    with pytest.raises(TrainingError, match=expected):
        run_next(stages.DpoSettings.of(Config()), inputs, StageRun(tmp_path / "dpo", "dpo", 0, Console()))
