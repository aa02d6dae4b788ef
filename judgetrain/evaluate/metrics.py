"""Metrics of judges: pure functions on arrays of verdicts.

Verdicts are strings ``A``, ``B``, ``tie``, or None where nothing could be read; all are in the comparison's own
order. ``ab`` are the verdicts with the responses as they are, ``ba`` with the responses exchanged. An unreadable
verdict agrees with nothing and is consistent with nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Bools = NDArray[np.bool_]


def _array(values: ArrayLike | Sequence[str | None]) -> NDArray[np.object_]:
    return np.asarray(values, dtype=object)


def agreement(ab: Sequence[str | None], ba: Sequence[str | None], labels: Sequence[str]) -> Bools:
    """Strict agreement per item, bool [n]: both orders give the label (branching paper, section 5: AGR).

    Its mean over all items is the metric.
    """
    label = _array(labels)
    return np.asarray((_array(ab) == label) & (_array(ba) == label), dtype=bool)


def consistency(ab: Sequence[str | None], ba: Sequence[str | None]) -> Bools:
    """Consistency per item, bool [n]: both orders give the same readable verdict (section 5: CNS)."""
    first, second = _array(ab), _array(ba)
    return np.asarray((first == second) & (first != None), dtype=bool)  # noqa: E711


def single_order_accuracy(
    ab: Sequence[str | None], ba: Sequence[str | None], labels: Sequence[str]
) -> NDArray[np.float64]:
    """Accuracy per item, mean of the two orders each taken alone: float [n] of 0, 0.5 or 1."""
    label = _array(labels)
    return ((_array(ab) == label).astype(float) + (_array(ba) == label).astype(float)) / 2


def conflict_as_tie(ab: Sequence[str | None], ba: Sequence[str | None], labels: Sequence[str]) -> Bools:
    """Agreement per item, bool [n], when two orders that conflict count as the verdict tie.

    An unreadable order makes the item wrong, not a tie.
    """
    first, second, label = _array(ab), _array(ba), _array(labels)
    readable = (first != None) & (second != None)  # noqa: E711
    merged = np.where(first == second, first, "tie")
    return np.asarray((merged == label) & readable, dtype=bool)


def without_ties(labels: Sequence[str]) -> Bools:
    """Which items have a label other than tie, bool [n]: the paper's "w/o tie" keeps these."""
    return np.asarray(_array(labels) != "tie", dtype=bool)


def position_bias(ab: Sequence[str | None], ba: Sequence[str | None]) -> float | None:
    """Share of first-shown wins among the pairs of verdicts that flip between A and B with the order.

    0.5 is no bias, 1 always the first; None when nothing flips.
    """
    first, second = _array(ab), _array(ba)
    to_first = np.count_nonzero((first == "A") & (second == "B"))
    to_second = np.count_nonzero((first == "B") & (second == "A"))
    flips = to_first + to_second
    return to_first / flips if flips else None


def longer_preference(ab: Sequence[str | None], ba: Sequence[str | None], longer: Sequence[str]) -> float | None:
    """Share of consistent A or B verdicts that go to the longer response (``longer``: A, B or tie per item)."""
    first, side = _array(ab), _array(longer)
    decided = consistency(ab, ba) & np.isin(first.astype(str), ("A", "B")) & (side != "tie")
    return float(np.mean(first[decided] == side[decided])) if decided.any() else None


def correlations(scores: ArrayLike, truth: ArrayLike) -> dict[str, float]:
    """Pearson's r, Kendall's tau-b and Spearman's rho of two float arrays [n] (SciPy)."""
    from scipy import stats

    x, y = np.asarray(scores, dtype=float), np.asarray(truth, dtype=float)
    return {
        "pearson": float(stats.pearsonr(x, y).statistic),
        "kendall": float(stats.kendalltau(x, y).statistic),
        "spearman": float(stats.spearmanr(x, y).statistic),
    }
