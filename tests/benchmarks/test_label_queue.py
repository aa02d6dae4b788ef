"""The benchmark of the queue counts rightly, and its light judge learns from labels what a vote does not know."""

from __future__ import annotations

import pytest

from tests.benchmarks.label_queue import agreement, judged, needed, replaced


def test_labels_needed_lie_between_the_numbers_measured() -> None:
    assert needed((25, 50, 100), (60.0, 70.0, 80.0), 75.0) == pytest.approx(75.0)
    assert needed((25, 50, 100), (60.0, 70.0, 80.0), 55.0) == 25 and needed((25, 50), (60.0, 70.0), 71.0) is None


def test_labels_take_the_place_of_verdicts() -> None:
    rows = [{"verdict": v, "truth": t} for v, t in (("A", "A"), ("B", "A"), ("tie", "B"), ("inconsistent", "tie"))]
    assert [replaced(rows, (1, 0, 2, 3), n) for n in range(5)] == [25.0, 50.0, 50.0, 75.0, 100.0]


def test_the_light_judge_learns_which_criteria_decide() -> None:
    pool, test = judged(160, 0, 0.0), judged(120, 1, 0.0)
    vote, learned = agreement(pool.part([]), test), agreement(pool, test)
    assert vote < 88 and learned > vote + 8
    assert {row["label"] for row in pool.rows} == {None}, "the queue never sees the truth"
