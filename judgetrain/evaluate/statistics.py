"""Intervals and paired tests over items."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


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
        confidence_level=level,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def mcnemar(first: ArrayLike, second: ArrayLike) -> float:
    """Exact McNemar p-value (two-sided) of two methods' right or wrong answers [n] on the same items."""
    from scipy import stats

    a, b = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    only_a, only_b = int(np.count_nonzero(a & ~b)), int(np.count_nonzero(~a & b))
    return float(stats.binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0
