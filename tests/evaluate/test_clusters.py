"""Intervals where nothing varies, and that every interval counts prompts, not comparisons, all the way to the files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.evaluate.metrics.intervals import auc_interval, bootstrap_interval, paired_difference, with_intervals
from judgetrain.evaluate.metrics.paired import paired_comparisons
from judgetrain.evaluate.metrics.rows import metric_row
from judgetrain.evaluate.report.report import Report, console_tables, markdown
from judgetrain.judges.base import Prediction
from judgetrain.schema import Comparison, Dialogue, Message
from judgetrain.train.card import add_results
from tests.builders.evaluate import LABELS, answers, benchmark, prediction

COPIES = 4


def unseen(n: int) -> float:
    """The share that n trials miss with a chance of 2.5%: (1 - share)^n = 0.025."""
    return float(1 - 0.025 ** (1 / n))


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 40), st.integers(1, 5), st.booleans())
def test_where_all_or_none_is_right_the_interval_is_the_exact_one_over_prompts(
    n: int, copies: int, right: bool
) -> None:
    values, prompts = [float(right)] * (n * copies), [i // copies for i in range(n * copies)]
    low, high = bootstrap_interval(values, 50, 1, prompts) or (-1, -1)
    assert (low, high) == (pytest.approx(1 - unseen(n) if right else 0), pytest.approx(1 if right else unseen(n)))
    assert bootstrap_interval(values[:n], 50, 1) == (low, high)


def test_prompts_that_are_all_half_right_have_an_interval_too() -> None:
    """As a judge that always says A has on pairs that are there both ways round."""
    values, prompts = [1.0, 0.0] * 30, [i // 2 for i in range(60)]
    assert bootstrap_interval(values, 50, 1, prompts) == pytest.approx((0.5 - unseen(30), 0.5 + unseen(30)))
    assert bootstrap_interval([1.0, 0.0], 50, 1, ["x", "x"]) is None, "one prompt tells nothing of others"
    assert bootstrap_interval([1.0, 1.0], 50, 1, ["x", "x"]) == pytest.approx((0.025, 1))


@pytest.mark.parametrize(("prompts", "known"), [(9, False), (10, True)])
def test_below_ten_prompts_resamples_give_no_interval(prompts: int, known: bool) -> None:
    clusters = [i % prompts for i in range(90)]
    values, margins = [float(c < 4) for c in clusters], [float(i % 7) for i in range(90)]
    labels = ["AB"[i % 2] for i in range(90)]
    differ = paired_difference(values, [v == 0 for v in values], 50, 1, clusters)
    assert differ and (differ.interval is not None, differ.bootstrap_p is not None) == (known, known)
    for found in (
        bootstrap_interval(values, 50, 1, clusters),
        auc_interval(margins, labels, 50, 1, clusters),
        with_intervals(margins, values, 50, 1, clusters)["pearson_ci"],
    ):
        assert (found is not None) is known


@pytest.mark.parametrize("gain", [-1, 0, 1])
def test_methods_that_never_differ_or_always_do_have_a_difference_with_an_interval(gain: int) -> None:
    prompts = [i // 3 for i in range(30)]
    found = paired_difference([gain > 0] * 30, [gain < 0] * 30, 1000, 1, prompts)
    assert found is not None and found.mean == gain
    assert found.interval == pytest.approx((max(-1, gain - unseen(10)), min(1, gain + unseen(10))))
    # Ten coins fall alike with a chance of 2 in 2^10.
    assert found.bootstrap_p == pytest.approx(1 if gain == 0 else max(2 / 1001, 2 / 2**10))
    few = paired_difference([gain > 0] * 30, [gain < 0] * 30, 1000, 1, [i // 10 for i in range(30)])
    assert few is not None and few.bootstrap_p == (1 if gain == 0 else 0.25)


@pytest.mark.parametrize("right", [True, False])
def test_margins_that_part_the_labels_have_an_auc_with_an_interval(right: bool) -> None:
    margins, labels = [1.0, -1.0, -2.0] * 8, ["A", "B", "B"] * 8
    low, high = auc_interval(margins if right else [-m for m in margins], labels, 50, 1) or (-1, -1)
    assert (low, high) == pytest.approx((1 - unseen(8), 1) if right else (0, unseen(8))), "eight disjoint pairs"
    prompts = [i // 6 for i in range(24)]
    assert auc_interval(margins, labels, 50, 1, prompts) == pytest.approx((1 - unseen(4), 1))
    without = [None if i < 12 else m for i, m in enumerate(margins)]
    assert auc_interval(without, labels, 50, 1) == pytest.approx((1 - unseen(4), 1)), "where there is a margin"


def test_the_report_the_console_and_the_card_show_what_0_of_12_may_mean(tmp_path: Path) -> None:
    whole = benchmark(12)
    rows = [metric_row(whole, answers("dpo", k, whole, right), 0.1, 50, 1) for k, right in ((1, 0), (3, 12))]
    report = Report(recipe="r", seed=1, rows=rows)
    text = markdown(report)
    assert "| dpo | 1 | 0.0 [0.0, 26.5] | 0.0 [0.0, 26.5] |" in text and "100.0 [73.5, 100.0]" in text
    assert "at 0 and 100% Clopper and Pearson's exact one" in text
    printed = [str(c) for table in console_tables(report)[:-1] for column in table.columns for c in column.cells]
    assert printed.count("0.0 [0.0, 26.5]") == 2 and printed.count("100.0 [73.5, 100.0]") == 2
    (tmp_path / "README.md").write_text("---\n---\n<!-- measured -->\nNot yet\n<!-- end of measured -->\n")
    add_results(tmp_path, "dpo", [row.to_row() for row in rows], "e4a1")
    card = (tmp_path / "README.md").read_text()
    assert "| b (test) | 1 | 12 | 0.000 [0.000, 0.265] | 0.000 [0.000, 0.265] |" in card
    assert "| b (test) | 3 | 12 | 1.000 [0.735, 1.000] | 1.000 [0.735, 1.000] |" in card


def copied(copies: int, together: bool, prompts: int = 30) -> Benchmark:
    """Prompts with so many equal comparisons each, and votes on them; not ``together``: each on a prompt of its own."""
    comparisons, named = [], {}
    for i in range(prompts * copies):
        own = f"q{i // copies}" if together else f"q{i // copies}, copy {i % copies}"
        dialogue = Dialogue(f"b:{i}", "b", (Message("user", own),))
        label: Any = LABELS[i // copies % 3]
        comparisons.append(Comparison(f"b:{i}", dialogue, "xxx" if i // copies % 2 else "x", "yy", label=label))
        named[f"b:{i}"] = (label, "A", "B")
    return Benchmark(name="b", split="test", comparisons=comparisons, votes=named)


def judged(of: Benchmark, copies: int, method: str, branches: int, seed: int, right: float = 0.7) -> list[Prediction]:
    """Verdicts and margins that are often right, the same for all copies of a comparison."""
    rng = np.random.default_rng(seed)
    drawn = rng.random((len(of.comparisons) // copies, 3))
    said = []
    for i, comparison in enumerate(of.comparisons):
        first, second, noise = drawn[i // copies]
        ab, ba = (comparison.label if u < right else "A" for u in (first, second))
        margin = {"A": 1.0, "tie": 0.0, "B": -1.0}[str(comparison.label)] + 3 * noise - 1.5
        said.append(prediction(comparison, method, branches, ab, ba, margin))
    return said


def intervals(row: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Every interval of a JSON-ready row, also of parts of it."""
    for name, value in row.items():
        if name.endswith("_ci"):
            yield f"{path}{name}", value
        elif isinstance(value, dict):
            yield from intervals(value, f"{path}{name}.")


KNOWN = {
    *("agreement_ci", "consistency_ci", "summed_ci", "auc_ci", "votes.agreement_ci", "votes.conflict_as_tie_ci"),
    *("position_bias_ci", "length_balanced_ci", "length_correlation_ci"),
}
CORRELATIONS = {"pearson_ci", "kendall_ci", "spearman_ci"}


@pytest.mark.parametrize("branches", [0, 3])
def test_comparisons_that_say_the_same_of_a_prompt_change_no_interval(branches: int) -> None:
    """A prompt is what is drawn, so that more of the same on it tells nothing; as items of their own they would."""
    rows = {}
    for name, copies, together in (("one", 1, True), ("together", COPIES, True), ("apart", COPIES, False)):
        whole = copied(copies, together)
        rows[name] = metric_row(whole, judged(whole, copies, "m", branches, 1), 0.1, 400, 1).to_row()
    one, together, apart = (dict(intervals(rows[name])) for name in ("one", "together", "apart"))
    assert set(one) == KNOWN | (set() if branches else CORRELATIONS)
    for name, (low, high) in one.items():
        near = 3e-2 if name == "position_bias_ci" else 1e-9  # Wilson's, by the variance between prompts
        assert together[name] == pytest.approx((low, high), abs=near), name
        narrow = apart[name][1] - apart[name][0]
        assert narrow == pytest.approx((high - low) / COPIES**0.5, rel=0.35), f"{name}: as if independent"


def test_copies_change_no_paired_difference_but_mcnemars() -> None:
    found = {}
    for name, copies, together in (("one", 1, True), ("together", COPIES, True), ("apart", COPIES, False)):
        whole = copied(copies, together)
        results = [judged(whole, copies, "a", 0, 1), judged(whole, copies, "b", 0, 2, 0.4)]
        (found[name],) = paired_comparisons(whole, results, 400, 1)
    one, together, apart = found["one"], found["together"], found["apart"]
    assert None not in (one.agreement_difference_ci, together.agreement_difference_ci, apart.agreement_difference_ci)
    assert one.agreement_difference == together.agreement_difference != 0
    assert together.agreement_difference_ci == pytest.approx(one.agreement_difference_ci)
    assert together.bootstrap_p == one.bootstrap_p != apart.bootstrap_p
    low, high = one.agreement_difference_ci or (0, 0)
    narrow = (apart.agreement_difference_ci or (0, 0))[1] - (apart.agreement_difference_ci or (0, 0))[0]
    assert narrow == pytest.approx((high - low) / COPIES**0.5, rel=0.3)
    assert together.mcnemar_p == apart.mcnemar_p < one.mcnemar_p


def test_prompts_that_a_benchmark_names_count_in_place_of_queries() -> None:
    one, copies = copied(1, True), copied(COPIES, False)
    named = replace(copies, prompts={c.id: str(i // COPIES) for i, c in enumerate(copies.comparisons)})
    expected = metric_row(one, judged(one, 1, "m", 0, 1), 0.1, 200, 1)
    found = metric_row(named, judged(named, COPIES, "m", 0, 1), 0.1, 200, 1)
    assert (found.n, found.n_prompts, expected.n_prompts) == (120, 30, 30)
    assert found.agreement_ci == pytest.approx(expected.agreement_ci)
