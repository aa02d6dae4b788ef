"""Compare the responses to a prompt: choose the pairs that a judge is asked about, and make numbers of its verdicts."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from judgetrain.errors import ConfigError, DataError
from judgetrain.judges.predictions import SHARES, Prediction, logistic
from judgetrain.schema import Comparison, Prompt

Ask = Callable[[Sequence[Comparison]], Sequence[Prediction]]
"""Judges comparisons: a prediction each, in their order. A judge's ``compare_batch`` is one."""

Share = float | None
"""The part of a comparison that its first response won: 1, 0, 0.5 for a tie, or between; None: it cannot be read."""

Scalar = float | None
"""The worth of a response within its group; None: nothing readable was said of it."""

MODES = ("round_robin", "anchor")
"""``round_robin`` asks about every pair: a scalar is the mean share over the group's other responses, in [0, 1].

``anchor`` asks about each response against the group's reference: a scalar is its share of that comparison.
"""
SCORE = "score"
"""The mode in which each response is scored by itself: n judgments a criterion for n responses to a prompt."""
WAYS = (*MODES, SCORE)


@dataclass(frozen=True)
class Group:
    """Responses to one prompt that are compared with one another, or, in mode ``anchor``, with a reference."""

    prompt: Prompt
    responses: Sequence[str]
    reference: str | None = None


def hard_share(prediction: Prediction) -> Share:
    """Return what response A won by the strict rule: 1 or 0 if both orders say so, 0.5 for a tie or a contradiction.

    None where one of the orders cannot be read.
    """
    if prediction.verdict == "unreadable":
        return None
    return SHARES.get(prediction.verdict, 0.5)


def soft_share(prediction: Prediction) -> Share:
    """Return what response A won, in degrees: the logistic function of the margin.

    A judge without margins gives the mean of its orders' verdicts. None where one of the orders cannot be read.
    """
    if prediction.verdict_ab is None or prediction.verdict_ba is None:
        return None
    # In mode anchor a response has one comparison alone: only its margin tells apart responses that all win theirs.
    if prediction.margin is not None and not math.isnan(prediction.margin):
        return logistic(prediction.margin)
    return (SHARES[prediction.verdict_ab] + SHARES[prediction.verdict_ba]) / 2


def scalars(groups: Sequence[Group], ask: Ask, mode: str = "round_robin") -> list[list[Scalar]]:
    """Return what each response of each group is worth: lists of the groups' lengths, None where nothing was readable.

    All pairs of all groups are asked in one call. The same texts are asked about once, and in an order that depends on
    them alone. Nothing is asked about equal responses, which are equally good, nor about one without text, which loses
    to every one that has some.

    Args:
        groups: responses, and in mode ``anchor`` a reference.
        ask: the judge.
        mode: one of :data:`MODES`.

    Raises:
        ConfigError: no such mode.
        DataError: a prompt that is none, or no reference for mode ``anchor``.
    """
    if mode not in MODES:
        raise ConfigError(f"mode={mode!r}: expected one of {', '.join(MODES)}")
    tables = [_Table(group) for group in groups]
    if mode == "round_robin":
        pairs = []
        # Combinations follow the members' order, so that a pair is always shown the same way round.
        for table in tables:
            pairs += [(table, first, second) for first, second in combinations(table.members, 2)]
        _fill_in(pairs, ask, hard_share)
        return [table.mean_shares() for table in tables]

    # Before anything is asked: half a batch of rewards is of no use to a trainer.
    if any(group.reference is None for group in groups):
        raise DataError("mode anchor compares responses with a reference answer, and a prompt has none: give it one")
    against_reference = []
    for table in tables:
        reference = str(table.group.reference)
        against_reference += [(table, member, reference) for member in table.members]
    _fill_in(against_reference, ask, soft_share)
    values = []
    for table in tables:
        reference = str(table.group.reference)
        values.append([table.shares[response, reference] for response in table.group.responses])
    return values


class _Table:
    """The different responses of a group, in an order that their texts decide, and the shares of their pairs."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.counts = Counter(group.responses)

        # By a hash, so that no response is shown first because it is short or begins with an A.
        self.members = sorted(self.counts, key=lambda text: hashlib.sha256(text.encode()).digest())
        self.shares: dict[tuple[str, str], Share] = {}

    def note(self, first: str, second: str, share: Share) -> None:
        """Keep what the first response won from the second, and the second from the first."""
        self.shares[first, second] = share
        if share is None:
            self.shares[second, first] = None
        else:
            # Written both ways round, so that a mean can look up any member's shares first.
            self.shares[second, first] = 1 - share

    def mean_shares(self) -> list[Scalar]:
        """Return the mean share of each response of the group."""
        return [self._mean_share(response) for response in self.group.responses]

    def _mean_share(self, member: str) -> Scalar:
        """Return the mean over the group's other responses; None where none of them could be read.

        A response that stands there several times ties with itself, without being asked about.
        """
        shares = []
        others = [other for other in self.members if other != member]
        for other in others:
            share = self.shares[member, other]
            if share is not None:
                # A text that stands there three times counts as three opponents, though it was asked about once.
                shares.append((share, self.counts[other]))

        # Copies tie with one another. That alone says nothing where no other response could be read.
        if shares or not others:
            shares.append((0.5, self.counts[member] - 1))
        weight = sum(count for _, count in shares)
        if not weight:
            return None
        return sum(share * count for share, count in shares) / weight


def _fill_in(pairs: Iterable[tuple[_Table, str, str]], ask: Ask, share_of: Callable[[Prediction], Share]) -> None:
    """Fill in the shares of pairs.

    Args:
        pairs: two responses, and the table that gets their share.
        ask: the judge; it is not asked about pairs whose share is clear.
        share_of: makes the share of a prediction.
    """
    waiting = []
    for table, first, second in pairs:
        if first == second:
            table.note(first, second, 0.5)
        elif first.strip() and second.strip():
            waiting.append((table, first, second, Comparison.of(table.group.prompt, first, second)))
        elif first.strip():
            table.note(first, second, 1.0)
        elif second.strip():
            table.note(first, second, 0.0)
        else:
            table.note(first, second, 0.5)
    # The id follows from the texts: the same pair in two groups is asked about once.
    by_id = {comparison.id: comparison for *_, comparison in waiting}

    # Sorted, so that the judge gets the same batch in whatever order the responses come.
    comparisons = [by_id[identifier] for identifier in sorted(by_id)]
    shares = {}
    if comparisons:
        for comparison, prediction in zip(comparisons, ask(comparisons), strict=True):
            shares[comparison.id] = share_of(prediction)
    for table, first, second, comparison in waiting:
        table.note(first, second, shares[comparison.id])
