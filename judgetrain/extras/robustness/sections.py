"""Attacks in a report: one line a judge in front, every attack folded."""

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


def sections(rows: Sequence[MetricRow], records: Sequence[Any]) -> Sections:
    """A line a judge, and every attack behind it."""
    shown = [row for row in one_each(rows) if _attacks(row)]
    return Sections(front=[_front(shown)], folded=_folded(shown))


def _attacks(row: MetricRow) -> Attacks:
    found: Attacks = row.extras.get("robustness", ())
    return found


def _front(rows: Sequence[MetricRow]) -> Table:
    """A line a judge: whether answers without content lose, and the attack that turns most verdicts."""
    columns: Columns = {
        "method": attrgetter("key"),
        "content-free loses %": _whole("empty", "loses"),
        "edits flip %": _whole("edit", "flips"),
        "most": _worst,
        "re-run flips %": _whole("rerun", "flips"),
        "attacked": lambda row: max(found.n for found in _attacks(row) if found.attack),
    }
    if any(found.kind == "forgery" for row in rows for found in _attacks(row)):
        columns["forgeries flip %"] = _whole("forgery", "flips")
    return Table.of("Under attack", rows, columns)


def _folded(rows: Sequence[MetricRow]) -> list[Table]:
    """Every attack on every judge; forgeries, which are many, in a table of their own."""
    shown = [SimpleNamespace(method=row.key, **vars(found)) for row in rows for found in _attacks(row)]
    columns: Columns = {
        "method": attrgetter("method"),
        "attack": _name,
        "n": attrgetter("n"),
        "robustness %": value("robustness"),
        "unreadable before": lambda found: "–" if found.unreadable is None else found.unreadable,
    }
    empty: Columns = {
        "method": attrgetter("method"),
        "answer": _name,
        "n": attrgetter("n"),
        "loses in both orders %": value("loses"),
    }
    return [
        Table.of(title, (found for found in shown if found.kind in kinds), of, names=2, folded=True)
        for title, kinds, of in (
            ("Answers without content", ("empty",), empty),
            ("Edits that keep the label", ("rerun", "control", "edit"), columns),
            ("Forged verdicts", ("forgery",), columns),
        )
    ]


def _name(found: Attacked | SimpleNamespace) -> str:
    return found.attack.replace("_", " ") if found.attack else f"all {LABELS[found.kind]}"


def _whole(kind: str, name: str) -> Callable[[MetricRow], str]:
    """A share of all attacks of a kind together, or of the only one."""

    def cell(row: MetricRow) -> str:
        found = [each for each in _attacks(row) if each.kind == kind]
        whole = next((each for each in found if not each.attack), found[0] if found else None)
        return value(name)(whole) if whole else "–"

    return cell


def _worst(row: MetricRow) -> str:
    edits = [each for each in _attacks(row) if each.kind == "edit" and each.attack]
    if not edits:
        return "–"
    worst = max(edits, key=lambda each: each.flips or 0.0)
    return f"{_name(worst)} {percent(worst.flips)}"
