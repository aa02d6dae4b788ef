"""How well a score tells good from bad: area under the ROC curve and correlations, with intervals over clusters."""

from __future__ import annotations

from collections.abc import Sequence
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
    return _auc(np.asarray(scores, dtype=float), np.asarray(positive, dtype=float))


def associate(
    scores: ArrayLike, outcomes: ArrayLike, clusters: Sequence[object], seed: int, resamples: int = RESAMPLES
) -> Association:
    """How ``scores`` float [n] go with ``outcomes`` float [n] from 0 to 1.

    Intervals are percentile bootstraps that resample whole clusters (several branches of one comparison are not
    independent); for Spearman's rho the ranks stay those of the whole sample.

    Raises:
        ValueError: arrays of unequal length, or a value that is not finite.
    """
    from scipy.stats import rankdata

    x, y = np.asarray(scores, dtype=float), np.asarray(outcomes, dtype=float)
    if x.ndim != 1 or x.shape != y.shape or len(x) != len(clusters):
        raise ValueError(
            f"arrays [n] of equal length are needed, not {x.shape}, {y.shape} and {len(clusters)} clusters"
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("scores and outcomes must be finite: leave out missing ones")
    known, index = np.unique([str(c) for c in clusters], return_inverse=True)
    members = [np.flatnonzero(index == cluster) for cluster in range(len(known))]
    rng = np.random.default_rng(seed)
    drawn = [rng.integers(len(known), size=len(known)) for _ in range(resamples if len(known) > 1 else 0)]
    resampled = [np.concatenate([members[cluster] for cluster in each]) for each in drawn]
    measures = {"auc": (_auc, x, y), "correlation": (_pearson, x, y), "spearman": (_pearson, rankdata(x), rankdata(y))}
    found: dict[str, Any] = {}
    for name, (measure, first, second) in measures.items():
        values = [v for items in resampled if (v := measure(first[items], second[items])) is not None]
        found[name] = measure(first, second)
        found[f"{name}_ci"] = tuple(map(float, np.percentile(values, (2.5, 97.5)))) if values else None
    return Association(n=len(x), clusters=len(known), **found)


def _auc(x: Floats, y: Floats) -> float | None:
    from scipy.stats import rankdata

    decided = y != 0.5
    right, ranks = y[decided] > 0.5, rankdata(x[decided])
    good, bad = int(right.sum()), int((~right).sum())
    return float((ranks[right].sum() - good * (good + 1) / 2) / (good * bad)) if good and bad else None


def _pearson(x: Floats, y: Floats) -> float | None:
    return float(np.corrcoef(x, y)[0, 1]) if len(x) > 1 and np.ptp(x) > 0 and np.ptp(y) > 0 else None
