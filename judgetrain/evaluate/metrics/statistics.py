"""Intervals and paired tests over items, which may come in clusters (several pairs of a prompt, votes on a pair)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from judgetrain.evaluate.metrics.intervals import ENDS, FEWEST, Clusters, cluster_index, resampled_means, unseen
from judgetrain.evaluate.metrics.verdicts import auc, correlations

SLOW_RESAMPLES = 200
"""At most so many resamples of statistics that are slow: rank correlations and AUC."""


def with_intervals(x: ArrayLike, y: ArrayLike, resamples: int, seed: int, clusters: Clusters = None) -> dict[str, Any]:
    """The correlations of two float arrays [n] by name, and their 95% percentile bootstrap intervals as ``..._ci``.

    Resamples (:data:`SLOW_RESAMPLES` at most) in which a correlation is not defined are left out; None without any, and
    with fewer than :data:`~judgetrain.evaluate.metrics.intervals.FEWEST` clusters.
    """
    first, second = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    drawn = [correlations(first[rows], second[rows]) for rows in _resampled(clusters, len(first), resamples, seed)]
    found = correlations(x, y)
    return {**found, **{f"{name}_ci": _percentiles([each[name] for each in drawn]) for name in found}}


@dataclass(frozen=True, kw_only=True)
class Correlations:
    """Correlations of margins with labels (A 1, tie 0, B -1), or of scores with ratings, and their 95% intervals."""

    pearson: float | None
    kendall: float | None
    spearman: float | None
    pearson_ci: tuple[float, float] | None
    kendall_ci: tuple[float, float] | None
    spearman_ci: tuple[float, float] | None


def margin_correlations(
    margins: Sequence[float | None], labels: Sequence[str], prompts: Sequence[str], resamples: int, seed: int
) -> Correlations:
    """Of the items [n] that have a margin; intervals resample prompts whole."""
    number = {"A": 1.0, "tie": 0.0, "B": -1.0}
    kept = [(m, number[y], p) for m, y, p in zip(margins, labels, prompts, strict=True) if m is not None]
    x, truth, clusters = zip(*kept, strict=True)
    return Correlations(**with_intervals(x, truth, resamples, seed, clusters))


def auc_interval(
    margins: Sequence[float | None], labels: Sequence[str], resamples: int, seed: int, clusters: Clusters = None
) -> tuple[float, float] | None:
    """95% percentile bootstrap interval of :func:`~judgetrain.evaluate.metrics.auc`.

    Resamples (:data:`SLOW_RESAMPLES` at most) without items of both labels are left out; None without any. Where
    margins part the labels without an error, Clopper and Pearson's: so many pairs of an A and a B that share no
    cluster are all right, or all wrong, as there are clusters with the rarer label.
    """
    whole = auc(margins, labels)
    if whole in (0.0, 1.0):
        index = cluster_index(clusters, len(margins))
        known = [(y, i) for m, y, i in zip(margins, labels, index, strict=True) if m is not None]
        reach = unseen(min(len({i for y, i in known if y == label}) for label in ("A", "B")))
        return max(0.0, whole - reach), min(1.0, whole + reach)
    chosen = _resampled(clusters, len(margins), resamples, seed)
    return _percentiles([auc([margins[i] for i in rows], [labels[i] for i in rows]) for rows in chosen])


def _resampled(clusters: Clusters, n: int, resamples: int, seed: int) -> Iterator[NDArray[np.intp]]:
    """Items drawn with replacement, whole clusters at a time, for slow statistics; nothing of too few clusters."""
    rng, index = np.random.default_rng(seed), cluster_index(clusters, n)
    members = np.split(np.argsort(index, kind="stable"), np.cumsum(np.bincount(index))[:-1])
    for _ in range(min(resamples, SLOW_RESAMPLES) if len(members) >= FEWEST else 0):
        yield np.concatenate([members[i] for i in rng.integers(len(members), size=len(members))])


def _percentiles(values: Sequence[float | None] | NDArray[np.float64]) -> tuple[float, float] | None:
    found = [value for value in values if value is not None]
    if not found:
        return None
    low, high = np.percentile(found, ENDS)
    return float(low), float(high)


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


def paired_difference(
    first: ArrayLike, second: ArrayLike, resamples: int, seed: int, clusters: Clusters = None
) -> Difference | None:
    """``first`` minus ``second``, two methods' right or wrong answers, bool [n], on the same items.

    The percentile bootstrap keeps each item's two answers together; where the difference is the same in all clusters,
    the interval is as in :func:`bootstrap_interval`. None without items.

    Raises:
        ValueError: arrays of unequal length.
    """
    differences = _differences(first, second)
    if not len(differences):
        return None
    mean = float(differences.mean())
    found = resampled_means(differences, clusters, resamples, seed, lowest=-1.0)
    if found is None:
        return Difference(mean, None, mcnemar(first, second), None)
    # One is added to each count, so that p is never below what the number of resamples can tell; nor is it below what
    # the clusters can tell, all of which favour one method by chance as often as coins fall alike.
    far = min((found.means <= 0).sum(), (found.means >= 0).sum()) + 1
    p = float(min(1.0, max(2 * far / (resamples + 1), 2.0 ** (1 - found.clusters))))
    return Difference(mean, found.interval, mcnemar(first, second), p)


def mcnemar(first: ArrayLike, second: ArrayLike) -> float:
    """Exact McNemar p-value (two-sided) of two methods' right or wrong answers, bool [n], on the same items."""
    from scipy import stats

    differences = _differences(first, second)
    only_first, differ = int((differences > 0).sum()), int(np.count_nonzero(differences))
    return float(stats.binomtest(only_first, differ).pvalue) if differ else 1.0


def _differences(first: ArrayLike, second: ArrayLike) -> NDArray[np.float64]:
    a, b = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"two arrays over the same items are needed, not {a.shape} and {b.shape}")
    return a.astype(float) - b.astype(float)
