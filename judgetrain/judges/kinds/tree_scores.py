"""The scores of responses, read off their trees."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from judgetrain.judges.deciding import Thresholds
from judgetrain.judges.kinds.aggregation import given_weight, is_enough, shares_of, used
from judgetrain.judges.kinds.tree_reasons import guideline_failures, judgment_failures, reasons_of
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.predictions import Cost, Score
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, cost_of
from judgetrain.rubrics import Rubric, weighted
from judgetrain.schema import Candidates, Comparison, Order


def items_of(group: Candidates) -> list[Comparison]:
    """Return a comparison for each response of a group that has a text: as response A, beside an empty B."""
    items = []
    for text in group.responses:
        if text.strip():
            items.append(Comparison(group.id, group.dialogue, text, "", rubric=group.rubric))
    return items


def score_of(
    criteria: Sequence[CriterionNode], side: Order, least_read: float = 1.0, whole: float | None = None
) -> float | None:
    """Return the score of response ``A`` or ``B``, 0 to 1: the weighted mean over the criteria of its mean score.

    It is None where too little of the given criteria could be read: the rest would be another rubric, under which
    another response, or one that hides what it is asked for, may look better.

    Args:
        criteria: that were judged by.
        side: the response.
        least_read: share of the given criteria's weight that must have been read.
        whole: the weight of all given criteria; None: of those among ``criteria``.
    """
    if whole is None:
        whole = given_weight(criteria)
    read: list[CriterionNode] = []
    shares: list[tuple[float, float]] = []
    for node in criteria:
        scores = []
        for judgment in node.judgments:
            score = judgment.score_of(side)
            # A judgment of the other response alone carries this one's score from its sibling: it is no second one.
            if side in judgment.order and score is not None:
                scores.append(score)
        criterion = node.criterion
        if scores:
            read.append(node)
            shares.append((criterion.weight, criterion.share(sum(scores) / len(scores))))
    # A judge's own criterion that could not be read is left out; no two of its lists are the same anyway.
    if whole and not is_enough(given_weight(read) / whole, least_read):
        return None
    return weighted(shares)


def scores_of(group: Candidates, trees: Sequence[EvaluationTree], options: JudgeOptions) -> Iterator[Score]:
    """Yield the scores of a group's responses.

    Args:
        group: the responses.
        trees: those of the responses that have a text, in order; the first made the plan for all. Only it is there
            where no criteria came, and none where no response has a text.
        options: how the judge was asked: with how many criteria of its own, how much of the given criteria's weight a
            score must have read, and by which weights.
    """
    branches = options.branches
    thresholds = options.thresholds
    if thresholds is not None and trees and not trees[0].given and not thresholds.holds_for(branches):
        # Of so many branches nothing was promised.
        thresholds = None
    plan: Sequence[CriterionNode] = ()
    if trees:
        plan = used(trees[0], branches)
    plan_failures: Counter[str] = Counter()
    for node in plan:
        plan_failures.update(guideline_failures(node))
    # Of the whole rubric: later responses are not judged by a criterion whose guideline failed.
    whole = given_weight(plan)

    first_judgments = _judgments_cost(plan)
    plan_share = Cost()
    if trees:
        plan_share = _plan_share(group, trees[0], first_judgments)

    # Trees are there for responses with a text alone, in the group's order.
    remaining = iter(trees)
    for response in group.responses:
        if not response.strip():
            yield Score(value=0.0)
            continue
        tree = next(remaining, None)
        if tree is None:
            # No criteria came, so that there is nothing to judge this response by.
            unread = Score(value=None, failures=dict(trees[0].failures), cost=plan_share)
            yield decided_score(unread, thresholds)
            continue

        criteria = used(tree, branches)
        failures = plan_failures.copy()
        for node in criteria:
            failures.update(judgment_failures(node))
        if not criteria:
            failures.update(tree.failures)
        # All that a later tree cost are its judgments, as it was given the first one's plan.
        judgments_cost = cost_of(tree)
        if tree is trees[0]:
            judgments_cost = first_judgments
        value = score_of(criteria, "A", options.least_read, whole)
        if value is not None and options.fitted and options.fitted.single:
            # By criteria that no weight was fitted to, the mean stands.
            by_weights = options.fitted.score(shares_of(criteria))
            if by_weights is not None:
                value = by_weights
        yield decided_score(
            Score(
                value=value,
                reasons=tuple(reasons_of(criteria)),
                failures=dict(failures),
                cost=plan_share + judgments_cost,
            ),
            thresholds,
        )


def _plan_share(group: Candidates, first: EvaluationTree, judgments: Cost) -> Cost:
    """Return each response's part of the plan's cost: all that the first tree cost, without its judgments' cost."""
    # An empty response is scored without being read, and pays nothing.
    texts = sum(bool(response.strip()) for response in group.responses)
    return (cost_of(first) + judgments * -1.0) * (1 / texts)


def _judgments_cost(criteria: Sequence[CriterionNode]) -> Cost:
    """Return what the judgments by criteria cost, without their list and guidelines."""
    cost = Cost()
    for node in criteria:
        for judgment in node.judgments:
            cost += Cost(judgment.prompt_tokens, judgment.generated_tokens, 1)
    return cost


def decided_score(score: Score, thresholds: Thresholds | None) -> Score:
    """Return a score with whether its value decides, where thresholds of scores are there."""
    if thresholds is None or not thresholds.of_scores:
        return score
    return replace(
        score,
        decision=thresholds.of_score(score.value),
        passes=thresholds.passed(score.value),
        passes_from=thresholds.passes,
    )


def rubric_of(tree: EvaluationTree, branches: int) -> Rubric | None:
    """Return the criteria that a tree was judged by, each with its first usable guideline; None where none has one."""
    criteria = []
    for node in used(tree, branches):
        usable = [guideline.text for guideline in node.guidelines if guideline.failure is None]
        # One whose guideline failed is not asked for again: later responses would be judged by another list.
        if usable:
            guideline = node.criterion.guideline
            # What is stated is stated again. Only what the judge wrote itself has to be kept.
            if node.criterion.stated_guideline is None:
                guideline = usable[0]
            criteria.append(replace(node.criterion, guideline=guideline))
    if not criteria:
        return None
    return Rubric(tuple(criteria))
