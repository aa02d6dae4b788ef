"""Agreement by group, and how it goes with length: the longer response is the better one more often than not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from judgetrain.evaluate.metrics.intervals import Clusters, Floats, Interval, resampled_interval
from judgetrain.evaluate.metrics.verdicts import Bools, Verdicts, merged, unreadable, without_ties


@dataclass(frozen=True)
class Group:
    """Agreement on the ``n`` comparisons of a group or domain."""

    n: int
    agreement: float | None


def agreement_by_name(names: Sequence[str | None], agreed: Bools) -> dict[str, Group]:
    """Agreement, bool [n], over the items of each name, sorted; items without a name are left out."""
    masks = {name: np.array([n == name for n in names]) for name in sorted({n for n in names if n is not None})}
    return {name: Group(int(m.sum()), mean(agreed[m])) for name, m in masks.items()}


_NUMBER = {"A": 1.0, "tie": 0.0, "B": -1.0}


def length_balanced(agreed: Bools, labels: Sequence[str], longer: Sequence[str]) -> float | None:
    """The mean of two agreements: where the better response is the longer one, and where it is the shorter one.

    A judge that goes by length alone is right on all of one half and wrong on all of the other: 0.5. Items whose label
    is a tie, or whose responses are equally long (``longer``: A, B or tie), are in neither half; None where one is
    empty.
    """
    return _defined(_balanced(_halves(agreed, labels, longer).sum(axis=0)))


def length_balanced_interval(
    agreed: Bools, labels: Sequence[str], longer: Sequence[str], resamples: int, seed: int, clusters: Clusters = None
) -> Interval | None:
    """95% percentile bootstrap interval of :func:`length_balanced`; clusters are resampled whole."""
    kept = without_ties(labels) & without_ties(longer)
    columns = _halves(agreed, labels, longer)[kept]
    return resampled_interval(columns, _balanced, _only(kept, clusters), resamples, seed, lowest=0.0)


def length_correlation(ab: Verdicts, ba: Verdicts, longer: Sequence[str]) -> float | None:
    """Pearson's r of verdicts (A 1, tie or orders in conflict 0, B -1) with which response is longer (the same way).

    Unreadable items are left out; None where one of the two is the same throughout.
    """
    return _defined(_pearson(_moments(ab, ba, longer).sum(axis=0)))


def length_correlation_interval(
    ab: Verdicts, ba: Verdicts, longer: Sequence[str], resamples: int, seed: int, clusters: Clusters = None
) -> Interval | None:
    """95% percentile bootstrap interval of :func:`length_correlation`; clusters are resampled whole."""
    kept = ~unreadable(merged(ab, ba))
    columns = _moments(ab, ba, longer)[kept]
    return resampled_interval(columns, _pearson, _only(kept, clusters), resamples, seed, lowest=-1.0)


def _only(kept: Bools, clusters: Clusters) -> Clusters:
    return None if clusters is None else [name for name, there in zip(clusters, kept, strict=True) if there]


def _halves(agreed: Bools, labels: Sequence[str], longer: Sequence[str]) -> Floats:
    """[n, 4]: right where the longer response is better, such an item, and both again for the shorter one."""
    decided = without_ties(labels) & without_ties(longer)
    same = np.array([y == side for y, side in zip(labels, longer, strict=True)], dtype=bool)
    long, short = decided & same, decided & ~same
    return np.column_stack([agreed & long, long, agreed & short, short]).astype(float)


def _balanced(totals: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((totals[0] / totals[1] + totals[2] / totals[3]) / 2)


def _moments(ab: Verdicts, ba: Verdicts, longer: Sequence[str]) -> Floats:
    """[n, 6]: an item, x, y, x², y² and xy; zeros of one that could not be read."""
    said = [v and (_NUMBER[v], _NUMBER[side]) for v, side in zip(merged(ab, ba), longer, strict=True)]
    return np.array([[0.0] * 6 if not s else [1.0, *s, s[0] ** 2, s[1] ** 2, s[0] * s[1]] for s in said])


def _pearson(totals: Floats) -> Floats:
    n, x, y, xx, yy, xy = totals
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((n * xy - x * y) / np.sqrt((n * xx - x * x) * (n * yy - y * y)))


def _defined(value: Floats) -> float | None:
    return round(float(value), 6) if np.isfinite(value) else None


def mean(values: Any) -> float | None:
    """The mean, to six decimals; None without values or where one of them is not known (NaN)."""
    array = np.asarray(values, dtype=float)
    return round(float(array.mean()), 6) if len(array) and not np.isnan(array).any() else None
