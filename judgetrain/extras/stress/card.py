"""What a judge's card says of a stress test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from judgetrain.artifacts.files import read_json
from judgetrain.judges.method import Method


def _stressed(directory: Path, judge: str) -> Iterator[dict[str, Any]]:
    """The lines of ``stress.json`` whose proxy is the judge, however it is asked."""
    found = read_json(directory / "stress.json") or {"summary": ()}
    for line in found["summary"]:
        if Method.parse(line["proxy"]).target == judge:
            yield {"line": line, "gold": found["gold"], "prompts": found["prompts"]}


PARTS = {"stress": _stressed}
"""By the name of a part of the card, its rows."""
