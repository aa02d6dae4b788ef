"""A mean from few labels and many verdicts: prediction-powered inference with power tuning (PPI++).

Angelopoulos, Duchi, Zrnic: PPI++: Efficient Prediction-Powered Inference (arXiv 2311.01453), for the mean, where a
comparison has a label ``Y`` and what the judge says in its place, ``f``. Both are numbers from 0 to 1: a win rate's are
1, 0.5 or 0. The labelled must be a random sample of all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from judgetrain.evaluate.metrics.intervals import Clusters, Z, cluster_index, score_interval

LEAST = 30
"""Labels, or prompts that share them: an interval of fewer covers less than it says."""
UNSEEN = 0.5
"""Differences between labels and verdicts that are added to those seen; by simulation: without, 92% of 95% intervals
hold where few labels meet a judge that is seldom off."""


@dataclass(frozen=True, kw_only=True)
class PoweredMean:
    """A mean by labels and verdicts together, and by the labels alone.

    ``power``: how much the verdicts count (lambda, 0 to 1). ``variance``, ``variance_alone``: of the estimates.
    ``correlation``: of labels and verdicts on the ``n`` labelled; ``unlabelled`` have a verdict only. Normal intervals
    hold the truth too seldom where a share is near 0 or 1, and may pass it; those of :meth:`bounded` do neither.
    """

    n: int
    unlabelled: int
    estimate: float
    alone: float
    power: float
    correlation: float
    variance: float
    variance_alone: float

    @property
    def effective(self) -> float:
        """How many labels alone would give as narrow an interval (the effective sample size)."""
        return self.n * self.variance_alone / self.variance if self.variance else float(self.n)

    def bounded(self, z: float = Z) -> tuple[tuple[float, float], tuple[float, float]]:
        """Wilson's intervals of the estimate and of the labels alone, between 0 and 1; ``z``: the normal quantile.

        In place of n stand as many trials as tell as much: a(1 - a) over the variance, with a the labels' mean. How
        often a good judge is off is seen a few times only, and its variance is as often too small: it is that of half
        a difference more, no larger than without verdicts, and no smaller than if all comparisons had a label.
        """
        one = self.alone * (1 - self.alone)
        if not one or not self.variance_alone:
            raise ValueError("all labels are the same: their variance tells no number of trials")
        more = min(self.variance + UNSEEN * (self.power / self.n) ** 2, max(self.variance, self.variance_alone))
        trials = one / max(more, self.variance_alone * self.n / (self.n + self.unlabelled))
        share = min(1.0, max(0.0, self.estimate))
        return score_interval(share, trials, z), score_interval(self.alone, one / self.variance_alone, z)


def powered_mean(
    labels: ArrayLike,
    judged: ArrayLike,
    unlabelled: ArrayLike,
    clusters: Clusters = None,
    unlabelled_clusters: Clusters = None,
) -> PoweredMean:
    """The mean of labels, corrected by what the judge says of many more (PPI++, section 3 and proposition 2).

    With independent items the variance is that of the package ``ppi-python``. Where items share a cluster, variances
    sum over clusters (the influence of a cluster is that of all its items, labelled or not).

    Args:
        labels: float [n].
        judged: float [n], what the judge says of the same.
        unlabelled: float [N], what it says of those without a label.
        clusters: the prompt of each labelled item; None: items are independent.
        unlabelled_clusters: those of the others.

    Raises:
        ValueError: labels and verdicts of different length, or no label.
    """
    y, f, g = (np.asarray(values, dtype=float) for values in (labels, judged, unlabelled))
    if y.ndim != 1 or y.shape != f.shape or g.ndim != 1 or not len(y):
        raise ValueError(f"labels and verdicts [n] and verdicts [N] are needed, not {y.shape}, {f.shape}, {g.shape}")
    tuned = best_power(y, f, g)
    named = clusters is not None or unlabelled_clusters is not None
    own = range(len(y)) if clusters is None else clusters
    others = range(len(y), len(y) + len(g)) if unlabelled_clusters is None else unlabelled_clusters
    index = cluster_index([*own, *others] if named else None, len(y) + len(g))

    def of(share: float) -> tuple[float, float]:
        rest = y - share * f
        far = share * float(g.mean()) if len(g) else 0.0
        influence = np.concatenate([(rest - rest.mean()) / len(y), share * (g - g.mean()) / len(g) if len(g) else g])
        variance = float((np.bincount(index, weights=influence) ** 2).sum())
        return far + float(rest.mean()), variance

    estimate, variance = of(tuned)
    alone, variance_alone = of(0.0)
    spread = float(y.std() * f.std())
    return PoweredMean(
        n=len(y),
        unlabelled=len(g),
        estimate=estimate,
        alone=alone,
        power=tuned,
        correlation=float(np.mean((y - y.mean()) * (f - f.mean()))) / spread if spread else 0.0,
        variance=variance,
        variance_alone=variance_alone,
    )


def best_power(y: NDArray[np.float64], f: NDArray[np.float64], g: NDArray[np.float64]) -> float:
    """The lambda that makes the variance smallest (PPI++, example 6.1), from 0 to 1; 0 where verdicts tell nothing."""
    if len(g) == 0 or np.ptp(np.concatenate([f, g])) == 0:
        return 0.0
    covariance = float(np.mean((y - y.mean()) * (f - f.mean())))
    variance = float(np.var(np.concatenate([f, g]), ddof=1))
    return float(np.clip(covariance / ((1 + len(y) / len(g)) * variance), 0.0, 1.0))
