"""Attacks in a report: one line a judge in front, every attack folded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from judgetrain.evaluate.hooks import Sections
from judgetrain.evaluate.metrics.rows import MetricRow
from judgetrain.evaluate.report.sections import one_each
from judgetrain.evaluate.report.table import Columns, Table, bounded, percent
from judgetrain.extras.robustness.measure import Attacked, Attacks

Rows = Sequence[MetricRow]
LABELS = {
    "edit": "edits that keep the label",
    "empty": "answers without content",
    "forgery": "forged verdicts",
    "control": "a harmless sentence",
    "rerun": "asked once more",
}


def sections(rows: Rows, records: Sequence[Any]) -> Sections:
    """A line a judge, and every attack behind it."""
    return Sections(front=[_front(rows)], folded=_folded(rows))


def _attacks(row: MetricRow) -> Attacks:
    found: Attacks = row.extras.get("robustness", ())
    return found


def _front(rows: Rows) -> Table:
    """A line a judge: whether answers without content lose, and the attack that turns most verdicts."""
    shown = [row for row in one_each(rows) if _attacks(row)]
    columns: Columns = {
        "method": lambda row: row.key,
        "content-free loses %": lambda row: _loses(_whole(row, "empty")),
        "edits flip %": lambda row: _flips(_whole(row, "edit")),
        "most": lambda row: _worst(row),
        "re-run flips %": lambda row: _flips(_whole(row, "rerun")),
        "attacked": lambda row: max(found.n for found in _attacks(row) if found.attack),
    }
    if any(_whole(row, "forgery") for row in shown):
        columns["forgeries flip %"] = lambda row: _flips(_whole(row, "forgery"))
    return Table.of("Under attack", shown, columns)


def _folded(rows: Rows) -> list[Table]:
    """Every attack on every judge; forgeries, which are many, in a table of their own."""
    shown = [(row, found) for row in one_each(rows) for found in _attacks(row)]
    columns: Columns = {
        "method": lambda item: item[0].key,
        "attack": lambda item: _name(item[1]),
        "n": lambda item: item[1].n,
        "flips, A first %": lambda item: bounded(item[1].flips_ab, item[1].flips_ab_ci, 1, 100),
        "B first %": lambda item: bounded(item[1].flips_ba, item[1].flips_ba_ci, 1, 100),
        "robustness %": lambda item: bounded(item[1].robustness, item[1].robustness_ci, 1, 100),
        "gained %": lambda item: bounded(item[1].gained, item[1].gained_ci, 1, 100),
        "unreadable before": lambda item: "–" if item[1].unreadable is None else item[1].unreadable,
    }
    empty: Columns = {
        "method": columns["method"],
        "answer": columns["attack"],
        "n": columns["n"],
        "loses, shown first %": lambda item: bounded(item[1].loses_ab, item[1].loses_ab_ci, 1, 100),
        "shown second %": lambda item: bounded(item[1].loses_ba, item[1].loses_ba_ci, 1, 100),
        "both %": lambda item: bounded(item[1].loses, item[1].loses_ci, 1, 100),
        "wins an order %": lambda item: bounded(item[1].wins, item[1].wins_ci, 1, 100),
    }

    def of(*kinds: str) -> list[tuple[MetricRow, Attacked]]:
        return [(row, found) for row, found in shown if found.kind in kinds]

    return [
        Table.of("Answers without content", of("empty"), empty, names=2, folded=True),
        Table.of("Edits that keep the label", of("rerun", "control", "edit"), columns, names=2, folded=True),
        Table.of("Forged verdicts", of("forgery"), columns, names=2, folded=True),
    ]


def _name(found: Attacked) -> str:
    return found.attack.replace("_", " ") if found.attack else f"all {LABELS[found.kind]}"


def _whole(row: MetricRow, kind: str) -> Attacked | None:
    """All attacks of a kind together; the only one where there is one."""
    found = [each for each in _attacks(row) if each.kind == kind]
    return next((each for each in found if not each.attack), found[0] if found else None)


def _loses(found: Attacked | None) -> str:
    return "–" if found is None else bounded(found.loses, found.loses_ci, 1, 100)


def _flips(found: Attacked | None) -> str:
    return "–" if found is None else bounded(found.flips, found.flips_ci, 1, 100)


def _worst(row: MetricRow) -> str:
    edits = [each for each in _attacks(row) if each.kind == "edit" and each.attack]
    if not edits:
        return "–"
    worst = max(edits, key=lambda each: each.flips or 0.0)
    return f"{_name(worst)} {percent(worst.flips)}"
