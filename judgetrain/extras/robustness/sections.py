"""Show attacks in a report: one line a judge in front, every attack folded."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

from judgetrain.evaluate.metrics.rows import MetricRow
from judgetrain.evaluate.report.table import Columns, Sections, Table, one_each, percent, value
from judgetrain.extras.robustness.measure import Attacked, Attacks

LABELS = {
    "edit": "edits that keep the label",
    "empty": "answers without content",
    "forgery": "forged verdicts",
    "control": "a harmless sentence",
    "rerun": "asked once more",
}
"""Kinds of attacks in words."""


def sections(rows: Sequence[MetricRow], records: Sequence[Any]) -> Sections:
    """Return a line a judge, and every attack behind it."""
    shown = [row for row in one_each(rows) if _attacks(row)]
    return Sections(front=[_front(shown)], folded=_folded(shown))


def _attacks(row: MetricRow) -> Attacks:
    """Return the attacks on a method; none where it was not attacked."""
    attacks: Attacks = row.extras.get("robustness", ())
    return attacks


def _front(rows: Sequence[MetricRow]) -> Table:
    """Return a line a judge: if answers without content lose, and the attack that turns most verdicts."""
    columns: Columns = {
        "method": attrgetter("key"),
        "content-free loses %": _whole("empty", "loses"),
        "edits flip %": _whole("edit", "flips"),
        "most": _worst,
        "re-run flips %": _whole("rerun", "flips"),
        "attacked": lambda row: max(attacked.n for attacked in _attacks(row) if attacked.attack),
    }
    # Forgeries are not among the default attacks: most reports need no column of dashes for them.
    kinds = {attacked.kind for row in rows for attacked in _attacks(row)}
    if "forgery" in kinds:
        columns["forgeries flip %"] = _whole("forgery", "flips")
    return Table.of("Under attack", rows, columns)


def _folded(rows: Sequence[MetricRow]) -> list[Table]:
    """Return tables of every attack on every judge; forgeries, which are many, in a table of their own."""
    lines = []
    for row in rows:
        # A line is an attack with its method's name, which the record of an attack does not have.
        lines += [SimpleNamespace(method=row.key, **vars(attacked)) for attacked in _attacks(row)]
    edit_columns: Columns = {
        "method": attrgetter("method"),
        "attack": _name,
        "n": attrgetter("n"),
        "robustness %": value("robustness"),
        "unreadable before": _unreadable_before,
    }
    empty_columns: Columns = {
        "method": attrgetter("method"),
        "answer": _name,
        "n": attrgetter("n"),
        "loses in both orders %": value("loses"),
    }
    tables = []
    for title, kinds, columns in (
        ("Answers without content", ("empty",), empty_columns),
        ("Edits that keep the label", ("rerun", "control", "edit"), edit_columns),
        ("Forged verdicts", ("forgery",), edit_columns),
    ):
        of_kind = [line for line in lines if line.kind in kinds]
        tables.append(Table.of(title, of_kind, columns, names=2).fold())
    return tables


def _unreadable_before(attacked: Attacked | SimpleNamespace) -> Any:
    """Return the number of comparisons that could not be read without the attack, or a dash."""
    if attacked.unreadable is None:
        return "–"
    return attacked.unreadable


def _name(attacked: Attacked | SimpleNamespace) -> str:
    """Return an attack's name, or its kind's where it stands for all of a kind."""
    if attacked.attack:
        return str(attacked.attack).replace("_", " ")
    return f"all {LABELS[attacked.kind]}"


def _whole(kind: str, name: str) -> Callable[[MetricRow], str]:
    """Return a function that writes a share of all attacks of a kind together, or of the only one."""

    def cell(row: MetricRow) -> str:
        of_kind = [attacked for attacked in _attacks(row) if attacked.kind == kind]
        if not of_kind:
            return "–"
        # A single attack of its kind has no row for all of them.
        together = [attacked for attacked in of_kind if not attacked.attack] or of_kind
        return value(name)(together[0])

    return cell


def _worst(row: MetricRow) -> str:
    """Return the edit that turns most verdicts, and their share."""
    edits = [attacked for attacked in _attacks(row) if attacked.kind == "edit" and attacked.attack]
    if not edits:
        return "–"
    worst = max(edits, key=lambda attacked: attacked.flips or 0.0)
    return f"{_name(worst)} {percent(worst.flips)}"
