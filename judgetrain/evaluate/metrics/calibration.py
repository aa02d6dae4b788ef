"""Calibration of margins: does a larger difference in scores mean a surer verdict?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from judgetrain.evaluate.metrics.verdicts import auc

FOLDS, BINS = 5, 10
LEAST = 20
"""Items with an A or B label and a margin, in all and in a bin: fewer tell nothing."""


@dataclass(frozen=True)
class Bin:
    """One bin of a reliability curve: its items, their mean confidence and the share that is right."""

    n: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    """How margins relate to being right, over ``n`` items whose label is A or B.

    ``auc``: chance that an item labelled A has a larger margin than one labelled B, half for equal ones. ``ece``:
    expected calibration error of probabilities that a logistic curve makes of margins, cross-fitted. ``curve``: the
    reliability curve of the favoured side's probability.
    """

    n: int
    auc: float
    ece: float
    curve: tuple[Bin, ...]


def reliability_curve(confidence: ArrayLike, correct: ArrayLike, bins: int = 10) -> tuple[Bin, ...]:
    """Bins of about equally many items, ordered by confidence; equal confidences are never parted.

    Args:
        confidence: float [n], from 0 to 1.
        correct: bool [n].
        bins: at most so many.
    """
    c, r = np.asarray(confidence, dtype=float), np.asarray(correct, dtype=float)
    if len(c) == 0:
        return ()
    edges = np.unique(np.quantile(c, np.linspace(0, 1, bins + 1)[1:-1], method="inverted_cdf"))
    index = np.searchsorted(edges, c, side="left")
    return tuple(
        Bin(int(m.sum()), float(c[m].mean()), float(r[m].mean())) for i in np.unique(index) for m in [index == i]
    )


def expected_calibration_error(curve: Sequence[Bin]) -> float | None:
    """Mean distance between confidence and accuracy over bins, weighted by items (Guo et al. 2017, equation 3)."""
    total = sum(b.n for b in curve)
    return sum(b.n * abs(b.confidence - b.accuracy) for b in curve) / total if total else None


def calibration(margins: Sequence[float | None], labels: Sequence[str | None], seed: int) -> Calibration | None:
    """Calibration of margins (score of A minus score of B) against labels; items without either are left out.

    None with fewer than :data:`LEAST` items, or when all labels or all margins are the same.
    """
    kept = [(m, y == "A") for m, y in zip(margins, labels, strict=True) if m is not None and y in ("A", "B")]
    x, y = np.array([m for m, _ in kept], dtype=float), np.array([a for _, a in kept], dtype=bool)
    if len(kept) < LEAST or min(y.sum(), (~y).sum()) < FOLDS or np.ptp(x) == 0:
        return None
    p = _cross_fitted(x, y, seed)
    favoured = p >= 0.5
    curve = reliability_curve(np.where(favoured, p, 1 - p), favoured == y, max(1, min(BINS, len(kept) // LEAST)))
    error, area = expected_calibration_error(curve), auc(margins, labels)
    assert error is not None and area is not None
    return Calibration(len(kept), area, error, curve)


def _cross_fitted(x: NDArray[np.float64], y: NDArray[np.bool_], seed: int) -> NDArray[np.float64]:
    """P(A) of each item from a logistic curve without intercept (margin 0 is a coin), fitted on the other folds."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    model = LogisticRegression(fit_intercept=False, C=100.0)
    return np.asarray(cross_val_predict(model, x.reshape(-1, 1), y, cv=folds, method="predict_proba")[:, 1])
