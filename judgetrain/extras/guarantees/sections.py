"""What can be relied on, in a report: one line a judge in front, everything else folded."""

from __future__ import annotations

from collections.abc import Sequence

from judgetrain.evaluate.metrics.rows import MetricRow
from judgetrain.evaluate.report.table import Columns, Sections, Table, number, percent, points
from judgetrain.extras.guarantees.gate import Check
from judgetrain.extras.guarantees.measure import Guarantees
from judgetrain.extras.guarantees.selective import Answers, Selective
from judgetrain.extras.guarantees.worth import Worth

Rows = Sequence[MetricRow]


def sections(rows: Rows, records: Sequence[Check | Worth | str]) -> Sections:
    """Whether training paid, the gate, a line a judge, and the tables behind it."""
    first = [_paid([r for r in records if isinstance(r, Worth)]), _gate([r for r in records if isinstance(r, Check)])]
    return Sections(first=first, front=[_front(rows)], folded=[_cascades(rows)])


def _front(rows: Rows) -> Table:
    """A line a judge."""
    columns: Columns = {"method": lambda item: item[0].method}
    columns["where it is sure"] = lambda item: _sure(item[1].selective)
    found = _found(rows)
    return Table.of("What can be relied on", found if any(g.selective for _, g in found) else (), columns)


def _paid(found: Sequence[Worth]) -> Table:
    """Whether training paid, in a sentence."""
    return Table.of("Worth training", found, {"in words": lambda w: w.told, "n": lambda w: w.n})


def _gate(checks: Sequence[Check]) -> Table:
    """What the gate asks for and found."""
    columns: Columns = {
        "rule": lambda c: c.rule,
        "judge": lambda c: c.first,
        "against": lambda c: c.second,
        "difference": lambda c: points(c.difference, c.difference_ci),
        "p": lambda c: number(c.p, 3),
        "passed": lambda c: "yes" if c.passed else "no" if c.difference is not None else f"no: {c.told}",
    }
    return Table.of("Gate", checks, columns, names=3)


def _found(rows: Rows) -> list[tuple[MetricRow, Guarantees]]:
    return [(row, row.extras["guarantees"]) for row in rows if "guarantees" in row.extras]


def _sure(found: Selective | None) -> str:
    if found is None:
        return "–"
    whole = found.whole
    if whole.threshold is None:
        return f"nowhere ({percent(found.wanted)}% asked for)"
    return f"{percent(whole.coverage)}% answered, {percent(whole.agreement)}% agree (≥ {percent(found.wanted)}%)"


ANSWERS: Columns = {
    "n": lambda item: item[1].n,
    "threshold": lambda item: number(item[1].threshold, 2),
    "answered %": lambda item: percent(item[1].coverage),
    "agree %": lambda item: percent(item[1].agreement),
    "at least %": lambda item: percent(item[1].bound),
    "tokens": lambda item: number(item[1].tokens, 0),
}


def _cascades(rows: Rows) -> Table:
    shown = [(row.method, g.selective.whole, g.selective) for row, g in _found(rows) if g.selective is not None]

    def by_tier(item: tuple[str, Answers, Selective]) -> str:
        answered = zip(item[2].tiers, item[1].tiers, strict=False)
        return ", ".join(f"{name} {percent(share)}" for name, share in answered) or "–"

    columns: Columns = {"method": lambda item: item[0], **ANSWERS}
    columns |= {"set on": lambda item: item[1].calibrated, "by tier %": by_tier}
    asked = [f"{percent(s.wanted)}% agreement, with {percent(1 - s.risk)}% confidence." for *_, s in shown[:1]]
    return Table.of("Selective judging", shown, columns, "".join(f"Asked for: {a}" for a in asked), folded=True)
