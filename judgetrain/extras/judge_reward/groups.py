"""Groups of responses to one prompt: which pairs of them a judge is asked about, and what that makes each one worth."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from judgetrain.errors import ConfigError, DataError
from judgetrain.judges.base import SHARES, Prediction, logistic
from judgetrain.schema import Comparison, Prompt

Ask = Callable[[Sequence[Comparison]], Sequence[Prediction]]
"""Judges comparisons: a prediction each, in their order. A judge's ``compare_all`` is one."""

Share = float | None
"""The part of a comparison that its first response won: 1, 0, 0.5 for a tie, or between; None: it cannot be read."""

Scalar = float | None
"""What a response is worth within its group; None: nothing readable was said of it."""

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
    """What response A won by the strict rule: 1 or 0 where both orders say so, 0.5 for a tie or a contradiction.

    None where one of the orders cannot be read.
    """
    return None if prediction.verdict == "unreadable" else SHARES.get(prediction.verdict, 0.5)


def soft_share(prediction: Prediction) -> Share:
    """What response A won, in degrees: the logistic function of the margin.

    A judge without margins gives the mean of its orders' verdicts. None where one of the orders cannot be read.
    """
    if prediction.verdict_ab is None or prediction.verdict_ba is None:
        return None
    if prediction.margin is not None and not math.isnan(prediction.margin):
        return logistic(prediction.margin)
    return (SHARES[prediction.verdict_ab] + SHARES[prediction.verdict_ba]) / 2


def scalars(groups: Sequence[Group], ask: Ask, mode: str = "round_robin") -> list[list[Scalar]]:
    """What each response of each group is worth: lists of the groups' lengths, None where nothing could be read
    (ConfigError: no such mode; DataError: a prompt that is none, or no reference for mode ``anchor``).

    All pairs of all groups are asked in one call. The same texts are asked about once, and in an order that depends on
    them alone. Nothing is asked about equal responses, which are equally good, nor about one without text, which loses
    to every one that has some.
    """
    if mode not in MODES:
        raise ConfigError(f"mode={mode!r}: expected one of {', '.join(MODES)}")
    tables = [_Table(group) for group in groups]
    if mode == "round_robin":
        _ask_about(((t, *pair) for t in tables for pair in combinations(t.members, 2)), ask, hard_share)
        return [[t.mean_share(response) for response in t.group.responses] for t in tables]
    if any(group.reference is None for group in groups):
        raise DataError("mode anchor compares responses with a reference answer, and a prompt has none: give it one")
    known = [(table, str(table.group.reference)) for table in tables]
    _ask_about(((t, member, reference) for t, reference in known for member in t.members), ask, soft_share)
    return [[t.shares[response, reference] for response in t.group.responses] for t, reference in known]


class _Table:
    """The different responses of a group, in an order that their texts decide, and the shares of their pairs."""

    def __init__(self, group: Group) -> None:
        self.group, self.counts = group, Counter(group.responses)
        self.members = sorted(self.counts, key=lambda text: hashlib.sha256(text.encode()).digest())
        self.shares: dict[tuple[str, str], Share] = {}

    def note(self, one: str, other: str, share: Share) -> None:
        self.shares[one, other], self.shares[other, one] = share, None if share is None else 1 - share

    def mean_share(self, member: str) -> Scalar:
        """The mean over the group's other responses; one that stands there several times ties with itself, unasked."""
        others = [(self.shares[member, other], self.counts[other]) for other in self.members if other != member]
        read = [(share, weight) for share, weight in others if share is not None]
        read += [(0.5, self.counts[member] - 1)] if read or not others else []
        weight = sum(each for _, each in read)
        return sum(share * each for share, each in read) / weight if weight else None


def _ask_about(pairs: Iterable[tuple[_Table, str, str]], ask: Ask, read: Callable[[Prediction], Share]) -> None:
    """Note the shares of pairs, of which those that nobody has to be asked about are not asked."""
    waiting = []
    for table, one, other in pairs:
        if one == other:
            table.note(one, other, 0.5)
        elif one.strip() and other.strip():
            waiting.append((table, one, other, Comparison.of(table.group.prompt, one, other)))
        else:
            table.note(one, other, (bool(one.strip()) - bool(other.strip()) + 1) / 2)
    asked = sorted({c.id: c for *_, c in waiting}.values(), key=lambda c: c.id)
    said = {c.id: read(p) for c, p in zip(asked, ask(asked) if asked else (), strict=True)}
    for table, one, other, comparison in waiting:
        table.note(one, other, said[comparison.id])
