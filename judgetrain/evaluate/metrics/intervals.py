"""Intervals of correlations and of statistics of sums, and paired tests, over items that may come in clusters."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from judgetrain.data.intervals import (
    ENDS,
    FEWEST,
    Clusters,
    Floats,
    Interval,
    Resampling,
    around,
    by_cluster,
    cluster_index,
    drawn,
    resampled_means,
    unseen,
)
from judgetrain.evaluate.metrics.verdicts import correlations

SLOW_RESAMPLES = 200
"""The most resamples of rank correlations, which are slow."""


def resampled_interval(
    columns: Floats,
    statistic: Callable[[Floats], Floats],
    clusters: Clusters,
    resampling: Resampling,
    lowest: float = 0.0,
) -> Interval | None:
    """Return the 95% percentile bootstrap interval of a statistic of sums.

    A resample in which the statistic is not defined (NaN) is left out. None without any, and with fewer than
    :data:`FEWEST` clusters. Where all resamples are alike, the interval reaches as far as there may be other clusters
    among as many (:func:`unseen`).

    Args:
        columns: what is summed [n, columns].
        statistic: given sums [columns, resamples] over whole clusters, returns values [resamples], ``lowest`` to 1.
        clusters: of the items [n].
        resampling: how intervals are drawn.
        lowest: the least value of the statistic.
    """
    # A cluster's items add up to one row, so that a resample is a sum of whole rows.
    sums = by_cluster(columns, clusters)
    if len(sums) < FEWEST:
        return None
    values = statistic(drawn(sums, resampling))
    return resamples_interval(values[np.isfinite(values)].tolist(), len(sums), lowest)


def with_intervals(x: ArrayLike, y: ArrayLike, resampling: Resampling, clusters: Clusters = None) -> dict[str, Any]:
    """Return the correlations of two float arrays [n] by name, and their 95% intervals as ``..._ci``.

    Intervals are percentile bootstrap ones. Resamples (:data:`SLOW_RESAMPLES` at most) in which a correlation is not
    defined are left out; None without any, and with fewer than :data:`FEWEST` clusters. Where all resamples are alike,
    as of a perfect correlation, the interval is as in :func:`resampled_interval`.
    """
    first = np.asarray(x, dtype=float)
    second = np.asarray(y, dtype=float)
    # Rank correlations are no function of sums, so that each resample is computed anew.
    in_resamples = []
    index = cluster_index(clusters, len(first))
    for items in resampled_items(index, resampling):
        in_resamples.append(correlations(first[items], second[items]))

    values: dict[str, Any] = dict(correlations(x, y))
    for name in list(values):
        of_name = [in_resample[name] for in_resample in in_resamples]
        values[f"{name}_ci"] = resamples_interval(of_name, len(set(index)), lowest=-1.0)
    return values


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
    margins: Sequence[float | None], labels: Sequence[str], prompts: Sequence[str], resampling: Resampling
) -> Correlations:
    """Return the correlations of margins with labels over the items [n] that have a margin.

    Intervals resample prompts whole.
    """
    # A tie lies between the two sides, so that a rank correlation has an order to go by.
    number = {"A": 1.0, "tie": 0.0, "B": -1.0}
    # What could not be read has no margin.
    known_margins = []
    truth = []
    clusters = []
    for margin, label, prompt in zip(margins, labels, prompts, strict=True):
        if margin is not None:
            known_margins.append(margin)
            truth.append(number[label])
            clusters.append(prompt)
    return Correlations(**with_intervals(known_margins, truth, resampling, clusters))


def resampled_items(index: NDArray[np.intp], resampling: Resampling) -> Iterator[NDArray[np.intp]]:
    """Yield the items of each resample of whole clusters, for statistics that are slow.

    With fewer than :data:`FEWEST` clusters nothing is yielded.
    """
    # The items of each cluster, in their order.
    members = np.split(np.argsort(index, kind="stable"), np.cumsum(np.bincount(index))[:-1])
    number = len(members)
    if number < FEWEST:
        return
    # One generator for all resamples of a figure: the same seed draws the same clusters for every method.
    rng = np.random.default_rng(resampling.seed)
    for _ in range(min(resampling.number, SLOW_RESAMPLES)):
        yield np.concatenate([members[cluster] for cluster in rng.integers(number, size=number)])


def resamples_interval(values: Sequence[float | None], clusters: int, lowest: float) -> Interval | None:
    """Return the middle 95% of a statistic's values in resamples; None where it is defined in none.

    Values that are all alike say nothing of clusters that were not seen: the interval then reaches as far as there may
    be other clusters among as many (:func:`unseen`).

    Args:
        values: the statistic in each resample, ``lowest`` to 1; None where it is not defined.
        clusters: how many there are.
        lowest: the least value of the statistic.
    """
    defined = [value for value in values if value is not None]
    if not defined:
        return None
    # Equal resamples differ in their last digits where sums were rounded.
    if np.ptp(defined) < 1e-12:
        return around(float(defined[0]), (1 - lowest) * unseen(clusters), lowest)
    low, high = np.percentile(defined, ENDS)
    return float(low), float(high)


@dataclass(frozen=True)
class Difference:
    """The difference between two methods on the same items.

    Args:
        mean: of the differences.
        interval: its 95% interval.
        p: twice the share of resampled differences on the far side of zero.
    """

    mean: float
    interval: Interval | None
    p: float | None


def paired_difference(
    first: ArrayLike, second: ArrayLike, resampling: Resampling, clusters: Clusters = None
) -> Difference | None:
    """Return the difference of two methods on the same items, first minus second; None without items.

    The percentile bootstrap keeps each item's two answers together; where the difference is the same in all clusters,
    the interval is as in :func:`bootstrap_interval`. Resamples show no cluster that was not seen: where none speaks for
    one of the methods, the interval reaches to that side at least as far as there may be others among as many.

    Args:
        first: whether a method's answers are right, bool [n].
        second: whether the other method's are.
        resampling: how intervals are drawn.
        clusters: of the items [n].

    Raises:
        ValueError: arrays of unequal length.
    """
    first_right = np.asarray(first, dtype=bool)
    second_right = np.asarray(second, dtype=bool)
    if first_right.ndim != 1 or first_right.shape != second_right.shape:
        raise ValueError(f"two arrays over the same items are needed, not {first_right.shape} and {second_right.shape}")
    if not len(first_right):
        return None
    # Of each item by itself, so that what is hard for both methods cancels.
    differences = first_right.astype(float) - second_right.astype(float)
    mean = float(differences.mean())

    # Differences reach from -1 to 1, and an interval of equal ones is cut at these ends.
    resampled = resampled_means(differences, clusters, resampling, lowest=-1.0)
    if resampled is None:
        return Difference(mean, None, None)

    # One is added to each count, so that p is never below what the number of resamples can tell.
    far_side = min((resampled.means <= 0).sum(), (resampled.means >= 0).sum()) + 1
    # Nor is it below what the clusters can tell: all favour one method by chance as often as coins fall alike.
    least = 2.0 ** (1 - resampled.clusters)
    p = float(min(1.0, max(2 * far_side / (resampling.number + 1), least)))
    low, high = resampled.interval
    of_clusters = by_cluster(differences[:, np.newaxis], clusters)[:, 0]
    widest_low, widest_high = around(mean, unseen(resampled.clusters), lowest=-1.0)
    if not (of_clusters < 0).any():
        low = min(low, widest_low)
    if not (of_clusters > 0).any():
        high = max(high, widest_high)
    return Difference(mean, (low, high), p)
