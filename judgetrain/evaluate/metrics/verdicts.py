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
    "accuracy", "agreement", "conflict_as_tie", "consistency", "correlations", "decided", "flips",
    "merged", "position_bias", "single_order_accuracy", "unreadable", "without_ties",
]
# fmt: on
Bools = NDArray[np.bool_]
Verdicts = Sequence[str | None]

_LABELS = frozenset(("A", "B", "tie"))


def _arrays(*columns: Verdicts, labels: Sequence[str] | None = None) -> list[NDArray[np.object_]]:
    """Object arrays of verdicts, and of the labels when given, once they are known to be well-formed."""
    everything: list[Verdicts] = [*columns] if labels is None else [*columns, labels]
    if len({len(values) for values in everything}) > 1:
        raise ValueError(f"arrays of unequal length: {', '.join(str(len(v)) for v in everything)}")
    for number, values in enumerate(everything):
        of_labels = number == len(columns)
        for i, value in enumerate(values):
            if value not in _LABELS and (of_labels or value is not None):
                kind = "label" if of_labels else "verdict"
                raise ValueError(f"{kind} {i} is {value!r}: allowed are A, B, tie{'' if of_labels else ' or None'}")
    return [np.array([*values], dtype=object) for values in everything]


def _same(first: NDArray[np.object_], second: NDArray[np.object_]) -> Bools:
    return np.asarray(first == second, dtype=bool)


def mirrored(verdict: Verdict | None) -> Verdict | None:
    """A verdict on the same responses in the other order; None stays None."""
    return None if verdict is None else mirror(verdict)


def unreadable(verdicts: Verdicts) -> Bools:
    """Which verdicts could not be read, bool [n]."""
    return np.array([v is None for v in _arrays(verdicts)[0]], dtype=bool)


def agreement(ab: Verdicts, ba: Verdicts, labels: Sequence[str]) -> Bools:
    """Strict agreement per item, bool [n]: both orders give the label (branching paper, section 5: AGR)."""
    first, second, label = _arrays(ab, ba, labels=labels)
    return _same(first, label) & _same(second, label)


def consistency(ab: Verdicts, ba: Verdicts) -> Bools:
    """Consistency per item, bool [n]: both orders give the same readable verdict (section 5: CNS)."""
    first, second = _arrays(ab, ba)
    return _same(first, second) & ~unreadable(ab)


def accuracy(verdicts: Verdicts, labels: Sequence[str]) -> Bools:
    """Accuracy of one order taken alone, bool [n]."""
    return _same(*_arrays(verdicts, labels=labels))


def single_order_accuracy(ab: Verdicts, ba: Verdicts, labels: Sequence[str]) -> NDArray[np.float64]:
    """Mean of the two orders' accuracies per item: float [n] of 0, 0.5 or 1."""
    return (accuracy(ab, labels).astype(float) + accuracy(ba, labels).astype(float)) / 2


def merged(ab: Verdicts, ba: Verdicts) -> list[str | None]:
    """One verdict per item: what both orders say, a tie where they conflict, None where one cannot be read."""
    pairs = zip(*_arrays(ab, ba), strict=True)
    return [None if None in pair else pair[0] if pair[0] == pair[1] else "tie" for pair in pairs]


def conflict_as_tie(ab: Verdicts, ba: Verdicts, labels: Sequence[str]) -> Bools:
    """Agreement of the merged verdicts per item, bool [n]; an unreadable order makes the item wrong, not a tie."""
    label = _arrays(ab, ba, labels=labels)[-1]
    return np.array([v == y for v, y in zip(merged(ab, ba), label, strict=True)], dtype=bool)


def decided(ab: Verdicts, ba: Verdicts, labels: Sequence[str]) -> Bools:
    """Items that both the label and the merged verdict decide for A or B, bool [n].

    Agreement over these is MT-Bench's setup 2 (Zheng et al. 2023, table 5): a judge that ties or contradicts itself
    on hard items is not charged for them.
    """
    return without_ties(labels) & np.array([v in ("A", "B") for v in merged(ab, ba)], dtype=bool)


def without_ties(labels: Sequence[str]) -> Bools:
    """Which items have a label other than tie, bool [n]: "without ties" metrics are means over these."""
    return ~_same(_arrays(labels=labels)[0], np.array("tie", dtype=object))


def position_bias(ab: Verdicts, ba: Verdicts) -> float | None:
    """Share of first-shown wins among the items of which the order decides: verdicts flip between A and B with it.

    0.5 is no bias, 1 always the first; None when nothing flips. Items with a tie or an unreadable verdict tell no
    side and are left out.
    """
    decides = flips(ab, ba)
    return float(np.mean(_arrays(ab)[0][decides] == "A")) if decides.any() else None


def flips(ab: Verdicts, ba: Verdicts) -> Bools:
    """Items whose verdict is A in one order and B in the other, bool [n]: there the order decides."""
    first, second = _arrays(ab, ba)
    return ((first == "A") & (second == "B")) | ((first == "B") & (second == "A"))


def correlations(scores: ArrayLike, truth: ArrayLike) -> dict[str, float | None]:
    """Pearson's r, Kendall's tau-b and Spearman's rho of two float arrays [n] (SciPy) (ValueError: arrays of unequal
    length, or a value that is not finite).

    None where a correlation is not defined: fewer than two items, or one array is constant.
    """
    from scipy import stats

    x, y = np.asarray(scores, dtype=float), np.asarray(truth, dtype=float)
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(f"two arrays [n] are needed, not {x.shape} and {y.shape}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("scores and truth must be finite: leave out or replace missing scores first, and say so")
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return {"pearson": None, "kendall": None, "spearman": None}
    return {
        "pearson": float(stats.pearsonr(x, y).statistic),
        "kendall": float(stats.kendalltau(x, y).statistic),
        "spearman": float(stats.spearmanr(x, y).statistic),
    }
