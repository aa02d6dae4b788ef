"""Figures of a rubric: what each criterion weighs, what is lost without it, and why others are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from judgetrain.data.intervals import FEWEST as FEWEST_PROMPTS
from judgetrain.data.intervals import Interval, cluster_index
from judgetrain.extras.rubric.evidence import SELDOM, Evidence
from judgetrain.extras.rubric.kinds import Kinds, standardised, with_all
from judgetrain.judges.fitting import FEWEST, fit, folds_of, right_verdicts, tie_width, weights_of
from judgetrain.judges.kinds.aggregation import Fitted
from judgetrain.judges.predictions import verdict_of
from judgetrain.label.worth import FOLDS, worth_by_kind
from judgetrain.label.worth import folds_of as query_folds
from judgetrain.schema import Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]
    Integers = NDArray[np.int64]

RESAMPLES = 200
"""Resamples of prompts, of which intervals are made."""
ENDS = (2.5, 97.5)
"""Percentiles that 95% of the resamples lie between."""
NOTHING = 0.01
"""A weight below this share of the heaviest one is none."""

Reason = Literal["decides", "never separates", "speaks against", "nothing shows"]
"""What a criterion does: it is in the rubric of a kind, or why it is in none."""


@dataclass(frozen=True, kw_only=True)
class Weighed:
    """A criterion of a kind's rubric.

    Args:
        type: its number.
        name: its name.
        text: what it asks.
        weight: as a share of the heaviest one's.
        interval: of the weight, 95%, over prompts; None with fewer than ten of them.
        worth: how far it goes with the better side.
        loss: what the rubric loses without it, on prompts that nothing was learned from (:attr:`KindFigures.loss_of`).
        loss_interval: of the loss, 95%, over prompts, paired.
    """

    type: int
    name: str
    text: str
    weight: float
    interval: Interval | None
    worth: float
    loss: float
    loss_interval: Interval | None


@dataclass(frozen=True, kw_only=True)
class KindFigures:
    """A kind's rubric.

    Args:
        trees: judged comparisons of the kind.
        labelled: those with a label.
        criteria: what is worth most first. Weights are held to each other, so that equal ones say little of the order.
        fitted: the fit to labels; None where there are too few, and weights are what criteria are worth.
        loss_of: what a loss is a share of: ``labels`` that are met; where a kind has too few for a fit, the ``variance
            of labels`` that is foreseen; without labels the ``variance of judgments``, each foreseen by others.
    """

    trees: int
    labelled: int
    criteria: list[Weighed]
    fitted: Fitted | None
    loss_of: Literal["labels", "variance of labels", "variance of judgments"]


@dataclass(frozen=True)
class LeftOut:
    """A type of criteria, and why no kind's rubric has it, or that one has."""

    name: str
    reason: Reason
    kinds: int
    decides: float
    worth: float


def weigh(evidence: Evidence, kinds: Kinds, seed: int) -> list[KindFigures]:
    """Return the figures of every kind's rubric."""
    resampled = _resampled_worth(evidence, kinds, seed)
    figures = []
    for kind, criteria in enumerate(kinds.criteria):
        inside = kinds.of_tree == kind
        read = evidence.seen[:, criteria].any(axis=1)
        rows = np.flatnonzero(inside & evidence.labelled & read)
        fitted = _fit(evidence, rows, criteria)
        if fitted is None:
            weighed = _by_worth(evidence, kinds, kind, resampled, seed)
        else:
            weighed = _by_labels(evidence, kinds, kind, rows, fitted, seed)
        loss_of: Literal["labels", "variance of labels", "variance of judgments"] = "variance of judgments"
        if fitted is not None:
            loss_of = "labels"
        elif kinds.by_labels:
            loss_of = "variance of labels"
        heaviest = max(one.weight for one in weighed)
        kept = [one for one in weighed if one.weight >= NOTHING * heaviest]
        figures.append(
            KindFigures(
                trees=int(inside.sum()),
                labelled=int((inside & evidence.labelled).sum()),
                criteria=kept,
                fitted=fitted,
                loss_of=loss_of,
            )
        )
    return figures


def _fit(evidence: Evidence, rows: Integers, criteria: Sequence[int]) -> Fitted | None:
    """Return weights fitted to the labels of some trees, as stage calibrate fits them; None of too few labels."""
    labels = evidence.labels[rows]
    prompts = [evidence.prompts[row] for row in rows]
    if len(rows) < FEWEST or not labels.any() or len(set(prompts)) < 2:
        return None
    features = _features(evidence, rows, criteria)
    names = [evidence.names[number] for number in criteria]
    margins = [dict(zip(names, of_tree, strict=True)) for of_tree in features.tolist()]
    verdicts: list[Verdict] = [_verdict(label) for label in labels]
    by_mean = [_verdict(mean) for mean in features.sum(axis=1)]
    return fit(margins, verdicts, prompts, by_mean)


def _verdict(ahead: float) -> Verdict:
    """Return the verdict of how far A is ahead."""
    verdict = verdict_of(float(ahead))
    assert verdict is not None
    return verdict


def _features(evidence: Evidence, rows: Integers, criteria: Sequence[int]) -> Floats:
    """Return what each criterion adds to the mean margin, as of ``margins_of`` [row, criterion]."""
    return np.asarray(evidence.margins[rows][:, criteria] / len(criteria))


def _by_labels(evidence: Evidence, kinds: Kinds, kind: int, rows: Integers, fitted: Fitted, seed: int) -> list[Weighed]:
    """Return a kind's criteria with fitted weights, and what fewer labels are met without each."""
    criteria = kinds.criteria[kind]
    features = _features(evidence, rows, criteria)
    targets = (evidence.labels[rows] + 1) / 2
    prompts = [evidence.prompts[row] for row in rows]
    weights = np.array([fitted.weights[evidence.names[number]] for number in criteria])
    heaviest = max(float(weights.max()), 1e-9)

    rng = np.random.default_rng(seed)
    resampled = []
    for sample in _resamples(prompts, rng):
        resampled.append(weights_of(features[sample], targets[sample], fitted.ridge) / heaviest)
    ends = _ends(np.array(resampled), len(set(prompts)))

    folds = folds_of(prompts)
    right = _held_out(features, targets, folds, fitted.ridge)
    weighed = []
    for place, number in enumerate(criteria):
        without = _held_out(np.delete(features, place, axis=1), targets, folds, fitted.ridge)
        loss, loss_interval = _paired(right - without, prompts, seed)
        weighed.append(
            Weighed(
                type=number,
                name=evidence.names[number],
                text=evidence.texts[number],
                weight=float(weights[place] / heaviest),
                interval=ends[place],
                worth=float(kinds.worth[kind, number]),
                loss=loss,
                loss_interval=loss_interval,
            )
        )
    return weighed


def _held_out(features: Floats, targets: Floats, folds: Integers, ridge: float) -> Floats:
    """Return 1 where the verdict by weights of the other folds is the label, else 0 [row]."""
    from scipy.special import expit

    probabilities = np.full(len(targets), 0.5)
    # Without any criterion every verdict is a tie.
    if features.shape[1]:
        for fold in np.unique(folds):
            here = folds == fold
            weights = weights_of(features[~here], targets[~here], ridge)
            probabilities[here] = expit(features[here] @ weights)
    return right_verdicts(probabilities, targets, tie_width(probabilities, targets)).astype(float)


def _by_worth(evidence: Evidence, kinds: Kinds, kind: int, resampled: Floats, seed: int) -> list[Weighed]:
    """Return a kind's criteria with what they are worth as weights, and what is foreseen less without each."""
    criteria = kinds.criteria[kind]
    worth = np.maximum(kinds.worth[kind, criteria], 0.0)
    heaviest = max(float(worth.max()), 1e-9)
    prompts = [evidence.prompts[row] for row in np.flatnonzero(kinds.of_tree == kind)]
    ends = _ends(np.maximum(resampled[:, kind, criteria], 0.0) / heaviest, len(set(prompts)))
    rows, errors, to_foresee = _errors_without(evidence, kinds, kind)
    weighed = []
    for place, number in enumerate(criteria):
        gain = (errors[place + 1] - errors[0]) / max(to_foresee, 1e-9)
        loss, loss_interval = _paired(gain, [evidence.prompts[row] for row in rows], seed)
        weighed.append(
            Weighed(
                type=number,
                name=evidence.names[number],
                text=evidence.texts[number],
                weight=float(worth[place] / heaviest),
                interval=ends[place],
                worth=float(kinds.worth[kind, number]),
                loss=loss,
                loss_interval=loss_interval,
            )
        )
    return weighed


def _errors_without(evidence: Evidence, kinds: Kinds, kind: int) -> tuple[Integers, list[Floats], float]:
    """Return trees of a kind, the squared error on each by all criteria and then without each, and its mean by none.

    What is foreseen are labels, and without them the judgments of each criterion by the others.
    """
    criteria = kinds.criteria[kind]
    counted = kinds.of_tree == kind
    if kinds.by_labels:
        counted = counted & evidence.labelled
    inside = np.flatnonzero(counted)
    folds = query_folds(evidence.judgments.queries)
    margins = standardised(evidence)
    there = evidence.labels[:, None] if kinds.by_labels else margins
    errors = [np.zeros(len(inside)) for _ in range(len(criteria) + 1)]
    for fold in range(FOLDS):
        rest = folds != fold
        worth = worth_by_kind(evidence.columns, evidence.seen, with_all(kinds.of_tree), rest)
        loadings = np.maximum(worth[kind], 0.0)
        here = folds[inside] == fold
        for place, left_out in enumerate((None, *criteria)):
            weights = np.zeros(len(loadings))
            weights[criteria] = loadings[criteria]
            if left_out is not None:
                weights[left_out] = 0.0
            spoken = weights * margins
            total = spoken.sum(axis=1, keepdims=True)
            # A criterion never vouches for itself.
            expected = total if kinds.by_labels else loadings * (total - spoken)
            learned = rest & counted
            product = float(np.sum(expected[learned] * there[learned]))
            scale = max(product, 0.0) / max(float(np.sum(expected[learned] ** 2)), 1e-12)
            rows = inside[here]
            errors[place][here] = np.sum((there[rows] - scale * expected[rows]) ** 2, axis=1)
    to_foresee = 0.0
    if len(inside):
        to_foresee = float(np.mean(np.sum(there[inside] ** 2, axis=1)))
    return inside, errors, to_foresee


def _resampled_worth(evidence: Evidence, kinds: Kinds, seed: int) -> Floats:
    """Return what types are worth for kinds in resamples of prompts [resample, kind, type]."""
    grains = with_all(kinds.of_tree)
    everything = np.ones(len(evidence.prompts), dtype=bool)
    rng = np.random.default_rng(seed)
    worth = []
    for sample in _resamples(evidence.prompts, rng):
        drawn = [grain[sample] for grain in grains]
        of_kinds = worth_by_kind(evidence.columns[sample], evidence.seen[sample], drawn, everything[sample])
        # A kind of which nothing was drawn, at the end, has no row.
        missing = kinds.number - len(of_kinds)
        worth.append(np.pad(of_kinds, ((0, missing), (0, 0))))
    return np.array(worth)


def _resamples(prompts: Sequence[object], rng: np.random.Generator) -> list[Integers]:
    """Return rows of resampled prompts, each prompt with all of its rows."""
    index = cluster_index(prompts, len(prompts))
    rows_of = [np.flatnonzero(index == number) for number in range(int(index.max()) + 1)]
    samples = []
    for _ in range(RESAMPLES):
        drawn = rng.integers(0, len(rows_of), len(rows_of))
        samples.append(np.concatenate([rows_of[number] for number in drawn]))
    return samples


def _ends(resampled: Floats, prompts: int) -> list[Interval | None]:
    """Return the intervals of columns [resample, column]; None of too few prompts."""
    intervals: list[Interval | None] = []
    for column in resampled.T:
        low, high = np.percentile(column, ENDS)
        intervals.append((float(low), float(high)) if prompts >= FEWEST_PROMPTS else None)
    return intervals


def _paired(differences: Floats, prompts: Sequence[object], seed: int) -> tuple[float, Interval | None]:
    """Return the mean of differences on the same rows, and its interval over prompts; 0 and None of no row."""
    if not len(differences):
        return 0.0, None
    rng = np.random.default_rng(seed)
    means = np.array([[differences[sample].mean()] for sample in _resamples(prompts, rng)])
    return float(differences.mean()), _ends(means, len(set(prompts)))[0]


def why_left_out(evidence: Evidence, kinds: Kinds, seed: int) -> list[LeftOut]:
    """Return of each type in how many kinds' rubrics it is, or why in none; what is in most comes first."""
    resampled = _resampled_worth(evidence, kinds, seed)
    # Over all kinds: what speaks against the better side for one kind may decide for another.
    sizes = np.bincount(kinds.of_tree, minlength=kinds.number) / len(kinds.of_tree)
    overall = np.tensordot(resampled, sizes, axes=(1, 0))
    rows = []
    for number, name in enumerate(evidence.names):
        in_kinds = sum(number in criteria for criteria in kinds.criteria)
        reason: Reason = "nothing shows"
        if in_kinds:
            reason = "decides"
        elif evidence.decides[number] < SELDOM:
            reason = "never separates"
        elif np.percentile(overall[:, number], ENDS[1]) < 0:
            reason = "speaks against"
        worth = float(sizes @ kinds.worth[:, number])
        rows.append(LeftOut(name, reason, in_kinds, float(evidence.decides[number]), worth))
    return sorted(rows, key=lambda row: (-row.kinds, -row.worth))
