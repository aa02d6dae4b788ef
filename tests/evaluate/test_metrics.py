"""Metrics and intervals against plain loops and closed forms; intervals count prompts, all the way to the files."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.intervals import Resampling, bootstrap_interval, wilson_interval
from judgetrain.evaluate import metrics
from judgetrain.evaluate.metrics.groups import (
    length_balanced,
    length_balanced_interval,
    length_correlation,
    length_correlation_interval,
)
from judgetrain.evaluate.metrics.intervals import paired_difference, resampled_interval, with_intervals
from judgetrain.evaluate.metrics.rows import metric_row
from judgetrain.judges.predictions import Prediction
from judgetrain.schema import Comparison, Dialogue, Message
from tests.builders.evaluate import LABELS, prediction

VERDICT = st.sampled_from(["A", "B", "tie", None])
LABEL = st.sampled_from(["A", "B", "tie"])
ITEMS = st.lists(st.tuples(VERDICT, VERDICT, LABEL, LABEL), min_size=1, max_size=40)


@settings(deadline=None)
@given(ITEMS)
def test_every_count_equals_a_plain_loop(items: list[tuple]) -> None:  # type: ignore[type-arg]
    ab, ba, labels, longer = ([row[i] for row in items] for i in range(4))
    for i, (first, second, label, _) in enumerate(items):
        assert metrics.agreement(ab, ba, labels)[i] == (first == label and second == label)  # type: ignore[arg-type]
        assert metrics.consistency(ab, ba)[i] == (first is not None and first == second)
        merged = "unreadable" if None in (first, second) else first if first == second else "tie"
        assert metrics.conflict_as_tie(ab, ba, labels)[i] == (merged == label)  # type: ignore[arg-type]
        assert metrics.single_order_accuracy(ab, ba, labels)[i] == ((first == label) + (second == label)) / 2  # type: ignore[arg-type]
        assert metrics.accuracy(ab, labels)[i] == (first == label)  # type: ignore[arg-type]
        assert metrics.unreadable(ba)[i] == (second is None)
        assert metrics.without_ties(labels)[i] == (label != "tie")  # type: ignore[arg-type]
    flips = [(a, b) for a, b, _, _ in items if {a, b} == {"A", "B"}]
    assert metrics.position_bias(ab, ba) == (sum(f == ("A", "B") for f in flips) / len(flips) if flips else None)
    one = [None if None in (a, b) else a if a == b else "tie" for a, b in zip(ab, ba, strict=True)]
    assert metrics.merged(ab, ba) == one
    assert metrics.decided(ab, ba, labels).tolist() == [
        v in ("A", "B") and y in ("A", "B") for v, y in zip(one, labels, strict=True)
    ]
    number = {"A": 1, "tie": 0, "B": -1}
    pairs = [(number[v], number[side]) for v, side in zip(one, longer, strict=True) if v is not None]
    r = length_correlation(ab, ba, longer)
    if len({v for v, _ in pairs}) > 1 and len({side for _, side in pairs}) > 1:
        assert r == pytest.approx(metrics.correlations(*zip(*pairs, strict=True))["pearson"], abs=1e-6)
    else:
        assert r is None
    right = [a == b == y for a, b, y, _ in items]
    apart = [(ok, y == side) for ok, y, side in zip(right, labels, longer, strict=True) if "tie" not in (y, side)]
    halves = [[ok for ok, of in apart if of is same] for same in (True, False)]
    expected = pytest.approx(sum(sum(half) / len(half) for half in halves) / 2, abs=1e-6) if all(halves) else None
    assert length_balanced(np.array(right), labels, longer) == expected


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


def test_an_undefined_correlation_is_none_and_a_missing_score_an_error() -> None:
    nothing = {"pearson": None, "kendall": None, "spearman": None}
    assert metrics.correlations([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) == nothing
    assert metrics.correlations([1.0], [1.0]) == nothing
    with pytest.raises(ValueError, match="finite"):
        metrics.correlations([1.0, math.nan], [1.0, 2.0])
    with pytest.raises(ValueError, match=r"\(2,\) and \(3,\)"):
        metrics.correlations([1.0, 2.0], [1.0, 2.0, 3.0])


def test_intervals_are_those_of_resamples_drawn_item_by_item() -> None:
    rng = np.random.default_rng(4)
    prompts = rng.integers(0, 25, 90).tolist()
    right = (rng.integers(0, 3, 90) == 0).tolist()
    names = list(dict.fromkeys(prompts))
    again = np.random.default_rng(7)
    means = []
    for _ in range(2000):
        rows = [i for c in again.integers(25, size=25) for i, p in enumerate(prompts) if p == names[c]]
        means.append(np.mean([right[i] for i in rows]))
    assert bootstrap_interval([], 100, 1) is None
    with pytest.raises(ValueError, match="2 values and 1 cluster"):
        bootstrap_interval([1.0, 0.0], 50, 1, ["x"])
    # Drawn by what clusters say and not one by one, so that only the noise of the draws is between them.
    assert bootstrap_interval(right, 4000, 7, prompts) == pytest.approx(np.percentile(means, (2.5, 97.5)), abs=0.02)


def test_a_paired_interval_is_that_of_the_discordant_items() -> None:
    # 200 items, of which the first method alone has 30 right and the second alone 10.
    first = [True] * 30 + [False] * 10 + [True] * 160
    second = [False] * 30 + [True] * 10 + [True] * 160
    difference = paired_difference(first, second, Resampling(4000, 1))
    assert difference is not None
    assert difference.mean == pytest.approx(0.1)
    half = 1.96 * math.sqrt((40 / 200 - 0.1**2) / 200)  # variance of a difference that is 1, -1 or 0
    assert difference.interval == pytest.approx((0.1 - half, 0.1 + half), abs=0.015)
    exact = 2 * sum(math.comb(40, k) for k in range(11)) / 2**40  # the sign test's
    assert difference.p == pytest.approx(exact, abs=0.002)
    mirrored = paired_difference(second, first, Resampling(4000, 1))
    assert mirrored is not None
    assert (mirrored.mean, mirrored.p) == (pytest.approx(-0.1), pytest.approx(difference.p, abs=0.002))
    assert paired_difference([], [], Resampling(100, 1)) is None
    with pytest.raises(ValueError, match="same items"):
        paired_difference([True], [True, False], Resampling(100, 1))


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
    assert length_balanced_interval(right, BETTER, LENGTHS, Resampling(50, 1)) == pytest.approx(
        (0.5 - reach, 0.5 + reach)
    )
    low = 1 - 2 * (1 - 0.025 ** (1 / 44))
    assert length_correlation_interval(LENGTHS, LENGTHS, LENGTHS, Resampling(50, 1)) == pytest.approx((low, 1))


def test_a_length_balanced_agreement_by_hand() -> None:
    # Right on 27 of the 30, 4 of the 10; what it says of the ties plays no part.
    right = np.array([True] * 27 + [False] * 3 + [True] * 4 + [False] * 6 + [True] * 4)
    assert length_balanced(right, BETTER, LENGTHS) == pytest.approx((27 / 30 + 4 / 10) / 2)
    spread = math.sqrt(0.9 * 0.1 / 30 + 0.4 * 0.6 / 10) / 2
    interval = length_balanced_interval(right, BETTER, LENGTHS, Resampling(4000, 1))
    assert interval == pytest.approx((0.65 - 1.96 * spread, 0.65 + 1.96 * spread), abs=0.025)
    assert length_balanced_interval(right[:9], BETTER[:9], LENGTHS[:9], Resampling(50, 1)) is None
    assert length_balanced(right[:30], BETTER[:30], LENGTHS[:30]) is None, "of one half alone there is no balance"


def test_a_clustered_difference_is_worth_its_clusters_and_no_more() -> None:
    # 40 prompts, each five times the same: on 12 the first method alone is right, on 6 the second, on 22 both.
    first = np.repeat([True] * 12 + [False] * 6 + [True] * 22, 5)
    second = np.repeat([False] * 12 + [True] * 28, 5)
    prompts = np.repeat(np.arange(40), 5).tolist()
    difference = paired_difference(first, second, Resampling(4000, 1), prompts)
    naive = paired_difference(first, second, Resampling(4000, 1))
    assert difference is not None and naive is not None
    mean = 6 / 40
    deviation = math.sqrt((18 / 40 - mean**2) / 40)
    assert difference.mean == naive.mean == pytest.approx(mean)
    assert difference.interval == pytest.approx((mean - 1.96 * deviation, mean + 1.96 * deviation), abs=0.03)
    normal = math.erfc(mean / deviation / math.sqrt(2))  # two-sided
    assert difference.p == pytest.approx(normal, abs=0.05)
    assert naive.p is not None and naive.p < 0.01 < 0.1 < (difference.p or 0)
    one = paired_difference([True, False], [False, False], Resampling(50, 1), ["x", "x"])
    assert one is not None and (one.interval, one.p) == (None, None)


def test_correlation_intervals_are_near_fishers() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=200)
    y = x + rng.normal(size=200)
    r = metrics.correlations(x, y)["pearson"] or 0
    z = math.atanh(r)
    half = 1.96 / math.sqrt(197)
    expected = (math.tanh(z - half), math.tanh(z + half))
    assert with_intervals(x, y, Resampling(400, 1))["pearson_ci"] == pytest.approx(expected, abs=0.03)
    assert with_intervals([1.0, 1.0], [1.0, 2.0], Resampling(20, 1))["pearson_ci"] is None


COPIES = 4


def unseen(n: int) -> float:
    """Return the share that n trials miss with a chance of 2.5%: (1 - share)^n = 0.025."""
    return float(1 - 0.025 ** (1 / n))


@settings(deadline=None, max_examples=30)
@given(st.integers(10, 40), st.integers(1, 5), st.booleans())
def test_where_all_or_none_is_right_the_interval_is_the_exact_one_over_prompts(
    n: int, copies: int, right: bool
) -> None:
    values = [float(right)] * (n * copies)
    prompts = [i // copies for i in range(n * copies)]
    low, high = bootstrap_interval(values, 50, 1, prompts) or (-1, -1)
    assert (low, high) == (pytest.approx(1 - unseen(n) if right else 0), pytest.approx(1 if right else unseen(n)))
    assert bootstrap_interval(values[:n], 50, 1) == (low, high)


def test_prompts_that_are_all_half_right_have_an_interval_too() -> None:
    # A judge that always says A is half right where every pair is there both ways round.
    values = [1.0, 0.0] * 30
    prompts = [i // 2 for i in range(60)]
    assert bootstrap_interval(values, 50, 1, prompts) == pytest.approx((0.5 - unseen(30), 0.5 + unseen(30)))
    assert bootstrap_interval([1.0, 0.0], 50, 1, ["x", "x"]) is None, "one prompt tells nothing of others"
    assert bootstrap_interval([1.0, 1.0], 50, 1, ["x", "x"]) is None, "nor does one that is all right"


@pytest.mark.parametrize("value", [0.1, 0.7])
def test_prompts_of_one_mean_have_it_also_where_their_sums_are_rounded(value: float) -> None:
    """Three times 0.1 is no 0.3 in floating point, so that means of prompts of several sizes differ by rounding."""
    prompts = [i // 3 for i in range(30)] + [10 + i for i in range(10)] + [20 + i // 7 for i in range(70)]
    assert len({sum([value] * size) / size for size in (1, 3, 7)}) > 1
    found = bootstrap_interval([value] * len(prompts), 50, 1, prompts)
    assert found == pytest.approx((max(0, value - unseen(30)), min(1, value + unseen(30))))


@pytest.mark.parametrize("lowest", [0, 1])
@pytest.mark.parametrize(("prompts", "has_interval"), [(1, False), (2, False), (9, False), (10, True)])
def test_below_ten_prompts_that_are_all_alike_have_no_interval_either(
    prompts: int, has_interval: bool, lowest: int
) -> None:
    clusters = [i % prompts for i in range(90)]
    alike = [float(lowest)] * 90
    margins = [float(i % prompts) for i in range(90)]
    difference = paired_difference(alike, [1 - value for value in alike], Resampling(50, 1), clusters)
    assert difference is not None
    of_sums = np.column_stack([alike, np.ones(90)])
    # Among them resamples of a perfect correlation, which are all alike.
    for interval in (
        bootstrap_interval(alike, 50, 1, clusters),
        wilson_interval(alike, clusters),
        wilson_interval(alike[:prompts]),
        difference.interval,
        difference.p,
        resampled_interval(of_sums, lambda sums: sums[0] / sums[1], clusters, Resampling(50, 1)),
        with_intervals(margins, margins, Resampling(50, 1), clusters)["kendall_ci"],
    ):
        assert (interval is not None) is has_interval


def test_a_perfect_correlation_has_an_interval_with_width() -> None:
    margins = [float(i) for i in range(12)]
    for sign in (1, -1):
        figures = with_intervals(margins, [sign * margin for margin in margins], Resampling(200, 1))
        # From -1 to 1, so that what twelve prompts may have missed counts twice.
        ends = sorted([sign, sign * (1 - 2 * unseen(12))])
        for name in ("pearson_ci", "kendall_ci", "spearman_ci"):
            assert figures[name] == pytest.approx(tuple(ends)), name


@pytest.mark.parametrize(("prompts", "has_interval"), [(9, False), (10, True)])
def test_below_ten_prompts_resamples_give_no_interval(prompts: int, has_interval: bool) -> None:
    clusters = [i % prompts for i in range(90)]
    values = [float(c < 4) for c in clusters]
    margins = [float(i % 7) for i in range(90)]
    differ = paired_difference(values, [v == 0 for v in values], Resampling(50, 1), clusters)
    assert differ and (differ.interval is not None, differ.p is not None) == (has_interval, has_interval)
    for interval in (
        bootstrap_interval(values, 50, 1, clusters),
        with_intervals(margins, values, Resampling(50, 1), clusters)["pearson_ci"],
    ):
        assert (interval is not None) is has_interval


@pytest.mark.parametrize("gain", [-1, 0, 1])
def test_methods_that_never_differ_or_always_do_have_a_difference_with_an_interval(gain: int) -> None:
    prompts = [i // 3 for i in range(30)]
    difference = paired_difference([gain > 0] * 30, [gain < 0] * 30, Resampling(1000, 1), prompts)
    assert difference is not None and difference.mean == gain
    assert difference.interval == pytest.approx((max(-1, gain - unseen(10)), min(1, gain + unseen(10))))
    # Ten coins fall alike with a chance of 2 in 2^10.
    assert difference.p == pytest.approx(1 if gain == 0 else max(2 / 1001, 2 / 2**10))
    few = paired_difference([gain > 0] * 30, [gain < 0] * 30, Resampling(1000, 1), [i // 10 for i in range(30)])
    assert few is not None and few.mean == gain and few.p is None


def copied(copies: int, together: bool, prompts: int = 30) -> Benchmark:
    """Prompts with so many equal comparisons each; not ``together``: each on a prompt of its own."""
    comparisons = []
    for i in range(prompts * copies):
        query = f"q{i // copies}" if together else f"q{i // copies}, copy {i % copies}"
        dialogue = Dialogue(f"b:{i}", "b", (Message("user", query),))
        label: Any = LABELS[i // copies % 3]
        comparisons.append(Comparison(f"b:{i}", dialogue, "xxx" if i // copies % 2 else "x", "yy", label=label))
    return Benchmark(name="b", split="test", comparisons=comparisons)


def judged(of: Benchmark, copies: int, method: str, branches: int, seed: int, right: float = 0.7) -> list[Prediction]:
    """Verdicts and margins that are often right, the same for all copies of a comparison."""
    rng = np.random.default_rng(seed)
    drawn = rng.random((len(of.comparisons) // copies, 3))
    predictions = []
    for i, comparison in enumerate(of.comparisons):
        first, second, noise = drawn[i // copies]
        ab, ba = (comparison.label if u < right else "A" for u in (first, second))
        margin = {"A": 1.0, "tie": 0.0, "B": -1.0}[str(comparison.label)] + 3 * noise - 1.5
        predictions.append(prediction(comparison, method, branches, ab, ba, margin))
    return predictions


def intervals(row: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every interval of a JSON-ready row, also of parts of it."""
    for name, value in row.items():
        # Of every pair it is over prompts by itself, whatever stands together.
        if name.endswith("_ci") and name != "every_pair_ci":
            yield f"{path}{name}", value
        elif isinstance(value, dict):
            yield from intervals(value, f"{path}{name}.")


KNOWN = {
    *("agreement_ci", "consistency_ci", "position_bias_ci", "length_balanced_ci", "length_correlation_ci"),
    *("right_of_decided_ci", "right_length_balanced_ci"),
}
CORRELATIONS = {"pearson_ci", "kendall_ci", "spearman_ci"}


@pytest.mark.parametrize("branches", [0, 3])
def test_comparisons_that_say_the_same_of_a_prompt_change_no_interval(branches: int) -> None:
    # A prompt is what is drawn, so that more of the same on it tells nothing; as items of their own they would.
    rows = {}
    for name, copies, together in (("one", 1, True), ("together", COPIES, True), ("apart", COPIES, False)):
        # So many prompts that ten and more have another verdict in the other order.
        whole = copied(copies, together, prompts=90)
        rows[name] = metric_row(whole, judged(whole, copies, "m", branches, 1), 0.1, Resampling(400, 1)).to_row()
    one, together, apart = (dict(intervals(rows[name])) for name in ("one", "together", "apart"))
    assert set(one) == KNOWN | (set() if branches else CORRELATIONS)
    for name, (low, high) in one.items():
        near = 3e-2 if name == "position_bias_ci" else 1e-9  # Wilson's, by the variance between prompts
        assert together[name] == pytest.approx((low, high), abs=near), name
        narrow = apart[name][1] - apart[name][0]
        assert narrow == pytest.approx((high - low) / COPIES**0.5, rel=0.35), f"{name}: as if independent"


def test_prompts_that_a_benchmark_names_count_in_place_of_queries() -> None:
    one = copied(1, True)
    copies = copied(COPIES, False)
    named = replace(copies, prompts={c.id: str(i // COPIES) for i, c in enumerate(copies.comparisons)})
    expected = metric_row(one, judged(one, 1, "m", 0, 1), 0.1, Resampling(200, 1))
    row = metric_row(named, judged(named, COPIES, "m", 0, 1), 0.1, Resampling(200, 1))
    assert (row.n, row.n_prompts, expected.n_prompts) == (120, 30, 30)
    assert row.agreement_ci == pytest.approx(expected.agreement_ci)


def test_a_forced_choice_is_what_both_orders_say_or_the_margin() -> None:
    rows = [
        # verdicts of AB and BA, margin, label, how right by hand
        ("A", "A", None, "A", 1.0),
        ("A", "A", -0.5, "A", 1.0),  # the verdicts go before the margin
        ("A", "tie", None, "B", 0.0),
        ("A", "B", None, "A", 0.5),
        ("A", "B", 0.25, "A", 1.0),
        ("tie", "tie", -0.25, "A", 0.0),
        ("tie", "tie", 0.0, "B", 0.5),
        (None, "A", None, "A", 0.0),
        (None, "A", 0.1, "A", 1.0),
        ("A", "A", 1.0, "tie", 0.0),
    ]
    ab, ba, margins, labels, expected = zip(*rows, strict=True)
    assert metrics.forced(ab, ba, margins, labels).tolist() == list(expected)


@pytest.mark.parametrize("n", [10, 12, 40, 400])
def test_a_paired_interval_reaches_to_what_so_few_prompts_cannot_rule_out(n: int) -> None:
    """One method is right where the other is, and once more: no resample holds a prompt where it is worse.

    Where nothing of n was seen, there may be as much of it as is missed n times with a chance of 2.5%.
    """
    first = [True] * n
    second = [False] + [True] * (n - 1)
    missed = 1 - 0.025 ** (1 / n)
    difference = paired_difference(first, second, Resampling(400, 1))
    mirrored = paired_difference(second, first, Resampling(400, 1))
    assert difference is not None and difference.interval is not None
    assert mirrored is not None and mirrored.interval is not None
    assert difference.interval[0] == pytest.approx(1 / n - missed)
    assert mirrored.interval[1] == pytest.approx(missed - 1 / n)
    # Of the same answers with the one other on top: as much, and no jump.
    alike = paired_difference(first, first, Resampling(400, 1))
    assert alike is not None and alike.interval is not None
    assert alike.interval[0] == pytest.approx(-missed)
