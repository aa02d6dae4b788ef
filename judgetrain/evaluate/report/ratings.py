"""The tables of benchmarks of single responses, and their section of a judge's card."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from judgetrain.amounts import amount
from judgetrain.artifacts.files import read_json
from judgetrain.evaluate.metrics.rating_rows import RatingRow
from judgetrain.evaluate.metrics.rows import Unit
from judgetrain.evaluate.report.table import Columns, Table, formatted, number, percent, signed, within

SHOWN: Mapping[str, tuple[str, Unit]] = {"agreement": ("agreement %", "percent"), "kappa": ("kappa", "hundredths")}
"""The metrics of the first table, and of the screen: their headers and units, by name."""
FURTHER: Mapping[str, tuple[str, Unit]] = {
    "balanced_accuracy": ("balanced %", "percent"),
    "sensitivity": ("sensitivity %", "percent"),
    "specificity": ("specificity %", "percent"),
    "precision": ("precision %", "percent"),
    "f1": ("F1 %", "percent"),
    "auroc": ("AUROC %", "percent"),
    "brier": ("Brier", "thousandths"),
    "calibration_error": ("calibration error", "thousandths"),
    "within_one": ("within one %", "percent"),
    "mean_error": ("mean error %", "percent"),
    "pearson": ("Pearson", "thousandths"),
    "spearman": ("Spearman", "thousandths"),
    "kendall": ("Kendall", "thousandths"),
    "order_accuracy": ("order %", "percent"),
}
"""The other metrics likewise."""


def metric(name: str, unit: Unit) -> Callable[[RatingRow], str]:
    """Return a function that returns a metric of a row as text, with the ends of its interval where there is one."""

    def cell(row: RatingRow) -> str:
        text = formatted(row.metrics.get(name), unit)
        interval = row.metrics.get(f"{name}_ci")
        if interval is None or row.metrics.get(name) is None:
            return text
        low, high = interval
        return text + within(formatted(low, unit), formatted(high, unit))

    return cell


def columns_of(metrics: Mapping[str, tuple[str, Unit]], rows: Sequence[RatingRow]) -> Columns:
    """Return the columns of metrics that some row has."""
    columns: Columns = {}
    for name, (header, unit) in metrics.items():
        if any(row.metrics.get(name) is not None for row in rows):
            columns[header] = metric(name, unit)
    return columns


def names(rows: Sequence[RatingRow]) -> Columns:
    """Return the columns that tell rows apart."""
    columns: Columns = {"method": attrgetter("method"), "branches": lambda row: str(row.branches or "–")}
    if any(row.criterion for row in rows):
        columns["criterion"] = lambda row: row.criterion or "the whole"
    return columns


def tables(rows: Sequence[RatingRow]) -> list[Table]:
    """Return the tables of one benchmark's rows: two metrics, all others, and people beside the judge."""
    spent: Columns = {
        "n": attrgetter("n"),
        "unread %": lambda row: percent(row.unread),
        "tokens": lambda row: number(row.generated_tokens, 0),
    }
    prevalences = {row.criterion: prevalence_sentence(row) for row in rows}
    sentences = []
    for criterion, shares in prevalences.items():
        sentence = f"{shares}."
        if criterion:
            sentence = f"{criterion}: {shares}."
        sentences.append(sentence)
    note = " ".join(sentences)
    first = Table.of("Single responses", rows, {**names(rows), **columns_of(SHOWN, rows), **spent}, note)
    folded = Table.of("All metrics", rows, {**names(rows), **columns_of(FURTHER, rows)}).fold()
    # People are compared only where a response has several labels.
    with_people = [row for row in rows if row.people is not None]
    return [table for table in (first, _people(with_people), folded) if table.cells]


def prevalence_sentence(row: RatingRow) -> str:
    """Return the share of labels at each level in words."""
    shares = ", ".join(f"{name} {percent(share)}%" for name, share in row.prevalence.items())
    return f"Labels are {shares}"


def _people(rows: Sequence[RatingRow]) -> Table:
    """Return the table of how people agree among each other, and each judge with them."""

    def share(name: str, show: Callable[[float | None], str]) -> Callable[[RatingRow], str]:
        def cell(row: RatingRow) -> str:
            text = show(getattr(row.people, name))
            interval = getattr(row.people, f"{name}_ci")
            if interval is None:
                return text
            return text + within(*map(show, interval))

        return cell

    columns: Columns = {
        **names(rows),
        "n": lambda row: row.people.n,
        "annotators": lambda row: row.people.annotators,
        "alpha": share("alpha", number),
        "person %": share("person", percent),
        "judge %": share("judge", percent),
        "difference": share("difference", signed),
    }
    return Table.of("People", rows, columns)


def by_benchmark(rows: Sequence[RatingRow]) -> dict[str, list[RatingRow]]:
    """Return rows by their benchmark."""
    result: dict[str, list[RatingRow]] = {}
    for row in rows:
        result.setdefault(row.benchmark, []).append(row)
    return result


def title(rows: Sequence[RatingRow], left_out: Mapping[str, int]) -> str:
    """Return a benchmark's name with its split, its size and what was left out of it."""
    first = rows[0]
    counts = "".join(f", {count} left out: {reason}" for reason, count in left_out.items())
    return f"{first.benchmark} ({first.split}, single responses, n = {first.n}{counts})"


def console_columns(rows: Sequence[RatingRow]) -> Columns:
    """Return the columns of the table on the screen."""
    columns: Columns = {"method": attrgetter("method"), "k": lambda row: str(row.branches or "–")}
    if any(row.criterion for row in rows):
        columns["criterion"] = lambda row: row.criterion or "–"
    return {**columns, **columns_of(SHOWN, rows), "tokens": lambda row: number(row.generated_tokens, 0)}


EXPLANATION = (
    "Single responses: agreement: the score is at the label's level. Kappa: agreement beyond chance, quadratic over "
    "more than two levels. always: the rule that gives every response the commonest label."
)


def _card(directory: Path, judge: str) -> str:
    """Return the section of a judge's card on single responses; empty for an artifact that measured none."""
    rows: Sequence[Mapping[str, Any]] = read_json(directory / "ratings.json") or ()
    lines = []
    for row in rows:
        is_rule = row["branches"] == 0
        # Options behind a judge's name are ways of asking the same judge.
        if row["method"].partition("+")[0] != judge and not is_rule:
            continue
        criterion = ""
        if row["criterion"]:
            criterion = f", {row['criterion']}"
        interval = ""
        if row["agreement_ci"]:
            interval = within(*map(percent, row["agreement_ci"]))
        kappa = ""
        if row["kappa"] is not None:
            kappa = f", kappa {number(row['kappa'])}"
        share = f"{percent(row['agreement'])}%{interval} of {amount(row['n'], 'response')}"
        lines.append(f"- {row['benchmark']}{criterion}: `{row['method']}` gives the label of {share}{kappa}")
    # Rules alone say nothing of the judge.
    if not any(f"`{judge}" in line for line in lines):
        return ""
    return "\n".join(lines)


PARTS = {"Single responses": _card}
"""Sections of a judge's card by title: functions of a finished artifact that return the text, or an empty one."""
