"""Every way to share a model out, with whole weights, adapters, and adapters on a base in 4 bits: tried or refused."""

import json
import math
import re
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from judgetrain.artifacts.shards import read_rows
from judgetrain.errors import ConfigError
from judgetrain.train.config import DISTRIBUTED, TrainConfig
from judgetrain.train.stages import check_stage
from tests.builders import pairs_pipeline
from tests.builders.closeness import assert_same_but_for_rounding, sum_rounding
from tests.builders.pairs_pipeline import OVERRIDES, composed, first_checkpoint, plant, together, two
from tests.builders.train import config

WEIGHTS: dict[str, dict[str, bool]] = {
    "whole weights": {},
    "adapters": {"lora": True},
    "adapters on 4 bits": {"lora": True, "four_bit": True},
}
"""What is trained, as the page calls it, and the settings of stage dpo for it."""
REFUSED = {(mode, "adapters on 4 bits") for mode in ("fsdp", "zero3", "zero3_offload")}
MODES = [mode for mode in DISTRIBUTED if mode != "none"]
STEPS = 6
PAGE = Path(__file__).parents[2] / "docs" / "distributed.md"


def settings(weights: str) -> list[str]:
    """Return the command's words for stage dpo with these weights."""
    chosen = [f"train.dpo.{name}={str(value).lower()}" for name, value in WEIGHTS[weights].items()]
    return [*chosen, f"train.dpo.max_steps={STEPS}"]


def test_the_page_says_of_each_whether_it_works() -> None:
    table = PAGE.read_text().partition("## What works under each")[2].partition("\n\n*Yes*")[0]
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in table.split("\n") if "|" in line]
    assert rows[0][1:] == list(WEIGHTS)
    told = {(row[0], weights): cell for row in rows[2:] for weights, cell in zip(WEIGHTS, row[1:], strict=True)}
    assert told == {(mode, w): "refused" if (mode, w) in REFUSED else "yes" for mode in MODES for w in WEIGHTS}


def test_blocks_that_are_shared_out_are_not_compiled() -> None:
    stages = config().train
    stages.distributed = "fsdp"
    message = r"^k\.regional_compilation=true and train\.distributed=fsdp: .* set train\.distributed=ddp or leave"
    with pytest.raises(ConfigError, match=message):
        check_stage(stages, "k", TrainConfig(regional_compilation=True))
    stages.distributed = "ddp"
    assert check_stage(stages, "k", TrainConfig(regional_compilation=True)) >= 1


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the ``output_dir`` of what one process has made, by its weights; made once for all modes."""
    return {}


def made_alone(weights: str, alone: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    if weights not in alone:
        output = tmp_path_factory.mktemp("alone")
        plant(composed(output, *settings(weights))).run("dpo")
        alone[weights] = output
    return alone[weights]


def judge(output: Path, stage: str) -> dict[str, torch.Tensor]:
    """Return the weights of a stage's judge by name."""
    directory = next(output.glob(f"artifacts/{stage}/*/model"))
    weights: dict[str, torch.Tensor] = AutoModelForCausalLM.from_pretrained(directory).state_dict()
    return weights


def assert_same_but_for_half_precision(one: Path, two: Path) -> None:
    """Check that two trainings in bfloat16, in which adapters on 4 bits are kept, saw the same pairs and learned alike.

    A step of Adam is off by ``2 * sqrt(eps)`` of its length at most (:func:`tests.builders.closeness.rounding`), and so
    is what all of them learned together. Two trainings without a pair in common are ``sqrt(2)`` of it apart.
    """
    logs = [[json.loads(line) for line in (artifact(o, "dpo") / "train_log.jsonl").open()] for o in (one, two)]
    ours, theirs = ([row["loss"] for row in log if "loss" in row] for log in logs)
    assert len(ours) == len(theirs) == STEPS
    assert theirs == pytest.approx(ours, rel=torch.finfo(torch.bfloat16).eps)
    start = judge(one, "sft")
    learned = []
    for output in (one, two):
        differences = [(weight - start[name]).flatten() for name, weight in judge(output, "dpo").items()]
        learned.append(torch.cat(differences).double())
    allowed = 2 * math.sqrt(torch.finfo(torch.bfloat16).eps)
    assert (learned[0] - learned[1]).norm() <= allowed * learned[0].norm()


def artifact(output: Path, stage: str) -> Path:
    return next(output.glob(f"artifacts/{stage}/*/manifest.json")).parent


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("mode", MODES)
def test_two_processes_that_were_killed_end_with_the_judge_of_one(
    mode: str, weights: str, alone: dict[str, Path], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if mode.startswith("zero"):
        pytest.importorskip("deepspeed")
    if "four_bit" in WEIGHTS[weights]:
        pytest.importorskip("bitsandbytes")
    if (mode, weights) in REFUSED:
        stages = config().train
        stages.distributed = mode
        with pytest.raises(ConfigError, match=rf"^k\.four_bit=true and train\.distributed={mode}: .*=zero2 or ddp$"):
            check_stage(stages, "k", TrainConfig(**WEIGHTS[weights]))  # type: ignore[arg-type]
        return
    one = made_alone(weights, alone, tmp_path_factory)
    output, log = tmp_path / "outputs", tmp_path / "log"
    shutil.copytree(one, output)
    for stage in ("reference", "dpo"):
        shutil.rmtree(output / "artifacts" / stage)
    words = [*OVERRIDES, *settings(weights), f"train.distributed={mode}"]
    runs = two(output, log, *words)
    checkpoints = first_checkpoint(output, log, lambda: all(run.is_alive() for run in runs))
    for run in runs:
        run.kill()
        run.join(60)
    assert not (checkpoints.parent / "model").exists(), "killed too late"
    assert re.search(r"dpo: resuming at step [24]\n", together(output, log, *words))

    for first, second in zip(*(read_rows(artifact(o, "reference"), "train") for o in (one, output)), strict=True):
        assert first["pair"] == second["pair"]
        for column in ("ref_chosen_logps", "ref_rejected_logps"):
            assert second[column] == pytest.approx(first[column], rel=0, abs=sum_rounding(first[column]))
    assert not list((artifact(output, "dpo") / "model").glob("adapter*")), "merged"
    if "four_bit" in WEIGHTS[weights]:
        assert_same_but_for_half_precision(one, output)
        return
    assert_same_but_for_rounding(judge(one, "dpo"), judge(output, "dpo"), STEPS, pairs_pipeline.RATE)


@pytest.mark.parametrize(("mode", "weights"), [("fsdp", "whole weights"), ("fsdp", "adapters"), ("zero3", "adapters")])
def test_activations_may_be_computed_twice_where_the_model_is_shared_out(
    mode: str, weights: str, alone: dict[str, Path], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if mode == "zero3":
        pytest.importorskip("deepspeed")
    one = made_alone(weights, alone, tmp_path_factory)
    # What is computed twice is computed alike: beside one process that keeps its activations.
    words = [*settings(weights), "train.dpo.gradient_checkpointing=true", f"train.distributed={mode}"]
    plant(composed(tmp_path, *words, "train.processes=2"))
    together(tmp_path, tmp_path / "log", *OVERRIDES, *words)
    assert_same_but_for_rounding(judge(one, "dpo"), judge(tmp_path, "dpo"), STEPS, pairs_pipeline.RATE)


def test_in_half_precision_fsdp_rounds_no_log_probability(tmp_path: Path) -> None:
    """Accelerate's own policy would: to eight bits, so that a sum of few tokens is a multiple of a 64th."""
    words = ["train.distributed=fsdp", "train.processes=2", "train.dpo.bf16=true", "train.dpo.max_steps=2"]
    # Here the processes are part of fingerprints.
    plant(composed(tmp_path, *words))
    together(tmp_path, tmp_path / "log", *OVERRIDES, *words)
    rows = [*read_rows(artifact(tmp_path, "reference"), "train")]
    sums = [row[column] for row in rows for column in ("ref_chosen_logps", "ref_rejected_logps")]
    assert len(sums) == 2 * pairs_pipeline.PAIRS and any(64 * value % 1 for value in sums)
    assert (artifact(tmp_path, "dpo") / "model" / "model.safetensors").exists(), "it starts at the reference"
