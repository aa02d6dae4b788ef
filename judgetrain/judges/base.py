"""The one interface of everything that compares two responses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from judgetrain.schema import Comparison, Verdict


@dataclass(frozen=True)
class Cost:
    """What one verdict cost, mean over the two orders it was asked in; NaN where it is not known."""

    prompt_tokens: float = 0.0
    generated_tokens: float = 0.0
    calls: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A judge's answer to one comparison.

    ``verdict_ab`` is the verdict when the responses were shown as they are, ``verdict_ba`` when they were
    shown exchanged; both are in the comparison's own order, so a consistent judge gives the same twice. None
    means that no branch could be read in that order. ``margin`` is the mean score of A minus that of B over the
    readable branches of both orders. ``failures`` counts unreadable judgments by reason; ``judgments`` is how
    many were sampled. ``merged``: the two orders are known only as one verdict or as a conflict (A, B), so that
    nothing can be said of a single order. ``spread`` is the chance that two of the branches that were read in one
    order say different things; None with fewer than two.
    """

    comparison_id: str
    method: str
    branches: int = 0
    verdict_ab: Verdict | None
    verdict_ba: Verdict | None
    margin: float | None = None
    cost: Cost = field(default_factory=Cost)
    judgments: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    merged: bool = False
    spread: float | None = None


class Judge(Protocol):
    """Compares two responses, both orders asked. A class that inherits from it implements ``compare_all``."""

    name: str

    def compare(self, comparison: Comparison) -> Prediction:
        """The verdict on one comparison, with seed 0."""
        return self.compare_all([comparison], 0)[0]

    def compare_all(self, comparisons: Sequence[Comparison], seed: int) -> list[Prediction]:
        """The verdicts on many comparisons, batched; the same length and order as the input."""
        ...

    def close(self) -> None:
        """Free the model, if there is one."""


def verdict_of(margin: float | None, tie: float = 0.0) -> Verdict | None:
    """The verdict of a margin (score of A minus that of B): a tie where it is at most ``tie``; None if unknown."""
    if margin is None or math.isnan(margin):
        return None
    return "tie" if abs(margin) <= tie else "A" if margin > 0 else "B"
