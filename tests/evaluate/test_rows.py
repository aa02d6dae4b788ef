"""Rows of metrics: what is written is read back; how metrics are registered and shown."""

import json
import re
from dataclasses import asdict, fields, make_dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scipy.stats import binomtest

from judgetrain import rooms
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.intervals import Resampling
from judgetrain.errors import ConfigError
from judgetrain.evaluate.metrics import rows
from judgetrain.evaluate.metrics.paired import PairedComparison, paired_comparisons
from judgetrain.evaluate.metrics.rows import Column, MethodPredictions, Metric, MetricRow, metric_row, read_record
from judgetrain.evaluate.report import report, table
from judgetrain.evaluate.report.report import Report, markdown
from judgetrain.evaluate.stage import _best_way
from judgetrain.judges.predictions import Cost, Prediction
from judgetrain.schema import Comparison, Dialogue, Message

LABELS = ("A", "B", "tie", None)


def voted(n: int = 60) -> Benchmark:
    """Comparisons with groups, domains and shared prompts; every fourth without a majority."""
    comparisons = [
        Comparison(f"b:{i}", Dialogue(f"b:{i}", "b", (Message("user", "q"),)), "x", "yy", label=LABELS[i % 4], group=g)  # type: ignore[arg-type]
        for i in range(n)
        for g in [f"g{i % 2}"]
    ]
    prompts = {c.id: f"p{i // 3}" for i, c in enumerate(comparisons)}
    return Benchmark(name="b", split="test", comparisons=comparisons, prompts=prompts, domains={"g0": "even"})


def scored(benchmark: Benchmark, **changes: Any) -> list[Prediction]:
    """Return a scorer's predictions: no branches, margins that are mostly right."""
    failures = {"no_scores": 1, "criteria:none": 1}
    return [
        Prediction(
            comparison_id=c.id,
            method="scorer:x",
            branches=0,
            verdict_ab=v,  # type: ignore[arg-type]
            verdict_ba=v,  # type: ignore[arg-type]
            margin=m,
            cost=Cost(3.0, 2.0, 1.0),
            judgments=2,
            failures=failures,
            **changes,
        )
        for i, c in enumerate(benchmark.comparisons)
        for m in [(1 if c.label == "A" else -1) * (i % 5 - 1.5)]
        for v in ["A" if m > 0 else "B"]
    ]


def test_a_row_is_read_back_as_it_was_written() -> None:
    row = replace(metric_row(voted(), scored(voted()), 0.5, Resampling(50, 1)), run="seed=1")
    assert row.correlations and row.correlations.pearson_ci and row.domains
    written = json.dumps(row.to_row())
    again = MetricRow.from_row(json.loads(written))
    assert json.dumps(again.to_row()) == written
    assert again.groups == row.groups
    assert list(row.to_row())[:5] == ["method", "benchmark", "split", "branches", "n"]
    assert {"pearson", "pearson_ci"} < set(row.to_row()) and "correlations" not in row.to_row()


def test_a_paired_comparison_is_read_back() -> None:
    whole = voted()
    other = [replace(p, method="first", verdict_ab="A", verdict_ba="A") for p in scored(whole)]
    (pair,) = paired_comparisons(whole, [scored(whole), other], Resampling(50, 1))
    written = json.loads(json.dumps(asdict(pair)))
    assert written["first"] == {"method": "scorer:x", "branches": 0}
    assert json.dumps(asdict(read_record(PairedComparison, written))) == json.dumps(asdict(pair))


def test_what_the_data_does_not_have_leaves_its_metrics_undefined() -> None:
    whole = voted()
    plain = replace(whole, prompts={})
    merged = metric_row(plain, scored(plain, merged=True), float("nan"), Resampling(50, 1))
    assert (merged.single_order_accuracy, merged.position_bias, merged.n_flips, merged.seconds) == (None,) * 4
    branching = [replace(p, branches=3) for p in scored(whole)]
    assert metric_row(whole, branching, 0.0, Resampling(50, 1)).correlations is None
    apart = metric_row(whole, scored(whole), 0.0, Resampling(50, 1))
    assert apart.groups and apart.groups["g0"].n + apart.groups["g1"].n == apart.n == 45
    assert apart.failures == {"criteria:none": 45, "no_scores": 45} and apart.parse_failures == 45


def test_the_share_for_a_place_is_of_the_comparisons_whose_order_mattered() -> None:
    """Three of four go to the first: Wilson's interval of 9 in 12, whatever consistent verdicts stand beside them."""
    verdicts = [*"111" * 3, *"2" * 3, *"ABt" * 20]
    both = {"1": ("A", "B"), "2": ("B", "A"), "A": ("A", "A"), "B": ("B", "B"), "t": ("tie", "tie")}
    whole = [
        Comparison(f"b:{i}", Dialogue(f"b:{i}", "b", (Message("user", f"q{i}"),)), "x", "yy", label="A")
        for i in range(len(verdicts))
    ]
    predictions = [
        Prediction(comparison_id=c.id, method="m", verdict_ab=both[v][0], verdict_ba=both[v][1])  # type: ignore[arg-type]
        for c, v in zip(whole, verdicts, strict=True)
    ]
    row = metric_row(Benchmark(name="b", split="test", comparisons=whole), predictions, 0.0, Resampling(50, 1))
    assert (row.n_flips, row.position_bias) == (12, 0.75)
    ends = binomtest(9, 12).proportion_ci(method="wilson")
    assert row.position_bias_ci == pytest.approx((ends.low, ends.high), abs=1e-6)


def test_costs_are_means_over_the_comparisons_that_have_them() -> None:
    whole = voted()
    predictions = [
        replace(p, cost=Cost(float(i), 2.0, None if i % 2 else 3.0))  # type: ignore[arg-type]
        for i, p in enumerate(scored(whole))
    ]
    labelled = [i for i, c in enumerate(whole.comparisons) if c.label]
    row = metric_row(whole, predictions, 0.5, Resampling(50, 1))
    assert row.prompt_tokens == pytest.approx(sum(labelled) / len(labelled))
    assert (row.generated_tokens, row.calls) == (2.0, 3.0)


def test_a_column_is_shown_in_the_table_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = make_dataclass("Mine", [("mine", float, 0.25)], bases=(MetricRow,), frozen=True, kw_only=True)
    row = mine(**vars(metric_row(voted(), scored(voted()), 0.0, Resampling(50, 1))))
    monkeypatch.setitem(rows.columns(), "mine", Column("My table", "mine %"))
    text = markdown(Report(recipe="r", seed=1, rows=[row]))
    assert "### My table\n\n| method | branches | mine % |\n| --- | --- | --- |\n| scorer:x | – | 25.0 |\n" in text


def test_what_the_page_says_of_metrics_is_so() -> None:
    page = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
    section = page.partition("## A metric\n")[2].partition("\n## ")[0]
    module, of_row = re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {**vars(rows)}
    exec(module, names)
    exec(f"@dataclass(frozen=True, kw_only=True)\nclass Wider(MetricRow):\n{of_row}", names)
    of_field = {field.name: field for field in fields(names["Wider"])}["mcc"].metadata["metric"]

    # Four of five that could be read are right: Matthews' coefficient of a 2 x 2 table, by hand.
    verdicts = ["A", "A", "B", "B", "A", None]
    whole = voted(6)
    labels = ["A", "A", "B", "B", "B", "A"]
    whole = replace(
        whole,
        comparisons=[replace(c, label=label) for c, label in zip(whole.comparisons, labels, strict=True)],  # type: ignore[arg-type]
    )
    predictions = [
        replace(p, verdict_ab=verdict, verdict_ba=verdict)  # type: ignore[arg-type]
        for p, verdict in zip(scored(whole), verdicts, strict=True)
    ]
    sample = MethodPredictions(whole, predictions, 0.0, Resampling(50, 1))
    for mcc in (names["MATTHEWS"], of_field):
        assert mcc.of(sample) == pytest.approx((2 * 2 - 1 * 0) / (3 * 2 * 2 * 3) ** 0.5)
        assert mcc.column.header == "MCC"
    interval = eval(re.findall(r"`(Metric\(bootstrap_interval, .*?)`", section)[0], names)
    # Too few prompts for an interval: it is computed all the same.
    assert interval.of(sample) is None or len(interval.of(sample)) == 2
    # What the page says can be named is there.
    [listed] = re.findall(r"attributes of `MethodPredictions` .*?, such as (.*?)\. Where", section, re.DOTALL)
    for name in re.findall(r"`(\w+)`", listed):
        assert getattr(sample, name) is not None, name


def test_a_metric_of_a_room_is_written_read_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Metric(len, ("labels",), Column("My table", "labels", "integer"))
    monkeypatch.setattr(rows, "metrics_of_rooms", lambda: {"counted": counted})
    monkeypatch.setattr(rooms, "metrics", lambda: {"counted": "somewhere:COUNTED"})
    monkeypatch.setattr(rows, "columns", rows.columns.__wrapped__)
    monkeypatch.setattr(table, "declared_columns", rows.columns)
    monkeypatch.setattr(report, "columns", rows.columns)
    row = metric_row(voted(), scored(voted()), 0.0, Resampling(50, 1))
    # Three of four have a label.
    assert row.counted == 45 and row.to_row()["counted"] == 45
    back = MetricRow.from_row(json.loads(json.dumps(row.to_row())))
    assert back.of_rooms == {"counted": 45} and back.counted == 45
    assert "### My table\n\n| method | branches | labels |" in markdown(Report(recipe="r", seed=1, rows=[back]))
    with pytest.raises(AttributeError, match="a row of metrics has no other"):
        _ = row.other


def test_a_metric_that_needs_what_there_is_not_is_refused_with_what_there_is() -> None:
    sample = MethodPredictions(voted(), scored(voted()), 0.0, Resampling(50, 1))
    with pytest.raises(ConfigError, match=r"needs chosen, which predictions do not have; they have .*labels"):
        Metric(len, ("chosen",)).of(sample)


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("agreement", "judgetrain.evaluate.metrics.rows:COST", "another"),
        ("mine", "judgetrain.evaluate.metrics.rows:COST", "is a str; expected a Metric"),
    ],
)
def test_a_room_s_metric_that_is_none_is_refused(
    name: str, code: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rooms, "metrics", lambda: {name: code})
    with pytest.raises(ConfigError, match=message):
        rows.metrics_of_rooms.__wrapped__()


def test_the_judge_is_named_as_it_did_best_in_its_table() -> None:
    """At 72% with one criterion and 92% with three, the next command asks for three."""

    def row(method: str, branches: int, share: float | None, benchmark: str = "world") -> Any:
        return SimpleNamespace(method=method, branches=branches, agreement=share, benchmark=benchmark)

    rows = [row("sft", 10, 0.99), row("dpo", 1, 0.72), row("dpo", 3, 0.92), row("dpo", 10, 0.92)]
    rows.append(row("dpo", 10, 0.95, "another"))
    best = _best_way("dpo", rows)
    assert best is not None and best.branches == 3
    assert _best_way("rl", rows) is None
    assert _best_way("dpo", [row("dpo", 1, None)]) is None

    # A judge may be measured in several ways; by the criteria of another query nobody asks it.
    rows = [row("dpo", 1, 0.7), row("dpo+given", 1, 0.9), row("dpo+shuffled", 1, 0.95), row("pairwise:dpo", 1, 0.99)]
    best = _best_way("dpo", rows)
    assert best is not None and best.method == "dpo+given"
