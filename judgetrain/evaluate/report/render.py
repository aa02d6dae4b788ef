"""The report on the console, as Markdown, as one self-contained page, and what of it goes to the tracker."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from judgetrain.artifacts.files import write_text_atomic
from judgetrain.artifacts.pages import Chart, Point, render
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.artifacts.tracker import Run
from judgetrain.evaluate.metrics.rows import MetricRow
from judgetrain.evaluate.report.report import Report
from judgetrain.evaluate.report.sections import CHOSEN, NAME, SPENT, results
from judgetrain.evaluate.report.table import TEMPLATES, Columns, Table, notes, percent, share


def console_tables(report: Report) -> list[Any]:
    """Rich tables, one a benchmark, narrow enough for 80 columns, and what the columns mean."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text  # in which Rich sees no markup, as in a benchmark called [red]

    tables: list[Any] = []
    for benchmark, rows in report.benchmarks().items():
        verdicts = [row for row in rows if row.agreement is not None]
        columns: Columns = {"method": attrgetter("method"), "k": NAME["branches"]}
        columns |= {f"{name} %": share(name) for name in ("agreement", "consistency")} | SPENT
        title = Text(report.title(benchmark))
        table = RichTable(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        table.add_column("method", overflow="fold")
        for header in [*columns][1:]:
            table.add_column(header.replace(" ", "\n"), justify="right")
        for row in verdicts:
            table.add_row(*(Text(cell(row)) for cell in columns.values()))
        if verdicts:
            tables.append(table)
    note = CHOSEN if any(row.chosen for row in report.rows) else ""
    return [*tables, f"{notes()['Results']} Brackets: 95% bootstrap interval (prompts resampled whole).{note}"]


def markdown(report: Report) -> str:
    """The report as Markdown."""
    seed = "" if report.seed is None else f", seed {report.seed}"
    lines = [f"# Evaluation: recipe {_cell(report.recipe)}{seed}", ""]
    for benchmark in report.benchmarks():
        lines += [f"## {_cell(report.title(benchmark))}", ""]
        for table in report.tables(benchmark):
            lines += table_lines(table)
    if closing := report.closing():
        lines += ["## Where it comes from", "", *(line for table in closing for line in table_lines(table))]
    return "\n".join(lines)


def table_lines(table: Table) -> list[str]:
    """The lines of a Markdown table with its title and explanation."""
    head = [f"### {table.title}", "", _line(table.headers), _line(["---"] * len(table.headers))]
    return [*head, *(_line(row) for row in table.cells), "", table.explanation, ""]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """Text that cannot end a Markdown cell or become markup."""
    for character in "\\|*`":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.replace("<", "&lt;").replace(">", "&gt;").replace("](", "]\\(").split())


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
    shown = sorted((row for row in rows if row.branches and row.agreement is not None), key=lambda row: row.branches)
    charts = []
    for title, metric, by_cost in (
        ("Agreement by branches", "agreement", False),
        ("Agreement by cost", "agreement", True),
        ("Consistency by branches", "consistency", False),
    ):
        series: dict[str, list[Point]] = {row.method: [] for row in rows if row.branches and row.agreement is not None}
        for row in shown:
            if (value := getattr(row, metric)) is not None:
                x, mark = (row.generated_tokens or 0.0, str(row.branches)) if by_cost else (row.branches, "")
                tip = f"{row.method}, {row.branches} branches: {percent(value)}%"
                series[row.method].append(Point(x, value, tip, getattr(row, f"{metric}_ci"), mark))
        ticks = None if by_cost else sorted({float(row.branches) for row in shown})
        if any(series.values()):
            x_label = "tokens a verdict" if by_cost else "branches"
            charts.append(Chart(title=title, x_label=x_label, series=series, ticks=ticks))
    return charts


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
        flat = [_scalars(row) for row in rows]
        columns = list(dict.fromkeys(name for values in flat for name in values))
        track.table(f"{benchmark}/metrics", columns, [[values.get(name) for name in columns] for values in flat])


def _scalars(row: MetricRow) -> dict[str, Any]:
    """Every metric that is one value, and the ends of intervals."""
    values: dict[str, Any] = {}
    for name, value in row.to_row().items():
        if name.endswith("_ci"):
            values[f"{name}_low"], values[f"{name}_high"] = value or (None, None)
        elif value is None or isinstance(value, (str, int, float)):
            values[name] = value
    return values
