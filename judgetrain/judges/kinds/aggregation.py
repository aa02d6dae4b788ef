"""How branches become a verdict, and when their verdict can no longer change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from judgetrain.judges.base import verdict_of
from judgetrain.judges.config import Aggregation
from judgetrain.judges.trees.grow import Wave
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, JudgmentNode
from judgetrain.rubrics import HIGHEST, LOWEST
from judgetrain.schema import ORDERS, Order, Verdict

DISCOUNT = 0.5
"""``clear``: the weight of a branch's vote, of that of the branch before it. A judge names first what
matters most; at a half all later branches together weigh less than an earlier one: they speak only where it sees no
difference."""

CLEAR = (HIGHEST - LOWEST) / 2
"""``clear``: branches after the first decide only where their scores lie further apart than this, half of the scale. A
judge that sees no difference in what matters most and looks on finds one sooner or later, also between equals; what it
names late may not matter, so that a small difference there says little."""

MEANS = ("mean", "fitted")
"""What an order by itself says is the mean's side where fitted weights decide between both."""

_VOTES: dict[Verdict | None, float] = {"A": 1.0, "B": -1.0, "tie": 0.0}


def most(criterion: CriterionNode, place: int, aggregation: Aggregation) -> float:
    """The most that a criterion at a place (from 0) of the list adds to the balance with one branch."""
    if aggregation in MEANS:
        return (HIGHEST - LOWEST) * _weight(criterion)
    return 1.0 if aggregation == "vote" else DISCOUNT**place


def steps(criteria: Sequence[CriterionNode], order: Order, aggregation: Aggregation) -> list[float]:
    """What each branch judged in one order adds: above 0 for A, below for B.

    0 for a tie, for what cannot be read, for a guideline that cannot be judged by, and under ``clear`` for a small
    difference on any criterion but the first: a branch that says nothing. Where the order of criteria counts, a
    criterion with several branches adds what most of them say, once: its place is worth the same however often it was
    judged, and no tie among them lets later criteria outvote it. How large a criterion's weight is counts in the
    ``mean`` alone.
    """
    found: list[float] = []
    for place, criterion in enumerate(criteria):
        votes: list[float] = []
        for guideline in criterion.guidelines:
            judged = [j for j in guideline.judgments if j.order == order]
            votes += [0.0] if guideline.failure else [_vote(criterion, j, place, aggregation) for j in judged]
        if votes and aggregation == "clear":
            votes = [_VOTES[verdict_of(math.fsum(votes))] * most(criterion, place, aggregation)]
        found += [vote * _weight(criterion) for vote in votes] if aggregation in MEANS else votes
    return found


def _weight(criterion: CriterionNode) -> float:
    return abs(criterion.given.weight) if criterion.given else 1.0


def margin_of(criterion: CriterionNode, judgment: JudgmentNode) -> float | None:
    """How far A is ahead by a judgment, -4 to 4, on the criterion's own scale; None where it cannot be read."""
    given, a, b = criterion.given, judgment.score_a, judgment.score_b
    if given is None or a is None or b is None:
        return judgment.margin
    ahead = (HIGHEST - LOWEST) * (given.share(a) - given.share(b))
    return -ahead if judgment.inverted else ahead


def _vote(criterion: CriterionNode, judgment: JudgmentNode, place: int, aggregation: Aggregation) -> float:
    if aggregation in MEANS:
        return margin_of(criterion, judgment) or 0.0
    if aggregation == "clear" and place and abs(judgment.margin or 0.0) <= CLEAR:
        return 0.0
    return _VOTES.get(judgment.verdict, 0.0)


def verdict(
    criteria: Sequence[CriterionNode], order: Order, aggregation: Aggregation, tie: float = 0.0
) -> Verdict | None:
    """The verdict of the branches of some criteria in one order; None if none of them can be read.

    ``tie``: how far apart weighted means may be and still be a tie, as a share of the scale.
    """
    read = [_weight(c) for c in criteria for j in c.judgments if j.order == order and j.verdict is not None]
    if not read:
        return None
    balance = math.fsum(steps(criteria, order, aggregation))
    return verdict_of(balance, tie * (HIGHEST - LOWEST) * math.fsum(read) if aggregation in MEANS else 0.0)


_ROUNDING = 1e-9
"""A lead must exceed what may come by more than sums of real-valued scores can be off."""


def needed(judged: Sequence[float], left: Sequence[float]) -> int:
    """The fewest further branches after which the outcome might be settled; 0 when it can no longer change.

    ``judged``: what the branches judged so far in one order add to the balance between A (above 0) and B (below); 0
    where unreadable. ``left``: the most that each of the others can add, in their order.
    """
    lead = abs(math.fsum(judged))
    for number in range(len(left)):
        if lead + math.fsum(left[:number]) > math.fsum(left[number:]) + _ROUNDING:
            return number
    return len(left)


def next_wave(tree: EvaluationTree, branches: int, aggregation: Aggregation, orders: Sequence[Order] = ORDERS) -> Wave:
    """What a judge with ``branches`` branches must judge next; empty when the verdicts of ``orders`` are settled."""
    criteria = used(tree, branches)
    if any(c.given for c in criteria):  # a rubric's criteria are all judged: each has its part in a response's score
        return {c.rank: tuple(orders) for c in criteria if not c.guidelines}
    weights = [most(criterion, place, aggregation) for place, criterion in enumerate(criteria)]
    waiting = {}
    for order in orders:
        judged = steps(criteria, order, aggregation)
        if number := needed(judged, weights[len(judged) :]):
            waiting[order] = number
    if not waiting:
        return {}
    done = sum(bool(c.guidelines) for c in criteria)
    return {c.rank: tuple(waiting) for c in criteria[done : done + min(waiting.values())]}


def used(tree: EvaluationTree, branches: int) -> tuple[CriterionNode, ...]:
    """The criteria that a judge with ``branches`` branches judges by: so many of its own list, but all given ones."""
    return tree.criteria[: max(branches, sum(c.given is not None for c in tree.criteria))]


def stopped(
    tree: EvaluationTree, branches: int, aggregation: Aggregation, orders: Sequence[Order] = ORDERS
) -> EvaluationTree:
    """The part of a tree that a judge with ``branches`` branches that stops early would have grown.

    The tree may itself have been stopped, with at least as many branches. ``failures`` stay those of the whole tree.
    """
    grown = [replace(c, guidelines=()) for c in tree.criteria]
    while wave := next_wave(replace(tree, criteria=tuple(grown)), branches, aggregation, orders):
        pairs = zip(tree.criteria, grown, strict=True)
        grown = [_shown(whole, wave[whole.rank]) if whole.rank in wave else part for whole, part in pairs]
    return replace(tree, criteria=tuple(grown))


def _shown(criterion: CriterionNode, orders: Sequence[Order]) -> CriterionNode:
    guidelines = (
        replace(g, judgments=tuple(j for j in g.judgments if j.order in orders)) for g in criterion.guidelines
    )
    return replace(criterion, guidelines=tuple(guidelines))
