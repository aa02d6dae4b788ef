"""What of an evaluation goes to the tracker: numbers, the headline table and every metric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from judgetrain.artifacts.tracker import Run
from judgetrain.evaluate.metrics.rows import MetricRow
from judgetrain.evaluate.report.report import Report
from judgetrain.evaluate.report.sections import results

LOGGED = ("agreement", "consistency", "generated_tokens")
"""Metrics that are numbers of the run; all others are in the table of metrics."""


def track_report(report: Report, track: Run) -> None:
    """Log numbers as ``BENCHMARK/METHOD@BRANCHES/METRIC``, and tables by benchmark."""
    track.log(
        {
            f"{row.benchmark}/{row.method}@{row.branches}/{name}": getattr(row, name)
            for row in report.rows
            for name in LOGGED
            if getattr(row, name) is not None
        }
    )
    for benchmark, rows in report.benchmarks().items():
        headline = results([row for row in rows if row.agreement is not None])
        if headline.cells:
            track.table(f"{benchmark}/headline", headline.headers, headline.cells)
        columns, cells = _scalars(rows)
        track.table(f"{benchmark}/metrics", columns, cells)


def _scalars(rows: Sequence[MetricRow]) -> tuple[list[str], list[list[Any]]]:
    """Every metric that is one value, and the ends of intervals."""
    flat = []
    for row in rows:
        values: dict[str, Any] = {}
        for name, value in row.to_row().items():
            if name.endswith("_ci"):
                low, high = value or (None, None)
                values |= {f"{name}_low": low, f"{name}_high": high}
            elif value is None or isinstance(value, (str, int, float)):
                values[name] = value
        flat.append(values)
    columns = list(dict.fromkeys(name for values in flat for name in values))
    return columns, [[values.get(name) for name in columns] for values in flat]
