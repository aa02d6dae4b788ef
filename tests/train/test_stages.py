"""What the settings of the training stages, and so their fingerprints, hold, and what they leave out."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import pytest
import yaml

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.fingerprint import ContentHashes, by_key, plain
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
    for change in changes:
        key, _, text = change.partition("=")
        *parents, name = key.split(".")
        owner = functools.reduce(getattr, parents, config)
        value = yaml.safe_load(text)
        if isinstance(value, dict):
            value = dataclasses.replace(getattr(owner, name), **value)
        setattr(owner, name, value)
    return config


def of(stage: str, *changes: str) -> Any:
    """The settings of a stage as plain data."""
    return plain(SETTINGS[stage].of(config_with(*changes)))


def held(stage: str, *changes: str) -> set[str]:
    """The keys that a stage's settings hold."""
    return set(by_key(SETTINGS[stage].of(config_with(*changes))))


@pytest.mark.parametrize("stage", SETTINGS)
@pytest.mark.parametrize("mode", ["ddp", "zero2", "zero3"])
def test_how_many_processes_train_in_float32_is_left_out(stage: str, mode: str) -> None:
    assert of(stage, f"train.distributed={mode}", "train.processes=2") == of(stage)
    assert not PROCESSES & held(stage, f"train.distributed={mode}", "train.processes=2")


@pytest.mark.parametrize("stage", ["initial", "sft"])
@pytest.mark.parametrize(
    "change", ["packing=true", "lora={enabled: true, lora_dropout: 0.1}", "lora={enabled: true, lora_dropout: 0.0}"]
)
def test_processes_count_where_packing_or_dropout_makes_them_decide(stage: str, change: str) -> None:
    both = f"train.{stage}.{change}", "train.processes=2"
    decide = "0.0" not in change
    assert (of(stage, *both, "train.distributed=ddp") != of(stage, *both)) == decide
    assert (held(stage, *both, "train.distributed=ddp") >= PROCESSES) == decide


def test_processes_count_where_held_out_pairs_are_watched() -> None:
    for limit in ("keep_best=true", "patience=2", "margin=5", "chosen_drop=1"):
        change = f"train.dpo.stop.{limit}"
        assert of("dpo", change) != of("dpo", change, "train.distributed=ddp", "train.processes=2")


@pytest.mark.parametrize("stage", SETTINGS)
def test_the_mode_counts_where_deepspeed_keeps_weights_in_bfloat16(stage: str) -> None:
    half = f"train.{'dpo' if stage == 'reference' else stage}.bf16=null"
    assert of(stage, half) == of(stage, half, "train.distributed=ddp")
    for mode in ("zero2", "zero3"):
        assert of(stage, half) != of(stage, half, f"train.distributed={mode}")
        assert "train.distributed" in held(stage, half, f"train.distributed={mode}")


@pytest.mark.parametrize(
    "change", ["judge.readout=expected", "tree.criteria=3", "judge.temperature=0.5", "judge.tie=1"]
)
def test_how_a_judge_is_asked_trains_no_judge_again(change: str) -> None:
    for stage in SETTINGS:
        assert of(stage, change) == of(stage)
    asked, before = (InitialSettings.of(config_with(*given)) for given in ([change], []))
    assert (asked.judge, asked.criteria) != (before.judge, before.criteria), "it is written beside the weights"


def test_how_trees_are_sampled_is_not_written_beside_the_weights() -> None:
    for change in ("tree.readout=expected", "tree.judgment_sampling.temperature=0.5", "tree.tie=1"):
        assert InitialSettings.of(config_with(change)) == InitialSettings.of(config_with())


REFERENCE_READS = [
    "train.dpo.max_length=64",
    "train.dpo.ld_alpha=0.5",
    "train.dpo.bf16=true",
    "train.dpo.tf32=true",
    "train.dpo.reference.path=owner/name",
    "train.dpo.lora.enabled=true",
    "train.dpo.lora={enabled: true, quantize: 4bit}",
    "train.base.dtype=float32",
    "train.base.attn_implementation=eager",
    "seed=5",
]
REFERENCE_LEAVES = [
    "train.dpo.beta=0.5",
    "train.dpo.loss_type=ipo",
    "train.dpo.learning_rate=1e-4",
    "train.dpo.num_train_epochs=3",
    "train.dpo.optim=sgd",
    "train.dpo.sft_weight=0.5",
    "train.dpo.stop.patience=2",
    "train.dpo.precompute_ref_batch_size=1",
    "train.base.path=owner/other",
    "train.base.chat_template=other.jinja",
    "train.sft.learning_rate=1e-4",
]


@pytest.mark.parametrize("change", REFERENCE_READS)
def test_the_reference_holds_what_its_log_probabilities_depend_on(change: str) -> None:
    assert of("reference", change) != of("reference")


@pytest.mark.parametrize("change", REFERENCE_LEAVES)
def test_the_reference_is_made_once_for_whatever_else_is_trained_on_it(change: str) -> None:
    assert of("reference", change) == of("reference")


def test_the_rank_of_adapters_is_nothing_to_the_reference() -> None:
    adapters = "train.dpo.lora={enabled: true, r: 4}", "train.dpo.lora={enabled: true, r: 8}"
    assert of("reference", adapters[0]) == of("reference", adapters[1])
    assert of("dpo", adapters[0]) != of("dpo", adapters[1])


@pytest.mark.parametrize(
    ("stage", "change"),
    [
        ("initial", "train.initial.learning_rate=1"),
        ("initial", "train.base.path=owner/other"),
        ("initial", "prompts=one_step"),
        ("sft", "train.sft.max_length=64"),
        ("dpo", "train.dpo.beta=0.5"),
        ("dpo", "seed=5"),
    ],
)
def test_what_decides_a_judge_is_held(stage: str, change: str) -> None:
    assert of(stage, change) != of(stage)


@pytest.mark.parametrize("key", ["save_steps", "save_total_limit", "eval_steps"])
def test_how_often_is_looked_and_saved_decides_nothing(key: str) -> None:
    for stage in ("initial", "sft", "dpo"):
        assert of(stage, f"train.{stage}.{key}=7") == of(stage)
    watched = "train.dpo.stop.patience=2"
    assert (of("dpo", watched, f"train.dpo.{key}=7") == of("dpo", watched)) == (key != "eval_steps")


def test_a_stage_is_made_again_for_what_its_settings_hold(tmp_path: Path) -> None:
    def mark(*overrides: str) -> str:
        return Pipeline(composed(tmp_path, *overrides)).plan("dpo").fingerprint

    assert mark() == mark("train.distributed=zero3", "train.processes=2") == mark("train.dpo.save_steps=7")
    assert mark() != mark("train.dpo.beta=0.5") != mark("train.sft.packing=true")
    packed = "train.sft.packing=true"  # of a stage before it
    assert mark(packed) != mark(packed, "train.distributed=ddp")


def test_a_deepspeed_file_counts_by_its_content_and_not_by_where_it_lies(tmp_path: Path) -> None:
    def identity(directory: str, text: str) -> Any:
        path = tmp_path / directory / "mine.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        settings = DpoSettings.of(config_with("train.distributed=zero3", f"train.deepspeed={path}"))
        return ContentHashes(tmp_path / "hashes.json").identity(settings)

    assert identity("a", "{}") == identity("b", "{}") != identity("a", '{"zero_optimization": {}}')


@pytest.mark.parametrize(
    ("skipped", "heldout", "expected"),
    [
        (
            {"judgment:no_consensus": 40, "criteria:no_contrast": 3},
            [],
            r"no preference pairs to train on: stage label left out 40 judgment:no_consensus, 3 "
            r"criteria:no_contrast; .*raise tree\.judgments",
        ),
        ({"guideline:no_evidence": 9}, [], r"9 guideline:no_evidence; .*lower label\.min_evidence"),
        ({"criteria:level_is_chance": 9}, [], r"9 criteria:level_is_chance; .*lower label\.min_evidence"),
        ({"judgment:against_label": 9}, [], r"9 judgment:against_label; .*raise tree\.criteria"),
        ({"judgment:score_digits_only": 2}, [], r"2 judgment:score_digits_only; .*label\.pairs_by=label"),
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
