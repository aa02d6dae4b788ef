"""Consistency pruning (branching paper, section 4.3): two constraints, each measurable on its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from judgetrain.judges.trees.schema import EvaluationTree, GuidelineNode, JudgmentNode
from judgetrain.schema import ORDERS, RESPONSES, Order, Verdict


def _verdicts(guideline: GuidelineNode, order: Order) -> list[Verdict | None]:
    return [j.verdict for j in guideline.judgments if j.order == order]


def self_consistent(guideline: GuidelineNode, order: Order) -> bool:
    """Whether all judgments by one criterion and guideline, in one order, are readable and say the same."""
    verdicts = set(_verdicts(guideline, order))
    return len(verdicts) == 1 and None not in verdicts


def positionally_consistent(guideline: GuidelineNode) -> bool:
    """Whether exchanging the responses leaves the verdict as it is.

    Compares the two orders' majority verdicts (both in the comparison's own order); an order with no majority,
    or with nothing readable, is not consistent. Judgments of one response have no order to exchange.
    """
    first, second = (_majority(_verdicts(guideline, order)) for order in ORDERS)
    return first is not None and first == second


def _majority(verdicts: Iterable[Verdict | None]) -> Verdict | None:
    counts = Counter(v for v in verdicts if v is not None).most_common(2)
    if not counts or (len(counts) == 2 and counts[0][1] == counts[1][1]):
        return None
    return counts[0][0]


@dataclass(frozen=True)
class PrunedBranch:
    """One branch and what the two constraints say of it."""

    judgment: JudgmentNode
    self_consistent: bool
    positionally_consistent: bool

    @property
    def kept(self) -> bool:
        """Whether the branch can be read and satisfies both constraints."""
        return self.reason == "kept"

    @property
    def reason(self) -> str:
        """``kept``, or the first rule that the branch breaks."""
        if self.judgment.verdict is None:
            return "unreadable"
        if not self.self_consistent:
            return "self_inconsistent"
        return "kept" if self.positionally_consistent else "position_inconsistent"


def prune(tree: EvaluationTree) -> dict[str, PrunedBranch]:
    """What the constraints say of every branch, by the id of its judgment."""
    result = {}
    for _, guideline in tree.guidelines():
        consistent = {order: self_consistent(guideline, order) for order in (*ORDERS, *RESPONSES)}
        position = positionally_consistent(guideline)
        for judgment in guideline.judgments:
            kept = position or judgment.order in RESPONSES
            result[judgment.id] = PrunedBranch(judgment, consistent[judgment.order], kept)
    return result
