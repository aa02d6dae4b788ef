"""How branches become a verdict, when their verdict can no longer change, and a verdict's probability, fitted.

P(A is better) is the logistic function of a weighted sum of what the criteria add to the mean, without an intercept:
exchanging the responses exchanges the verdict. Where both orders were judged a criterion's margin is the mean of both,
so that a preference for a position cancels. The weights are fitted to comparisons with known labels.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from judgetrain.artifacts.files import write_json_atomic
from judgetrain.errors import ConfigError
from judgetrain.judges.base import logistic, verdict_of
from judgetrain.judges.config import FITTED
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, JudgmentNode, Wave
from judgetrain.rubrics import HIGHEST, LOWEST
from judgetrain.schema import ORDERS, Order, Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


_VOTES: dict[Verdict | None, float] = {"A": 1.0, "B": -1.0, "tie": 0.0}


class Rule(NamedTuple):
    """How the branches of one order become its verdict.

    ``weighed``: the side with the larger weighted mean of scores, and a ``tie`` up to such a share of the scale; so it
    is for an order by itself, too, where fitted weights decide between both. Else the side that more of them prefer.
    """

    weighed: bool
    tie: float


def most(criterion: CriterionNode, rule: Rule) -> float:
    """The most that a criterion adds to the balance with one branch."""
    return (HIGHEST - LOWEST) * abs(criterion.criterion.weight) if rule.weighed else 1.0


def steps(criteria: Sequence[CriterionNode], order: Order, rule: Rule) -> list[float]:
    """What each branch judged in one order adds: above 0 for A, below for B.

    0 for a tie, for what cannot be read and for a guideline that cannot be judged by. A criterion's weight counts
    where scores are ``weighed``.
    """

    def step(criterion: CriterionNode, judgment: JudgmentNode) -> float:
        if not rule.weighed:
            return _VOTES.get(judgment.verdict, 0.0)
        return (margin_of(criterion, judgment) or 0.0) * abs(criterion.criterion.weight)

    found: list[float] = []
    for criterion in criteria:
        for guideline in criterion.guidelines:
            judged = [j for j in guideline.judgments if j.order == order]
            found += [0.0] if guideline.failure else [step(criterion, j) for j in judged]
    return found


def margin_of(criterion: CriterionNode, judgment: JudgmentNode) -> float | None:
    """How far A is ahead by a judgment, -4 to 4, on the criterion's own scale; None where it cannot be read."""
    given, a, b = criterion.given, judgment.score_a, judgment.score_b
    if given is None or a is None or b is None:
        return judgment.margin
    ahead = (HIGHEST - LOWEST) * (given.share(a) - given.share(b))
    return -ahead if judgment.inverted else ahead


def _read(criteria: Sequence[CriterionNode], order: Order, rule: Rule) -> list[float]:
    """The most that each branch could have added that was judged in one order and could be read."""
    return [most(c, rule) for c in criteria for j in c.judgments if j.order == order and j.verdict is not None]


def verdict(criteria: Sequence[CriterionNode], order: Order, rule: Rule) -> Verdict | None:
    """The verdict of the branches of some criteria in one order; None if none of them can be read."""
    read = _read(criteria, order, rule)
    return verdict_of(math.fsum(steps(criteria, order, rule)), rule.tie * math.fsum(read)) if read else None


_ROUNDING = 1e-9
"""A lead must exceed what may come by more than sums of real-valued scores can be off."""


def needed(judged: Sequence[float], left: Sequence[float], read: Sequence[float] = (), tie: float = 0.0) -> int:
    """The fewest further branches after which the outcome might be settled; 0 when it can no longer change.

    ``judged``: what the branches judged so far in one order add to the balance between A (above 0) and B (below); 0
    where unreadable. ``left``: the most that each of the others can add, in their order. ``read``: the most that those
    could have added that were read; a balance up to the share ``tie`` of all that is read is even.
    """
    lead, even = abs(math.fsum(judged)), tie * math.fsum([*read, *left])
    for number in range(len(left)):
        first, rest = math.fsum(left[:number]), math.fsum(left[number:])
        if lead + first - rest > even + _ROUNDING or max(lead - first, 0.0) + rest < even - _ROUNDING:
            return number
    return len(left)


def next_wave(tree: EvaluationTree, branches: int, rule: Rule, orders: Sequence[Order] = ORDERS) -> Wave:
    """What a judge with ``branches`` branches must judge next; empty when the verdicts of ``orders`` are settled."""
    criteria = used(tree, branches)
    if any(c.given for c in criteria):  # a rubric's criteria are all judged: each has its part in a response's score
        return {c.rank: tuple(orders) for c in criteria if not c.guidelines}
    weights = [most(criterion, rule) for criterion in criteria]
    waiting = {}
    for order in orders:
        judged = steps(criteria, order, rule)
        if number := needed(judged, weights[len(judged) :], _read(criteria, order, rule), rule.tie):
            waiting[order] = number
    if not waiting:
        return {}
    done = sum(bool(c.guidelines) for c in criteria)
    return {c.rank: tuple(waiting) for c in criteria[done : done + min(waiting.values())]}


def used(tree: EvaluationTree, branches: int) -> tuple[CriterionNode, ...]:
    """The criteria that a judge with ``branches`` branches judges by: so many of its own list, but all given ones."""
    return tree.criteria[: max(branches, sum(c.given is not None for c in tree.criteria))]


def stopped(tree: EvaluationTree, branches: int, rule: Rule, orders: Sequence[Order] = ORDERS) -> EvaluationTree:
    """The part of a tree that a judge with ``branches`` branches that stops early would have grown.

    The tree may itself have been stopped, with at least as many branches. ``failures`` stay those of the whole tree.
    """
    grown = [replace(c, guidelines=()) for c in tree.criteria]
    while wave := next_wave(replace(tree, criteria=tuple(grown)), branches, rule, orders):
        pairs = zip(tree.criteria, grown, strict=True)
        grown = [_shown(whole, wave[whole.rank]) if whole.rank in wave else part for whole, part in pairs]
    return replace(tree, criteria=tuple(grown))


def _shown(criterion: CriterionNode, orders: Sequence[Order]) -> CriterionNode:
    guidelines = (
        replace(g, judgments=tuple(j for j in g.judgments if j.order in orders)) for g in criterion.guidelines
    )
    return replace(criterion, guidelines=tuple(guidelines))


Margins = Mapping[str, float]
"""By criterion (its name in a rubric, or ``#2``, the second of the judge's own list): what it adds to the mean, where
A is ahead by -1 to 1."""


def margins_of(*lists: Sequence[CriterionNode]) -> dict[str, float]:
    """What the criteria of a tree, or of each order's, add to their ``mean``; without those that cannot be read."""
    found: dict[str, tuple[float, list[float]]] = {}
    for criteria in lists:
        for place, node in enumerate(criteria, start=1):
            name = (node.given.name or node.given.text) if node.given else f"#{place}"
            margins = [margin for each in node.judgments if (margin := margin_of(node, each)) is not None]
            if margins:
                found.setdefault(name, (abs(node.criterion.weight), []))[1].extend(margins)
    whole = math.fsum(weight for weight, _ in found.values()) * (HIGHEST - LOWEST)
    return {name: weight * fmean(margins) / whole for name, (weight, margins) in found.items()}


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Weights of criteria, and what they were fitted on.

    ``tie``: a probability no further than this from a half is a tie. ``n`` labelled comparisons. ``before`` and
    ``after``: expected calibration error and agreement of the plain mean, and of the fitted weights on comparisons that
    had no part in fitting them, nor in choosing ridge and tie (ten folds of prompts). Agreement is over all labelled
    comparisons, as in stage judge: what cannot be read agrees with nothing, and an empty response loses. By the plain
    mean it is that of the judge as it is asked, with its tie and its early stop.
    """

    weights: dict[str, float]
    tie: float
    n: int
    ridge: float
    before: dict[str, float]
    after: dict[str, float]

    def logit(self, margins: Margins) -> float | None:
        """The log-odds of A being better, nats; None where no criterion could be read.

        A criterion that was not there when weights were fitted counts as much as the mean one.
        """
        usual = fmean(self.weights.values()) if self.weights else 0.0
        return math.fsum(self.weights.get(name, usual) * m for name, m in margins.items()) if margins else None

    def verdict(self, logit: float | None) -> Verdict | None:
        """The verdict of log-odds."""
        return None if logit is None else verdict_of(logistic(logit) - 0.5, self.tie)

    def save(self, directory: Path) -> None:
        """Write it as ``fitted.json``."""
        write_json_atomic(directory / FITTED, asdict(self))

    @classmethod
    def load(cls, path: str | Path, key: str = "judge.fitted") -> Fitted:
        """Read what :meth:`save` wrote (ConfigError: there is none; names the ``key``)."""
        try:
            file = Path(path).expanduser()
            file = file / FITTED if file.is_dir() else file
            return cls(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(f"{key}={path}: expected the {FITTED} of stage calibrate ({error})") from error
