"""Stage rl: how held-out comparisons are read, and training with adapters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from judgetrain.engines.base import Request
from judgetrain.extras.rl.config import RlConfig
from judgetrain.extras.rl.rollouts import Labelled, Rollouts
from judgetrain.extras.rl.trainer import AGREEMENT, HeldOut
from judgetrain.judges import load_judge
from judgetrain.judges.config import StepsConfig
from judgetrain.judges.prompting.prompts import load_prompt_set
from tests.builders.pairs_pipeline import RL, composed, plant
from tests.builders.scripted import ScriptedEngine, comparison, criteria, judged
from tests.builders.train import weights


@pytest.mark.parametrize(("wrong", "agreement"), [(False, 1.0), (True, 0.0)])
def test_held_out_comparisons_are_asked_in_both_orders(wrong: bool, agreement: float) -> None:
    def says(request: Request, occurrence: int) -> str:
        if request.step != "judgment":
            return criteria(int(request.slots["count"])) if request.step == "criteria" else "a guideline"
        return judged(5, 1) if ("good" in request.slots["response_a"]) != wrong else judged(1, 5)

    held_out = [Labelled(comparison(i, "good", "poor"), "A") for i in range(4)]
    rollouts = Rollouts({}, load_prompt_set("compact"), StepsConfig(criteria=3), RlConfig(), 11, lambda trainer: None)
    found = HeldOut(held_out, rollouts).figures(ScriptedEngine(says))
    assert found == {AGREEMENT: agreement, "eval_consistency": 1.0, "eval_unreadable": 0.0}


def test_the_judge_is_trained_by_adapters_which_are_merged_into_it(tmp_path: Path) -> None:
    lora = "rl.lora={enabled: true, r: 4, lora_dropout: 0.0}"
    small = "rl={max_steps: 3, learning_rate: 1e-2, keep_best: false}"
    pipeline = plant(composed(tmp_path, *RL, small, lora))
    directory = pipeline.run("rl")
    rows = [json.loads(line) for line in (directory / "train_log.jsonl").read_text().splitlines()]
    assert max(row["grad_norm"] for row in rows if "loss" in row) > 0
    assert not [*(directory / "model").glob("adapter*")], "a whole model, as of other stages"
    before, after = weights(pipeline.plan("sft").directory), weights(directory)
    changed = {name for name in after if not after[name].equal(before[name])}
    assert changed and all("_proj" in name for name in changed), "the adapted modules alone"
    assert load_judge(directory / "model", branches=1).name
