"""Intervals and paired tests over items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from judgetrain.evaluate.metrics import correlations

CORRELATIONS = ("pearson", "kendall", "spearman")
CORRELATION_RESAMPLES = 200
BATCH = 4_000_000
"""Values resampled at a time, to bound memory on large benchmarks."""


@dataclass(frozen=True)
class Difference:
    """How much better one method is than another on the same items.

    Mean difference, its 95% interval, McNemar's exact p (items independent), and the bootstrap's p (clusters of items
    independent): twice the share of resampled differences on the far side of zero.
    """

    mean: float
    interval: tuple[float, float] | None
    p_value: float
    bootstrap_p: float | None


def bootstrap_interval(values: ArrayLike, resamples: int, seed: int, level: float = 0.95) -> tuple[float, float] | None:
    """Percentile bootstrap interval of the mean of ``values`` [n] over items (SciPy); None without items."""
    array = np.asarray(values, dtype=float)
    return cluster_interval(array, range(len(array)), resamples, seed, level)


def cluster_interval(
    values: ArrayLike, clusters: Sequence[object], resamples: int, seed: int, level: float = 0.95
) -> tuple[float, float] | None:
    """Percentile bootstrap interval of the mean of ``values`` [n], clusters resampled whole (SciPy).

    For items that are not independent: several votes on a pair, several pairs of a prompt. None without items, or
    with a single cluster of several that differ.

    Raises:
        ValueError: not one cluster an item.
    """
    means = _resampled_means(values, clusters, resamples, seed)
    return None if means is None else _middle(means, level)


def _middle(means: NDArray[np.float64], level: float) -> tuple[float, float]:
    low, high = np.percentile(means, (50 * (1 - level), 50 * (1 + level)))
    return float(low), float(high)


def _resampled_means(
    values: ArrayLike, clusters: Sequence[object], resamples: int, seed: int
) -> NDArray[np.float64] | None:
    """The mean of ``values`` in each resample of whole clusters [resamples]."""
    from scipy import stats

    array = np.asarray(values, dtype=float)
    if len(array) != len(clusters):
        raise ValueError(f"{len(array)} values and {len(clusters)} clusters")
    if len(array) == 0:
        return None
    if np.all(array == array[0]):
        return np.full(resamples, array[0])
    index = _index(clusters)
    sums, counts = np.bincount(index, weights=array), np.bincount(index).astype(float)
    if len(sums) == 1:
        return None
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
    return np.asarray(result.bootstrap_distribution, dtype=float)


def _index(clusters: Sequence[object]) -> NDArray[np.intp]:
    """The number of each item's cluster [n]; clusters are numbered as they first occur."""
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(cluster, len(numbers)) for cluster in clusters], dtype=np.intp)


def correlation_intervals(
    x: ArrayLike,
    y: ArrayLike,
    resamples: int,
    seed: int,
    level: float = 0.95,
    clusters: Sequence[object] | None = None,
) -> dict[str, tuple[float, float] | None]:
    """Percentile bootstrap intervals of the correlations of two float arrays [n], over items or whole ``clusters``.

    At most :data:`CORRELATION_RESAMPLES` resamples, since rank correlations are slow; those in which a correlation is
    not defined are left out. None where there are none.
    """
    first, second = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    rng, found = np.random.default_rng(seed), list[dict[str, float | None]]()
    index = _index(range(len(first)) if clusters is None else clusters)
    members = np.split(np.argsort(index, kind="stable"), np.cumsum(np.bincount(index))[:-1])
    for _ in range(min(resamples, CORRELATION_RESAMPLES) if len(first) else 0):
        chosen = np.concatenate([members[i] for i in rng.integers(len(members), size=len(members))])
        found.append(correlations(first[chosen], second[chosen]))
    edges = (50 * (1 - level), 50 * (1 + level))
    result: dict[str, tuple[float, float] | None] = {}
    for name in CORRELATIONS:
        values = [v for each in found if (v := each[name]) is not None]
        low, high = np.percentile(values, edges) if values else (np.nan, np.nan)
        result[name] = (float(low), float(high)) if values else None
    return result


def over_seeds(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation of a metric over runs that differ in their seed; None for a single run.

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("no runs")
    array = np.asarray(values, dtype=float)
    return float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else None


def mcnemar(first: ArrayLike, second: ArrayLike) -> float:
    """Exact McNemar p-value (two-sided) of two methods' right or wrong answers, bool [n], on the same items."""
    from scipy import stats

    a, b = _pair(np.asarray(first, dtype=bool), np.asarray(second, dtype=bool))
    only_a, only_b = int(np.count_nonzero(a & ~b)), int(np.count_nonzero(~a & b))
    return float(stats.binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0


def paired_difference(
    first: ArrayLike, second: ArrayLike, resamples: int, seed: int, clusters: Sequence[object] | None = None
) -> Difference | None:
    """``first`` minus ``second``, two methods' right or wrong answers, bool [n], on the same items.

    The interval and its p are of the percentile bootstrap over items, or over whole ``clusters`` of them, which keeps
    each item's two answers together; ``p_value`` is McNemar's. None without items.

    Raises:
        ValueError: arrays of unequal length.
    """
    a, b = _pair(np.asarray(first, dtype=bool), np.asarray(second, dtype=bool))
    differences = a.astype(float) - b.astype(float)
    if not len(differences):
        return None
    clusters = range(len(differences)) if clusters is None else clusters
    mean = float(differences.mean())
    means = _resampled_means(differences, clusters, resamples, seed)
    if means is None:
        return Difference(mean, None, mcnemar(a, b), None)
    # One is added to each count, so that p is never below what the number of resamples can tell.
    far = min((means <= 0).sum(), (means >= 0).sum()) + 1
    p = float(min(1.0, 2 * far / (len(means) + 1)))
    return Difference(mean, _middle(means, 0.95), mcnemar(a, b), p)


def _pair(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"two arrays over the same items are needed, not {a.shape} and {b.shape}")
    return a, b
