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
from dataclasses import dataclass, replace

from judgetrain.amounts import amount
from judgetrain.errors import DataError
from judgetrain.judges.deciding import Thresholds, Units

GRID = 200
"""Steps of the grid of thresholds, from 0 to the largest certainty."""
ROUNDING = 1e-9
"""How far a threshold lies below its step of the grid: what rounding takes off a margin or score must not part rows."""


@dataclass(frozen=True)
class Promise:
    """A promise about the answers that count: at most so many of them are wrong.

    Args:
        error: the wanted share of wrong answers among them, at most.
        delta: the chance of labelled rows for which more may be wrong.
    """

    error: float
    delta: float

    @property
    def fewest(self) -> int:
        """Return the fewest rows, all answered rightly, for which it can be made."""
        # Of n right answers the bound is 1 - delta^(1/n), which is at most the error from this n on. What is taken off
        # keeps a quotient that is a whole number but for rounding from being rounded up to the next one.
        return math.ceil(math.log(self.delta) / math.log1p(-self.error) - 1e-9)

    @property
    def text(self) -> str:
        """Return the beginning of a message that it cannot be made."""
        return f"calibrate.error={self.error:g}: a promise that holds with a chance of {1 - self.delta:g}"


@dataclass(frozen=True)
class LabelledAnswer:
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


def upper_bound(wrong: int, n: int, delta: float) -> float:
    """Return the largest error, 0 to 1, under which at most ``wrong`` of ``n`` have a chance of ``delta`` or more.

    This is Clopper and Pearson's one-sided bound.
    """
    from scipy.stats import beta

    # The beta distribution has no parameter of 0: all wrong bounds nothing.
    if wrong >= n:
        return 1.0
    return float(beta.ppf(1 - delta, wrong + 1, n - wrong))


def lowest_certainty(cases: Sequence[LabelledAnswer], promise: Promise) -> Accepted | None:
    """Return the least certainty that keeps the promise; None where not even the strictest does.

    Args:
        cases: labelled answers, of prompts of their own.
        promise: to keep.
    """
    accepted = None
    # From the strictest threshold down to one that decides everything.
    for step in range(GRID, -1, -1):
        certainty = max(0.0, step / GRID - ROUNDING)
        decided = [case for case in cases if case.certainty >= certainty]
        # With so few rows no answers could pass, and a test that must fail would end the sequence at once. How many
        # rows there are does not depend on whether they are right, so that skipping costs nothing of delta.
        if len(decided) < promise.fewest:
            continue
        wrong = sum(not case.right for case in decided)
        # The first threshold that fails ends the sequence, so that each is tested at the whole of delta.
        if upper_bound(wrong, len(decided), promise.delta) > promise.error:
            break
        accepted = Accepted(certainty, len(decided), wrong)
    return accepted


LARGEST_MARGIN = 4.0
"""The largest mean margin: the distance of the levels 1 and 5."""


def certainty_of(margin: float, units: Units) -> float:
    """Return how sure a margin is, 0 to 1: its share of the largest one, or of log-odds the distance from a half."""
    if units == "log_odds":
        # A logit of m is a probability of p with 2p - 1 = tanh(m / 2), so that 0 is a coin's toss and 1 is sure.
        return abs(math.tanh(margin / 2))
    return min(abs(margin) / LARGEST_MARGIN, 1.0)


def margin_at(certainty: float, units: Units) -> float:
    """Return the margin of a certainty below 1: the inverse of :func:`certainty_of`."""
    if units == "log_odds":
        return 2 * math.atanh(certainty)
    return certainty * LARGEST_MARGIN


def pair_thresholds(
    margins: Sequence[float | None], right: Sequence[bool], units: Units, promise: Promise
) -> Thresholds:
    """Return the margin from which on a judge of pairs decides.

    Args:
        margins: of each labelled comparison; None: nothing could be read, or the orders differ.
        right: whether the judge's verdict is the label.
        units: of the margins.
        promise: to keep.

    Raises:
        DataError: too few labels for any promise.
    """
    cases = []
    for margin, is_right in zip(margins, right, strict=True):
        if margin is not None:
            cases.append(LabelledAnswer(certainty_of(margin, units), is_right))
    # Too few labels are the user's to mend; labels by which nothing can be promised are a finding, which is written.
    if len(cases) < promise.fewest:
        raise DataError(
            f"{promise.text} needs at least {promise.fewest} labelled comparisons with a verdict, on prompts of their "
            f"own; found {len(cases)}"
        )
    nothing = Thresholds(
        units=units, error=promise.error, delta=promise.delta, n=len(margins), undecided=1.0, decided=0, wrong=0
    )
    accepted = lowest_certainty(cases, promise)
    if accepted is None:
        return nothing

    return replace(
        nothing,
        # Rows without a verdict are left to somebody, too: the share is of all rows.
        undecided=1 - accepted.decided / len(margins),
        decided=accepted.decided,
        wrong=accepted.wrong,
        margin=margin_at(accepted.certainty, units),
    )


def _by_side(
    scores: Sequence[float | None], passed: Sequence[bool], middle: float
) -> tuple[list[LabelledAnswer], list[LabelledAnswer]]:
    """Return the answers that are a pass, and those that are a fail; arguments as of :func:`score_thresholds`.

    The certainty is where a score stands between the middle and its end of the scale.
    """
    above = []
    below = []
    for score, is_pass in zip(scores, passed, strict=True):
        if score is None:
            continue
        if score >= middle:
            above.append(LabelledAnswer((score - middle) / (1 - middle), is_pass))
        else:
            below.append(LabelledAnswer((middle - score) / middle, not is_pass))
    return above, below


def score_thresholds(
    scores: Sequence[float | None], passed: Sequence[bool], middle: float, promise: Promise, passes: str
) -> Thresholds:
    """Return the scores from which on, and down to which, a judge of single responses decides.

    Passes and fails are promised apart, each with half of the promise's ``delta``: of either at most its ``error`` are
    wrong.

    Args:
        scores: of each labelled response, 0 to 1; None: nothing could be read.
        passed: whether people let it pass.
        middle: scores from here on pass, where they decide.
        promise: to keep.
        passes: the name of the lowest level that is a pass.

    Raises:
        DataError: too few labels for any promise, or labels that are all alike.
    """
    if len(set(passed)) < 2:
        only = "fail"
        if all(passed):
            only = "pass"
        raise DataError(
            f"calibrate.error={promise.error:g}: all {amount(len(passed), 'label')} are a {only}, and thresholds "
            "tell passes "
            "from fails; label others, too"
        )
    above, below = _by_side(scores, passed, middle)

    # Two tests are made, so that either gets half of the chance that one may fail (Bonferroni).
    of_either = replace(promise, delta=promise.delta / 2)
    # One side with enough labels is a promise already: the other's answers stay undecided.
    if max(len(above), len(below)) < of_either.fewest:
        raise DataError(
            f"{promise.text} needs at least {of_either.fewest} labelled responses that the judge scores {middle:g} or "
            f"higher, or as many lower ones, on prompts of their own; found {len(above)} and {len(below)}"
        )
    passes_from = lowest_certainty(above, of_either)
    fails_from = lowest_certainty(below, of_either)
    high = None
    low = None
    decided = 0
    wrong = 0
    if passes_from is not None:
        high = middle + passes_from.certainty * (1 - middle)
        decided += passes_from.decided
        wrong += passes_from.wrong
    if fails_from is not None:
        low = middle - fails_from.certainty * middle
        # From the middle itself on a response passes.
        low = min(low, math.nextafter(middle, 0.0))
        decided += fails_from.decided
        wrong += fails_from.wrong
    return Thresholds(
        units="score",
        error=promise.error,
        delta=promise.delta,
        n=len(scores),
        undecided=1 - decided / len(scores),
        decided=decided,
        wrong=wrong,
        high=high,
        low=low,
        passes=passes,
    )
