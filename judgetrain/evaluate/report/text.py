"""The report on the console and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from judgetrain.evaluate.report.report import Report
from judgetrain.evaluate.report.sections import CHOSEN, NAME, SPENT
from judgetrain.evaluate.report.table import Columns, Table, notes, share


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
