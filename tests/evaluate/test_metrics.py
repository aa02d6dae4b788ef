"""Metrics and intervals against plain loops and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.evaluate import metrics
from judgetrain.evaluate.metrics.intervals import auc_interval, bootstrap_interval, mcnemar, paired_difference

VERDICT = st.sampled_from(["A", "B", "tie", None])
ITEMS = st.lists(st.tuples(VERDICT, VERDICT, st.sampled_from(["A", "B", "tie"])), min_size=1, max_size=40)


@settings(deadline=None)
@given(ITEMS)
def test_every_count_equals_a_plain_loop(items: list[tuple[str | None, str | None, str]]) -> None:
    ab, ba, labels = ([row[i] for row in items] for i in range(3))
    for i, (first, second, label) in enumerate(items):
        assert metrics.agreement(ab, ba, labels)[i] == (first == label and second == label)  # type: ignore[arg-type]
        assert metrics.consistency(ab, ba)[i] == (first is not None and first == second)
        merged = "unreadable" if None in (first, second) else first if first == second else "tie"
        assert metrics.conflict_as_tie(ab, ba, labels)[i] == (merged == label)  # type: ignore[arg-type]
        assert metrics.single_order_accuracy(ab, ba, labels)[i] == ((first == label) + (second == label)) / 2  # type: ignore[arg-type]
        assert metrics.accuracy(ab, labels)[i] == (first == label)  # type: ignore[arg-type]
        assert metrics.unreadable(ba)[i] == (second is None)
        assert metrics.without_ties(labels)[i] == (label != "tie")  # type: ignore[arg-type]
    flips = [(a, b) for a, b, _ in items if {a, b} == {"A", "B"}]
    assert metrics.position_bias(ab, ba) == (sum(f == ("A", "B") for f in flips) / len(flips) if flips else None)


@pytest.mark.parametrize(
    ("ab", "ba", "labels", "message"),
    [
        (["A"], ["A"], ["A", "B"], "unequal length: 1, 1, 2"),
        (["A", "a"], ["A", "A"], ["A", "A"], "verdict 1 is 'a'"),
        ([None], [None], [None], "label 0 is None: allowed are A, B, tie$"),
        (["A"], [0], ["A"], "verdict 0 is 0"),
    ],
)
def test_what_is_no_verdict_or_label_is_refused(ab: list, ba: list, labels: list, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError, match=message):
        metrics.agreement(ab, ba, labels)


def test_longer_preference_by_hand() -> None:
    ab, ba = ["A", "B", "A", "tie", "A"], ["A", "B", "B", "tie", "A"]
    assert metrics.longer_preference(ab, ba, ["A", "A", "A", "A", "tie"]) == 0.5
    assert metrics.longer_preference(["A"], ["B"], ["A"]) is None


def test_correlations_equal_their_definitions() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=30)
    y = x + rng.normal(size=30)
    found = metrics.correlations(x, y)
    pearson = ((x - x.mean()) * (y - y.mean())).sum() / math.sqrt(
        ((x - x.mean()) ** 2).sum() * ((y - y.mean()) ** 2).sum()
    )
    pairs = [(i, j) for i in range(30) for j in range(i)]
    tau = sum(np.sign((x[i] - x[j]) * (y[i] - y[j])) for i, j in pairs) / len(pairs)
    d = x.argsort().argsort() - y.argsort().argsort()
    rho = 1 - 6 * (d**2).sum() / (30 * (900 - 1))
    assert found == pytest.approx({"pearson": pearson, "kendall": tau, "spearman": rho})


def test_an_undefined_correlation_is_none_and_a_missing_score_an_error() -> None:
    nothing = {"pearson": None, "kendall": None, "spearman": None}
    assert metrics.correlations([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) == nothing
    assert metrics.correlations([1.0], [1.0]) == nothing
    with pytest.raises(ValueError, match="finite"):
        metrics.correlations([1.0, math.nan], [1.0, 2.0])
    with pytest.raises(ValueError, match=r"\(2,\) and \(3,\)"):
        metrics.correlations([1.0, 2.0], [1.0, 2.0, 3.0])


def test_bootstrap_interval_is_near_the_normal_one() -> None:
    values = np.array([1.0] * 60 + [0.0] * 40)
    low, high = bootstrap_interval(values, 4000, 1) or (0, 0)
    width = 1.96 * math.sqrt(0.6 * 0.4 / 100)
    assert low == pytest.approx(0.6 - width, abs=0.02)
    assert high == pytest.approx(0.6 + width, abs=0.02)
    assert bootstrap_interval(values, 100, 1) == bootstrap_interval(values, 100, 1)
    assert bootstrap_interval([], 100, 1) is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), max_size=40))
def test_auc_is_the_share_of_pairs_in_order(items: list[tuple[int, bool]]) -> None:
    """Of a right and a wrong item the right one has the larger score; equal scores count half."""
    right, wrong = ([score for score, good in items if good is wanted] for wanted in (True, False))
    wins = [1.0 if a > b else 0.5 if a == b else 0.0 for a in right for b in wrong]
    expected = pytest.approx(sum(wins) / len(wins)) if wins else None
    assert metrics.auc([score for score, _ in items], ["A" if good else "B" for _, good in items]) == expected


def test_intervals_are_those_of_resamples_drawn_item_by_item() -> None:
    rng = np.random.default_rng(4)
    prompts = rng.integers(0, 25, 90).tolist()
    margins = [None if u < 0.1 else float(round(u * 6)) for u in rng.random(90)]
    labels = [("A", "B", "tie")[i] for i in rng.integers(0, 3, 90)]
    names = list(dict.fromkeys(prompts))
    again, areas, means = np.random.default_rng(7), [], []
    right = [y == "A" for y in labels]
    for turn in range(2000):
        rows = [i for c in again.integers(25, size=25) for i, p in enumerate(prompts) if p == names[c]]
        if turn < 200:
            areas.append(metrics.auc([margins[i] for i in rows], [labels[i] for i in rows]))
        means.append(np.mean([right[i] for i in rows]))
    assert auc_interval(margins, labels, 200, 7, prompts) == pytest.approx(np.percentile(areas, (2.5, 97.5)))  # type: ignore[arg-type]
    # Drawn by what clusters say and not one by one, so that only the noise of the draws is between them.
    assert bootstrap_interval(right, 4000, 7, prompts) == pytest.approx(np.percentile(means, (2.5, 97.5)), abs=0.02)


def test_mcnemar_is_the_sign_test_on_discordant_items() -> None:
    first = [True] * 9 + [False] * 1 + [True] * 50
    second = [False] * 9 + [True] * 1 + [True] * 50
    expected = 2 * sum(math.comb(10, k) for k in (0, 1)) / 2**10
    assert mcnemar(first, second) == pytest.approx(expected)
    assert mcnemar([True], [True]) == 1.0


def test_a_paired_interval_is_that_of_the_discordant_items() -> None:
    # 200 items, of which the first method alone has 30 right and the second alone 10.
    first = [True] * 30 + [False] * 10 + [True] * 160
    second = [False] * 30 + [True] * 10 + [True] * 160
    found = paired_difference(first, second, 4000, 1)
    assert found is not None
    assert found.mean == pytest.approx(0.1)
    half = 1.96 * math.sqrt((40 / 200 - 0.1**2) / 200)  # variance of a difference that is 1, -1 or 0
    assert found.interval == pytest.approx((0.1 - half, 0.1 + half), abs=0.015)
    assert found.p_value == pytest.approx(2 * sum(math.comb(40, k) for k in range(11)) / 2**40)
    mirrored = paired_difference(second, first, 4000, 1)
    assert mirrored is not None
    assert (mirrored.mean, mirrored.p_value) == (pytest.approx(-0.1), pytest.approx(found.p_value))
    assert paired_difference([], [], 100, 1) is None
    with pytest.raises(ValueError, match="same items"):
        paired_difference([True], [True, False], 100, 1)


def test_the_summed_margin_cancels_a_preference_for_a_place_where_the_strict_rule_calls_it_inconsistent() -> None:
    labels = ["A", "B", "A", "tie", "B"]
    margins = [0.5, -0.2, -1.0, 0.0, None]  # both orders together; each order alone says what stands first
    assert metrics.summed(margins, labels).tolist() == [True, True, False, True, False]  # type: ignore[union-attr]
    assert metrics.summed([None, None], ["A", "B"]) is None, "a method without margins has no such verdict"
    assert metrics.agreement(["A"] * 5, ["B"] * 5, labels).sum() == 0
