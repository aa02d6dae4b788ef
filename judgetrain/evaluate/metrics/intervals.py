"""Intervals of the mean of items that may come in clusters (several pairs of a prompt, votes on a pair)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Clusters = Sequence[object] | None
"""The cluster of each item [n], resampled whole; None: items are independent."""

ENDS = (50 * (1 - 0.95), 50 * (1 + 0.95))
"""The percentiles that 95% of the resamples lie between."""
FEWEST = 10
"""Clusters (prompts) below which resamples give no interval: they say nothing of what was not asked."""
BATCH = 4_000_000
"""Values resampled at a time, to bound memory on large benchmarks."""


def bootstrap_interval(
    values: ArrayLike, resamples: int, seed: int, clusters: Clusters = None
) -> tuple[float, float] | None:
    """95% interval of the mean of ``values`` [n], from 0 to 1: the percentile bootstrap's (SciPy).

    Where the items, or the means of all clusters, are the same, as at 0% and 100%, so is every resample; the interval
    is then Clopper and Pearson's exact one (Biometrika 26, 1934), of as many trials as there are clusters. None without
    items, or with fewer than :data:`FEWEST` clusters of items that differ.

    Raises:
        ValueError: not one cluster an item.
    """
    found = resampled_means(values, clusters, resamples, seed)
    return None if found is None else found.interval


@dataclass(frozen=True)
class Resampled:
    """The mean in each resample [resamples], the interval that they give, and the number of clusters."""

    means: NDArray[np.float64]
    interval: tuple[float, float]
    clusters: int


def resampled_means(
    values: ArrayLike, clusters: Clusters, resamples: int, seed: int, lowest: float = 0.0
) -> Resampled | None:
    """The mean of ``values``, from ``lowest`` to 1, in resamples of whole clusters; None as
    :func:`bootstrap_interval`."""
    from scipy import stats

    array = np.asarray(values, dtype=float)
    if clusters is not None and len(array) != len(clusters):
        raise ValueError(f"{len(array)} values and {len(clusters)} clusters")
    index = cluster_index(clusters, len(array))
    sums, counts = np.bincount(index, weights=array), np.bincount(index).astype(float)
    each = sums / counts
    if not len(each) or (len(each) < FEWEST and np.ptp(array) > 0):
        return None
    if np.ptp(each) == 0:
        reach, value = unseen(len(each)), float(each[0])
        ends = max(lowest, value - reach), min(1.0, value + reach)
        return Resampled(np.full(resamples, value), ends, len(each))
    result = stats.bootstrap(
        (sums, counts),
        lambda s, n, axis: s.sum(axis=axis) / n.sum(axis=axis),
        n_resamples=resamples,
        batch=max(1, BATCH // len(sums)),
        method="percentile",
        paired=True,
        vectorized=True,
        rng=np.random.default_rng(seed),
    )
    means = np.asarray(result.bootstrap_distribution, dtype=float)
    low, high = np.percentile(means, ENDS)
    return Resampled(means, (float(low), float(high)), len(each))


def unseen(trials: int) -> float:
    """The largest share of others that there may be where ``trials`` are all alike (Clopper and Pearson, 95%)."""
    from scipy import stats

    return float(stats.binomtest(0, trials).proportion_ci(0.95, method="exact").high)


def cluster_index(clusters: Clusters, n: int) -> NDArray[np.intp]:
    """The number of each item's cluster [n]; clusters are numbered as they first occur."""
    if clusters is None:
        return np.arange(n, dtype=np.intp)
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(cluster, len(numbers)) for cluster in clusters], dtype=np.intp)


Z = 1.959963984540054
"""The normal quantile of 97.5%."""


def wilson_interval(values: ArrayLike, clusters: Clusters = None) -> tuple[float, float] | None:
    """95% interval of the share of ``values`` [n] that are true (Wilson 1927); None without items.

    In place of n stand as many independent items as tell as much: n over the design effect, the variance of the share
    over clusters by that over items (Kish 1965), never below 1. Where all values are the same the effect is not known,
    and each cluster counts once.
    """
    array = np.asarray(values, dtype=float)
    if not len(array):
        return None
    return score_interval(float(array.mean()), _effective(array, clusters))


def score_interval(share: float, trials: float, z: float = Z) -> tuple[float, float]:
    """Wilson's interval of a share seen in so many independent trials, which need be no whole number; ``z``: the normal
    quantile. It lies between 0 and 1 and is never empty."""
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    reach = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, min(share, middle - reach)), min(1.0, max(share, middle + reach))


def _effective(values: np.ndarray, clusters: Clusters) -> float:
    """So many independent items tell as much as these."""
    if clusters is None:
        return float(len(values))
    if len(clusters) != len(values):
        raise ValueError(f"{len(values)} values and {len(clusters)} clusters")
    index, n, share = cluster_index(clusters, len(values)), len(values), values.mean()
    counts = np.bincount(index)
    if len(counts) == 1 or share in (0.0, 1.0):
        return float(len(counts))
    off = np.bincount(index, weights=values) - share * counts
    of_clusters = float(off @ off) * len(counts) / (len(counts) - 1) / n**2
    return n / max(1.0, of_clusters / (share * (1 - share) / n))
