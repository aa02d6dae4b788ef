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
from judgetrain.data.rows import Asked
from judgetrain.errors import ConfigError, DataError
from judgetrain.judges.base import logistic, verdict_of
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


FILE = "fitted.json"
FOLDS = 10
STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Of the ridge, among which cross-validation chooses."""
ALONG = 0.01
"""Strength of the ridge on the mean of all weights, which few labels suffice for: how sure a lead makes."""
FEWEST = 20
"""Labelled comparisons below which nothing is fitted."""
BINS = 5
"""Of the confidence, from a half to 1, by which calibration is measured."""

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
    had no part in fitting them, nor in choosing ridge and tie (ten folds of prompts).
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
        write_json_atomic(directory / FILE, asdict(self))

    @classmethod
    def load(cls, path: str | Path, key: str = "judge.fitted") -> Fitted:
        """Read what :meth:`save` wrote (ConfigError: there is none; names the ``key``)."""
        file = Path(path).expanduser()
        file = file / FILE if file.is_dir() else file
        try:
            return cls(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(f"{key}={path}: expected the {FILE} of stage calibrate ({error})") from error


def fit(margins: Sequence[Margins], labels: Sequence[Verdict], prompts: Sequence[Asked]) -> Fitted:
    """Weights fitted to labels, with the ridge that does best on held-out prompts.

    The ridge holds the weights to each other, and so to the ratios of ``mean``: a rubric's weights, or for own criteria
    a third of the one before. None is below 0: no criterion counts against the response that meets it better.

    Args:
        margins: of each comparison, as of :func:`margins_of`.
        labels: the right verdicts; a tie counts as half a win for either.
        prompts: of each comparison (:func:`~judgetrain.data.rows.clusters`); those of one stand in one fold.

    Raises:
        DataError: fewer than :data:`FEWEST` comparisons with a margin, or labels that are all ties.
    """
    import numpy as np
    from scipy.special import expit

    known = [i for i, each in enumerate(margins) if each]
    if len(known) < FEWEST or all(labels[i] == "tie" for i in known):
        raise DataError(
            f"expected at least {FEWEST} labelled comparisons that the judge could read, not all of them ties; found "
            f"{len(known)}"
        )
    names = sorted({name for i in known for name in margins[i]}, key=lambda name: (len(name), name))
    features = np.array([[margins[i].get(name, 0.0) for name in names] for i in known])
    targets = np.array([{"A": 1.0, "B": 0.0, "tie": 0.5}[labels[i]] for i in known])
    folds = _folds([prompts[i] for i in known])
    ridge, tie = _chosen(features, targets, folds)
    # Measured on folds that had no part in choosing the ridge or the width of a tie.
    held, widths = np.full(len(targets), 0.5), np.zeros(len(targets))
    for fold in np.unique(folds):
        here = folds == fold
        of = features[~here], targets[~here]
        strength, widths[here] = _chosen(*of, folds[~here])
        held[here] = expit(features[here] @ _weights(*of, strength))
    weights = _weights(features, targets, ridge)
    plain = expit((HIGHEST - LOWEST) * features.sum(1))
    return Fitted(
        weights={name: round(float(w), 6) for name, w in zip(names, weights, strict=True)},
        tie=tie,
        n=len(known),
        ridge=ridge,
        before={"ece": calibration_error(plain, targets), "agreement": _agreement(plain, targets, 0.0)},
        after={"ece": calibration_error(held, targets), "agreement": _agreement(held, targets, widths)},
    )


def calibration_error(probabilities: Array, targets: Array) -> float:
    """The expected calibration error: by bins of the confidence in the likelier side, how far it is from how often that
    side is right (a tie: half), weighted by the bins' sizes."""
    import numpy as np

    sure = np.maximum(probabilities, 1 - probabilities)
    right = np.where(probabilities >= 0.5, targets, 1 - targets)
    bins = np.minimum((2 * (sure - 0.5) * BINS).astype(int), BINS - 1)
    parts = [bins == b for b in range(BINS)]
    return round(float(sum(abs(sure[p].mean() - right[p].mean()) * p.mean() for p in parts if p.any())), 6)


def _weights(features: Array, targets: Array, ridge: float) -> Array:
    """Weights above 0; the ridge is on how far they are from their mean, and hardly on the mean."""
    import numpy as np
    from scipy.optimize import minimize
    from scipy.special import expit

    def loss(weights: Array) -> tuple[float, Array]:
        logits = features @ weights
        mean = weights.mean()
        held = ridge * (weights - mean) + ALONG * mean / len(weights)
        value = np.logaddexp(0, logits).sum() - targets @ logits + held @ weights / 2
        return float(value), features.T @ (expit(logits) - targets) + held

    bounds = [(0.0, None)] * features.shape[1]
    found: Array = minimize(loss, np.ones(features.shape[1]), jac=True, method="L-BFGS-B", bounds=bounds).x
    return found


def _chosen(features: Array, targets: Array, folds: Array) -> tuple[float, float]:
    """The ridge under which weights do best on folds that they were not fitted to, and the width of a tie there."""
    import numpy as np
    from scipy.special import expit

    found = {}
    for ridge in STRENGTHS:
        held = found[ridge] = np.full(len(targets), 0.5)
        for here in (folds == fold for fold in np.unique(folds)):
            if not here.all():
                held[here] = expit(features[here] @ _weights(features[~here], targets[~here], ridge))
    ridge = min(STRENGTHS, key=lambda each: _loss(found[each], targets))
    return ridge, _tie(found[ridge], targets)


def _folds(prompts: Sequence[Asked]) -> Array:
    import numpy as np

    names = {name: i for i, name in enumerate(sorted(set(prompts)))}
    order = np.random.default_rng(0).permutation(len(names)) % FOLDS
    return np.array([order[names[prompt]] for prompt in prompts])


def _loss(probabilities: Array, targets: Array) -> float:
    import numpy as np

    p = np.clip(probabilities, 1e-9, 1 - 1e-9)
    return float(-(targets * np.log(p) + (1 - targets) * np.log(1 - p)).mean())


def _agreement(probabilities: Array, targets: Array, tie: Array | float) -> float:
    import numpy as np

    ahead = probabilities - 0.5
    said = np.where(np.abs(ahead) <= tie, 0.5, (ahead > 0).astype(float))
    return round(float((said == targets).mean()), 6)


def _tie(probabilities: Array, targets: Array) -> float:
    """How far from a half a tie may be so that most labels are met; 0 where no label is a tie."""
    import numpy as np

    if not (targets == 0.5).any():
        return 0.0
    candidates = np.concatenate([[0.0], np.quantile(np.abs(probabilities - 0.5), np.linspace(0.02, 0.98, 49))])
    return round(float(max(candidates, key=lambda tie: _agreement(probabilities, targets, tie))), 6)
