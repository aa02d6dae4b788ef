"""Intervals of means over items, which may come in clusters (several pairs of a prompt, votes on a pair)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from judgetrain.amounts import amount

Clusters = Sequence[object] | None
"""The cluster of each item [n], resampled whole; None: items are independent."""
Interval = tuple[float, float]
"""The ends of a 95% interval."""
Floats = NDArray[np.float64]

# 2.5 and 97.5.
ENDS = (50 * (1 - 0.95), 50 * (1 + 0.95))
"""The percentiles that 95% of the resamples lie between."""
FEWEST = 10
"""Clusters (prompts) below which there is no interval of any kind: so few tell nothing of other prompts."""
BATCH = 4_000_000
"""Counts drawn at a time, to bound memory on large benchmarks."""
Z = 1.959963984540054
"""The normal quantile of 97.5%."""


@dataclass(frozen=True)
class Resampling:
    """How a bootstrap draws: ``number`` resamples, by a generator with this ``seed``."""

    number: int
    seed: int


# Number and seed stand apart here, since metrics of other packages name them so (docs/extending.md, "A metric").
def bootstrap_interval(values: ArrayLike, resamples: int, seed: int, clusters: Clusters = None) -> Interval | None:
    """Return the 95% percentile bootstrap interval of a mean.

    Where the items, or the means of all clusters, are the same, as at 0% and 100%, so is every resample; the interval
    is then Clopper and Pearson's exact one (Biometrika 26, 1934), of as many trials as there are clusters. None with
    fewer than :data:`FEWEST` clusters, also where all their items are alike.

    Args:
        values: from 0 to 1 [n].
        resamples: how many are drawn.
        seed: of the draws.
        clusters: of the items [n].

    Raises:
        ValueError: not one cluster an item.
    """
    resampled = resampled_means(values, clusters, Resampling(resamples, seed))
    if resampled is None:
        return None
    return resampled.interval


@dataclass(frozen=True)
class Resampled:
    """The mean in each resample [resamples], the interval that they give, and the number of clusters."""

    means: Floats
    interval: Interval
    clusters: int


def resampled_means(
    values: ArrayLike, clusters: Clusters, resampling: Resampling, lowest: float = 0.0
) -> Resampled | None:
    """Return the mean of ``values``, from ``lowest`` to 1, in resamples of whole clusters.

    None where :func:`bootstrap_interval` is, whose arguments these are.
    """
    array = np.asarray(values, dtype=float)
    # A cluster's sum and its size: resampled means are ratios of the two.
    sums = by_cluster(np.column_stack([array, np.ones_like(array)]), clusters)
    cluster_means = sums[:, 0] / sums[:, 1]
    number = len(cluster_means)
    if number < FEWEST:
        return None
    # Means of clusters of several sizes differ in their last digits where sums were rounded.
    if np.ptp(cluster_means) < 1e-12:
        # Resamples of equal clusters are all alike, and would give an interval without width.
        ends = around(float(cluster_means[0]), unseen(number), lowest)
        return Resampled(np.full(resampling.number, cluster_means[0]), ends, number)

    totals, sizes = drawn(sums, resampling)
    means = totals / sizes
    low, high = np.percentile(means, ENDS)
    return Resampled(means, (float(low), float(high)), number)


def by_cluster(items: Floats, clusters: Clusters) -> Floats:
    """Return the sums over each cluster [clusters, columns] of items [n, columns]."""
    index = cluster_index(clusters, len(items))
    # NumPy's bincount takes one column of weights at a time.
    return np.column_stack([np.bincount(index, weights=column) for column in items.T])


def drawn(sums: Floats, resampling: Resampling) -> Floats:
    """Return the totals [columns, resamples] of clusters' sums, drawn with replacement.

    Each resample has as many clusters as there are.
    """
    # Clusters with equal sums are drawn together, as one count of a multinomial: most items have few values.
    distinct, counts = np.unique(sums, axis=0, return_counts=True)
    shares = counts / len(sums)
    # As many resamples at a time as counts fit into the bound.
    batch = max(1, BATCH // len(distinct))
    rng = np.random.default_rng(resampling.seed)
    totals = []
    for done in range(0, resampling.number, batch):
        size = min(batch, resampling.number - done)
        totals.append(rng.multinomial(len(sums), shares, size) @ distinct)
    return np.concatenate(totals).T


def around(value: float, reach: float, lowest: float = 0.0) -> Interval:
    """Return the interval that reaches so far on either side of a value, between ``lowest`` and 1."""
    return max(lowest, value - reach), min(1.0, value + reach)


def unseen(trials: int) -> float:
    """Return the largest share of others that there may be where all trials are alike (Clopper and Pearson, 95%)."""
    # Slow to import, and needed only where all clusters are alike.
    from scipy import stats

    return float(stats.binomtest(0, trials).proportion_ci(0.95, method="exact").high)


def cluster_index(clusters: Clusters, n: int) -> NDArray[np.intp]:
    """Return the number of each item's cluster [n]; clusters are numbered as they first occur.

    A ValueError is raised unless there is one cluster an item.
    """
    # Every item is a cluster of its own.
    if clusters is None:
        return np.arange(n, dtype=np.intp)
    if len(clusters) != n:
        raise ValueError(f"{amount(n, 'value')} and {amount(len(clusters), 'cluster')}")
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(cluster, len(numbers)) for cluster in clusters], dtype=np.intp)


def wilson_interval(values: ArrayLike, clusters: Clusters = None) -> Interval | None:
    """Return the 95% interval of the share of ``values`` [n] that are true (Wilson 1927).

    None with fewer than :data:`FEWEST` clusters, as of every other interval.
    In place of n stand as many independent items as tell as much: n over the design effect, the variance of the share
    over clusters by that over items (Kish 1965), never below 1. Where all values are the same the effect is not known,
    and each cluster counts once.
    """
    array = np.asarray(values, dtype=float)
    if len(set(cluster_index(clusters, len(array)))) < FEWEST:
        return None
    share = float(array.mean())
    trials = _effective(array, clusters)
    # Wilson's formula: the values of p at which the share is just z standard errors away.
    z = Z
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    reach = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    # Rounding may put the share itself just outside at 0 and 1.
    return max(0.0, min(share, middle - reach)), min(1.0, max(share, middle + reach))


def _effective(values: Floats, clusters: Clusters) -> float:
    """Return how many independent items would tell as much as these values [n]."""
    if clusters is None:
        return float(len(values))
    n = len(values)
    share = values.mean()
    index = cluster_index(clusters, n)
    sizes = np.bincount(index)
    number = len(sizes)
    # Without variance, or with one cluster, there is nothing to measure the effect by.
    if number == 1 or share in (0.0, 1.0):
        return float(number)
    # The linearised variance of a ratio: sums over clusters less what their sizes explain.
    deviations = np.bincount(index, weights=values) - share * sizes
    variance_by_clusters = float(deviations @ deviations) * number / (number - 1) / n**2
    variance_by_items = share * (1 - share) / n
    # Below 1 the clusters would tell more than their items, which is chance.
    return n / max(1.0, variance_by_clusters / variance_by_items)
