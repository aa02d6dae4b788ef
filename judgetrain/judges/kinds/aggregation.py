"""Aggregation: from branches to a verdict, the earliest stop, and a verdict's fitted probability.

P(A is better) is the logistic function of a weighted sum of what the criteria add to the mean, without an intercept:
exchanging the responses exchanges the verdict. Where both orders were judged a criterion's margin is the mean of both,
so that a preference for a position cancels. The weights are fitted to comparisons with known labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from judgetrain.artifacts.files import write_json_atomic
from judgetrain.judges.calibrated import load_calibrated
from judgetrain.judges.predictions import logistic, verdict_of
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, JudgmentNode, Wave
from judgetrain.rubrics import EQUAL, HIGHEST, LOWEST
from judgetrain.schema import ORDERS, Order, Verdict

FITTED = "fitted.json"
"""The file of fitted weights, which users may put into a trained judge's directory."""
# None, what could not be read, is missing here and votes for nobody.
_VOTES: dict[Verdict | None, float] = {"A": 1.0, "B": -1.0, "tie": 0.0}


class Rule(NamedTuple):
    """The rule by which the branches of one order become its verdict.

    Args:
        weighed: True: the side with the larger weighted mean of scores, also in an order by itself where fitted weights
            decide over both. False: the side that more branches prefer.
        tie: means that differ by at most this share of the scale are a tie; 0 for votes.
        least_read: share of the weight of given criteria that must have been read; below it there is no verdict.
    """

    weighed: bool
    tie: float
    least_read: float = 0.0


def most(criterion: CriterionNode, rule: Rule) -> float:
    """Return the most that one branch of a criterion adds to the balance."""
    if not rule.weighed:
        return 1.0
    # A negative weight turns the better score round, and counts as much as a positive one.
    return (HIGHEST - LOWEST) * abs(criterion.criterion.weight)


def steps(criteria: Sequence[CriterionNode], order: Order, rule: Rule) -> list[float]:
    """Return what each branch judged in one order adds to the balance: above 0 for A, below for B.

    It is 0 for a tie, for what cannot be read and for a guideline that cannot be judged by. A criterion's weight counts
    where scores are ``weighed``.
    """
    result: list[float] = []
    for criterion in criteria:
        for guideline in criterion.guidelines:
            if guideline.failure:
                # It has no judgment, but its branch is over all the same.
                result.append(0.0)
                continue
            for judgment in guideline.judgments:
                if judgment.order == order:
                    result.append(_step(criterion, judgment, rule))
    return result


def _step(criterion: CriterionNode, judgment: JudgmentNode, rule: Rule) -> float:
    """Return what one judgment adds to the balance."""
    if not rule.weighed:
        return _VOTES.get(judgment.verdict, 0.0)
    margin = margin_of(criterion, judgment) or 0.0
    return margin * abs(criterion.criterion.weight)


def margin_of(criterion: CriterionNode, judgment: JudgmentNode) -> float | None:
    """Return how far A is ahead by a judgment, -4 to 4, on the criterion's own scale; None where it cannot be read."""
    score_a = judgment.score_a
    score_b = judgment.score_b
    if criterion.given is None or score_a is None or score_b is None:
        return judgment.margin
    # The levels of a rubric may stand further apart than the scores 1 to 5 that a judge writes.
    lead = (HIGHEST - LOWEST) * (criterion.given.share(score_a) - criterion.given.share(score_b))
    if judgment.inverted:
        return -lead
    return lead


def _most_of_readable(criteria: Sequence[CriterionNode], order: Order, rule: Rule) -> list[float]:
    """Return the most that each readable branch of one order could have added."""
    result = []
    for criterion in criteria:
        for judgment in criterion.judgments:
            if judgment.order == order and judgment.verdict is not None:
                result.append(most(criterion, rule))
    return result


def verdict(criteria: Sequence[CriterionNode], order: Order, rule: Rule) -> Verdict | None:
    """Return the verdict of some criteria's branches in one order; None if none of them, or too little, can be read."""
    readable = _most_of_readable(criteria, order, rule)
    if not readable:
        return None
    # What is left of a rubric without a heavy criterion is another rubric, with another winner.
    share = share_read(criteria, (order,))
    if share is not None and not is_enough(share, rule.least_read):
        return None
    # As a share of all that was read, so that the unit of the weights does not matter.
    mean = math.fsum(steps(criteria, order, rule)) / math.fsum(readable)
    return verdict_of(mean, rule.tie + EQUAL)


def given_weight(criteria: Sequence[CriterionNode]) -> float:
    """Return the weight of all criteria that people gave; 0 where there is none."""
    return math.fsum(abs(node.criterion.weight) for node in criteria if node.criterion.source == "given")


def share_read(criteria: Sequence[CriterionNode], orders: Sequence[Order]) -> float | None:
    """Return the share of given criteria's weight, 0 to 1, that was read in the order that was read least.

    None where no criterion is given: no two lists of a judge's own are the same, so that there is no whole.
    """
    whole = given_weight(criteria)
    if not whole:
        return None
    shares = []
    for order in orders:
        read = [node for node in criteria if _is_read(node, order)]
        shares.append(given_weight(read) / whole)
    return min(shares)


def is_enough(share: float, least_read: float) -> bool:
    """Return whether a share of the weight that was read is at least the one that is needed."""
    return share >= least_read - EQUAL


def _is_read(node: CriterionNode, order: Order) -> bool:
    """Return whether a judgment of a criterion in one order could be read."""
    return any(judgment.order == order and judgment.verdict is not None for judgment in node.judgments)


def needed(judged: Sequence[float], remaining: Sequence[float], read: Sequence[float] = (), tie: float = 0.0) -> int:
    """Return the fewest further branches after which the outcome might be settled; 0 when it can no longer change.

    Args:
        judged: what the branches judged so far in one order add to the balance between A (above 0) and B (below); 0
            where unreadable.
        remaining: the most that each of the other branches can add, in their order.
        read: the most that each branch that was read could have added.
        tie: a balance up to this share of all that is read is even.
    """
    lead = abs(math.fsum(judged))
    whole = math.fsum([*read, *remaining])
    even = tie * whole
    # A lead must exceed what may still come by more than what counts as equal.
    rounding = 2 * EQUAL * whole
    for number in range(len(remaining)):
        next_branches = math.fsum(remaining[:number])
        branches_after = math.fsum(remaining[number:])
        # If the next branches all speak for the leader, the others may not reach the band of ties any more ...
        leader_wins = lead + next_branches - branches_after > even + rounding
        # ... and if they all speak against it, the others may not lift the balance out of the band.
        even_stays = max(lead - next_branches, 0.0) + branches_after < even - rounding
        if leader_wins or even_stays:
            return number
    return len(remaining)


def next_wave(tree: EvaluationTree, branches: int, rule: Rule, orders: Sequence[Order] = ORDERS) -> Wave:
    """Return what a judge with ``branches`` branches must judge next.

    It is empty when the verdicts of all ``orders`` are settled.
    """
    criteria = used(tree, branches)
    if any(criterion.given for criterion in criteria):
        # A rubric's criteria are all judged: each has its part in a response's score.
        return {criterion.rank: tuple(orders) for criterion in criteria if not criterion.guidelines}

    weights = [most(criterion, rule) for criterion in criteria]
    needed_by_order: dict[Order, int] = {}
    for order in orders:
        judged = steps(criteria, order, rule)
        readable = _most_of_readable(criteria, order, rule)
        number = needed(judged, weights[len(judged) :], readable, rule.tie)
        if number:
            needed_by_order[order] = number
    if not needed_by_order:
        return {}

    # No further than the first order may be settled: what comes then decides how much the others need.
    wave = min(needed_by_order.values())
    # Criteria grow in the order of the list, so that a wave follows on those that have guidelines.
    done = sum(bool(criterion.guidelines) for criterion in criteria)
    return {criterion.rank: tuple(needed_by_order) for criterion in criteria[done : done + wave]}


def used(tree: EvaluationTree, branches: int) -> tuple[CriterionNode, ...]:
    """Return the criteria that a judge with ``branches`` branches judges by: so many, but all of a rubric."""
    from_rubric = sum(criterion.given is not None for criterion in tree.criteria)
    # A rubric's criteria stand before those that the judge added to it.
    return tree.criteria[: max(branches, from_rubric)]


def stopped(tree: EvaluationTree, branches: int, rule: Rule, orders: Sequence[Order] = ORDERS) -> EvaluationTree:
    """Return the part of a tree that a judge with ``branches`` branches that stops early would have grown.

    The tree may itself have been stopped, with at least as many branches. ``failures`` stay those of the whole tree.
    """
    # The list is written before the first wave: no stop shortens it.
    partial = replace(tree, criteria=tuple(replace(criterion, guidelines=()) for criterion in tree.criteria))
    # Replayed wave by wave: what a smaller judge would have asked follows from what it had read by then.
    wave = next_wave(partial, branches, rule, orders)
    while wave:
        criteria = []
        for whole, part in zip(tree.criteria, partial.criteria, strict=True):
            if whole.rank in wave:
                criteria.append(_in_orders(whole, wave[whole.rank]))
            else:
                criteria.append(part)
        partial = replace(partial, criteria=tuple(criteria))
        wave = next_wave(partial, branches, rule, orders)
    return partial


def _in_orders(criterion: CriterionNode, orders: Sequence[Order]) -> CriterionNode:
    """Return a criterion with the judgments of some orders only."""
    guidelines = []
    for guideline in criterion.guidelines:
        judgments = tuple(judgment for judgment in guideline.judgments if judgment.order in orders)
        guidelines.append(replace(guideline, judgments=judgments))
    return replace(criterion, guidelines=tuple(guidelines))


Margins = Mapping[str, float]
"""Parts of the mean margin by criterion; the mean says how far A is ahead, -1 to 1.

By the criterion's name in a rubric, or ``#2`` for the second of the judge's own list.
"""


def margins_of(*lists: Sequence[CriterionNode]) -> dict[str, float]:
    """Return what the criteria of a tree, or of each order's tree, add to their mean; without unreadable ones."""
    weights: dict[str, float] = {}
    margins: dict[str, list[float]] = {}
    for criteria in lists:
        # Criteria of a judge's own have no names that two trees share: their place stands for them.
        for place, node in enumerate(criteria, start=1):
            name = f"#{place}"
            if node.given:
                name = node.given.name or node.given.text
            readable = []
            for judgment in node.judgments:
                margin = margin_of(node, judgment)
                if margin is not None:
                    readable.append(margin)
            if readable:
                weights.setdefault(name, abs(node.criterion.weight))
                margins.setdefault(name, []).extend(readable)

    # Over what could be read, so that the margins add up to the mean of those.
    whole = math.fsum(weights.values()) * (HIGHEST - LOWEST)
    return {name: weight * fmean(margins[name]) / whole for name, weight in weights.items()}


def shares_of(criteria: Sequence[CriterionNode]) -> dict[str, float]:
    """Return what the criteria of a single response's tree add to how far it is above the middle, -1 to 1.

    They are named as by :func:`margins_of`, and those that could not be read are left out, too.
    """
    weights: dict[str, float] = {}
    leads: dict[str, float] = {}
    for place, node in enumerate(criteria, start=1):
        name = f"#{place}"
        if node.given:
            name = node.given.name or node.given.text
        scores = [judgment.score_a for judgment in node.judgments if judgment.score_a is not None]
        if not scores:
            continue
        share = node.criterion.share(fmean(scores))
        lead = 2 * share - 1
        # A negative weight is of what a response must not do.
        if node.criterion.weight < 0:
            lead = 1 - 2 * share
        weights[name] = abs(node.criterion.weight)
        leads[name] = lead
    whole = math.fsum(weights.values())
    return {name: weight * leads[name] / whole for name, weight in weights.items()}


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Weights of criteria, and what they were fitted on.

    Weights fitted on comparisons decide comparisons, and those fitted on single responses score these; what they were
    not fitted on goes by the mean.

    Agreement is over all labelled comparisons, as in stage judge: what cannot be read agrees with nothing, and an empty
    response loses.

    Args:
        weights: by criterion.
        tie: a probability no further than this from a half is a tie.
        n: number of labelled comparisons.
        ridge: strength of the L2 penalty.
        before: expected calibration error and agreement of the plain mean. Agreement is that of the judge as it is
            asked, with its tie and its early stop.
        after: both of the fitted weights, on comparisons that had no part in fitting them, nor in choosing ridge and
            tie (ten folds of prompts).
        single: they were fitted on single responses with labels.
        intercept: of single responses, the log-odds of the better level where all criteria are in the middle, nats.
        prompts: of the labelled rows, as :func:`~judgetrain.data.prompt_keys.prompt_digest` has them; empty in files
            of earlier versions.
        length: nats by which A is likelier for each unit of :attr:`Comparison.length_ratio`; None: weights know nothing
            of length.
        by_length: both figures of a length's weight alone, fitted and measured as ``after``, on the comparisons that
            could be read; None as for ``length``.
    """

    weights: dict[str, float]
    tie: float
    n: int
    ridge: float
    before: dict[str, float]
    after: dict[str, float]
    single: bool = False
    intercept: float = 0.0
    prompts: list[str] = field(default_factory=list)
    length: float | None = None
    by_length: dict[str, float] | None = None

    def score(self, shares: Margins) -> float | None:
        """Return the score of a single response, 0 to 1: over two levels the probability of the better one.

        Args:
            shares: as of :func:`shares_of`; empty: nothing could be read, and there is no score.
        """
        logit = self.logit(shares)
        if logit is None:
            return None
        return logistic(logit + self.intercept)

    def logit(self, margins: Margins, length_ratio: float = 0.0) -> float | None:
        """Return the log-odds of A being better, nats; None where no criterion of the fitted ones could be read.

        Args:
            margins: as of :func:`margins_of`.
            length_ratio: as of :attr:`Comparison.length_ratio`; counts where length has a weight.
        """
        if not margins or (self.weights and self.weights.keys().isdisjoint(margins)):
            # Weights of other criteria say nothing of these.
            return None
        # A criterion that was not there when weights were fitted counts as much as the mean one.
        mean_weight = 0.0
        if self.weights:
            mean_weight = fmean(self.weights.values())
        by_criteria = math.fsum(self.weights.get(name, mean_weight) * margin for name, margin in margins.items())
        if self.length is None:
            return by_criteria
        return by_criteria + self.length * length_ratio

    def verdict(self, logit: float | None) -> Verdict | None:
        """Return the verdict of log-odds, nats; None for None."""
        if logit is None:
            return None
        return verdict_of(logistic(logit) - 0.5, self.tie + EQUAL)

    def save(self, directory: Path) -> None:
        """Write the weights as ``fitted.json``."""
        write_json_atomic(directory / FITTED, asdict(self))

    @classmethod
    def load(cls, path: str | Path, key: str = "judge.fitted") -> Fitted:
        """Read what :meth:`save` wrote.

        Args:
            path: the file, or its directory.
            key: the configuration key that names it, for the message.

        Raises:
            ConfigError: there is no such file, or it is another one.
        """
        return load_calibrated(cls, FITTED, path, key)
