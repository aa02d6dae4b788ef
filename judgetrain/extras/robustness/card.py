"""What a judge's card says of attacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from judgetrain.artifacts.files import read_json
from judgetrain.train.measured import Row, own_rows


def attack_lines(rows: Sequence[Row], method: str) -> Iterator[dict[str, Any]]:
    """What each attack did to the judge; of the forgeries, some sixty texts, what they come to together."""
    for row in own_rows(rows, method):
        for attack in row.get("robustness") or ():
            if attack["kind"] != "forgery" or not attack["attack"]:
                yield {**attack, "benchmark": row["benchmark"], "branches": row["branches"]}


PARTS = {"attacks": lambda directory, judge: attack_lines(read_json(directory / "metrics.json") or [], judge)}
"""By the name of a part of the card, its rows."""
