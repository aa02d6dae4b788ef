"""What can be relied on, in a report: whether training paid, and the gate."""

from __future__ import annotations

from collections.abc import Sequence

from judgetrain.evaluate.metrics.rows import MetricRow
from judgetrain.evaluate.report.table import Columns, Sections, Table, number, points
from judgetrain.extras.guarantees.gate import Check
from judgetrain.extras.guarantees.worth import Worth


def sections(rows: Sequence[MetricRow], records: Sequence[Check | Worth]) -> Sections:
    """Whether training paid, and the gate."""
    return Sections(
        first=[_paid([r for r in records if isinstance(r, Worth)]), _gate([r for r in records if isinstance(r, Check)])]
    )


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
        "passed": lambda c: "yes" if c.passed else "no",
    }
    return Table.of("Gate", checks, columns, names=3)
