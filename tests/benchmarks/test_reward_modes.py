"""The anchor mode keeps round robin's ranking at less than a third of its pairs, as long as the judge errs little."""

from __future__ import annotations

import numpy as np
import pytest

from judgetrain.data.config import WorldEngineConfig
from judgetrain.data.world.engine import WorldEngine
from judgetrain.judges import OneStepJudge, SingleRatingJudge
from tests.benchmarks.reward_modes import Asked, cases, correlations, interval
from tests.builders.data import RAW, independent_grade

CASES = cases(40, seed=1)


def test_the_truth_of_a_group_is_the_hidden_rule() -> None:
    for case in CASES:
        for response, truth in zip(case.group.responses, case.truth, strict=True):
            found = [
                2 * independent_grade(response, kind["primary"]) + independent_grade(response, kind["secondary"])
                for kind in RAW["kinds"].values()
                if any(topic in str(case.group.prompt) for topic in kind["topics"])
            ]
            assert truth in found


@pytest.mark.parametrize("made", [OneStepJudge, SingleRatingJudge])
def test_an_anchor_keeps_nine_tenths_of_the_correlation_for_three_tenths_of_the_pairs(made: type) -> None:
    ask = Asked(made(WorldEngine(WorldEngineConfig(error_rate=0.05))))
    whole = correlations(CASES, ask, "round_robin")
    pairs, ask.count = ask.count, 0
    part = correlations(CASES, ask, "anchor")
    assert ask.count <= 0.3 * pairs
    assert part.mean() >= 0.9 * whole.mean() > 0.85
    low, high = interval(part, whole)
    assert low < part.mean() / whole.mean() < high


def test_a_judge_that_errs_often_ranks_worse_by_an_anchor() -> None:
    """What round robin averages out, seven comparisons a response, an anchor does not."""
    ask = Asked(OneStepJudge(WorldEngine(WorldEngineConfig(error_rate=0.4))))
    whole, part = (correlations(CASES, ask, mode).mean() for mode in ("round_robin", "anchor"))
    assert part < 0.85 * whole and whole > 0.75


def test_scalars_that_say_nothing_count_as_no_correlation() -> None:
    from judgetrain.judges import FirstJudge

    assert np.all(correlations(CASES[:5], Asked(FirstJudge()), "round_robin") == 0)
