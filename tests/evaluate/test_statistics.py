"""Kappa, length, vote and cluster statistics: against closed forms and plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.evaluate import metrics
from judgetrain.evaluate.metrics.groups import (
    length_balanced,
    length_balanced_interval,
    length_correlation,
    length_correlation_interval,
)
from judgetrain.evaluate.metrics.intervals import bootstrap_interval, paired_difference, with_intervals

VERDICT = st.sampled_from(["A", "B", "tie", None])
ITEMS = st.lists(
    st.tuples(VERDICT, VERDICT, st.sampled_from(["A", "B", "tie"]), st.sampled_from(["A", "B", "tie"])),
    min_size=1,
    max_size=40,
)


@settings(deadline=None)
@given(ITEMS)
def test_merged_decided_kappa_and_length_equal_plain_loops(items: list[tuple]) -> None:  # type: ignore[type-arg]
    ab, ba, labels, longer = ([row[i] for row in items] for i in range(4))
    one = [None if None in (a, b) else a if a == b else "tie" for a, b in zip(ab, ba, strict=True)]
    assert metrics.merged(ab, ba) == one
    assert metrics.decided(ab, ba, labels).tolist() == [
        v in ("A", "B") and y in ("A", "B") for v, y in zip(one, labels, strict=True)
    ]
    readable = [(v, y) for v, y in zip(one, labels, strict=True) if v is not None]
    kappa = metrics.cohens_kappa(ab, ba, labels)
    if kappa is not None:
        n = len(readable)
        observed = sum(v == y for v, y in readable) / n
        chance = sum(
            sum(v == c for v, _ in readable) * sum(y == c for _, y in readable) / n**2 for c in ("A", "B", "tie")
        )
        assert kappa == pytest.approx((observed - chance) / (1 - chance))
    number = {"A": 1, "tie": 0, "B": -1}
    known = [(number[v], number[side]) for v, side in zip(one, longer, strict=True) if v is not None]
    r = length_correlation(ab, ba, longer)
    if len({v for v, _ in known}) > 1 and len({side for _, side in known}) > 1:
        assert r == pytest.approx(metrics.correlations(*zip(*known, strict=True))["pearson"], abs=1e-6)
    else:
        assert r is None
    right = [a == b == y for a, b, y, _ in items]
    apart = [(ok, y == side) for ok, y, side in zip(right, labels, longer, strict=True) if "tie" not in (y, side)]
    halves = [[ok for ok, of in apart if of is same] for same in (True, False)]
    expected = pytest.approx(sum(sum(half) / len(half) for half in halves) / 2, abs=1e-6) if all(halves) else None
    assert length_balanced(np.array(right), labels, longer) == expected


LENGTHS = ["A"] * 30 + ["B"] * 10 + ["A"] * 4
"""Of 30 items the longer response is the better one, of 10 the shorter one; 4 are ties."""
BETTER = ["A"] * 30 + ["A"] * 10 + ["tie"] * 4


def test_going_by_length_is_right_on_all_of_one_half_and_on_none_of_the_other() -> None:
    right = metrics.agreement(LENGTHS, LENGTHS, BETTER)
    assert right.mean() == 30 / 44, "looks like a judge"
    assert length_balanced(right, BETTER, LENGTHS) == 0.5
    assert length_correlation(LENGTHS, LENGTHS, LENGTHS) == 1
    # 40 trials without an exception leave room for 1 - 0.025^(1/40) of others.
    reach = 1 - 0.025 ** (1 / 40)
    assert length_balanced_interval(right, BETTER, LENGTHS, 50, 1) == pytest.approx((0.5 - reach, 0.5 + reach))
    low = 1 - 2 * (1 - 0.025 ** (1 / 44))
    assert length_correlation_interval(LENGTHS, LENGTHS, LENGTHS, 50, 1) == pytest.approx((low, 1))


def test_a_length_balanced_agreement_by_hand() -> None:
    # Right on 27 of the 30, 4 of the 10; what it says of the ties plays no part.
    right = np.array([True] * 27 + [False] * 3 + [True] * 4 + [False] * 6 + [True] * 4)
    assert length_balanced(right, BETTER, LENGTHS) == pytest.approx((27 / 30 + 4 / 10) / 2)
    spread = math.sqrt(0.9 * 0.1 / 30 + 0.4 * 0.6 / 10) / 2
    found = length_balanced_interval(right, BETTER, LENGTHS, 4000, 1)
    assert found == pytest.approx((0.65 - 1.96 * spread, 0.65 + 1.96 * spread), abs=0.025)
    assert length_balanced_interval(right[:9], BETTER[:9], LENGTHS[:9], 50, 1) is None
    assert length_balanced(right[:30], BETTER[:30], LENGTHS[:30]) is None, "of one half alone there is no balance"


def test_kappa_of_perfect_and_of_constant_answers() -> None:
    assert metrics.cohens_kappa(["A", "B", "tie"], ["A", "B", "tie"], ["A", "B", "tie"]) == pytest.approx(1)
    assert metrics.cohens_kappa(["A", "A"], ["A", "A"], ["A", "B"]) == pytest.approx(0)
    assert metrics.cohens_kappa(["A", "A"], ["A", "A"], ["A", "A"]) is None
    assert metrics.cohens_kappa([None], ["A"], ["A"]) is None


def test_clusters_of_equal_answers_are_worth_one_item_each() -> None:
    rng = np.random.default_rng(0)
    one = rng.random(100) < 0.7
    values, clusters = np.repeat(one, 5), np.repeat(np.arange(100), 5)
    low, high = bootstrap_interval(values, 4000, 1, clusters.tolist()) or (0, 0)
    p = one.mean()
    half = 1.96 * math.sqrt(p * (1 - p) / 100)
    assert (low, high) == pytest.approx((p - half, p + half), abs=0.02)
    naive = bootstrap_interval(values, 4000, 1) or (0, 0)
    assert (high - low) / (naive[1] - naive[0]) == pytest.approx(math.sqrt(5), rel=0.1)
    assert bootstrap_interval(one, 500, 1, list(range(100))) == bootstrap_interval(one, 500, 1)
    assert bootstrap_interval([1.0, 0.0], 50, 1, ["x", "x"]) is None
    with pytest.raises(ValueError, match="2 values and 1 clusters"):
        bootstrap_interval([1.0, 0.0], 50, 1, ["x"])


def test_a_clustered_difference_is_worth_its_clusters_and_no_more() -> None:
    # 40 prompts, each five times the same: on 12 the first method alone is right, on 6 the second, on 22 both.
    first, second = np.repeat([True] * 12 + [False] * 6 + [True] * 22, 5), np.repeat([False] * 12 + [True] * 28, 5)
    prompts = np.repeat(np.arange(40), 5).tolist()
    found, naive = paired_difference(first, second, 4000, 1, prompts), paired_difference(first, second, 4000, 1)
    assert found is not None and naive is not None
    mean = 6 / 40
    deviation = math.sqrt((18 / 40 - mean**2) / 40)
    assert found.mean == naive.mean == pytest.approx(mean)
    assert found.interval == pytest.approx((mean - 1.96 * deviation, mean + 1.96 * deviation), abs=0.03)
    normal = math.erfc(mean / deviation / math.sqrt(2))  # two-sided
    assert found.bootstrap_p == pytest.approx(normal, abs=0.05)
    assert naive.bootstrap_p is not None and naive.bootstrap_p < 0.01 < 0.1 < (found.bootstrap_p or 0)
    assert found.p_value == naive.p_value, "McNemar's takes comparisons as independent"
    one = paired_difference([True, False], [False, False], 50, 1, ["x", "x"])
    assert one is not None and (one.interval, one.bootstrap_p) == (None, None)


def test_clustered_correlations_are_wider_than_those_over_items() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=60)
    y = x + rng.normal(size=60)
    many_x, many_y, prompts = np.repeat(x, 6), np.repeat(y, 6), np.repeat(np.arange(60), 6).tolist()

    def width(found: dict[str, tuple[float, float] | None]) -> float:
        low, high = found["spearman_ci"] or (0.0, 0.0)
        return high - low

    apart = width(with_intervals(many_x, many_y, 200, 1))
    together = width(with_intervals(many_x, many_y, 200, 1, clusters=prompts))
    assert together / apart == pytest.approx(math.sqrt(6), rel=0.25)


def test_correlation_intervals_are_near_fishers() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=200)
    y = x + rng.normal(size=200)
    r = metrics.correlations(x, y)["pearson"] or 0
    z, half = math.atanh(r), 1.96 / math.sqrt(197)
    expected = (math.tanh(z - half), math.tanh(z + half))
    assert with_intervals(x, y, 400, 1)["pearson_ci"] == pytest.approx(expected, abs=0.03)
    assert with_intervals([1.0, 1.0], [1.0, 2.0], 20, 1)["pearson_ci"] is None
