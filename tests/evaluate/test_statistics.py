"""Kappa, length bias, vote and cluster statistics, calibration: against closed forms and plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.evaluate import metrics
from judgetrain.evaluate.metrics.calibration import calibration, expected_calibration_error, reliability_curve
from judgetrain.evaluate.metrics.intervals import bootstrap_interval, paired_difference, with_intervals

VERDICT = st.sampled_from(["A", "B", "tie", None])
ITEMS = st.lists(
    st.tuples(VERDICT, VERDICT, st.sampled_from(["A", "B", "tie"]), st.sampled_from(["A", "B", "tie"])),
    min_size=1,
    max_size=40,
)


@settings(deadline=None)
@given(ITEMS)
def test_merged_decided_kappa_and_length_bias_equal_plain_loops(items: list[tuple]) -> None:  # type: ignore[type-arg]
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
    kept = [
        (a, y, side) for a, b, y, side in items if a == b and a in ("A", "B") and y in ("A", "B") and side in ("A", "B")
    ]
    bias = metrics.length_bias(ab, ba, longer, labels)
    if not kept:
        assert bias is None
    else:
        assert bias == pytest.approx((sum(a == s for a, _, s in kept) - sum(y == s for _, y, s in kept)) / len(kept))


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


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=60), st.integers(1, 12))
def test_a_reliability_curve_parts_the_items_and_keeps_their_means(items: list[tuple[float, bool]], bins: int) -> None:
    confidence, correct = [c for c, _ in items], [r for _, r in items]
    curve = reliability_curve(confidence, correct, bins)
    assert sum(b.n for b in curve) == len(items) and len(curve) <= bins
    assert sum(b.n * b.confidence for b in curve) == pytest.approx(sum(confidence))
    assert sum(b.n * b.accuracy for b in curve) == pytest.approx(sum(correct))
    assert [b.confidence for b in curve] == sorted(b.confidence for b in curve)
    error = expected_calibration_error(curve)
    assert error is None if not items else 0 <= error <= 1


def test_the_calibration_error_by_hand() -> None:
    curve = reliability_curve([0.6] * 10 + [0.9] * 10, [True] * 6 + [False] * 4 + [True] * 7 + [False] * 3, 2)
    assert [(b.n, b.confidence, b.accuracy) for b in curve] == [
        (10, pytest.approx(0.6), 0.6),
        (10, pytest.approx(0.9), 0.7),
    ]
    assert expected_calibration_error(curve) == pytest.approx(0.1)


def test_margins_that_are_log_odds_are_calibrated_and_noise_is_not() -> None:
    rng = np.random.default_rng(2)
    margins = rng.normal(scale=2, size=2000)
    labels = ["A" if u < 1 / (1 + math.exp(-m)) else "B" for m, u in zip(margins, rng.random(2000), strict=True)]
    found = calibration(margins.tolist(), labels, 0)
    assert found is not None
    assert found.n == 2000 and found.ece < 0.04
    above = np.mean(
        [m > w for m in margins[np.array(labels) == "A"][:200] for w in margins[np.array(labels) == "B"][:200]]
    )
    assert found.auc == pytest.approx(above, abs=0.04)
    assert found.curve[-1].accuracy > 0.9 > found.curve[0].accuracy
    noise = calibration(rng.permutation(margins).tolist(), labels, 0)
    assert noise is not None and abs(noise.auc - 0.5) < 0.05
    assert max(b.confidence for b in noise.curve) < 0.7, "margins that say nothing get no confidence"


def test_too_little_to_calibrate_is_none() -> None:
    assert calibration([1.0] * 10, ["A"] * 10, 0) is None
    assert calibration([None] * 50, ["A", "B"] * 25, 0) is None
    assert calibration([1.0] * 50, ["A", "B"] * 25, 0) is None
    assert calibration([1.0, -1.0] * 25, ["tie"] * 50, 0) is None
