"""Weights of preference pairs from their margins."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from judgetrain.errors import TrainingError

if TYPE_CHECKING:
    from judgetrain.train.data import Examples


def weigh(examples: Examples, power: float) -> Examples:
    """The pairs with a column ``weight``: the margin to the power given, over the mean of all; ``margin`` goes.

    A margin below 0 (the rewards disagree with the label) counts as 0.

    Raises:
        TrainingError: a pair has no finite margin, or none has one above 0.
    """
    margins = [row.get("margin", math.nan) for row in examples.rows]
    if not all(math.isfinite(margin) for margin in margins):
        raise TrainingError(
            "train.dpo.margin_weight needs a finite margin in every row of pairs-train: make stage label again, or "
            "set it to 0"
        )
    raw = [max(0.0, margin) ** power for margin in margins]
    mean = sum(raw) / len(raw)
    if not mean:
        raise TrainingError("no pair has a margin above 0 to be weighted by: set train.dpo.margin_weight=0")
    rows = [
        {k: v for k, v in row.items() if k != "margin"} | {"weight": weight / mean}
        for row, weight in zip(examples.rows, raw, strict=True)
    ]
    return replace(examples, rows=rows)
