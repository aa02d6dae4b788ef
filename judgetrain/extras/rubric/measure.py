"""Figures of a rubric: what each criterion weighs, what is lost without it, and why others are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from judgetrain.data.intervals import FEWEST as FEWEST_PROMPTS
from judgetrain.data.intervals import Interval, cluster_index
from judgetrain.data.prompt_keys import PromptKey
from judgetrain.extras.rubric.evidence import SELDOM, Evidence
from judgetrain.extras.rubric.kinds import Kinds, standardised, with_all
from judgetrain.judges.fitting import (
    FEWEST,
    STRENGTHS,
    best_ridge,
    fit,
    folds_of,
    right_verdicts,
    tie_width,
    weights_of,
)
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
LEAST_PLACE = 0.1
"""The least that a place of the order counts beside the first one, so that a kind's own labels can raise any place."""

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
        criteria: what weighs most first.
        fitted: the fit to labels; None where there are too few, and weights are what criteria are worth.
        by_place: what the first criterion of a kind counts over all kinds, the second, and so on. Fitted weights are
            held to these; None where nothing was fitted.
        loss_of: what a loss is a share of: ``labels`` that are met; where a kind has too few for a fit, the ``variance
            of labels`` that is foreseen; without labels the ``variance of judgments``, each foreseen by others.
    """

    trees: int
    labelled: int
    criteria: list[Weighed]
    fitted: Fitted | None
    by_place: list[float] | None
    loss_of: Literal["labels", "variance of labels", "variance of judgments"]


@dataclass(frozen=True)
class LeftOut:
    """A type of criteria, and why no kind's rubric has it, or that one has."""

    name: str
    reason: Reason
    kinds: int
    decides: float
    worth: float


@dataclass(frozen=True, kw_only=True)
class _Labelled:
    """The labelled trees of a kind, and its criteria in the order in which these labels have them.

    Args:
        criteria: types, what weighs most in an unhindered fit first.
        features: what each adds to the mean margin [row, criterion].
        targets: 1 for A, 0 for B, a half for a tie [row].
        prompts: of the rows.
    """

    criteria: list[int]
    features: Floats
    targets: Floats
    prompts: list[PromptKey]


def weigh(evidence: Evidence, kinds: Kinds, resampled: Floats, seed: int) -> list[KindFigures]:
    """Return the figures of every kind's rubric; ``resampled``: of :func:`resampled_worth`."""
    labelled_of = [_labelled(evidence, kinds, kind) for kind in range(kinds.number)]
    by_place = _weights_by_place([labelled for labelled in labelled_of if labelled is not None])
    figures = []
    for kind, labelled in enumerate(labelled_of):
        inside = kinds.of_tree == kind
        fitted = None
        loss_of: Literal["labels", "variance of labels", "variance of judgments"] = "variance of judgments"
        if kinds.by_labels:
            loss_of = "variance of labels"
        if labelled is None:
            weighed = _by_worth(evidence, kinds, kind, resampled, seed)
        else:
            loss_of = "labels"
            fitted = _fit(evidence, labelled, by_place)
            weighed = _by_labels(evidence, kinds.worth[kind], labelled, by_place, fitted, seed)
        heaviest = max(one.weight for one in weighed)
        kept = [one for one in weighed if one.weight >= NOTHING * heaviest]
        figures.append(
            KindFigures(
                trees=int(inside.sum()),
                labelled=int((inside & evidence.labelled).sum()),
                # Stable: of equal weights what came first stays there.
                criteria=sorted(kept, key=lambda one: -one.weight),
                fitted=fitted,
                by_place=None if labelled is None else by_place[: len(labelled.criteria)].tolist(),
                loss_of=loss_of,
            )
        )
    return figures


def _labelled(evidence: Evidence, kinds: Kinds, kind: int) -> _Labelled | None:
    """Return a kind's labelled trees; None of too few labels for a fit, of ties alone, or of one prompt."""
    criteria = kinds.criteria[kind]
    read = evidence.seen[:, criteria].any(axis=1)
    rows = np.flatnonzero((kinds.of_tree == kind) & evidence.labelled & read)
    labels = evidence.labels[rows]
    prompts = [evidence.prompts[row] for row in rows]
    if len(rows) < FEWEST or not labels.any() or len(set(prompts)) < 2:
        return None
    features = np.asarray(evidence.margins[rows][:, criteria] / len(criteria))
    targets = (labels + 1) / 2
    order = _order(features, targets)
    return _Labelled(
        criteria=[criteria[place] for place in order], features=features[:, order], targets=targets, prompts=prompts
    )


def _order(features: Floats, targets: Floats) -> Integers:
    """Return the columns by the weights of a fit whose ridge hardly holds them to each other, the heaviest first."""
    weights = weights_of(features, targets, min(STRENGTHS))
    return np.argsort(-weights, kind="stable")


def _weights_by_place(kinds: Sequence[_Labelled]) -> Floats:
    """Return what the first criterion of a kind counts, the second, and so on, over all kinds [place]; the first has 1.

    A kind has too few labels to say how much more its first criterion counts than its second. All kinds together have
    enough. The order of a row's criteria comes from rows of other prompts: a kind's own rows would put first what
    counts more by chance.
    """
    most = max((labelled.features.shape[1] for labelled in kinds), default=1)
    features = []
    targets = []
    prompts: list[PromptKey] = []
    for labelled in kinds:
        folds = folds_of(labelled.prompts)
        for fold in np.unique(folds):
            here = folds == fold
            order = _order(labelled.features[~here], labelled.targets[~here])
            in_order = labelled.features[here][:, order]
            # A place that a kind does not have adds nothing there.
            features.append(np.pad(in_order, ((0, 0), (0, most - len(order)))))
            targets.append(labelled.targets[here])
            prompts += [labelled.prompts[row] for row in np.flatnonzero(here)]
    if not kinds:
        return np.ones(1)
    all_features = np.concatenate(features)
    all_targets = np.concatenate(targets)
    ridge, _ = best_ridge(all_features, all_targets, folds_of(prompts))
    weights = weights_of(all_features, all_targets, ridge)
    shares = np.maximum(weights / max(float(weights[0]), 1e-9), LEAST_PLACE)
    # A later place never counts more than an earlier one: that would be another order.
    return np.minimum.accumulate(np.minimum(shares, 1.0))


def _fit(evidence: Evidence, labelled: _Labelled, by_place: Floats) -> Fitted:
    """Return weights fitted to a kind's labels, as stage calibrate fits them, held to those of their places."""
    names = [evidence.names[number] for number in labelled.criteria]
    places = by_place[: len(names)]
    scaled = labelled.features * places
    margins = [dict(zip(names, of_tree, strict=True)) for of_tree in scaled.tolist()]
    verdicts: list[Verdict] = [_verdict(2 * target - 1) for target in labelled.targets]
    by_mean = [_verdict(mean) for mean in labelled.features.sum(axis=1)]
    fitted = fit(margins, verdicts, labelled.prompts, by_mean)
    # Of scaled features: a weight of the features themselves has the place's share in it.
    weights = {name: fitted.weights[name] * float(place) for name, place in zip(names, places, strict=True)}
    return replace(fitted, weights=weights)


def _verdict(ahead: float) -> Verdict:
    """Return the verdict of how far A is ahead."""
    verdict = verdict_of(float(ahead))
    assert verdict is not None
    return verdict


def _by_labels(
    evidence: Evidence, worth: Floats, labelled: _Labelled, by_place: Floats, fitted: Fitted, seed: int
) -> list[Weighed]:
    """Return a kind's criteria with fitted weights, and what fewer labels are met without each.

    Args:
        evidence: the judgments.
        worth: of each type for the kind.
        labelled: the kind's labelled trees.
        by_place: what each place of the order counts over all kinds.
        fitted: the fit to the kind's labels.
        seed: of the resamples.
    """
    places = by_place[: len(labelled.criteria)]
    features = labelled.features * places
    weights = np.array([fitted.weights[evidence.names[number]] for number in labelled.criteria])
    heaviest = max(float(weights.max()), 1e-9)

    rng = np.random.default_rng(seed)
    resampled = []
    for sample in _resamples(labelled.prompts, rng):
        drawn = weights_of(features[sample], labelled.targets[sample], fitted.ridge)
        resampled.append(drawn * places / heaviest)
    ends = _ends(np.array(resampled), len(set(labelled.prompts)))

    folds = folds_of(labelled.prompts)
    right = _held_out(features, labelled.targets, folds, fitted.ridge)
    weighed = []
    for place, number in enumerate(labelled.criteria):
        without = _held_out(np.delete(features, place, axis=1), labelled.targets, folds, fitted.ridge)
        loss = _paired(right - without, labelled.prompts, seed)
        weight = float(weights[place] / heaviest)
        weighed.append(_weighed(evidence, number, weight, ends[place], float(worth[number]), loss))
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
        loss = _paired(gain, [evidence.prompts[row] for row in rows], seed)
        weight = float(worth[place] / heaviest)
        weighed.append(_weighed(evidence, number, weight, ends[place], float(kinds.worth[kind, number]), loss))
    return weighed


def _weighed(
    evidence: Evidence,
    number: int,
    weight: float,
    interval: Interval | None,
    worth: float,
    loss: tuple[float, Interval | None],
) -> Weighed:
    """Return a criterion of a rubric.

    Args:
        evidence: the judgments.
        number: the criterion's type.
        weight: as a share of the heaviest one's.
        interval: of the weight.
        worth: of the type for the kind.
        loss: what the rubric loses without it, and the interval of that.
    """
    lost, loss_interval = loss
    return Weighed(
        type=number,
        name=evidence.names[number],
        text=evidence.texts[number],
        weight=weight,
        interval=interval,
        worth=worth,
        loss=lost,
        loss_interval=loss_interval,
    )


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


def resampled_worth(evidence: Evidence, kinds: Kinds, seed: int) -> Floats:
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


def why_left_out(evidence: Evidence, kinds: Kinds, resampled: Floats) -> list[LeftOut]:
    """Return of each type in how many kinds' rubrics it is, or why in none; what is in most comes first.

    Args:
        evidence: the judgments.
        kinds: of query.
        resampled: of :func:`resampled_worth`.
    """
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
