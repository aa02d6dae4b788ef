"""How sure one may be that siblings of a tree differ: posterior probabilities of their success, and tests of levels.

A preference pair teaches that its chosen side is better. What speaks for it are a handful of judgments, so that chance
alone makes many pairs. Success is net: judgments that decide rightly less those that decide wrongly; a judgment that
sees a tie, or cannot be read, is neither.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from judgetrain.judges.trees.schema import JudgmentNode
from judgetrain.schema import ORDERS, Verdict

PRIOR = 0.5
"""Pseudo-counts of each outcome (Jeffreys)."""

DRAWS = 20_000
"""From each posterior: a probability is off by 0.002 at most at 0.9."""


class Outcomes(NamedTuple):
    """How many judgments were right, wrong, and neither."""

    right: int
    wrong: int
    neither: int

    @property
    def net(self) -> float:
        """Right less wrong ones as a share of all, from -1 to 1; 0 of none."""
        return (self.right - self.wrong) / max(1, sum(self))


def independent(judgments: Iterable[JudgmentNode]) -> list[JudgmentNode]:
    """The judgments that are evidence of their own: those of response B by itself say what their siblings of A say."""
    return [j for j in judgments if j.order != "B"]


def against_label(judgments: Iterable[JudgmentNode], label: Verdict) -> Outcomes:
    """Judgments by a label A or B: ties are neither right nor wrong."""
    found = Counter(j.verdict for j in independent(judgments))
    return Outcomes(found[label], found["B" if label == "A" else "A"], found["tie"] + found[None])


def against_consensus(judgments: Iterable[JudgmentNode], consensus: Verdict) -> Outcomes:
    """Judgments by the verdict that their criterion's judgments agree on: any other one is wrong."""
    found = Counter(j.verdict for j in independent(judgments))
    return Outcomes(found[consensus], found.total() - found[consensus] - found[None], found[None])


@functools.cache
def better(first: Outcomes, second: Outcomes) -> float:
    """The probability that the first kind of judgments has the higher net success, given their outcomes.

    Each outcome's chance has a Dirichlet posterior; the two are independent.
    """
    import numpy as np

    rng = np.random.default_rng(0)
    draws = [rng.dirichlet([count + PRIOR for count in counts], DRAWS) for counts in (first, second)]
    net = [drawn[:, 0] - drawn[:, 1] for drawn in draws]
    return float(np.mean(net[0] > net[1]))


def above_zero(outcomes: Outcomes) -> float:
    """The probability that judgments of this kind are more often right than wrong."""
    return _mostly(outcomes.right, outcomes.wrong)


def _mostly(right: int, wrong: int) -> float:
    """As SciPy's ``beta.sf``, to the last bit, whose checks of a distribution's arguments take 50 times as long."""
    from scipy.special import betaincc

    return float(betaincc(right + PRIOR, wrong + PRIOR, 0.5))


def consensus(judgments: Sequence[JudgmentNode], sure: float) -> Verdict | None:
    """The verdict that readable judgments agree on, in each order and with probability ``sure`` by their majority.

    In order AB and in BA, where both responses are shown, no other verdict is more frequent, and the posterior
    probability that more than half of such judgments give it is at least ``sure``; else None.
    """
    told = independent(judgments)
    orders = dict.fromkeys([*(ORDERS if any(j.order in ORDERS for j in told) else ()), *(j.order for j in told)])
    counts = [Counter(j.verdict for j in told if j.order == order and j.verdict) for order in orders]
    total = sum(counts, Counter())
    for verdict, count in total.most_common(1):
        leads = all(0 < found[verdict] == max(found.values()) for found in counts)
        if leads and 2 * count > total.total() and _mostly(count, total.total() - count) >= sure:
            return verdict
    return None
