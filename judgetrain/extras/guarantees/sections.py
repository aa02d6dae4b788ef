"""What can be relied on, in a report: whether training paid, and the gate."""

from collections.abc import Sequence

from judgetrain.evaluate.metrics.rows import MetricRow
from judgetrain.evaluate.report.table import Columns, Sections, Table, number, points
from judgetrain.extras.guarantees.gate import Check
from judgetrain.extras.guarantees.worth import TrainingGain


def sections(rows: Sequence[MetricRow], records: Sequence[Check | TrainingGain]) -> Sections:
    """Return the report's sections on what training gained and on the gate."""
    gain_columns: Columns = {"in words": lambda w: w.told, "n": lambda w: w.n}
    gate_columns: Columns = {
        "rule": lambda c: c.rule,
        "judge": lambda c: c.first,
        "against": lambda c: c.second,
        "difference": lambda c: points(c.difference, c.difference_ci),
        "p": lambda c: number(c.p, 3),
        "passed": lambda c: "yes" if c.passed else "no",
    }
    # An extra has one list of records for all of its tables.
    gains = [record for record in records if isinstance(record, TrainingGain)]
    checks = [record for record in records if isinstance(record, Check)]
    worth = Table.of("Worth training", gains, gain_columns)
    gate = Table.of("Gate", checks, gate_columns, names=3)
    return Sections(first=[worth, gate])
