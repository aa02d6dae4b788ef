"""Intervals and paired tests over items, which may come in clusters (several pairs of a prompt, votes on a pair)."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from judgetrain.evaluate.metrics.verdicts import correlations

Clusters = Sequence[object] | None
"""The cluster of each item [n], resampled whole; None: items are independent."""
Interval = tuple[float, float]
"""The ends of a 95% interval."""
Floats = NDArray[np.float64]

ENDS = (50 * (1 - 0.95), 50 * (1 + 0.95))
"""The percentiles that 95% of the resamples lie between."""
FEWEST = 10
"""Clusters (prompts) below which resamples give no interval: they say nothing of what was not asked."""
BATCH = 4_000_000
"""Counts drawn at a time, to bound memory on large benchmarks."""
SLOW_RESAMPLES = 200
"""At most so many resamples of rank correlations, which are slow."""
Z = 1.959963984540054
"""The normal quantile of 97.5%."""


def bootstrap_interval(values: ArrayLike, resamples: int, seed: int, clusters: Clusters = None) -> Interval | None:
    """95% percentile bootstrap interval of the mean of ``values`` [n], from 0 to 1 (ValueError: not one cluster an
    item).

    Where the items, or the means of all clusters, are the same, as at 0% and 100%, so is every resample; the interval
    is then Clopper and Pearson's exact one (Biometrika 26, 1934), of as many trials as there are clusters. None without
    items, or with fewer than :data:`FEWEST` clusters of items that differ.
    """
    found = resampled_means(values, clusters, resamples, seed)
    return None if found is None else found.interval


@dataclass(frozen=True)
class Resampled:
    """The mean in each resample [resamples], the interval that they give, and the number of clusters."""

    means: Floats
    interval: Interval
    clusters: int


def resampled_means(
    values: ArrayLike, clusters: Clusters, resamples: int, seed: int, lowest: float = 0.0
) -> Resampled | None:
    """The mean of ``values``, from ``lowest`` to 1, in resamples of whole clusters; None as
    :func:`bootstrap_interval`."""
    array = np.asarray(values, dtype=float)
    sums = _by_cluster(np.column_stack([array, np.ones_like(array)]), clusters)
    each = sums[:, 0] / sums[:, 1]
    if not len(each) or (len(each) < FEWEST and np.ptp(array) > 0):
        return None
    if np.ptp(each) == 0:
        ends = _around(float(each[0]), unseen(len(each)), lowest)
        return Resampled(np.full(resamples, each[0]), ends, len(each))
    total, n = _drawn(sums, resamples, seed)
    means = total / n
    low, high = np.percentile(means, ENDS)
    return Resampled(means, (float(low), float(high)), len(each))


def resampled_interval(
    columns: Floats,
    statistic: Callable[[Floats], Floats],
    clusters: Clusters,
    resamples: int,
    seed: int,
    lowest: float = 0.0,
) -> Interval | None:
    """95% percentile bootstrap interval of a statistic, from ``lowest`` to 1, of the sums of ``columns`` [n, columns].

    The statistic is given sums [columns, resamples] over whole clusters; where it is not defined (NaN) a resample is
    left out. None without any, and with fewer than :data:`FEWEST` clusters. Where all resamples are alike, the interval
    reaches as far as there may be other clusters among as many (:func:`unseen`).
    """
    sums = _by_cluster(columns, clusters)
    drawn = statistic(_drawn(sums, resamples, seed)) if len(sums) >= FEWEST else np.empty(0)
    known = drawn[np.isfinite(drawn)]
    if len(known) and np.ptp(known) < 1e-12:
        return _around(float(known[0]), (1 - lowest) * unseen(len(sums)), lowest)
    return _percentiles(known.tolist())


def _by_cluster(items: Floats, clusters: Clusters) -> Floats:
    """The sums over each cluster [clusters, columns] of items [n, columns]."""
    index = cluster_index(clusters, len(items))
    return np.column_stack([np.bincount(index, weights=column) for column in items.T])


def _drawn(sums: Floats, resamples: int, seed: int) -> Floats:
    """The totals [columns, resamples] of clusters' sums, drawn with replacement as often as there are clusters.

    Clusters that say the same are drawn together, as one count of a multinomial: most items have few values.
    """
    kinds, counts = np.unique(sums, axis=0, return_counts=True)
    rng, most = np.random.default_rng(seed), max(1, BATCH // len(kinds))
    sizes = [min(most, resamples - done) for done in range(0, resamples, most)]
    totals = [rng.multinomial(len(sums), counts / len(sums), size) @ kinds for size in sizes]
    return np.concatenate(totals).T


def _around(value: float, reach: float, lowest: float = 0.0) -> Interval:
    return max(lowest, value - reach), min(1.0, value + reach)


def unseen(trials: int) -> float:
    """The largest share of others that there may be where ``trials`` are all alike (Clopper and Pearson, 95%)."""
    from scipy import stats

    return float(stats.binomtest(0, trials).proportion_ci(0.95, method="exact").high)


def cluster_index(clusters: Clusters, n: int) -> NDArray[np.intp]:
    """The number of each of ``n`` items' cluster; clusters are numbered as they first occur (ValueError: not one
    cluster an item)."""
    if clusters is None:
        return np.arange(n, dtype=np.intp)
    if len(clusters) != n:
        raise ValueError(f"{n} values and {len(clusters)} clusters")
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(cluster, len(numbers)) for cluster in clusters], dtype=np.intp)


def wilson_interval(values: ArrayLike, clusters: Clusters = None) -> Interval | None:
    """95% interval of the share of ``values`` [n] that are true (Wilson 1927); None without items.

    In place of n stand as many independent items as tell as much: n over the design effect, the variance of the share
    over clusters by that over items (Kish 1965), never below 1. Where all values are the same the effect is not known,
    and each cluster counts once.
    """
    array = np.asarray(values, dtype=float)
    if not len(array):
        return None
    share, trials, z = float(array.mean()), _effective(array, clusters), Z
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    reach = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, min(share, middle - reach)), min(1.0, max(share, middle + reach))


def _effective(values: Floats, clusters: Clusters) -> float:
    """So many independent items tell as much as these."""
    if clusters is None:
        return float(len(values))
    index, n, share = cluster_index(clusters, len(values)), len(values), values.mean()
    counts = np.bincount(index)
    if len(counts) == 1 or share in (0.0, 1.0):
        return float(len(counts))
    off = np.bincount(index, weights=values) - share * counts
    of_clusters = float(off @ off) * len(counts) / (len(counts) - 1) / n**2
    return n / max(1.0, of_clusters / (share * (1 - share) / n))


def with_intervals(x: ArrayLike, y: ArrayLike, resamples: int, seed: int, clusters: Clusters = None) -> dict[str, Any]:
    """The correlations of two float arrays [n] by name, and their 95% percentile bootstrap intervals as ``..._ci``.

    Resamples (:data:`SLOW_RESAMPLES` at most) in which a correlation is not defined are left out; None without any, and
    with fewer than :data:`FEWEST` clusters.
    """
    first, second = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    rows = _rows(cluster_index(clusters, len(first)), resamples, seed)
    drawn = [correlations(first[each], second[each]) for each in rows]
    found = correlations(x, y)
    return {**found, **{f"{name}_ci": _percentiles([each[name] for each in drawn]) for name in found}}


@dataclass(frozen=True, kw_only=True)
class Correlations:
    """Correlations of margins with labels (A 1, tie 0, B -1), or of scores with ratings, and their 95% intervals."""

    pearson: float | None
    kendall: float | None
    spearman: float | None
    pearson_ci: Interval | None
    kendall_ci: Interval | None
    spearman_ci: Interval | None


def margin_correlations(
    margins: Sequence[float | None], labels: Sequence[str], prompts: Sequence[str], resamples: int, seed: int
) -> Correlations:
    """Of the items [n] that have a margin; intervals resample prompts whole."""
    number = {"A": 1.0, "tie": 0.0, "B": -1.0}
    kept = [(m, number[y], p) for m, y, p in zip(margins, labels, prompts, strict=True) if m is not None]
    x, truth, clusters = zip(*kept, strict=True)
    return Correlations(**with_intervals(x, truth, resamples, seed, clusters))


def _rows(index: NDArray[np.intp], resamples: int, seed: int) -> Iterator[NDArray[np.intp]]:
    """The items of each resample of whole clusters, for statistics that are slow; nothing of too few clusters."""
    members = np.split(np.argsort(index, kind="stable"), np.cumsum(np.bincount(index))[:-1])
    rng, n = np.random.default_rng(seed), len(members)
    for _ in range(min(resamples, SLOW_RESAMPLES) if n >= FEWEST else 0):
        yield np.concatenate([members[i] for i in rng.integers(n, size=n)])


def _percentiles(values: Sequence[float | None]) -> Interval | None:
    found = [value for value in values if value is not None]
    if not found:
        return None
    low, high = np.percentile(found, ENDS)
    return float(low), float(high)


@dataclass(frozen=True)
class Difference:
    """How much better one method is than another on the same items.

    Mean difference, its 95% interval and p: twice the share of resampled differences on the far side of zero.
    """

    mean: float
    interval: Interval | None
    p: float | None


def paired_difference(
    first: ArrayLike, second: ArrayLike, resamples: int, seed: int, clusters: Clusters = None
) -> Difference | None:
    """``first`` minus ``second``, two methods' right or wrong answers, bool [n], on the same items (ValueError: arrays
    of unequal length).

    The percentile bootstrap keeps each item's two answers together; where the difference is the same in all clusters,
    the interval is as in :func:`bootstrap_interval`. None without items.
    """
    a, b = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"two arrays over the same items are needed, not {a.shape} and {b.shape}")
    if not len(a):
        return None
    differences = a.astype(float) - b.astype(float)
    mean = float(differences.mean())
    found = resampled_means(differences, clusters, resamples, seed, lowest=-1.0)
    if found is None:
        return Difference(mean, None, None)
    # One is added to each count, so that p is never below what the number of resamples can tell; nor is it below what
    # the clusters can tell, all of which favour one method by chance as often as coins fall alike.
    far = min((found.means <= 0).sum(), (found.means >= 0).sum()) + 1
    p = float(min(1.0, max(2 * far / (resamples + 1), 2.0 ** (1 - found.clusters))))
    return Difference(mean, found.interval, p)
