"""Stopping a branching judge's vote once its outcome can no longer change: branches are judged in the smallest waves
that could settle it, each as the whole run would have judged it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from judgetrain.judges.config import Aggregation
from judgetrain.judges.prompting.numbers import HIGHEST, LOWEST
from judgetrain.judges.trees.grow import Wave
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, JudgmentNode
from judgetrain.schema import Order, Verdict

ORDERS: tuple[Order, Order] = ("AB", "BA")
_VOTES: dict[Verdict | None, float] = {"A": 1.0, "B": -1.0}
_ROUNDING = 1e-9
"""A lead must exceed what may come by more than sums of real-valued scores can be off."""


def needed(steps: Sequence[float], branches: int, most: float) -> int:
    """The fewest further branches after which the outcome might be settled; 0 when it can no longer change.

    ``steps``: what the branches judged so far in one order, of ``branches`` in all, add to the balance between A (above
    0) and B (below); 0 where unreadable. ``most``: the most that a branch can add.
    """
    left = branches - len(steps)
    lead = abs(math.fsum(steps))
    if left <= 0 or lead > most * left + _ROUNDING:
        return 0
    return min(left, math.floor((most * left - lead) / (2 * most)) + 1)


def next_wave(tree: EvaluationTree, branches: int, aggregation: Aggregation, orders: Sequence[Order] = ORDERS) -> Wave:
    """What a judge with ``branches`` branches must judge next; empty when the verdicts of ``orders`` are settled."""
    criteria = tree.criteria[:branches]
    most = 1.0 if aggregation == "vote" else HIGHEST - LOWEST
    steps = {order: _steps(criteria, order, aggregation) for order in orders}
    waiting = {order: number for order in orders if (number := needed(steps[order], len(criteria), most))}
    if not waiting:
        return {}
    done = sum(bool(c.guidelines) for c in criteria)
    return {c.rank: tuple(waiting) for c in criteria[done : done + min(waiting.values())]}


def _steps(criteria: Sequence[CriterionNode], order: Order, aggregation: Aggregation) -> list[float]:
    """What each branch judged in one order adds; a guideline that cannot be judged by is a branch that says nothing."""

    def step(judgment: JudgmentNode) -> float:
        return judgment.margin or 0.0 if aggregation == "margin" else _VOTES.get(judgment.verdict, 0.0)

    guidelines = [g for c in criteria for g in c.guidelines]
    return [s for g in guidelines for s in ([0.0] if g.failure else [step(j) for j in g.judgments if j.order == order])]


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
