"""What a sweep found: agreement over the settings that differ from run to run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from judgetrain.artifacts.chart import Chart, Point
from judgetrain.evaluate.metrics.registry import Interval
from judgetrain.evaluate.metrics.rows import MetricRow
from judgetrain.evaluate.report.run_names import Settings, natural, swept_keys
from judgetrain.evaluate.report.sections import one_each
from judgetrain.evaluate.report.table import percent

LONGEST = 12
"""Characters of a value below an axis."""


@dataclass(frozen=True, kw_only=True)
class SweptValue:
    """A method's agreement under one value of a swept key; over ``seeds`` runs it is the mean, without interval.

    ``series`` is the method with its branches and the values of the other swept keys.
    """

    benchmark: str
    key: str
    value: str
    series: str
    agreement: float
    agreement_ci: Interval | None
    seeds: int


def swept_values(
    runs: Sequence[tuple[Settings, Sequence[MetricRow]]], tells: Mapping[str, Sequence[str]]
) -> list[SweptValue]:
    """Every method with one number of branches, under every value of every key that its figures depend on.

    Args:
        runs: the settings and metric rows of each.
        tells: by method the settings that its figures depend on.
    """
    keys = swept_keys([settings for settings, _ in runs])
    found: dict[tuple[str, str, str, str], list[MetricRow]] = {}
    for settings, rows in runs:
        for row in _shown(rows):
            used = [key for key in keys if key in tells[row.method]]
            for key in used:
                others = ", ".join(f"{o.rpartition('.')[2]}={settings[o]}" for o in used if o != key)
                series = f"{row.key} ({others})" if others else str(row.key)
                found.setdefault((row.benchmark, key, series, settings[key]), []).append(row)
    return [
        SweptValue(
            benchmark=benchmark,
            key=key,
            value=value,
            series=series,
            agreement=fmean(float(row.agreement or 0.0) for row in rows),
            agreement_ci=rows[0].agreement_ci if len(rows) == 1 else None,
            seeds=len(rows),
        )
        for (benchmark, key, series, value), rows in found.items()
    ]


def _shown(rows: Sequence[MetricRow]) -> Iterator[MetricRow]:
    for benchmark in dict.fromkeys(row.benchmark for row in rows):
        yield from one_each([r for r in rows if r.benchmark == benchmark and r.agreement is not None])


def swept_charts(values: Sequence[SweptValue], benchmark: str) -> list[Chart]:
    """A chart for each swept key of a benchmark, its values at equal distances; a line for each series."""
    charts = []
    for key in dict.fromkeys(v.key for v in values if v.benchmark == benchmark):
        here = [v for v in values if (v.benchmark, v.key) == (benchmark, key)]
        ticks = sorted({v.value for v in here}, key=natural)
        series: dict[str, list[Point]] = {v.series: [] for v in here}
        for v in sorted(here, key=lambda v: ticks.index(v.value)):
            over = f", mean of {v.seeds} runs" if v.seeds > 1 else ""
            tip = f"{v.series}, {key}={v.value}: {percent(v.agreement)}%{over}"
            series[v.series].append(Point(float(ticks.index(v.value)), v.agreement, tip, v.agreement_ci))
        if len(ticks) > 1:
            names = [t if len(t) <= LONGEST else f"…{t[1 - LONGEST :]}" for t in ticks]
            charts.append(Chart(title=f"Agreement by {key}", x_label=key, series=series, left=-0.3, names=names))
    return charts
