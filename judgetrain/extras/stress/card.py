"""What a judge's card says of a stress test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from judgetrain.artifacts.files import read_json
from judgetrain.judges.method import Method
from judgetrain.train.card import table

_LEGEND = """Lost: between the peak
and the largest n, the peak found on other prompts. Gap: what the judge thinks it gained less what was gained, in
standard deviations."""


def _stressed(directory: Path, judge: str) -> str:
    """The lines of ``stress.json`` whose proxy is the judge, however it is asked."""
    found = read_json(directory / "stress.json") or {"summary": ()}
    rows = [
        (
            line["proxy"],
            f"{line['writer']:.2f}",
            f"{line['peak_gold']:.2f} ({line['peak_n']})",
            f"{line['last_gold']:.2f} ({line['last_n']})",
            *(_estimate(line[name]) for name in ("gained", "fall", "gap")),
            line["verdict"],
        )
        for line in found["summary"]
        if Method.parse(line["proxy"]).target == judge
    ]
    if not rows:
        return ""
    columns = "asked as | writer | peak (at n) | at the largest n | won | lost | gap | verdict"
    measured = f"What best of n chooses by this judge, measured by {found['gold']} on {found['prompts']} prompts."
    return f"{measured} {_LEGEND}\n\n{table(columns, rows)}"


def _estimate(found: Mapping[str, Any]) -> str:
    low, high = found["interval"]
    return f"{found['mean']:+.2f} [{low:+.2f}, {high:+.2f}]"


PARTS = {"Over-optimisation": _stressed}
"""By its title a section of the card: its text of what a finished artifact holds of a judge, empty for nothing."""
