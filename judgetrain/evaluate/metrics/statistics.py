"""Intervals and paired tests over items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from judgetrain.evaluate.metrics import auc, correlations

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
    chosen = _resampled(range(len(first)) if clusters is None else clusters, resamples, seed)
    found = [correlations(first[rows], second[rows]) for rows in chosen]
    return {name: _percentiles([each[name] for each in found], level) for name in CORRELATIONS}


def auc_interval(
    margins: Sequence[float | None],
    labels: Sequence[str],
    resamples: int,
    seed: int,
    level: float = 0.95,
    clusters: Sequence[object] | None = None,
) -> tuple[float, float] | None:
    """Percentile bootstrap interval of :func:`~judgetrain.evaluate.metrics.auc` over items ``[n]`` or ``clusters``.

    At most :data:`CORRELATION_RESAMPLES` resamples; those without items of both labels are left out.
    """
    chosen = _resampled(range(len(margins)) if clusters is None else clusters, resamples, seed)
    return _percentiles([auc([margins[i] for i in rows], [labels[i] for i in rows]) for rows in chosen], level)


def _resampled(clusters: Sequence[object], resamples: int, seed: int) -> Iterator[NDArray[np.intp]]:
    """Items drawn with replacement, whole clusters at a time, for slow statistics; nothing where there is no item."""
    rng, index = np.random.default_rng(seed), _index(clusters)
    members = np.split(np.argsort(index, kind="stable"), np.cumsum(np.bincount(index))[:-1])
    for _ in range(min(resamples, CORRELATION_RESAMPLES) if len(index) else 0):
        yield np.concatenate([members[i] for i in rng.integers(len(members), size=len(members))])


def _percentiles(values: Sequence[float | None], level: float) -> tuple[float, float] | None:
    found = [value for value in values if value is not None]
    if not found:
        return None
    low, high = np.percentile(found, (50 * (1 - level), 50 * (1 + level)))
    return float(low), float(high)


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
