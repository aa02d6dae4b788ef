"""Thresholds with a promise: how certain a judge must be for at most a wanted share of its answers to be wrong.

Fixed-sequence testing with exact binomial bounds, as Trust or Escalate has it (Jung, Brahman, Choi, arXiv 2407.18370,
section 2: the threshold is the last one, from the strictest on, of which it and all before it have an upper bound

    sup {r: P(Binomial(n, r) <= k) >= delta}

of at most the wanted error, where k of the n rows beyond the threshold are wrong). SCOPE (arXiv 2602.13110) promises
the mean error over labelled rows, with exchangeable rows alone; this promises the error itself, with a chance of 1 -
delta, and needs more labels.

Thresholds stand on a fixed grid, so that none follows from the labels. The first one tried is the strictest that has
enough rows to be accepted at all. With it the promise is exact where a judge's error crosses the wanted one once: where
it is above it for all that the judge is less sure of. One test is made for pairs; passes and fails have one each, with
half of delta.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from judgetrain.errors import DataError
from judgetrain.judges.deciding import Thresholds, Units

GRID = 200
"""Steps of the grid of thresholds, from 0 to the largest certainty."""


@dataclass(frozen=True)
class Case:
    """One labelled answer of a judge.

    Args:
        certainty: how sure the judge is, from 0 to 1.
        right: whether its answer is the label.
    """

    certainty: float
    right: bool


@dataclass(frozen=True)
class Accepted:
    """A certainty from which on answers count, and how they did on the labelled rows.

    Args:
        certainty: the least one.
        decided: rows of at least this certainty.
        wrong: how many of them are wrong.
    """

    certainty: float
    decided: int
    wrong: int


def fewest(error: float, delta: float) -> int:
    """Return the fewest rows, all answered rightly, for which a promise can be made."""
    # One less than the bound's own rounding would take off.
    return math.ceil(math.log(delta) / math.log1p(-error) - 1e-9)


def upper_bound(wrong: int, n: int, delta: float) -> float:
    """Return the largest error, 0 to 1, under which at most ``wrong`` of ``n`` have a chance of ``delta`` or more.

    This is Clopper and Pearson's one-sided bound.
    """
    from scipy.stats import beta

    if wrong >= n:
        return 1.0
    return float(beta.ppf(1 - delta, wrong + 1, n - wrong))


def lowest_certainty(cases: Sequence[Case], error: float, delta: float) -> Accepted | None:
    """Return the least certainty that keeps the promise; None where not even the strictest does.

    Args:
        cases: labelled answers, of prompts of their own.
        error: the wanted share of wrong answers among those that count.
        delta: the chance of labelled rows for which more may be wrong.
    """
    least_rows = fewest(error, delta)
    accepted = None
    for step in range(GRID, -1, -1):
        certainty = step / GRID
        decided = [case for case in cases if case.certainty >= certainty]
        if len(decided) < least_rows:
            continue
        wrong = sum(not case.right for case in decided)
        # The first threshold that fails ends the sequence, so that each is tested at the whole of delta.
        if upper_bound(wrong, len(decided), delta) > error:
            break
        accepted = Accepted(certainty, len(decided), wrong)
    return accepted


LARGEST_MARGIN = 4.0
"""The largest mean margin: the distance of the levels 1 and 5."""


def certainty_of(margin: float, units: Units) -> float:
    """Return how sure a margin is, 0 to 1: its share of the largest one, or of log-odds the distance from a half."""
    if units == "log_odds":
        return abs(math.tanh(margin / 2))
    return min(abs(margin) / LARGEST_MARGIN, 1.0)


def margin_at(certainty: float, units: Units) -> float:
    """Return the margin of a certainty: the inverse of :func:`certainty_of`."""
    if units == "log_odds":
        return math.inf if certainty >= 1 else 2 * math.atanh(certainty)
    return certainty * LARGEST_MARGIN


def pair_thresholds(
    margins: Sequence[float | None], right: Sequence[bool], units: Units, error: float, delta: float
) -> Thresholds:
    """Return the margin from which on a judge of pairs decides.

    Args:
        margins: of each labelled comparison; None: nothing could be read, or the orders differ.
        right: whether the judge's verdict is the label.
        units: of the margins.
        error: as of :func:`lowest_certainty`.
        delta: likewise.

    Raises:
        DataError: too few labels for any promise.
    """
    cases = []
    for margin, is_right in zip(margins, right, strict=True):
        if margin is not None:
            cases.append(Case(certainty_of(margin, units), is_right))
    needed = fewest(error, delta)
    if len(cases) < needed:
        raise DataError(
            f"calibrate.error={error:g}: a promise that holds with a chance of {1 - delta:g} needs at least {needed} "
            f"labelled comparisons with a verdict, on prompts of their own; found {len(cases)}"
        )
    accepted = lowest_certainty(cases, error, delta)
    if accepted is None:
        return Thresholds(units=units, error=error, delta=delta, n=len(margins), undecided=1.0, decided=0, wrong=0)
    margin = margin_at(accepted.certainty, units)
    return Thresholds(
        units=units,
        error=error,
        delta=delta,
        n=len(margins),
        undecided=1 - accepted.decided / len(margins),
        decided=accepted.decided,
        wrong=accepted.wrong,
        # A row on the grid's line is decided, whatever turning the certainty into a margin rounds off.
        margin=margin * (1 - 1e-12) if math.isfinite(margin) else None,
    )


def score_thresholds(
    scores: Sequence[float | None], passed: Sequence[bool], middle: float, error: float, delta: float, passes: str
) -> Thresholds:
    """Return the scores from which on, and down to which, a judge of single responses decides.

    Passes and fails are promised apart, each with half of ``delta``: of either at most ``error`` are wrong.

    Args:
        scores: of each labelled response, 0 to 1; None: nothing could be read.
        passed: whether people let it pass.
        middle: scores from here on pass, where they decide.
        error: as of :func:`lowest_certainty`.
        delta: likewise.
        passes: the name of the lowest level that is a pass.

    Raises:
        DataError: too few labels for any promise, or labels that are all alike.
    """
    if len(set(passed)) < 2:
        only = "pass" if all(passed) else "fail"
        raise DataError(
            f"calibrate.error={error:g}: all {len(passed)} labels are a {only}, and thresholds tell passes from fails; "
            "label others, too"
        )
    above = []
    below = []
    for score, is_pass in zip(scores, passed, strict=True):
        if score is None:
            continue
        # The certainty is where the score stands between the middle and its end of the scale.
        if score >= middle:
            above.append(Case((score - middle) / (1 - middle), is_pass))
        else:
            below.append(Case((middle - score) / middle, not is_pass))
    needed = fewest(error, delta / 2)
    if max(len(above), len(below)) < needed:
        raise DataError(
            f"calibrate.error={error:g}: a promise that holds with a chance of {1 - delta:g} needs at least {needed} "
            f"labelled responses that the judge scores {middle:g} or higher, or as many lower ones, on prompts of "
            f"their own; found {len(above)} and {len(below)}"
        )
    passes_from = lowest_certainty(above, error, delta / 2)
    fails_from = lowest_certainty(below, error, delta / 2)
    high = None
    low = None
    decided = 0
    wrong = 0
    if passes_from is not None:
        high = middle + passes_from.certainty * (1 - middle) - 1e-12
        decided += passes_from.decided
        wrong += passes_from.wrong
    if fails_from is not None:
        low = middle - fails_from.certainty * middle + 1e-12
        # From the middle itself on a response passes.
        low = min(low, math.nextafter(middle, 0.0))
        decided += fails_from.decided
        wrong += fails_from.wrong
    return Thresholds(
        units="score",
        error=error,
        delta=delta,
        n=len(scores),
        undecided=1 - decided / len(scores),
        decided=decided,
        wrong=wrong,
        high=high,
        low=low,
        passes=passes,
    )
