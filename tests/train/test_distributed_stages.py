"""SFT, the reference and DPO with adapters and the best checkpoint kept, in two processes against one."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from judgetrain.artifacts.shards import read_rows
from tests.builders.pairs_pipeline import LOGP, LOSS, OVERRIDES, WEIGHT, composed, finish, plant, start

pytest.importorskip("deepspeed")

SETTINGS = [
    # One micro-batch a step, which two processes split; whole steps alone, since they fill up the last one.
    "++train.sft={per_device_train_batch_size: 8, global_accumulation_steps: 1, max_steps: 5, "
    "learning_rate: 1e-3, eval_steps: 4}",
    "train.dpo.lora={enabled: true}",
    "train.dpo.keep_best=true",
    "++train.dpo.trainer={lr_scheduler_type: constant}",
    "train.dpo.num_train_epochs=1",
    "train.dpo.learning_rate=3e-3",
    "train.dpo.sft_weight=0",
    "train.dpo.eval_steps=2",
]
HELD = 7
"""Held-out rows: two processes do not share them out evenly, and none may be counted twice."""


def begun(output: Path) -> Any:
    return plant(composed(output, *SETTINGS), "initial", HELD, unlearn=True)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("alone")
    begun(output).run("dpo")
    return output


def artifact(output: Path, stage: str) -> Path:
    return next(output.glob(f"artifacts/{stage}/*/manifest.json")).parent


def log(output: Path, stage: str, key: str) -> list[float]:
    rows = map(json.loads, (artifact(output, stage) / "train_log.jsonl").open())
    return [row[key] for row in rows if key in row]


def largest_difference(one: Path, two: Path, stage: str) -> float:
    models = [AutoModelForCausalLM.from_pretrained(artifact(o, stage) / "model").state_dict() for o in (one, two)]
    assert models[0].keys() == models[1].keys()
    return max(float((models[0][k] - models[1][k]).abs().max()) for k in models[0])


@pytest.mark.parametrize("mode", ["zero3", "ddp"])
def test_two_processes_make_the_stages_of_one(mode: str, alone: Path, tmp_path: Path) -> None:
    """One torchrun for all stages: its processes train ``sft`` in full, then make ``reference``, then train ``dpo``."""
    begun(tmp_path)
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
    text = finish(start(tmp_path, *OVERRIDES, *SETTINGS, f"train.distributed={mode}", launcher=torchrun))
    assert re.findall(r"stage \d of 3: (\w+):", text) == ["sft", "reference", "dpo"]
    for stage, count in (("sft", 5), ("dpo", 6)):
        for key in ("loss", "eval_loss"):
            ours, theirs = log(tmp_path, stage, key), log(alone, stage, key)
            assert len(ours) >= (count if key == "loss" else 1)
            assert ours == pytest.approx(theirs, abs=LOSS)
        assert largest_difference(alone, tmp_path, stage) < WEIGHT
        assert not list(artifact(tmp_path, stage).glob("checkpoints*"))
    for split in ("train", "heldout"):
        one, two = ([*read_rows(artifact(o, "reference"), split)] for o in (alone, tmp_path))
        assert [row["pair"] for row in one] == [row["pair"] for row in two]
        for column in ("ref_chosen_logps", "ref_rejected_logps"):
            assert [row[column] for row in two] == pytest.approx([row[column] for row in one], abs=LOGP)
    # The last step is not the best on held-out pairs: an earlier one's weights are what is left.
    kept = [json.loads((artifact(o, "dpo") / "manifest.json").read_text())["notes"]["kept"] for o in (alone, tmp_path)]
    assert kept[0] == kept[1] and kept[0]["step"] in (2, 4)
    assert f"dpo: kept step {kept[0]['step']} of 6: held-out agreement" in text
    held = log(alone, "dpo", "eval_loss")
    assert len(held) == 3
    assert not list((artifact(tmp_path, "dpo") / "model").glob("adapter*")), "merged"
    assert torch.isfinite(torch.tensor(held)).all()
