"""A verdict's probability, fitted: how much each criterion's margin counts, from comparisons with known labels.

P(A is better) is the logistic function of a weighted sum of the criteria's margins, without an intercept: exchanging
the responses exchanges the verdict. Where both orders were judged a criterion's margin is the mean of both, so that a
preference for a position cancels.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.files import write_json_atomic
from judgetrain.data.rows import Asked
from judgetrain.errors import ConfigError, DataError
from judgetrain.judges.base import logistic, verdict_of
from judgetrain.judges.kinds.aggregation import margin_of
from judgetrain.judges.trees.schema import CriterionNode
from judgetrain.rubrics import HIGHEST, LOWEST
from judgetrain.schema import Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

FILE = "fitted.json"
FOLDS = 10
STRENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Of the ridge, among which cross-validation chooses."""
FEWEST = 20
"""Labelled comparisons below which nothing is fitted."""
BINS = 5
"""Of the confidence, from a half to 1, by which calibration is measured."""

Margins = Mapping[str, float]
"""By criterion (its name in a rubric, or ``#2``, the second of the judge's own list): how far A is ahead, -1 to 1."""


def margins_of(*lists: Sequence[CriterionNode]) -> dict[str, float]:
    """The margins of a tree's criteria, or of each order's tree's; those that could not be read are left out."""
    found: dict[str, list[float]] = {}
    for criteria in lists:
        for place, node in enumerate(criteria, start=1):
            name = (node.given.name or node.given.text) if node.given else f"#{place}"
            margins = (margin_of(node, judgment) for judgment in node.judgments)
            found.setdefault(name, []).extend(margin for margin in margins if margin is not None)
    return {name: fmean(margins) / (HIGHEST - LOWEST) for name, margins in found.items() if margins}


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
        """Read what :meth:`save` wrote.

        Raises:
            ConfigError: no such file, or another one; names the ``key``.
        """
        file = Path(path).expanduser()
        file = file / FILE if file.is_dir() else file
        try:
            return cls(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(f"{key}={path}: expected the {FILE} of stage calibrate ({error})") from error


def fit(
    margins: Sequence[Margins], labels: Sequence[Verdict], prompts: Sequence[Asked], at_least_0: bool = True
) -> Fitted:
    """Weights fitted to labels, with the ridge that does best on held-out prompts.

    Args:
        margins: of each comparison, as of :func:`margins_of`.
        labels: the right verdicts; a tie counts as half a win for either.
        prompts: of each comparison (:func:`~judgetrain.data.rows.clusters`); those of one stand in one fold.
        at_least_0: no criterion counts against the response that meets it better.

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
    ridge, tie = _chosen(features, targets, folds, at_least_0)
    # Measured on folds that had no part in choosing the ridge or the width of a tie.
    held, widths = np.full(len(targets), 0.5), np.zeros(len(targets))
    for fold in np.unique(folds):
        here = folds == fold
        of = features[~here], targets[~here]
        strength, widths[here] = _chosen(*of, folds[~here], at_least_0)
        held[here] = expit(features[here] @ _weights(*of, strength, at_least_0))
    weights = _weights(features, targets, ridge, at_least_0)
    plain = expit((HIGHEST - LOWEST) * np.array([fmean(margins[i].values()) for i in known]))
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


def _weights(features: Array, targets: Array, ridge: float, at_least_0: bool) -> Array:
    import numpy as np
    from scipy.optimize import minimize
    from scipy.special import expit

    def loss(weights: Array) -> tuple[float, Array]:
        logits = features @ weights
        value = np.logaddexp(0, logits).sum() - targets @ logits + ridge / 2 * weights @ weights
        return float(value), features.T @ (expit(logits) - targets) + ridge * weights

    bounds = [(0.0 if at_least_0 else None, None)] * features.shape[1]
    found: Array = minimize(loss, np.ones(features.shape[1]), jac=True, method="L-BFGS-B", bounds=bounds).x
    return found


def _chosen(features: Array, targets: Array, folds: Array, at_least_0: bool) -> tuple[float, float]:
    """The ridge under which weights do best on folds that they were not fitted to, and the width of a tie there."""
    import numpy as np
    from scipy.special import expit

    found = {}
    for ridge in STRENGTHS:
        held = found[ridge] = np.full(len(targets), 0.5)
        for here in (folds == fold for fold in np.unique(folds)):
            if not here.all():
                held[here] = expit(features[here] @ _weights(features[~here], targets[~here], ridge, at_least_0))
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
