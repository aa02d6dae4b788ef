"""The figures of a report: agreement and consistency by branches and by cost (paper, figures 1 and 5), reliability."""

from __future__ import annotations

from collections.abc import Sequence

from judgetrain.evaluate.metrics.rows import MetricRow
from judgetrain.evaluate.report.chart import Point, line_chart
from judgetrain.evaluate.report.sections import one_each, percent

RELIABILITY = "Right by confidence"


def figures(rows: Sequence[MetricRow]) -> tuple[list[str], dict[str, str]]:
    """The branching judges among a benchmark's metric rows, and the figures of them as SVG text by title.

    Lines have the colours of the judges in the order given (:func:`~judgetrain.evaluate.report.chart.legend`). Without
    branching judges there are no figures.
    """
    judges: dict[str, list[MetricRow]] = {}
    for row in sorted(rows, key=lambda r: r.branches):
        if row.branches:
            judges.setdefault(row.method, []).append(row)
    names = [name for name in dict.fromkeys(r.method for r in rows) if name in judges]
    if not names:
        return [], {}
    counts = sorted({float(r.branches) for part in judges.values() for r in part})
    found = {}
    for title, label, metric, axis, ticks in (
        ("Agreement by branches", "branches", "agreement", "branches", counts),
        ("Agreement by cost", "tokens a verdict", "agreement", "tokens", None),
        ("Consistency by branches", "branches", "consistency", "branches", counts),
    ):
        series = {name: [_point(r, metric, axis) for r in judges[name]] for name in names}
        found[title] = line_chart(label, series, ticks, title)
    reliability = _reliability([row for row in one_each(rows) if row.branches], names)
    return names, found | ({RELIABILITY: reliability} if reliability else {})


def _reliability(rows: Sequence[MetricRow], names: Sequence[str]) -> str:
    """How sure margins are and how often they are right; in the colours of ``names``."""
    series: dict[str, list[Point]] = {name: [] for name in names}
    for row in rows:
        if row.calibration:
            bins = [(b.confidence, b.accuracy, b.n) for b in row.calibration.curve]
            tip = f"{row.method}@{row.branches}"
            series[row.method] = [Point(x, y, y, y, f"{tip}: {percent(y)}% of {n} right") for x, y, n in bins]
    if not any(series.values()):
        return ""
    ticks = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]  # confidence in the favoured side
    return line_chart("confidence made of the margin", series, ticks, RELIABILITY, left=0.5, diagonal=True)


def _point(row: MetricRow, metric: str, axis: str) -> Point:
    value = getattr(row, metric)
    low, high = getattr(row, f"{metric}_ci") or (value, value)
    tip = f"{row.method}, {row.branches} branches: {percent(value)}%"
    if axis == "tokens":
        return Point(row.generated_tokens or 0.0, value, low, high, tip, str(row.branches))
    return Point(row.branches, value, low, high, tip)
