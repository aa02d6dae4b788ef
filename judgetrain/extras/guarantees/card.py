"""What a judge's card says of how far it can be relied on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from judgetrain.artifacts.files import read_json
from judgetrain.extras.guarantees.gate import FILE as GATE
from judgetrain.extras.guarantees.gate import Rule
from judgetrain.judges.method import Method
from judgetrain.train.measured import Row, own_rows


def told_lines(rows: Sequence[Row], method: str, part: str) -> Iterator[dict[str, str]]:
    """By benchmark the sentence that an evaluation says of a part of its ``guarantees``.

    ``selective``: where the judge may answer alone; ``annotators``: whether it may replace a person.
    """
    for row in own_rows(rows, method):
        if found := (row.get("guarantees") or {}).get(part):
            yield {"benchmark": row["benchmark"], "told": found["told"]}


def corrected_lines(rows: Sequence[Row], method: str) -> Iterator[dict[str, str]]:
    """What the judge's verdicts are worth beside labels: its agreement, and every model's win rate."""
    for row in own_rows(rows, method):
        for each in (row.get("guarantees") or {}).get("corrected") or ():
            ends = each.get("estimate_ci")
            value = f"{each['estimate']:.3f} [{ends[0]:.3f}, {ends[1]:.3f}]; " if ends else ""
            about = each["about"] if each["about"] == "agreement" else f"win rate of {each['about']}"
            yield {"benchmark": f"{row['benchmark']}, {about}", "told": f"{value}{each['told']}"}


def _gated(directory: Path, judge: str) -> Iterator[dict[str, Any]]:
    """The checks of ``gate.json`` that are of the judge, however it was asked.

    A rule that could be tested nowhere is one that failed, on 0 comparisons of no benchmark.
    """
    found = read_json(directory / GATE) or {"checks": (), "untested": ()}
    yield from (check for check in found["checks"] if Method.parse(check["first"]).target == judge)
    nowhere = {"benchmark": "no benchmark", "n": 0, "passed": False, "told": "it could be tested nowhere"}
    for rule in found["untested"]:
        if Method.parse(Rule.parse(rule).judge).target == judge:
            yield {"rule": rule, **nowhere}


def _metrics(directory: Path) -> list[Row]:
    return read_json(directory / "metrics.json") or []


PARTS = {
    "alone": lambda directory, judge: told_lines(_metrics(directory), judge, "selective"),
    "corrected": lambda directory, judge: corrected_lines(_metrics(directory), judge),
    "person": lambda directory, judge: told_lines(_metrics(directory), judge, "annotators"),
    "gate": _gated,
}
"""By the name of a part of the card, its rows."""
