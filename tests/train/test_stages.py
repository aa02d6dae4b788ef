"""What the settings of the training stages, and so their fingerprints, hold, and what they leave out."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import pytest
import yaml

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.fingerprint import by_key, plain
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.errors import TrainingError
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.run import Pipeline
from judgetrain.train.stage import run_dpo
from judgetrain.train.stages import DpoSettings, InitialSettings, ReferenceSettings, SftSettings, TrainingSettings
from tests.builders.pairs_pipeline import composed

PROCESSES = {"train.distributed", "train.processes"}
SETTINGS: dict[str, type[TrainingSettings]] = {
    "initial": InitialSettings,
    "sft": SftSettings,
    "reference": ReferenceSettings,
    "dpo": DpoSettings,
}


def config_with(*changes: str) -> Config:
    """The defaults, in float32, with changes in Hydra's notation."""
    config = Config()
    for stage in ("initial", "sft", "dpo"):
        getattr(config.train, stage).bf16 = False
        getattr(config.train, stage).global_accumulation_steps = 2
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
    """The settings of a stage as plain data."""
    return plain(SETTINGS[stage].of(config_with(*changes)))


def held(stage: str, *changes: str) -> set[str]:
    """The keys that a stage's settings hold."""
    return set(by_key(SETTINGS[stage].of(config_with(*changes))))


NOISE = "trainer={neftune_noise_alpha: 5}"
DDP = ("train.distributed=ddp", "train.processes=2")


@pytest.mark.parametrize("stage", SETTINGS)
@pytest.mark.parametrize("mode", ["ddp", "zero2", "zero3"])
def test_how_many_processes_train_in_float32_is_left_out_and_what_deepspeed_keeps_in_bfloat16_is_not(
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
        ("sft", "train.sft.lora={enabled: true}", False),
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
    for stage in SETTINGS:
        assert of(stage, change) == of(stage)
    asked, before = (InitialSettings.of(config_with(*given)) for given in ([change], []))
    assert (asked.judge, asked.criteria) != (before.judge, before.criteria), "it is written beside the weights"


def test_how_trees_are_sampled_is_not_written_beside_the_weights() -> None:
    for change in ("tree.score=expected", "tree.judgment_sampling.temperature=0.5", "tree.rubric=first"):
        assert InitialSettings.of(config_with(change)) == InitialSettings.of(config_with())


READ = {
    "reference": (
        *("train.dpo.max_length=64", "train.dpo.bf16=true", "seed=5"),
        *("train.dpo.lora.enabled=true", "train.base.dtype=float32", "train.base.attn_implementation=eager"),
    ),
    "initial": (
        *("train.initial.learning_rate=1", "train.base.path=owner/other", "prompts=pairwise"),
        "train.initial.trainer={weight_decay: 0.1}",
    ),
    "sft": ("train.sft.max_length=64",),
    "dpo": ("train.dpo.beta=0.5", "seed=5", "train.dpo.lora={enabled: true}"),
}
LEFT = {
    "reference": (
        *("train.dpo.beta=0.5", "train.dpo.learning_rate=1e-4", "train.dpo.keep_best=true"),
        *("train.dpo.num_train_epochs=3", "train.dpo.trainer={optim: sgd}", "train.dpo.sft_weight=0.5"),
        *("train.dpo.per_device_train_batch_size=1", "train.base.path=owner/other"),
        "train.sft.learning_rate=1e-4",
    ),
    **{stage: (f"train.{stage}.save_steps=7", f"train.{stage}.eval_steps=7") for stage in ("initial", "sft", "dpo")},
}


@pytest.mark.parametrize(
    ("stage", "change", "same"),
    [(s, c, same) for table, same in ((READ, False), (LEFT, True)) for s, changes in table.items() for c in changes],
)
def test_what_decides_a_stage_is_held_and_nothing_else(stage: str, change: str, same: bool) -> None:
    assert (of(stage, change) == of(stage)) == same


def test_how_often_is_looked_counts_where_the_best_is_kept() -> None:
    best = "train.dpo.keep_best=true"
    assert of("dpo", best, "train.dpo.eval_steps=7") != of("dpo", best)
    assert of("dpo", best, "train.dpo.save_steps=7") == of("dpo", best)


def test_a_stage_is_made_again_for_what_its_settings_hold(tmp_path: Path) -> None:
    def mark(*overrides: str) -> str:
        return Pipeline(composed(tmp_path, *overrides)).plan("dpo").fingerprint

    assert mark() == mark("train.distributed=zero3", "train.processes=2") == mark("train.dpo.save_steps=7")
    assert mark() != mark("train.dpo.beta=0.5") != mark("train.sft.max_length=64")
    noisy = f"++train.sft.{NOISE}"  # of a stage before it
    assert mark(noisy) != mark(noisy, "train.distributed=ddp")


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
        run_dpo(DpoSettings.of(Config()), inputs, StageRun(tmp_path / "dpo", "dpo", 0, Console()))
