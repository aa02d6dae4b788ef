"""Models side by side by their discrepancies: wins, ranks, and conflicts with an external verdict (ProbDiff paper)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from judgetrain.scorers.probdiff import Values, average, confidence


@dataclass(frozen=True)
class Outcome:
    """How often the first model wins against the second: shares of the ``n`` items that both have a d for."""

    win: float
    tie: float
    lose: float
    n: int


def win_tie_lose(first: Values, second: Values, threshold: float = 0.0) -> Outcome:
    """Two models item by item (section 3.2): the higher d wins, a tie where they differ by at most ``threshold``.

    Raises:
        ValueError: lists of unequal length, or no item that both models have.
    """
    differences = np.array([a - b for a, b in zip(first, second, strict=True) if a is not None and b is not None])
    if not len(differences):
        raise ValueError("there is no item for which both models have a discrepancy")
    win, lose = float((differences > threshold).mean()), float((differences < -threshold).mean())
    tie = float((np.abs(differences) <= threshold).mean())
    return Outcome(win, tie, lose, len(differences))


@dataclass(frozen=True)
class Rank:
    """A model's place (1 is best; equal models share the better place), confidence, mean d and number of items."""

    model: str
    place: int
    confidence: float
    mean: float
    n: int


def ranking(models: Mapping[str, Values]) -> list[Rank]:
    """Models from best to worst, by confidence; models without any d are left out."""
    found = {}
    for name, d in models.items():
        confident, of_all = confidence(d), average(d)
        if confident is not None and of_all is not None:
            found[name] = confident, of_all, sum(x is not None for x in d)
    values = {name: row[0] for name, row in found.items()}
    placed = [Rank(n, 1 + sum(v > values[n] for v in values.values()), *row) for n, row in found.items()]
    return sorted(placed, key=lambda rank: (rank.place, rank.model))


def conflict_degree(d: Values, verdicts: Sequence[int | None]) -> float | None:
    """Share of items in which ProbDiff and an external verdict contradict each other (section 5.2, table 6).

    ``verdicts``: 1 where a judge or annotator finds the revision better, -1 worse, 0 unchanged, None without verdict.
    d > 0 contradicts -1, d < 0 contradicts 1; 0 contradicts nothing. None without items that have both.

    Raises:
        ValueError: lists of unequal length, or a verdict that is none of these.
    """
    if unknown := set(verdicts) - {1, 0, -1, None}:
        raise ValueError(f"verdict {unknown.pop()!r}: allowed are 1, 0, -1 and None")
    both = [(x, v) for x, v in zip(d, verdicts, strict=True) if x is not None and v is not None]
    return sum(x * v < 0 for x, v in both) / len(both) if both else None
