"""Responses that people rated one by one: what of them is judged, and when a judgment of one is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from judgetrain.judges.trees.grow import Steer
from judgetrain.judges.trees.schema import EvaluationTree, JudgmentNode
from judgetrain.rubrics import HIGHEST, LOWEST
from judgetrain.schema import Comparison, Order, Rating

ALONE: Order = "A"
"""What a judgment of a response is shown that nothing is set against."""
WITHIN = {True: (HIGHEST - LOWEST) / 2, False: 1.0}
"""How near to the rating a score is right: at an end of the scale (pass, fail) on its side of the middle, else within
a level. At just that distance it is neither right nor wrong."""


def level_of(rating: Rating) -> float:
    """The level that a rating says, on the scale of judgments."""
    return LOWEST + (HIGHEST - LOWEST) * rating.score


def judged(comparisons: Sequence[Comparison], orders: Sequence[Order]) -> list[Comparison]:
    """Those that judgments in these orders can be about: not responses alone where judgments read two."""
    return [c for c in comparisons if ALONE in orders or not c.alone]


def each_in(orders: Sequence[Order]) -> Steer:
    """Grows complete trees, but of a response that stands alone with judgments of it alone."""

    def steer(tree: EvaluationTree) -> dict[int, Sequence[Order]]:
        shown = [order for order in orders if order == ALONE or not tree.comparison.alone]
        return {c.rank: shown for c in tree.criteria if not c.guidelines}

    return steer


def by_rating(tree: EvaluationTree) -> EvaluationTree:
    """The tree as labels and pairs are made of it: of a rated response, with label A for what is right.

    The scores of its judgments are then how near they are to the rating, and how near is near enough: the verdict is A
    where a judgment is right, B where it is wrong, and the nearer of two is the better one. Other trees stay.
    """
    rating = tree.comparison.rating_a
    if not tree.comparison.alone or rating is None:
        return tree
    within, level = WITHIN[rating.score in (0.0, 1.0)], level_of(rating)

    def placed(judgment: JudgmentNode) -> JudgmentNode:
        if judgment.score_a is None:
            return judgment
        due = LOWEST + HIGHEST - level if judgment.inverted else level
        return replace(judgment, score_a=-abs(judgment.score_a - due), score_b=-within, inverted=False)

    criteria = tuple(
        replace(c, guidelines=tuple(replace(g, judgments=tuple(map(placed, g.judgments))) for g in c.guidelines))
        for c in tree.criteria
    )
    return replace(tree, comparison=replace(tree.comparison, label="A"), criteria=criteria)
