"""The predictions of a branching judge, read off the trees that it has grown."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from judgetrain.judges.deciding import Decision, Thresholds
from judgetrain.judges.kinds.aggregation import Rule, margin_of, margins_of, share_read, stopped, used, verdict
from judgetrain.judges.kinds.tree_reasons import guideline_failures, judgment_failures, list_failure, reasons_of
from judgetrain.judges.kinds.tree_scores import score_of
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.predictions import Cost, Plan, Prediction
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, cost_of
from judgetrain.rubrics import without_rounding
from judgetrain.schema import ORDERS, Order


def predict(
    tree: EvaluationTree, branches: int, options: JudgeOptions, method: str, other: EvaluationTree | None = None
) -> Prediction:
    """Return the prediction of a tree's first ``branches`` criteria, or of as many of them as settle it.

    Args:
        tree: of both orders, or of order AB.
        branches: k; all criteria of a rubric count.
        options: how the judge was asked.
        method: the method's name.
        other: the tree of order BA, where each order has its own plan.
    """
    rule = options.rule
    if tree.given:
        # A rubric's weights count, however the judge's own branches become a verdict.
        rule = Rule(True, options.tie, options.least_read)
    trees = [tree]
    if other is not None:
        trees = [tree, other]
    if options.stops_early:
        trees = _stopped(trees, branches, rule, options)
    criteria_by_tree = [used(part, branches) for part in trees]
    criteria = [criterion for of_tree in criteria_by_tree for criterion in of_tree]

    # Of one tree the first criteria are the last ones, too: both orders were judged by them.
    order_ab, order_ba = options.orders
    verdict_ab = verdict(criteria_by_tree[0], order_ab, rule)
    verdict_ba = verdict(criteria_by_tree[-1], order_ba, rule)
    share_ab = share_read(criteria_by_tree[0], (order_ab,))
    share_ba = share_read(criteria_by_tree[-1], (order_ba,))

    margin = _margin(criteria, options.orders)
    summed = None
    if options.fitted and not options.fitted.single:
        margin = None
        # The weights were fitted to margins of both orders: those of one order would not fit them.
        if verdict_ab is not None and verdict_ba is not None:
            margin = options.fitted.logit(margins_of(*criteria_by_tree), tree.comparison.length_ratio)
        summed = options.fitted.verdict(margin)

    cost, plan = _cost_and_plan(trees, criteria_by_tree, options)
    prediction = Prediction.of(
        tree.comparison,
        method,
        verdict_ab,
        verdict_ba,
        branches=branches,
        margin=margin,
        summed=summed,
        cost=cost,
        judgments=sum(len(criterion.judgments) for criterion in criteria),
        failures=_failures(trees, criteria_by_tree),
        reasons=tuple(reasons_of(criteria)),
        asked=options.shown,
        plan=plan,
        asked_again=sum(len(part.earlier) for part in trees),
        score_a=score_of(criteria, "A", options.least_read),
        score_b=score_of(criteria, "B", options.least_read),
        share_read=min((share for share in (share_ab, share_ba) if share is not None), default=None),
        not_judged=_not_judged(criteria, options),
    )
    # An empty response loses by rule, of which no threshold says how certain it is.
    if tree.comparison.forfeit:
        return prediction
    if options.thresholds is not None and not tree.given and not options.thresholds.holds_for(branches):
        # Of so many branches nothing was promised.
        return prediction
    return replace(prediction, decision=_decision(prediction, options.thresholds))


def _not_judged(criteria: Sequence[CriterionNode], options: JudgeOptions) -> tuple[str, ...]:
    """Return the criteria of a judge that stops early by which nothing was judged, each once."""
    if not options.stops_early:
        return ()
    judged = {criterion.text for criterion in criteria if criterion.guidelines}
    # Of two orders with plans of their own one may have needed what the other did not.
    return tuple(dict.fromkeys(criterion.text for criterion in criteria if criterion.text not in judged))


def _stopped(trees: Sequence[EvaluationTree], branches: int, rule: Rule, options: JudgeOptions) -> list[EvaluationTree]:
    """Return the part of trees that a judge which stops early would have grown.

    Args:
        trees: one of both orders, or those of order AB and of order BA.
        branches: of the judge.
        rule: by which the verdict is settled.
        options: how the judge was asked.
    """
    if len(trees) == 1:
        return [stopped(trees[0], branches, rule, options.orders)]
    parts = []
    # Trees of their own are settled each by itself, in the one order that they were judged in.
    for tree, order in zip(trees, ORDERS, strict=True):
        parts.append(stopped(tree, branches, rule, (order,)))
    return parts


def _cost_and_plan(
    trees: Sequence[EvaluationTree], criteria_by_tree: Sequence[Sequence[CriterionNode]], options: JudgeOptions
) -> tuple[Cost, Plan | None]:
    """Return what a verdict in one order cost, and whether both orders shared a plan.

    Args:
        trees: one of both orders, or those of order AB and of order BA.
        criteria_by_tree: those of each tree that count.
        options: how the judge was asked.
    """
    cost = sum(map(cost_of, trees, criteria_by_tree), Cost())
    # Judgments of one response are shown no order, so that the verdict costs all of them.
    if options.reads == "one":
        return cost, None
    # A plan that both orders share is paid once, half by each of them.
    half = cost * (1 / len(ORDERS))
    if len(trees) == 1:
        return half, "shared"
    return half, "independent"


def _decision(prediction: Prediction, thresholds: Thresholds | None) -> Decision | None:
    """Return whether a prediction's verdict is certain enough to be taken; None without thresholds of margins."""
    if thresholds is None or thresholds.of_scores:
        return None
    # Where the orders differ there is no verdict that could be taken, however far the mean is from 0.
    if not prediction.consistent and prediction.summed is None:
        return thresholds.of_margin(None)
    return thresholds.of_margin(prediction.margin)


def _failures(trees: Sequence[EvaluationTree], criteria_by_tree: Sequence[Sequence[CriterionNode]]) -> dict[str, int]:
    """Return how many judgments, guidelines and lists of trees could not be read, by reason, judgments first."""
    failures: Counter[str] = Counter()
    criteria = [criterion for of_tree in criteria_by_tree for criterion in of_tree]
    for criterion in criteria:
        failures.update(judgment_failures(criterion))
    for criterion in criteria:
        failures.update(guideline_failures(criterion))
    for tree, of_tree in zip(trees, criteria_by_tree, strict=True):
        if not of_tree:
            failures[list_failure(tree)] += 1
    return dict(failures)


def _margin(criteria: Sequence[CriterionNode], orders: Sequence[Order]) -> float | None:
    """Return the weighted mean margin of all readable judgments, -4 to 4; None where none could be read."""
    # Order by order, so that the sum has the same terms in the same order whatever was grown first.
    weights = []
    weighted_margins = []
    for order in orders:
        for criterion in criteria:
            weight = abs(criterion.criterion.weight)
            for judgment in criterion.judgments:
                margin = margin_of(criterion, judgment)
                if judgment.order == order and margin is not None:
                    weights.append(weight)
                    weighted_margins.append(weight * margin)
    if not weights:
        return None
    return without_rounding(math.fsum(weighted_margins) / math.fsum(weights))
