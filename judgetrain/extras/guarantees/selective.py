"""Verdicts only where the judge is sure, with a guarantee: pure functions on arrays.

Jung, Brahman, Choi: Trust or Escalate (ICLR 2025, arXiv 2407.18370). A cascade asks tier by tier (1 branch, 3 branches,
..., another judge) and answers with the first tier that is sure enough, else not at all. The threshold is the least
strict that fixed-sequence testing with exact binomial tests lets pass: with a chance of at least 1 - risk over the draw
of the calibration items, what is answered agrees with the labels at least as often as was asked for.

One threshold serves all tiers, so that a cascade is one of a sequence, from the strictest to the laxest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
NEVER = -math.inf
"""The confidence of a tier that gives no verdict: its orders differ, or cannot be read."""
STEADY = 3
"""The sequence begins where so many times the items are answered that would pass without an error."""


@dataclass(frozen=True)
class Tiers:
    """What the tiers of a cascade would say of ``n`` items, arrays [tiers, n].

    ``confidence``: of a tier's verdict, :data:`NEVER` where it has none. ``right``: whether it is the label.
    ``tokens``: all that is spent once the tier has been asked.
    """

    confidence: Floats
    right: NDArray[np.bool_]
    tokens: Floats

    def part(self, items: NDArray[np.bool_]) -> Self:
        """Some of the items, by a mask [n]."""
        return type(self)(self.confidence[:, items], self.right[:, items], self.tokens[:, items])

    def ask(self, threshold: float) -> Outcomes:
        """The cascade with a threshold."""
        sure = self.confidence >= threshold
        last = len(sure) - 1
        tier = np.where(sure.any(axis=0), sure.argmax(axis=0), -1)
        index = np.where(tier < 0, last, tier), np.arange(sure.shape[1])
        return Outcomes(tier, self.right[index] & (tier >= 0), self.tokens[index])


@dataclass(frozen=True)
class Outcomes:
    """What came of ``n`` items: which ``tier`` answered (-1: none), whether it was ``right``, and the ``tokens``."""

    tier: NDArray[np.int_]
    right: NDArray[np.bool_]
    tokens: Floats

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Whether there is an answer, bool [n]."""
        return self.tier >= 0

    @property
    def coverage(self) -> float:
        """The share of items that are answered."""
        return float(self.answered.mean()) if len(self.tier) else 0.0

    @property
    def agreement(self) -> float | None:
        """The share of answers that are right; None without an answer."""
        return float(self.right[self.answered].mean()) if self.answered.any() else None


def passes(right: int, answered: int, agreement: float, risk: float) -> bool:
    """Whether so many right answers show an agreement of at least so much: the exact binomial test at level ``risk``,
    which is whether Clopper and Pearson's one-sided lower bound of the agreement is at least that."""
    from scipy import special

    return answered > 0 and float(special.bdtr(answered - right, answered, 1 - agreement)) <= risk


def lower_bound(right: int, answered: int, risk: float) -> float:
    """Clopper and Pearson's one-sided lower bound of a share, which holds with a chance of 1 - ``risk``."""
    from scipy import stats

    return float(stats.beta.ppf(risk, right, answered - right + 1)) if right else 0.0


def fewest(agreement: float, risk: float) -> int:
    """How many answers, all of them right, it takes to pass."""
    return math.ceil(math.log(risk) / math.log(agreement) - 1e-9)


def thresholds(confidence: ArrayLike, items: int, agreement: float, risk: float, most: int = 100) -> list[float]:
    """The sequence to be tested, strictest first, from confidences [tiers, m] of items that do not calibrate.

    It begins with the threshold that would answer enough of ``items`` to be told apart from luck (:data:`STEADY`). No
    label is looked at, and no calibration item, so that the order is fixed before the tests.
    """
    values = np.asarray(confidence, dtype=float)
    best = values.max(axis=0)
    enough = min(1.0, STEADY * fewest(agreement, risk) / max(items, 1)) * len(best)
    return thinned([t for t in levels(values) if (best >= t).sum() >= enough], most)


def levels(confidence: ArrayLike) -> list[float]:
    """The different confidences of all tiers, the largest first."""
    values = np.asarray(confidence, dtype=float)
    return [float(t) for t in np.unique(values[values > NEVER])[::-1]]


def thinned(values: Sequence[float], most: int) -> list[float]:
    """At most so many of a list, its ends among them, at equal steps."""
    steps = np.unique(np.linspace(0, len(values) - 1, most).astype(int)) if values else np.array([], dtype=int)
    return [values[i] for i in steps]


def certified(tiers: Tiers, sequence: Sequence[float], agreement: float, risk: float) -> float | None:
    """The last threshold of the sequence before the first that does not pass on the calibration items; None: the first
    does not. Items are independent draws, and the sequence was fixed without them."""
    found = None
    for threshold in sequence:
        asked = tiers.ask(threshold)
        if not passes(int(asked.right.sum()), int(asked.answered.sum()), agreement, risk):
            break
        found = threshold
    return found
