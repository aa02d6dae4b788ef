"""The benchmark of the queue counts rightly, and its light judge learns from labels what a vote does not know."""

from __future__ import annotations

import pytest

from tests.benchmarks.label_queue import agreement, judged, needed, options_of, queues, replaced


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


def test_defaults_are_the_recipe_s_and_may_be_changed() -> None:
    options = options_of([])
    assert (options.aggregation, options.random) == ("clear", 0.2)
    changed = options_of(["--aggregation", "ranked", "--random", "0"])
    assert (changed.aggregation, changed.random) == ("ranked", 0.0)


def test_as_shipped_a_share_of_every_beginning_is_drawn_by_chance() -> None:
    pool = judged(60, 0, 0.15)
    found = queues(pool.rows, 0.5, 7)
    assert all(sorted(order) == list(range(60)) for order in found.values())
    whole, shipped = found["branches + orders + margin"], found["as shipped"]
    assert queues(pool.rows, 0.0, 7)["as shipped"] == whole
    assert shipped != whole and len(set(shipped[:20]) - set(whole[:20])) >= 5, "half of them are drawn"
