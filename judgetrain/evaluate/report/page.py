"""The report as one self-contained page, and its figures: agreement and consistency (paper, figures 1 and 5)."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from judgetrain.artifacts.chart import Chart, Point
from judgetrain.artifacts.files import write_text_atomic
from judgetrain.artifacts.pages import render
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.evaluate.metrics.rows import MetricRow
from judgetrain.evaluate.report.report import Report
from judgetrain.evaluate.report.table import TEMPLATES, Table, percent
from judgetrain.evaluate.report.text import table_lines


def html_page(report: Report, links: Mapping[str, Sequence[tuple[str, str]]] | None = None) -> str:
    """The page. ``links``: texts and addresses by benchmark."""
    return render(
        TEMPLATES / "report.html",
        title=f"{report.recipe}: evaluation",
        report=report,
        links=links or {},
        day=datetime.date.today().isoformat(),
        figures=figures,
    )


def write_report(
    out: StageRun, title: str, tables: Sequence[Table], numbers: str, charts: Sequence[Chart] = ()
) -> None:
    """A stage's tables and charts as ``report.md``, and as ``report.html``, which needs nothing else.

    ``numbers``: the file beside them that has what they show.
    """
    lines = [f"# {title}", "", *(line for table in tables for line in table_lines(table))]
    write_text_atomic(out.path("report.md"), "\n".join(lines))
    page = render(TEMPLATES / "studies.html", title=title, charts=charts, tables=tables, numbers=numbers)
    write_text_atomic(out.path("report.html"), page)
    out.log(f"{out.stage}: report: {out.path('report.html')}")


def figures(rows: Sequence[MetricRow]) -> list[Chart]:
    """The charts of the branching judges among a benchmark's metric rows, a line for each judge; without any, none.

    Rows without the metric that a chart shows have no point in it, and a chart without points is left out.
    """
    shown = [row for row in rows if row.branches and row.agreement is not None]
    judges: dict[str, list[MetricRow]] = {row.method: [] for row in shown}
    for row in sorted(shown, key=lambda r: r.branches):
        judges[row.method].append(row)
    if not judges:
        return []
    counts = sorted({float(row.branches) for row in shown})
    return [
        Chart(
            title=title,
            x_label="tokens a verdict" if by_cost else "branches",
            series={
                name: [_point(row, metric, by_cost) for row in part if getattr(row, metric) is not None]
                for name, part in judges.items()
            },
            ticks=None if by_cost else counts,
        )
        for title, metric, by_cost in (
            ("Agreement by branches", "agreement", False),
            ("Agreement by cost", "agreement", True),
            ("Consistency by branches", "consistency", False),
        )
        if any(getattr(row, metric) is not None for row in shown)
    ]


def _point(row: MetricRow, metric: str, by_cost: bool) -> Point:
    value, ends = getattr(row, metric), getattr(row, f"{metric}_ci")
    tip = f"{row.method}, {row.branches} branches: {percent(value)}%"
    x, mark = (row.generated_tokens or 0.0, str(row.branches)) if by_cost else (row.branches, "")
    return Point(x, value, tip, ends, mark)
