"""Stopping a branching judge's vote once its outcome can no longer change.

Branches are judged in waves that are as small as they must be: none that is judged could have been spared, and what is
judged is what the whole run would have said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from judgetrain.dialogues.schema import Order
from judgetrain.tree.grow import Wave, unusable
from judgetrain.tree.parsing import HIGHEST, LOWEST
from judgetrain.tree.schema import CriterionNode, EvaluationTree

Aggregation = Literal["vote", "margin"]

ORDERS: tuple[Order, Order] = ("AB", "BA")
_ROUNDING = 1e-9
"""A lead must exceed what may come by more than sums of real-valued scores can be off."""


def needed(margins: Sequence[float | None], branches: int, aggregation: Aggregation) -> int:
    """The fewest further branches after which the outcome might be settled; 0 when it can no longer change.

    ``margins``: those of the branches judged so far in one order, of ``branches`` in all; None where unreadable. One
    branch moves the vote by 1 and a sum of margins by at most the width of the scale.
    """
    left = branches - len(margins)
    most = 1.0 if aggregation == "vote" else HIGHEST - LOWEST
    readable = [m for m in margins if m is not None]
    lead = abs(sum((m > 0) - (m < 0) for m in readable) if aggregation == "vote" else sum(readable))
    if left <= 0 or lead > most * left + _ROUNDING:
        return 0
    return min(left, math.floor((most * left - lead) / (2 * most)) + 1)


def next_wave(tree: EvaluationTree, branches: int, aggregation: Aggregation) -> Wave:
    """What a judge with ``branches`` branches must judge next; empty when the verdicts of both orders are settled."""
    criteria = tree.criteria[:branches]
    waiting = {
        order: number for order in ORDERS if (number := needed(_margins(criteria, order), len(criteria), aggregation))
    }
    if not waiting:
        return {}
    done = sum(bool(c.guidelines) for c in criteria)
    return {c.rank: tuple(waiting) for c in criteria[done : done + min(waiting.values())]}


def _margins(criteria: Sequence[CriterionNode], order: Order) -> list[float | None]:
    """The margins judged in one order; a guideline that cannot be judged by is a branch that says nothing."""
    margins: list[float | None] = []
    for guideline in (g for c in criteria for g in c.guidelines):
        margins += [None] if unusable(guideline) else [j.margin for j in guideline.judgments if j.order == order]
    return margins


def stopped(tree: EvaluationTree, branches: int, aggregation: Aggregation) -> EvaluationTree:
    """The part of a tree that a judge with ``branches`` branches that stops early would have grown.

    The tree may itself have been stopped, with at least as many branches. ``failures`` stay those of the whole tree.
    """
    whole = {c.rank: c for c in tree.criteria}
    grown = replace(tree, criteria=tuple(replace(c, guidelines=()) for c in tree.criteria))
    while wave := next_wave(grown, branches, aggregation):
        criteria = tuple(_shown(whole[c.rank], wave[c.rank]) if c.rank in wave else c for c in grown.criteria)
        grown = replace(grown, criteria=criteria)
    return grown


def _shown(criterion: CriterionNode, orders: Sequence[Order]) -> CriterionNode:
    guidelines = (
        replace(g, judgments=tuple(j for j in g.judgments if j.order in orders)) for g in criterion.guidelines
    )
    return replace(criterion, guidelines=tuple(guidelines))
