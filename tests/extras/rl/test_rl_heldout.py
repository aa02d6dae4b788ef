"""Stage rl: how held-out comparisons are read, and training with adapters."""

from __future__ import annotations

import pytest

from judgetrain.engines.base import Request
from judgetrain.extras.rl.config import RlConfig
from judgetrain.extras.rl.rollouts import Labelled, Rollouts
from judgetrain.extras.rl.trainer import AGREEMENT, HeldOut
from judgetrain.judges.config import StepsConfig
from judgetrain.judges.prompting.prompts import load_prompt_set
from tests.builders.scripted import ScriptedEngine, comparison, criteria, judged


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
