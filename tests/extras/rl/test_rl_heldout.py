"""Stage rl: how held-out comparisons are read, and training with adapters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from judgetrain.engines.base import Request
from judgetrain.extras.rl.config import RlConfig
from judgetrain.extras.rl.rollouts import Labelled, Rollouts
from judgetrain.extras.rl.trainer import AGREEMENT, HeldOut
from judgetrain.judges import load_judge
from judgetrain.judges.config import Aggregation, StepsConfig
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.pipeline.run import Pipeline
from tests.builders.pairs_pipeline import RL, composed, plant
from tests.builders.scripted import ScriptedEngine, comparison, criteria, judged
from tests.builders.train import weights


def first_says_a(request: Request, occurrence: int) -> str:
    """By the first criterion the right one of the responses is clearly better, by all others the other one."""
    slots = request.slots
    if request.step != "judgment":
        return criteria(int(slots["count"])) if request.step == "criteria" else "a guideline"
    right = "good" in slots["response_a"]
    high, low = (5, 1) if right == slots["criterion"].startswith("c1") else (1, 5)
    return judged(high, low)


@pytest.mark.parametrize(("aggregation", "agreement"), [("vote", 0.0), ("clear", 1.0)])
def test_held_out_branches_are_put_together_as_the_judge_s_are(aggregation: Aggregation, agreement: float) -> None:
    @contextmanager
    def lend(trainer: Any) -> Iterator[Any]:
        yield None

    held_out = [Labelled(comparison(i, "good", "poor"), "A") for i in range(4)]
    asking, config = StepsConfig(criteria=3), RlConfig(branches=3)
    rollouts = Rollouts({}, load_prompt_set("compact"), asking, config, 11, lend)
    found = HeldOut(held_out, rollouts, aggregation).figures(ScriptedEngine(first_says_a))
    assert found == {AGREEMENT: agreement, "eval_consistency": 1.0, "eval_unreadable": 0.0}


def test_the_aggregation_decides_the_artifact_where_a_checkpoint_is_chosen_by_several_branches(tmp_path: Path) -> None:
    def mark(*overrides: str) -> str:
        return Pipeline(composed(tmp_path, *RL, *overrides)).plan("rl").fingerprint

    vote, two, last = "judge.aggregation=vote", "rl.branches=2", "rl.keep_best=false"
    assert mark() == mark(vote) and mark(two) != mark(two, vote) and mark(two, last) == mark(two, last, vote)


def test_the_judge_is_trained_by_adapters_which_are_merged_into_it(tmp_path: Path) -> None:
    lora = "rl.lora={enabled: true, r: 4, lora_dropout: 0.0, target_modules: 'q_proj,v_proj'}"
    small = "rl={max_steps: 3, learning_rate: 1e-2, keep_best: false}"
    pipeline = plant(composed(tmp_path, *RL, small, lora))
    directory = pipeline.run("rl")
    rows = [json.loads(line) for line in (directory / "train_log.jsonl").read_text().splitlines()]
    assert max(row["grad_norm"] for row in rows if "loss" in row) > 0
    assert not [*(directory / "model").glob("adapter*")], "a whole model, as of other stages"
    before, after = weights(pipeline.plan("sft").directory), weights(directory)
    changed = {name for name in after if not after[name].equal(before[name])}
    assert changed and all("q_proj" in name or "v_proj" in name for name in changed), "the adapted modules alone"
    assert load_judge(directory / "model", branches=1).name
