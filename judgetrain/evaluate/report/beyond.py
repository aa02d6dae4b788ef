"""What other stages found of an evaluation's judges, each folded: over-optimisation, and labels to ask people for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from judgetrain.evaluate.report.table import Columns, Table, bounded, number

Row = Mapping[str, Any]


def stress_table(rows: Sequence[Row]) -> Table:
    """A line of ``stress.json`` each, with its ``run``, ``gold``, ``prompts`` and ``artifact``."""
    columns: Columns = {"proxy": itemgetter("proxy"), "verdict": itemgetter("verdict"), **_run(rows)}
    columns |= {
        "gold": itemgetter("gold"),
        "prompts": itemgetter("prompts"),
        "writer": lambda row: number(row["writer"]),
        "peak (at n)": lambda row: f"{number(row['peak_gold'])} ({row['peak_n']})",
        "at the largest n": lambda row: f"{number(row['last_gold'])} ({row['last_n']})",
        "won": lambda row: _estimate(row["gained"]),
        "lost after the peak": lambda row: _estimate(row["fall"]),
        "gap": lambda row: _estimate(row["gap"]),
        "made by": itemgetter("artifact"),
    }
    return Table.of("Over-optimisation", rows, columns, names=3 if _run(rows) else 2, folded=True)


def queue_table(rows: Sequence[Row]) -> Table:
    """What stage ``label_queue`` notes in a manifest each, with its ``run`` and ``artifact``."""
    columns: Columns = {"judge": lambda row: ", ".join(row["judges"]) or "–", **_run(rows)}
    columns |= {
        "verdicts": itemgetter("verdicts"),
        "to label": itemgetter("to_label"),
        "by chance": itemgetter("by_chance"),
        "information": lambda row: number(row["information"]),
        "of the first tenth": lambda row: number(row["information_of_first_tenth"]),
        "made by": itemgetter("artifact"),
    }
    return Table.of("Labels to ask people for", rows, columns, names=2 if _run(rows) else 1, folded=True)


def _run(rows: Sequence[Row]) -> Columns:
    return {"run": itemgetter("run")} if any(row["run"] for row in rows) else {}


def _estimate(found: Mapping[str, Any]) -> str:
    low, high = found["interval"]
    return bounded(found["mean"], (low, high), 2)
