"""How sure one may be that siblings of a tree differ: posterior probabilities of their success, and tests of levels.

A preference pair teaches that its chosen side is better. What speaks for it are a handful of judgments, so that chance
alone makes many pairs. Success is net: judgments that decide rightly less those that decide wrongly; a judgment that
sees a tie, or cannot be read, is neither.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from judgetrain.judges.trees.schema import EvaluationTree, GuidelineNode, JudgmentNode
from judgetrain.label.labels import vote
from judgetrain.schema import ORDERS, Order, Verdict

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


def against_label(judgments: Iterable[JudgmentNode], label: Verdict) -> Outcomes:
    """Judgments by a label A or B: ties are neither right nor wrong."""
    found = Counter(j.verdict for j in judgments)
    return Outcomes(found[label], found["B" if label == "A" else "A"], found["tie"] + found[None])


def against_consensus(judgments: Iterable[JudgmentNode], consensus: Verdict) -> Outcomes:
    """Judgments by the verdict that their criterion's judgments agree on: any other one is wrong."""
    found = Counter(j.verdict for j in judgments)
    return Outcomes(found[consensus], found.total() - found[consensus] - found[None], found[None])


def better(first: Outcomes, second: Outcomes) -> float:
    """The probability that the first kind of judgments has the higher net success, given their outcomes.

    Each outcome's chance has a Dirichlet posterior; the two are independent.
    """
    return _better(tuple(first), tuple(second))


def above_zero(outcomes: Outcomes) -> float:
    """The probability that judgments of this kind are more often right than wrong."""
    from scipy.stats import beta

    return float(beta.sf(0.5, outcomes.right + PRIOR, outcomes.wrong + PRIOR))


@functools.cache
def _better(first: tuple[int, ...], second: tuple[int, ...]) -> float:
    import numpy as np

    rng = np.random.default_rng(0)
    draws = [rng.dirichlet([count + PRIOR for count in counts], DRAWS) for counts in (first, second)]
    net = [drawn[:, 0] - drawn[:, 1] for drawn in draws]
    return float(np.mean(net[0] > net[1]))


def consensus(judgments: Sequence[JudgmentNode], sure: float) -> Verdict | None:
    """The verdict that readable judgments agree on, in each order and with probability ``sure`` by their majority.

    In order AB and in BA no other verdict is more frequent, and the posterior probability that more than half of such
    judgments give it is at least ``sure``; else None.
    """
    from scipy.stats import beta

    counts = {order: Counter(j.verdict for j in judgments if j.order == order and j.verdict) for order in ORDERS}
    total = counts["AB"] + counts["BA"]
    for verdict, count in total.most_common(1):
        leads = all(0 < found[verdict] == max(found.values()) for found in counts.values())
        if leads and beta.sf(0.5, count + PRIOR, total.total() - count + PRIOR) >= sure and 2 * count > total.total():
            return verdict
    return None


class LevelTest:
    """Whether a level's siblings differ in more than chance: counts how often an independent signal says the same.

    - criteria: a criterion that decides, against the vote of all others;
    - guideline: which of two has more judgments in keeping with their criterion's consensus, in order AB and in BA;
    - judgment: what the judgments by two guidelines of one criterion agree on, where both decide.

    If a level's differences were chance, half of these would agree.
    """

    FEWEST = 20
    """With fewer than so many tested nothing is said of a level."""

    def __init__(self) -> None:
        self.agreed: Counter[str] = Counter()
        self.tested: Counter[str] = Counter()

    def add_tree(self, tree: EvaluationTree, sure: float) -> None:
        """Take in what a tree's siblings say; ``sure``: how sure a criterion's consensus must be."""
        signs: dict[Verdict | None, float] = {"A": 1.0, "B": -1.0}
        for criterion in tree.criteria:
            agreed = consensus(criterion.judgments, sure)
            others, _, _ = vote(j.verdict for c, _, j in tree.judgments() if c.id != criterion.id)
            self.add("criteria", signs.get(agreed, 0.0), signs.get(others, 0.0))
            for pair in itertools.combinations(criterion.guidelines, 2):
                if agreed:
                    self.add("guideline", *(_difference(pair, order, agreed) for order in ORDERS))
                self.add("judgment", *(signs.get(consensus(g.judgments, 0.5), 0.0) for g in pair))

    def add(self, level: str, first: float, second: float) -> None:
        """Two signals by their signs; where either is 0, nothing is counted."""
        if first * second:
            self.tested[level] += 1
            self.agreed[level] += first * second > 0

    def p_value(self, level: str) -> float:
        """Of a one-sided binomial test against a half; 0, which condemns no level, with fewer than :attr:`FEWEST`."""
        from scipy.stats import binomtest

        tested = self.tested[level]
        return float(binomtest(self.agreed[level], tested, 0.5, "greater").pvalue) if tested >= self.FEWEST else 0.0

    def table(self) -> dict[str, dict[str, float | int | None]]:
        """By level: how many were ``tested``, the ``share`` that agreed, and the p-value (``chance``).

        It is None where fewer than :attr:`FEWEST` were tested: such a level teaches, but nothing is known of it.
        """
        return {
            level: {
                "tested": tested,
                "share": round(self.agreed[level] / tested, 3),
                "chance": round(self.p_value(level), 4) if tested >= self.FEWEST else None,
            }
            for level, tested in sorted(self.tested.items())
        }


def _difference(guidelines: Sequence[GuidelineNode], order: Order, agreed: Verdict) -> float:
    """By how much more of its judgments in one order the first guideline reaches the consensus than the second."""
    first, second = (against_consensus([j for j in g.judgments if j.order == order], agreed).net for g in guidelines)
    return first - second
