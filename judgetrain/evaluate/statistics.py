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
    """How much better one method is than another on the same items: mean difference, its interval, McNemar's p."""

    mean: float
    interval: tuple[float, float]
    p_value: float


def bootstrap_interval(values: ArrayLike, resamples: int, seed: int, level: float = 0.95) -> tuple[float, float] | None:
    """Percentile bootstrap interval of the mean of ``values`` [n] over items (SciPy); None without items."""
    from scipy import stats

    array = np.asarray(values, dtype=float)
    if len(array) == 0:
        return None
    if np.all(array == array[0]):
        return float(array[0]), float(array[0])
    result = stats.bootstrap(
        (array,),
        np.mean,
        n_resamples=resamples,
        batch=max(1, BATCH // len(array)),
        confidence_level=level,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def cluster_interval(
    values: ArrayLike, clusters: Sequence[object], resamples: int, seed: int, level: float = 0.95
) -> tuple[float, float] | None:
    """Percentile bootstrap interval of the mean of ``values`` [n], clusters resampled whole (SciPy).

    For items that are not independent: several votes on a pair, several pairs of a prompt. None without items.

    Raises:
        ValueError: not one cluster an item.
    """
    from scipy import stats

    array = np.asarray(values, dtype=float)
    if len(array) != len(clusters):
        raise ValueError(f"{len(array)} values and {len(clusters)} clusters")
    _, index = np.unique(np.array([str(c) for c in clusters]), return_inverse=True)
    if len(array) == 0 or len(np.unique(index)) == len(array) or np.all(array == array[0]):
        return bootstrap_interval(array, resamples, seed, level)
    sums, counts = np.bincount(index, weights=array), np.bincount(index).astype(float)
    if len(sums) == 1:
        return None
    result = stats.bootstrap(
        (sums, counts),
        lambda s, n, axis: s.sum(axis=axis) / n.sum(axis=axis),
        n_resamples=resamples,
        batch=max(1, BATCH // len(sums)),
        confidence_level=level,
        method="percentile",
        paired=True,
        vectorized=True,
        rng=np.random.default_rng(seed),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def correlation_intervals(
    x: ArrayLike, y: ArrayLike, resamples: int, seed: int, level: float = 0.95
) -> dict[str, tuple[float, float] | None]:
    """Percentile bootstrap intervals over items of the correlations of two float arrays [n].

    At most :data:`CORRELATION_RESAMPLES` resamples, since rank correlations are slow; those in which a correlation is
    not defined are left out. None where there are none.
    """
    first, second = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    rng, found = np.random.default_rng(seed), list[dict[str, float | None]]()
    for _ in range(min(resamples, CORRELATION_RESAMPLES) if len(first) else 0):
        chosen = rng.integers(len(first), size=len(first))
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


def paired_difference(first: ArrayLike, second: ArrayLike, resamples: int, seed: int) -> Difference | None:
    """``first`` minus ``second``, two methods' right or wrong answers, bool [n], on the same items.

    The interval is the 95% percentile bootstrap over items, which keeps each item's two answers together; the
    p-value is McNemar's. None without items.

    Raises:
        ValueError: arrays of unequal length.
    """
    a, b = _pair(np.asarray(first, dtype=bool), np.asarray(second, dtype=bool))
    differences = a.astype(float) - b.astype(float)
    interval = bootstrap_interval(differences, resamples, seed)
    return None if interval is None else Difference(float(differences.mean()), interval, mcnemar(a, b))


def _pair(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"two arrays over the same items are needed, not {a.shape} and {b.shape}")
    return a, b
