"""Verdicts with the position's offset taken off: measured on other comparisons, without labels."""

from __future__ import annotations

import numpy as np
import pytest

from judgetrain.evaluate.metrics.position import balanced, balanced_verdicts

PROMPTS = [f"p{i}" for i in range(40)]
TRUE = [1.0 if i % 2 else -1.0 for i in range(40)]
LABELS = ["A" if m > 0 else "B" for m in TRUE]


def leaning(by: float) -> tuple[list[float | None], list[float | None]]:
    return [m + by for m in TRUE], [m - by for m in TRUE]


def test_a_judge_that_only_leans_is_right_once_it_is_balanced() -> None:
    found = balanced(*leaning(1.5), LABELS, PROMPTS, 200, 0)
    assert found is not None and (found.agreement, found.consistency) == (1.0, 1.0)
    assert found.agreement_ci is not None and found.agreement_ci[1] == 1.0


def test_no_verdict_is_read_with_an_offset_that_it_had_a_part_in() -> None:
    ab, ba = leaning(1.5)
    before = balanced_verdicts(ab, ba, PROMPTS, 0)
    assert before is not None
    # By its own margins the last one's offset would be 100, and it would be consistent.
    ab[-1], ba[-1] = TRUE[-1] + 100, TRUE[-1] - 100
    after = balanced_verdicts(ab, ba, PROMPTS, 0)
    assert after is not None and (after[0][-1], after[1][-1]) == ("A", "B")
    # A prompt's comparisons stand in one fold.
    one = balanced_verdicts([*ab, 101.0, 101.0], [*ba, -99.0, -99.0], [*PROMPTS, PROMPTS[-1], PROMPTS[-1]], 0)
    assert one is not None and set(zip(*(side[-3:] for side in one), strict=True)) == {("A", "B")}


def test_a_judge_without_a_preference_is_as_it_was_and_random_margins_stay_random() -> None:
    found = balanced_verdicts(*leaning(0.0), PROMPTS, 0)
    assert found == (LABELS, LABELS)
    draws = np.random.default_rng(1).normal(size=(2, 2000)).tolist()
    labels = ["A", "B"] * 1000
    result = balanced(draws[0], draws[1], labels, [str(i) for i in range(2000)], 200, 0)
    assert result is not None and result.agreement == pytest.approx(0.25, abs=0.04)


def test_what_cannot_be_read_stays_so_and_too_little_says_nothing() -> None:
    ab, ba = leaning(1.5)
    found = balanced_verdicts([None, *ab[1:]], ba, PROMPTS, 0)
    assert found is not None and found[0][0] is None and found[0][1:] == LABELS[1:]
    assert balanced([1.0, 2.0], [0.0, 1.0], ["A", "A"], ["p", "p"], 100, 0) is None
    assert balanced([None, None], [None, None], ["A", "B"], ["p", "q"], 100, 0) is None
