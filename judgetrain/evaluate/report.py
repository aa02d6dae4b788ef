"""The tables of results, on the console and as Markdown; :mod:`judgetrain.evaluate.page` makes the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]

CONTRACT = (
    "Agreement: both orders give the label, over all items, ties included. "
    "Consistency: both orders give the same readable verdict. "
    "Tokens: generated for one verdict in one order. "
    "Unreadable: share of judgments without readable scores. "
    "No verdict: share of verdicts in which no branch could be read; these agree with nothing."
)
DETAILS = (
    "W/o ties: only items whose label is A or B. Single order: each order judged alone, mean of the two. "
    "Conflict as tie: agreement when orders that conflict count as a tie. AUC: chance that an item labelled A has a "
    "larger margin than one labelled B. First wins: share of verdicts for the "
    "response shown first, among those that flip with the order (50 is no bias). Longer wins: share of consistent "
    "verdicts for the longer response. Seconds: of one verdict in one order; measured with the most branches, for "
    "fewer their share by tokens."
)
PAIRED = (
    "Differences in agreement on the same items; brackets: 95% paired bootstrap interval; p: exact McNemar test, not "
    "corrected for the number of rows."
)
HEADLINE = ("method", "branches", "agreement %", "consistency %", "tokens", "unreadable %", "no verdict %")
DETAIL = (
    *("method", "branches", "agreement w/o ties %", "consistency w/o ties %", "single order %", "conflict as tie %"),
    *("AUC %", "first wins %", "longer wins %", "prompt tokens", "seconds"),
)
DIFFERENCE = ("first", "second", "difference", "p")

Table = tuple[str, tuple[str, ...], list[tuple[str, ...]], str]
"""Title, headers, cells and an explanation."""


@dataclass(frozen=True)
class Report:
    """What a report is made of: rows of ``metrics.json`` and ``paired.json``, and what was left out of benchmarks."""

    recipe: str
    seed: int
    rows: Sequence[Row]
    paired: Sequence[Row]
    left_out: Mapping[str, Mapping[str, int]]

    def benchmarks(self) -> dict[str, list[Row]]:
        """The metric rows by benchmark."""
        result: dict[str, list[Row]] = {}
        for row in self.rows:
            result.setdefault(row["benchmark"], []).append(row)
        return result

    def title(self, benchmark: str) -> str:
        """A benchmark with its split, size and what was left out of it."""
        row = self.benchmarks()[benchmark][0]
        left_out = "".join(f", {n} left out: {why}" for why, n in self.left_out.get(benchmark, {}).items())
        return f"{benchmark} ({row['split']}, n = {row['n']}{left_out})"

    def tables(self, benchmark: str) -> list[Table]:
        """The tables of a benchmark: results, details, groups and differences; those without rows are left out."""
        rows = self.benchmarks()[benchmark]
        headline: list[tuple[str, ...]] = [
            (*_name(r), _interval(r, "agreement"), _interval(r, "consistency"), *_costs(r)) for r in rows
        ]
        tables: list[Table] = [
            ("Results", HEADLINE, headline, f"{CONTRACT} Brackets: 95% bootstrap interval over items."),
            ("Details", DETAIL, [_detail(r) for r in rows], DETAILS),
            group_table(rows),
            ("Differences", DIFFERENCE, [_difference(r) for r in self.paired if r["benchmark"] == benchmark], PAIRED),
        ]
        return [table for table in tables if table[2]]


def percent(value: float | None) -> str:
    """A share as a percentage with one decimal; a dash for None."""
    return "–" if value is None else f"{100 * value:.1f}"


def console_tables(report: Report) -> list[Any]:
    """Rich tables, one a benchmark, narrow enough for 80 columns, and what the columns mean."""
    from rich import box
    from rich.table import Table as RichTable

    tables: list[Any] = []
    for benchmark, rows in report.benchmarks().items():
        title = _plain(report.title(benchmark))
        table = RichTable(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        table.add_column("method", overflow="fold")
        for header in HEADLINE[1:]:
            table.add_column(header.replace(" ", "\n"), justify="right", no_wrap=True)
        for row in rows:
            table.add_row(
                _plain(_name(row)[0]), _name(row)[1], _half(row, "agreement"), _half(row, "consistency"), *_costs(row)
            )
        tables.append(table)
    return [*tables, f"{CONTRACT} ±: half of the 95% bootstrap interval over items."]


def _plain(text: str) -> Any:
    """Text in which Rich sees no markup, as in a benchmark called ``[red]``."""
    from rich.text import Text

    return Text(text)


def markdown(report: Report) -> str:
    """The report as Markdown."""
    lines = [f"# Evaluation: recipe {_cell(report.recipe)}, seed {report.seed}", ""]
    for benchmark in report.benchmarks():
        lines += [f"## {_cell(report.title(benchmark))}", ""]
        for title, headers, cells, explanation in report.tables(benchmark):
            lines += [f"### {title}", "", _line(headers), _line(["---"] * len(headers))]
            lines += [_line(row) for row in cells]
            lines += ["", explanation, ""]
    return "\n".join(lines)


def group_table(rows: Sequence[Row]) -> Table:
    """Agreement by group: every method with its largest number of branches."""
    largest: dict[str, Row] = {}
    for row in rows:
        if row["groups"] and row["branches"] >= largest.get(row["method"], row)["branches"]:
            largest[row["method"]] = row
    groups = next(iter(largest.values()))["groups"] if largest else {}
    headers = [f"{m}@{row['branches']}" if row["branches"] else m for m, row in largest.items()]
    cells = [
        (g, str(groups[g]["n"]), *(percent(row["groups"][g]["agreement"]) for row in largest.values())) for g in groups
    ]
    return "Agreement by group", ("group", "n", *headers), cells, "Agreement in percent, method@branches."


def _name(row: Row) -> tuple[str, str]:
    return str(row["method"]), str(row["branches"]) if row["branches"] else "–"


def _interval(row: Row, name: str) -> str:
    low, high = row[f"{name}_ci"]
    return f"{percent(row[name])} [{100 * low:.1f}, {100 * high:.1f}]"


def _half(row: Row, name: str) -> str:
    low, high = row[f"{name}_ci"]
    return f"{percent(row[name])} ± {50 * (high - low):.1f}"


def _costs(row: Row) -> tuple[str, str, str]:
    unreadable = row["parse_failures"] / row["judgments"] if row["judgments"] else None
    return f"{row['generated_tokens']:.0f}", percent(unreadable), percent(row["unreadable_verdicts"] / (2 * row["n"]))


def _detail(row: Row) -> tuple[str, ...]:
    names = ("agreement_wo_tie", "consistency_wo_tie", "single_order_accuracy", "conflict_as_tie", "auc")
    shares = [percent(row[name]) for name in (*names, "position_bias", "longer_preference")]
    return (*_name(row), *shares, f"{row['prompt_tokens']:.0f}", f"{row['seconds']:.3g}")


def _difference(row: Row) -> tuple[str, ...]:
    sides = [f"{row[side]['method']}@{row[side]['branches']}" for side in ("first", "second")]
    low, high = row["agreement_difference_ci"]
    difference = f"{100 * row['agreement_difference']:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"
    p = row["mcnemar_p"]
    return (*sides, difference, "< 0.001" if p < 0.001 else f"{p:.3f}")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """Text that cannot end a Markdown cell or become markup."""
    for character in "\\|*`":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.replace("<", "&lt;").replace(">", "&gt;").replace("](", "]\\(").split())
