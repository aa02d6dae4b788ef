"""Stopping a branching judge's vote once its outcome can no longer change: branches are judged in the smallest waves
that could settle it, each as the whole run would have judged it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from judgetrain.judges.config import Aggregation
from judgetrain.judges.kinds.aggregation import most, steps
from judgetrain.judges.trees.grow import Wave
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree
from judgetrain.schema import ORDERS, Order

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
