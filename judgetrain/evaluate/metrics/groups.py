"""Agreement by group, and its relation to length: the longer response is the better one more often than not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from judgetrain.data.intervals import Clusters, Floats, Interval, Resampling
from judgetrain.evaluate.metrics.intervals import resampled_interval
from judgetrain.evaluate.metrics.verdicts import Bools, Verdicts, merged, unreadable, without_ties


@dataclass(frozen=True)
class GroupAgreement:
    """Agreement on the ``n`` comparisons of a group or domain."""

    n: int
    agreement: float | None


def agreement_by_name(names: Sequence[str | None], agreed: Bools) -> dict[str, GroupAgreement]:
    """Return the agreement on the items of each name, by name in order; items without a name are left out.

    Args:
        names: of the items [n].
        agreed: bool [n].
    """
    groups = {}
    # Sorted, so that equal results are equal files.
    for name in sorted({name for name in names if name is not None}):
        mask = np.array([other == name for other in names])
        groups[name] = GroupAgreement(int(mask.sum()), mean(agreed[mask]))
    return groups


def every_pair(agreed: Bools, prompts: Sequence[str | None], groups: Sequence[str | None]) -> float | None:
    """Return the share of prompts of which every pair is right: the plain mean over groups of prompts.

    Args:
        agreed: whether each pair is right, bool [n].
        prompts: of the pairs [n]; None: the pair counts for none.
        groups: of the pairs [n].
    """
    # No pair counts for a prompt where all prompts are None.
    columns, _ = _prompt_columns(agreed, prompts, groups)
    if not len(columns):
        return None
    return _defined(_mean_of_groups(columns.sum(axis=0)))


def every_pair_interval(
    agreed: Bools, prompts: Sequence[str | None], groups: Sequence[str | None], resampling: Resampling
) -> Interval | None:
    """Return the 95% percentile bootstrap interval of :func:`every_pair`, over prompts."""
    columns, _ = _prompt_columns(agreed, prompts, groups)
    if not len(columns):
        return None
    return resampled_interval(columns, _mean_of_groups, None, resampling)


def every_pair_by_group(
    agreed: Bools, prompts: Sequence[str | None], groups: Sequence[str | None]
) -> dict[str, GroupAgreement] | None:
    """Return of each group the number of prompts, and the share of which every pair is right; None without prompts."""
    columns, names = _prompt_columns(agreed, prompts, groups)
    if not len(columns):
        return None
    # Two columns a group: how many prompts are right, and how many there are.
    right, number = columns.sum(axis=0).reshape(-1, 2).T
    shares = {}
    for place, name in enumerate(names):
        shares[name] = GroupAgreement(int(number[place]), round(float(right[place] / number[place]), 6))
    return shares


def _prompt_columns(
    agreed: Bools, prompts: Sequence[str | None], groups: Sequence[str | None]
) -> tuple[Floats, list[str]]:
    """Return two columns of each group, by prompt, and the groups' names in order.

    The columns are 1 where the prompt is of the group and all of its pairs are right, and where it is of the group.
    """
    right_of: dict[str, bool] = {}
    group_of: dict[str, str] = {}
    for is_right, prompt, group in zip(agreed, prompts, groups, strict=True):
        if prompt is not None:
            # One wrong pair spoils its prompt.
            right_of[prompt] = right_of.get(prompt, True) and bool(is_right)
            # Prompts without a group are a group of their own.
            group_of.setdefault(prompt, group or "")
    names = sorted(set(group_of.values()))
    columns = np.zeros((len(right_of), 2 * len(names)))
    for row, (prompt, is_right) in enumerate(right_of.items()):
        place = names.index(group_of[prompt])
        columns[row, 2 * place] = is_right
        columns[row, 2 * place + 1] = 1
    return columns, names


def _mean_of_groups(totals: Floats) -> Floats:
    """Return the mean over groups of the first of two sums over the second [2 a group, ...]; NaN for an empty group."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((totals[::2] / totals[1::2]).mean(axis=0))


# Symmetric, so that exchanging the responses changes the sign alone.
_NUMBER = {"A": 1.0, "tie": 0.0, "B": -1.0}


def length_balanced(agreed: Bools | Floats, labels: Sequence[str], longer: Sequence[str]) -> float | None:
    """Return the mean of two agreements: where the better response is the longer one, and where it is the shorter one.

    A judge that goes by length alone is right on all of one half and wrong on all of the other: 0.5. Items whose label
    is a tie, or whose responses are equally long, are in neither half; None where one half is empty.

    Args:
        agreed: bool [n], or parts of 1.
        labels: A, B or tie [n].
        longer: the longer response: A, B or tie [n].
    """
    return _defined(_balanced(_halves(agreed, labels, longer).sum(axis=0)))


def length_balanced_interval(
    agreed: Bools | Floats,
    labels: Sequence[str],
    longer: Sequence[str],
    resampling: Resampling,
    clusters: Clusters = None,
) -> Interval | None:
    """Return the 95% percentile bootstrap interval of :func:`length_balanced`; clusters are resampled whole."""
    # Items in neither half are left out, so that every cluster that is drawn has one that counts.
    mask = without_ties(labels) & without_ties(longer)
    columns = _halves(agreed, labels, longer)[mask]
    return resampled_interval(columns, _balanced, _masked(mask, clusters), resampling, lowest=0.0)


def length_correlation(ab: Verdicts, ba: Verdicts, longer: Sequence[str]) -> float | None:
    """Return Pearson's r of the verdicts with the longer response; None where one of the two is constant.

    Both are numbers: A 1, B -1, and 0 for a tie or orders in conflict. Unreadable items are left out.
    """
    return _defined(_pearson(_moments(ab, ba, longer).sum(axis=0)))


def length_correlation_interval(
    ab: Verdicts, ba: Verdicts, longer: Sequence[str], resampling: Resampling, clusters: Clusters = None
) -> Interval | None:
    """Return the 95% percentile bootstrap interval of :func:`length_correlation`; clusters are resampled whole."""
    # Likewise without the items that add nothing.
    mask = ~unreadable(merged(ab, ba))
    columns = _moments(ab, ba, longer)[mask]
    return resampled_interval(columns, _pearson, _masked(mask, clusters), resampling, lowest=-1.0)


def _masked(mask: Bools, clusters: Clusters) -> Clusters:
    """Return the clusters of the items that a mask [n] holds."""
    if clusters is None:
        return None
    return [cluster for cluster, is_in_mask in zip(clusters, mask, strict=True) if is_in_mask]


# Statistics are computed from sums over items, so that a resample of clusters is a sum of theirs.


def _halves(agreed: Bools | Floats, labels: Sequence[str], longer: Sequence[str]) -> Floats:
    """Return the sums that :func:`_balanced` needs, by item: float [n, 4].

    The columns are how right the judge is where the longer response is better, 1 where the longer one is better, and
    both again for the shorter one.
    """
    # A tie has no better response, and equal lengths have no longer one.
    decided = without_ties(labels) & without_ties(longer)
    is_longer = np.array([label == side for label, side in zip(labels, longer, strict=True)], dtype=bool)
    long = decided & is_longer
    short = decided & ~is_longer
    right = np.asarray(agreed, dtype=float)
    return np.column_stack([right * long, long, right * short, short])


def _balanced(totals: Floats) -> Floats:
    """Return the mean of two shares out of their sums [4, ...]; NaN where a half is empty."""
    # A resample may lack one of the halves: NaN says so.
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((totals[0] / totals[1] + totals[2] / totals[3]) / 2)


def _moments(ab: Verdicts, ba: Verdicts, longer: Sequence[str]) -> Floats:
    """Return the moments that :func:`_pearson` needs, by item: float [n, 6] of 1, x, y, x², y² and xy.

    x is the verdict and y the longer response. An item that could not be read has zeros, and adds nothing.
    """
    rows = []
    for verdict, side in zip(merged(ab, ba), longer, strict=True):
        if verdict is None:
            rows.append([0.0] * 6)
            continue
        x = _NUMBER[verdict]
        y = _NUMBER[side]
        rows.append([1.0, x, y, x**2, y**2, x * y])
    return np.array(rows)


def _pearson(totals: Floats) -> Floats:
    """Return Pearson's r out of summed moments [6, ...]; NaN where x or y is constant."""
    # The textbook formula over sums, which a resample of clusters has by adding up theirs.
    n, x, y, xx, yy, xy = totals
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((n * xy - x * y) / np.sqrt((n * xx - x * x) * (n * yy - y * y)))


def _defined(value: Floats) -> float | None:
    """Return a number to six decimals; None where it is not defined."""
    if not np.isfinite(value):
        return None
    return round(float(value), 6)


def mean(values: Any) -> float | None:
    """Return the mean, to six decimals; None without values or where one of them is not known (NaN)."""
    array = np.asarray(values, dtype=float)
    if len(array) == 0 or np.isnan(array).any():
        return None
    return round(float(array.mean()), 6)
