"""What a judge's card says of how far it can be relied on."""

from __future__ import annotations

from pathlib import Path

from judgetrain.artifacts.files import read_json
from judgetrain.extras.guarantees.worth import FILE
from judgetrain.judges.method import Method


def _worth(directory: Path, judge: str) -> str:
    """Whether training it paid, a line a benchmark."""
    found = [w for w in read_json(directory / FILE) or () if Method.parse(w["judge"]).target == judge]
    return "\n".join(f"- {w['benchmark']} (n = {w['n']}): {w['told']}" for w in found)


PARTS = {"Worth training": _worth}
"""By its title a section of the card: its text of what a finished artifact holds of a judge, empty for nothing."""
