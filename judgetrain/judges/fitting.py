"""Weights of a judge's criteria, fitted to labelled comparisons: a logistic regression without an intercept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from judgetrain.amounts import amount
from judgetrain.data.labelled import Scale
from judgetrain.data.prompt_keys import PromptKey
from judgetrain.errors import DataError
from judgetrain.judges.kinds.aggregation import Fitted, Margins
from judgetrain.judges.predictions import SHARES, BothOrders
from judgetrain.rubrics import HIGHEST, LOWEST
from judgetrain.schema import Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

# Each tenth of the prompts is judged by what was fitted to the other nine.
FOLDS = 10
STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Strengths of the ridge among which cross-validation chooses."""
ALONG = 0.01
"""Strength of the ridge on the mean of all weights, which few labels suffice for: how sure a lead makes."""
FreeRidges = tuple[float, ...]
"""The ridge of each free column of features, which stand behind those of criteria."""
INTERCEPT_RIDGE: FreeRidges = (0.0,)
LENGTH_RIDGE: FreeRidges = (ALONG,)
"""Hardly any: labels that go with length everywhere would else have no finite weight."""
FEWEST = 20
"""Labelled comparisons below which nothing is fitted."""
BINS = 5
"""Number of bins of the confidence, from a half to 1, by which calibration is measured."""


def fit(
    margins: Sequence[Margins],
    labels: Sequence[Verdict],
    prompts: Sequence[PromptKey],
    verdicts: Sequence[BothOrders],
    length_ratios: Sequence[float] | None = None,
) -> Fitted:
    """Return weights fitted to labels, with the ridge that does best on held-out prompts.

    The ridge holds the weights to each other, and so to the ratios of ``mean``: a rubric's weights, or for own criteria
    a third of the one before. None is below 0: no criterion counts against the response that meets it better.

    Args:
        margins: of each comparison, as of :func:`margins_of`; empty where nothing was read.
        labels: the right verdicts; a tie counts as half a win for either.
        prompts: of each comparison, as :func:`~judgetrain.data.prompt_keys.conversation_starts` has them; those of one
            prompt stand in one fold.
        verdicts: what the judge says of each comparison by its plain mean. It says the same by fitted weights where
            nothing was read, and nothing at all where one order could not be read.
        length_ratios: of each comparison, as of :attr:`Comparison.length_ratio`, where length is to have a weight
            beside the criteria, above or below 0; None: nothing is known of length.

    Raises:
        DataError: fewer than :data:`FEWEST` comparisons with a margin, all of them ties, or all of one prompt.
    """
    import numpy as np
    from scipy.special import expit

    judged = [place for place, by_criterion in enumerate(margins) if by_criterion]
    all_ties = all(labels[place] == "tie" for place in judged)
    # Of one prompt there would be one fold, and nothing to measure on.
    one_prompt = len({prompts[place] for place in judged}) < 2
    if len(judged) < FEWEST or all_ties or one_prompt:
        raise DataError(
            f"expected at least {FEWEST} labelled comparisons that the judge could read, not all of them ties, nor all "
            f"of one prompt; found {len(judged)}"
        )

    # A criterion that a comparison lacks, or that could not be read there, adds nothing to its sum.
    names = _names([margins[place] for place in judged])
    features = np.array([[margins[place].get(name, 0.0) for name in names] for place in judged])
    targets = np.array([SHARES[labels[place]] for place in judged])
    folds = folds_of([prompts[place] for place in judged])

    # The plain mean's own probabilities, which the fitted ones are to improve on: features add up to the mean margin
    # as a share of the largest one, and the logistic function takes points.
    plain = expit((HIGHEST - LOWEST) * features.sum(1))
    free: FreeRidges = ()
    if length_ratios is not None:
        features = np.column_stack([features, [length_ratios[place] for place in judged]])
        free = LENGTH_RIDGE

    # What is kept is fitted to all folds. How good it is, folds say that had no part in choosing it.
    ridge, tie = _chosen(features, targets, folds, free)
    parameters = weights_of(features, targets, ridge, free).tolist()
    held_out, widths = _held_out(features, targets, folds, free)
    length = None
    by_length = None
    if length_ratios is not None:
        length = round(parameters[-1], 6)
        # What labels are met by length alone, without any judge, so that its part is seen.
        alone, alone_widths = _held_out(features[:, -1:], targets, folds, free)
        by_length = _figures(alone, targets, right_verdicts(alone, targets, alone_widths))
    right_before = np.array([verdict == label for verdict, label in zip(verdicts, labels, strict=True)])
    readable = np.array([verdicts[place] != "unreadable" for place in judged])

    # Where nothing was read, fitted weights decide nothing: the plain verdict stands.
    right_after = right_before.copy()
    right_after[judged] = right_verdicts(held_out, targets, widths) & readable
    return Fitted(
        weights={name: round(weight, 6) for name, weight in zip(names, parameters[: len(names)], strict=True)},
        length=length,
        tie=tie,
        n=len(judged),
        ridge=ridge,
        before=_figures(plain, targets, right_before),
        after=_figures(held_out, targets, right_after),
        by_length=by_length,
    )


def _figures(probabilities: Array, targets: Array, right: Array) -> dict[str, float]:
    """Return the calibration error of the rows that could be read, and the agreement.

    Args:
        probabilities: of A being better, of the rows that could be read.
        targets: of these rows.
        right: whether each row that counts is right.
    """
    return {"ece": calibration_error(probabilities, targets), "agreement": _share(right)}


def _held_out(features: Array, targets: Array, folds: Array, free: FreeRidges) -> tuple[Array, Array]:
    """Return the probability of each row [n], and the width of a tie there [n], by what the other folds chose.

    Ridge and width are chosen anew for each fold: one that the fold itself had chosen would flatter the figures.

    Args:
        features: as of :func:`weights_of`.
        targets: of the rows.
        folds: of the rows.
        free: as of :func:`weights_of`.
    """
    import numpy as np
    from scipy.special import expit

    probabilities = np.full(len(targets), 0.5)
    widths = np.zeros(len(targets))
    for fold in np.unique(folds):
        here = folds == fold
        ridge, width = _chosen(features[~here], targets[~here], folds[~here], free)
        widths[here] = width
        probabilities[here] = expit(features[here] @ weights_of(features[~here], targets[~here], ridge, free))
    return probabilities, widths


def fit_scores(
    shares: Sequence[Margins],
    labels: Sequence[float],
    scale: Scale,
    prompts: Sequence[PromptKey],
    scores: Sequence[float | None],
) -> Fitted:
    """Return weights and an intercept fitted to labels of single responses, with the ridge as of :func:`fit`.

    A score is then the expected label; over two levels it is the probability of the better one.

    Args:
        shares: of each response, as of :func:`~judgetrain.judges.kinds.aggregation.shares_of`; empty where nothing was
            read.
        labels: of people, 0 to 1.
        scale: of the labels.
        prompts: of each response, as of :func:`fit`.
        scores: of the judge by its plain mean; None where there is none, which fitted weights do not change.

    Raises:
        DataError: fewer than :data:`FEWEST` responses that could be read, all of one level, or all of one prompt.
    """
    import numpy as np

    read = [place for place, by_criterion in enumerate(shares) if by_criterion and scores[place] is not None]
    _check_labels([labels[place] for place in read], scale, [prompts[place] for place in read])
    names = _names([shares[place] for place in read])
    # The last column, the same everywhere, takes the intercept.
    features = np.array([[*(shares[place].get(name, 0.0) for name in names), 1.0] for place in read])
    targets = np.array([labels[place] for place in read])
    folds = folds_of([prompts[place] for place in read])

    # As for pairs: all folds for the weights, and for their figures folds that had no part in them.
    ridge, _ = best_ridge(features, targets, folds, INTERCEPT_RIDGE)
    *weights, intercept = weights_of(features, targets, ridge, INTERCEPT_RIDGE)
    by_weights: list[float | None] = list(scores)
    for place, score in zip(read, _held_out_scores(features, targets, folds).tolist(), strict=True):
        by_weights[place] = score
    return Fitted(
        weights={name: round(float(weight), 6) for name, weight in zip(names, weights, strict=True)},
        intercept=round(float(intercept), 6),
        tie=0.0,
        n=len(read),
        ridge=ridge,
        before=_of_scores(scores, labels, scale, read),
        after=_of_scores(by_weights, labels, scale, read),
        single=True,
    )


def _check_labels(labels: Sequence[float], scale: Scale, prompts: Sequence[PromptKey]) -> None:
    """Refuse (DataError) labels of responses that could be read, and their prompts, to which nothing can be fitted."""
    levels = {scale.level(label) for label in labels}
    # Enough labels of one level are another mistake than too few labels, with another remedy.
    if len(levels) == 1 and len(labels) >= FEWEST:
        # The level's name as the rows write it, which is what the user looks for.
        only = scale.names[levels.pop()]
        raise DataError(
            f"all {amount(len(labels), 'label')} of responses that could be read are {only}: weights are fitted "
            "to what tells "
            "levels apart; label others, too"
        )
    if len(labels) < FEWEST or len(set(prompts)) < 2:
        raise DataError(
            f"expected at least {FEWEST} labelled responses that the judge could read, not all of one prompt; found "
            f"{len(labels)}"
        )


def _held_out_scores(features: Array, targets: Array, folds: Array) -> Array:
    """Return the score of each response [n] by weights and a ridge of the other folds; the last is an intercept."""
    import numpy as np
    from scipy.special import expit

    scores = np.full(len(targets), 0.5)
    for fold in np.unique(folds):
        here = folds == fold
        ridge, _ = best_ridge(features[~here], targets[~here], folds[~here], INTERCEPT_RIDGE)
        scores[here] = expit(features[here] @ weights_of(features[~here], targets[~here], ridge, INTERCEPT_RIDGE))
    return scores


def _of_scores(
    scores: Sequence[float | None], labels: Sequence[float], scale: Scale, read: Sequence[int]
) -> dict[str, float]:
    """Return the agreement of scores with labels, and how far off those are that could be read.

    That is the calibration error over two levels, and the mean absolute error over more.
    """
    import numpy as np

    # Over all labelled rows, as in stage judge: a score that could not be read agrees with no label.
    agreed = []
    for score, label in zip(scores, labels, strict=True):
        agreed.append(score is not None and scale.level(score) == scale.level(label))

    # How far off a score is can be said only of those that there are.
    values = np.array([scores[place] for place in read], dtype=float)
    targets = np.array([labels[place] for place in read])
    figures = {"agreement": _share(np.array(agreed))}
    if scale.has_two_levels:
        figures["ece"] = calibration_error(values, targets)
    else:
        figures["error"] = _share(np.abs(values - targets))
    return figures


def _names(features: Sequence[Margins]) -> list[str]:
    """Return the names of all criteria, by length first, so that #2 stands before #10."""
    names: set[str] = set()
    for by_criterion in features:
        names.update(by_criterion)
    return sorted(names, key=lambda name: (len(name), name))


def calibration_error(probabilities: Array, targets: Array) -> float:
    """Return the expected calibration error, by bins of the confidence in the likelier side.

    It is the distance between a bin's confidence and how often that side is right (a tie: half), weighted by the bins'
    sizes.
    """
    import numpy as np

    sure = np.maximum(probabilities, 1 - probabilities)
    right = np.where(probabilities >= 0.5, targets, 1 - targets)
    # A certainty of exactly 1 would stand in a bin of its own behind the last one.
    bins = np.minimum((2 * (sure - 0.5) * BINS).astype(int), BINS - 1)
    error = 0.0
    for number in range(BINS):
        rows = bins == number
        # An empty bin has no mean.
        if rows.any():
            error += abs(sure[rows].mean() - right[rows].mean()) * rows.mean()
    return round(float(error), 6)


def weights_of(features: Array, targets: Array, ridge: float, free: FreeRidges = ()) -> Array:
    """Return the weights of criteria, none below 0, and behind them those of the free columns.

    The ridge is on how far the criteria's weights are from their mean, and hardly on the mean.

    Args:
        features: of each row what each criterion adds, and behind them the free columns [n, columns].
        targets: 1 for A, 0 for B, a half for a tie [n].
        ridge: on the criteria's weights.
        free: the ridge of each free column, whose weight may be below 0.
    """
    import numpy as np
    from scipy.optimize import minimize
    from scipy.special import expit

    # Bounds at 0 let the solver end on a criterion that counts for nothing. The start, all weights equal, is the plain
    # mean.
    number = features.shape[1] - len(free)
    free_ridges = np.array(free)
    bounds: list[tuple[float | None, None]] = [(0.0, None)] * number + [(None, None)] * len(free)
    start = np.append(np.ones(number), np.zeros(len(free)))

    def loss(parameters: Array) -> tuple[float, Array]:
        logits = features @ parameters
        weights = parameters[:number]
        mean = weights.sum() / max(number, 1)
        # The penalty is ridge/2 * |weights - mean|^2 + ALONG/2 * mean^2, and free/2 * weight^2 of each free column.
        # This is its gradient, and since it is a quadratic form, half of the gradient times the weights is its value.
        of_criteria = ridge * (weights - mean) + ALONG * mean / max(number, 1)
        penalty_gradient = np.concatenate([of_criteria, free_ridges * parameters[number:]])

        # The cross-entropy of soft targets (a tie is 0.5): log(1 + e^logit) - target * logit.
        value = np.logaddexp(0, logits).sum() - targets @ logits + penalty_gradient @ parameters / 2
        gradient = features.T @ (expit(logits) - targets) + penalty_gradient
        return float(value), gradient

    parameters: Array = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return parameters


def _chosen(features: Array, targets: Array, folds: Array, free: FreeRidges) -> tuple[float, float]:
    """Return the ridge that does best on folds that weights were not fitted to, and the width of a tie there."""
    best, held_out = best_ridge(features, targets, folds, free)
    return best, tie_width(held_out, targets)


def best_ridge(features: Array, targets: Array, folds: Array, free: FreeRidges = ()) -> tuple[float, Array]:
    """Return the ridge that does best on folds that weights were not fitted to, and the probabilities there."""
    import numpy as np
    from scipy.special import expit

    # All strengths on the same folds, so that they are compared on the same rows.
    held_out: dict[float, Array] = {}
    for ridge in STRENGTHS:
        probabilities = np.full(len(targets), 0.5)
        for fold in np.unique(folds):
            here = folds == fold
            # Of one fold alone there is nothing to fit.
            if not here.all():
                parameters = weights_of(features[~here], targets[~here], ridge, free)
                probabilities[here] = expit(features[here] @ parameters)
        held_out[ridge] = probabilities

    # By the loss and not by agreement, which a handful of rows on the edge decides. Of equal ones the weakest ridge.
    best = min(STRENGTHS, key=lambda ridge: _loss(held_out[ridge], targets))
    return best, held_out[best]


def folds_of(prompts: Sequence[PromptKey]) -> Array:
    """Return the fold of each comparison; those of one prompt stand in one."""
    import numpy as np

    # Sorted, so that folds do not depend on the order of the rows; the seed is fixed, so that the same labels always
    # give the same weights.
    places = {prompt: place for place, prompt in enumerate(sorted(set(prompts)))}
    fold_of_place = np.random.default_rng(0).permutation(len(places)) % FOLDS
    return np.array([fold_of_place[places[prompt]] for prompt in prompts])


def _loss(probabilities: Array, targets: Array) -> float:
    """Return the mean cross-entropy, in nats."""
    import numpy as np

    # One sure mistake must not make the loss infinite, whatever the other rows say.
    p = np.clip(probabilities, 1e-9, 1 - 1e-9)
    return float(-(targets * np.log(p) + (1 - targets) * np.log(1 - p)).mean())


def right_verdicts(probabilities: Array, targets: Array, tie: Array | float) -> Array:
    """Return which verdicts are the label, where a probability no further than ``tie`` from a half is a tie."""
    import numpy as np

    ahead = probabilities - 0.5

    # As targets are written: 1 is A, 0 is B, a half is a tie.
    verdicts = np.where(np.abs(ahead) <= tie, 0.5, (ahead > 0).astype(float))
    right: Array = verdicts == targets
    return right


def _share(right: Array) -> float:
    """Return the share of what is right, to six digits."""
    return round(float(right.mean()), 6)


def tie_width(probabilities: Array, targets: Array) -> float:
    """Return how far from a half a tie may be, so that most labels are met; 0 where no label is a tie."""
    import numpy as np

    if not (targets == 0.5).any():
        return 0.0
    # The width is tried at 49 quantiles of the rows' own distances from a half, and at 0. Agreement is a step function
    # of it, along which a gradient would find no way.
    candidates = np.concatenate([[0.0], np.quantile(np.abs(probabilities - 0.5), np.linspace(0.02, 0.98, 49))])

    # Of equally good widths the first, which is the narrowest.
    return round(float(max(candidates, key=lambda tie: right_verdicts(probabilities, targets, tie).mean())), 6)
