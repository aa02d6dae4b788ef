"""Metrics of judges: pure functions on arrays of verdicts.

Verdicts are strings ``A``, ``B``, ``tie``, or None where nothing could be read; all are in the comparison's own
order. ``ab`` are the verdicts with the responses as they are, ``ba`` with the responses exchanged: a judge whose
answers are numbered as shown must be translated first (:func:`judgetrain.schema.mirror`). An unreadable
verdict agrees with nothing and is consistent with nothing. Functions give one value per item; the metric is the
mean over all items, so that intervals and paired tests can resample items.

Every function raises ``ValueError`` for arrays of unequal length, an unknown verdict, or a label that is none of
``A``, ``B``, ``tie``.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from judgetrain.schema import Verdict, mirror

# fmt: off
__all__ = [
    "accuracy", "agreement", "conflict_as_tie", "consistency", "correlations", "decided", "flips", "forced",
    "merged", "position_bias", "single_order_accuracy", "unreadable", "without_ties",
]
# fmt: on
Bools = NDArray[np.bool_]
Verdicts = Sequence[str | None]

# People's labels are never missing here: items without one are left out before.
_LABELS = frozenset(("A", "B", "tie"))


def _arrays(*columns: Verdicts, labels: Sequence[str] | None = None) -> list[NDArray[np.object_]]:
    """Return object arrays of verdicts, and last of the labels where there are some, once they are checked."""
    all_columns: list[Verdicts] = list(columns)
    if labels is not None:
        all_columns.append(labels)
    # Checked here for all metrics: NumPy would stretch an array of one item to the length of the others.
    lengths = [len(column) for column in all_columns]
    if len(set(lengths)) > 1:
        raise ValueError(f"arrays of unequal length: {', '.join(map(str, lengths))}")

    for verdicts in columns:
        for place, verdict in enumerate(verdicts):
            if verdict is not None and verdict not in _LABELS:
                raise ValueError(f"verdict {place} is {verdict!r}: allowed are A, B, tie or None")
    # Compared with None, as labels may be an array, which is neither true nor false.
    checked_labels = () if labels is None else labels
    for place, label in enumerate(checked_labels):
        if label not in _LABELS:
            raise ValueError(f"label {place} is {label!r}: allowed are A, B, tie")
    # As objects, since texts and None stand beside each other.
    return [np.array([*column], dtype=object) for column in all_columns]


def _same(first: NDArray[np.object_], second: NDArray[np.object_]) -> Bools:
    """Return where two object arrays are equal, bool [n]."""
    return np.asarray(first == second, dtype=bool)


def mirrored(verdict: Verdict | None) -> Verdict | None:
    """Return the verdict on the same responses in the other order; None stays None."""
    if verdict is None:
        return None
    return mirror(verdict)


def unreadable(verdicts: Verdicts) -> Bools:
    """Return whether each verdict could not be read, bool [n]."""
    return np.array([verdict is None for verdict in _arrays(verdicts)[0]], dtype=bool)


def agreement(ab: Verdicts, ba: Verdicts, labels: Sequence[str]) -> Bools:
    """Return strict agreement per item, bool [n]: both orders give the label (branching paper, section 5: AGR)."""
    first, second, label = _arrays(ab, ba, labels=labels)
    return _same(first, label) & _same(second, label)


def consistency(ab: Verdicts, ba: Verdicts) -> Bools:
    """Return consistency per item, bool [n]: both orders give the same readable verdict (section 5: CNS)."""
    first, second = _arrays(ab, ba)
    # Two unreadable verdicts are equal, but say nothing.
    return _same(first, second) & ~unreadable(ab)


def accuracy(verdicts: Verdicts, labels: Sequence[str]) -> Bools:
    """Return the accuracy of one order taken alone, bool [n]."""
    return _same(*_arrays(verdicts, labels=labels))


def single_order_accuracy(ab: Verdicts, ba: Verdicts, labels: Sequence[str]) -> NDArray[np.float64]:
    """Return the mean of the two orders' accuracies per item: float [n] of 0, 0.5 or 1."""
    return (accuracy(ab, labels).astype(float) + accuracy(ba, labels).astype(float)) / 2


def merged(ab: Verdicts, ba: Verdicts) -> list[str | None]:
    """Return one verdict per item: that of both orders, a tie where they conflict, None where one is unreadable."""
    verdicts: list[str | None] = []
    for first, second in zip(*_arrays(ab, ba), strict=True):
        if first is None or second is None:
            verdicts.append(None)
        elif first == second:
            verdicts.append(first)
        else:
            verdicts.append("tie")
    return verdicts


def conflict_as_tie(ab: Verdicts, ba: Verdicts, labels: Sequence[str]) -> Bools:
    """Return the agreement of the merged verdicts per item, bool [n].

    An unreadable order makes the item wrong, not a tie.
    """
    checked_labels = _arrays(ab, ba, labels=labels)[-1]
    pairs = zip(merged(ab, ba), checked_labels, strict=True)
    return np.array([verdict == label for verdict, label in pairs], dtype=bool)


def forced(ab: Verdicts, ba: Verdicts, margins: Sequence[float | None], labels: Sequence[str]) -> NDArray[np.float64]:
    """Return how right each item is by forced choice: float [n] of 0, 0.5 or 1.

    The choice is the side that the verdicts of both orders say together. Where these cancel out it is the side that the
    margin favours, and a judge that is even there is half right. A verdict that could not be read is wrong, unless a
    margin is known. Labels that are a tie have no right side: these items are 0, and left out by :func:`without_ties`.

    Args:
        ab: verdicts of order AB.
        ba: verdicts of order BA.
        margins: how far A is ahead over both orders [n]; None: not known.
        labels: A, B or tie.
    """
    values = {"A": 1.0, "tie": 0.0, "B": -1.0}
    first, second, label = _arrays(ab, ba, labels=labels)
    right = np.zeros(len(label))
    for place, margin in enumerate(margins):
        lead: float | None = margin
        if first[place] is not None and second[place] is not None:
            lead = values[first[place]] + values[second[place]] or margin or 0.0
        if lead is None or label[place] == "tie":
            continue
        side = values[label[place]]
        right[place] = (np.sign(lead * side) + 1) / 2
    return right


def decided(ab: Verdicts, ba: Verdicts, labels: Sequence[str]) -> Bools:
    """Return the items that both the label and the merged verdict decide for A or B, bool [n].

    Agreement over these is MT-Bench's setup 2 (Zheng et al. 2023, table 5): a judge that ties or contradicts itself
    on hard items is not charged for them.
    """
    has_side = np.array([verdict in ("A", "B") for verdict in merged(ab, ba)], dtype=bool)
    return without_ties(labels) & has_side


def without_ties(labels: Sequence[str]) -> Bools:
    """Return the items with a label other than tie, bool [n]: "without ties" metrics are means over these."""
    return ~_same(_arrays(labels=labels)[0], np.array("tie", dtype=object))


def position_bias(ab: Verdicts, ba: Verdicts) -> float | None:
    """Return the share of first-shown wins among the items whose verdict flips with the order; None without any.

    0.5 is no bias, 1 always the first. Items with a tie or an unreadable verdict tell no side and are left out.
    """
    # Where the verdict is A with A shown first and B with B shown first, the place decided for the first.
    flipped = flips(ab, ba)
    if not flipped.any():
        return None
    return float(np.mean(_arrays(ab)[0][flipped] == "A"))


def flips(ab: Verdicts, ba: Verdicts) -> Bools:
    """Return the items whose verdict is A in one order and B in the other, bool [n]: there the order decides."""
    first, second = _arrays(ab, ba)
    return ((first == "A") & (second == "B")) | ((first == "B") & (second == "A"))


def correlations(scores: ArrayLike, truth: ArrayLike) -> dict[str, float | None]:
    """Return Pearson's r, Kendall's tau-b and Spearman's rho of two float arrays [n], by name.

    They are None where they are not defined: fewer than two items, or one array is constant.

    Raises:
        ValueError: arrays of unequal length, or a value that is not finite.
    """
    from scipy import stats

    x = np.asarray(scores, dtype=float)
    y = np.asarray(truth, dtype=float)
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(f"two arrays [n] are needed, not {x.shape} and {y.shape}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("scores and truth must be finite: leave out or replace missing scores first, and say so")
    # SciPy warns there and returns NaN, which JSON has not.
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return {"pearson": None, "kendall": None, "spearman": None}
    return {
        "pearson": float(stats.pearsonr(x, y).statistic),
        "kendall": float(stats.kendalltau(x, y).statistic),
        "spearman": float(stats.spearmanr(x, y).statistic),
    }
