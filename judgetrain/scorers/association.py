"""How well a score tells good from bad: area under the ROC curve and correlations, with intervals over clusters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Interval = tuple[float, float]

RESAMPLES = 200
"""Resamples of the intervals."""


@dataclass(frozen=True, kw_only=True)
class Association:
    """Scores against outcomes from 0 (wrong) to 1 (right).

    ``auc``: the chance that an item with an outcome above 0.5 has the larger score than one below, equal scores
    counting half. ``correlation``: Pearson's r, for outcomes of 0 and 1 the point-biserial correlation. ``spearman``:
    Spearman's rho. Each with its 95% bootstrap interval; None where it is not defined. ``n`` items in ``clusters``.
    """

    n: int
    clusters: int
    auc: float | None
    auc_ci: Interval | None
    correlation: float | None
    correlation_ci: Interval | None
    spearman: float | None
    spearman_ci: Interval | None

    def to_row(self) -> dict[str, Any]:
        """A JSON-ready dictionary."""
        return asdict(self)


def auc(scores: ArrayLike, positive: ArrayLike) -> float | None:
    """The area under the ROC curve (Mann-Whitney U): ``scores`` float [n], ``positive`` bool [n].

    None without items of both kinds.
    """
    values = np.asarray(scores, dtype=float)
    return _auc_of(values, np.asarray(positive, dtype=float))(np.ones(len(values)))


def associate(
    scores: ArrayLike, outcomes: ArrayLike, clusters: Sequence[object], seed: int, resamples: int = RESAMPLES
) -> Association:
    """How ``scores`` float [n] go with ``outcomes`` float [n] from 0 to 1.

    Intervals are percentile bootstraps that resample whole clusters (several branches of one comparison are not
    independent); for Spearman's rho the ranks stay those of the whole sample.

    Raises:
        ValueError: arrays of unequal length, or a value that is not finite.
    """
    from scipy import stats

    x, y = np.asarray(scores, dtype=float), np.asarray(outcomes, dtype=float)
    if x.ndim != 1 or x.shape != y.shape or len(x) != len(clusters):
        raise ValueError(
            f"arrays [n] of equal length are needed, not {x.shape}, {y.shape} and {len(clusters)} clusters"
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("scores and outcomes must be finite: leave out missing ones")
    known, index = np.unique([str(c) for c in clusters], return_inverse=True)
    ranks = (stats.rankdata(x), stats.rankdata(y)) if len(x) else (x, y)
    found: dict[str, Any] = {}
    measures = {"auc": _auc_of(x, y), "correlation": _pearson_of(x, y), "spearman": _pearson_of(*ranks)}
    for name, measure in measures.items():
        rng = np.random.default_rng(seed)
        drawn = (np.bincount(rng.integers(len(known), size=len(known)), minlength=len(known)) for _ in range(resamples))
        found[name], found[f"{name}_ci"] = _estimate(measure, index, drawn if len(known) > 1 else ())
    return Association(n=len(x), clusters=len(known), **found)


Measure = Callable[[Floats], float | None]
"""A statistic of items with weights, float [n]."""


def _estimate(measure: Measure, index: NDArray[np.intp], drawn: Any) -> tuple[float | None, Interval | None]:
    """The statistic of all items alike, and the interval over the clusters' drawn numbers."""
    value = measure(np.ones(len(index)))
    if value is None:
        return None, None
    values = [v for counts in drawn if (v := measure(counts[index].astype(float))) is not None]
    if not values:
        return value, None
    low, high = np.percentile(values, (2.5, 97.5))
    return value, (float(low), float(high))


def _auc_of(x: Floats, y: Floats) -> Measure:
    _, group = np.unique(x, return_inverse=True)
    positive, negative = (y > 0.5).astype(float), (y < 0.5).astype(float)

    def area(weights: Floats) -> float | None:
        if not len(group):
            return None
        right, wrong = np.bincount(group, weights * positive), np.bincount(group, weights * negative)
        total = right.sum() * wrong.sum()
        return float((right * (np.cumsum(wrong) - wrong / 2)).sum() / total) if total else None

    return area


def _pearson_of(x: Floats, y: Floats) -> Measure:
    def correlation(weights: Floats) -> float | None:
        if len(x) < 2 or not weights.sum():
            return None
        (xx, xy), (_, yy) = np.cov(x, y, aweights=weights, ddof=0)
        return float(xy / np.sqrt(xx * yy)) if xx * yy > 0 else None

    return correlation
