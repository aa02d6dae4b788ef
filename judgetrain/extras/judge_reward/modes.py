"""From pairs to scalars: which pairs of a group are judged, and what their outcomes make of each member.

A mode is a generator: it yields the pairs of a round, is sent their shares, and returns the members' scalars. So one
driver asks the judge about a round of all groups at once (:func:`judgetrain.extras.judge_reward.groups.scalars`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

Pair = tuple[int, int]
"""Two members of a group, by their numbers; the lower one first, so that a pair has one name."""

Share = float | None
"""The part of a comparison that its first member won: 1, 0, 0.5 for a tie, or between; None: it cannot be read."""

Scalar = float | None
"""What a member is worth within its group; None: nothing readable was said of it."""

STAND_IN = -1
"""The number of the average member of :func:`bradley_terry`."""

Rounds = Generator[list[Pair], Sequence[Share], list[Scalar]]


@dataclass(frozen=True)
class Members:
    """The different responses of a group, in an order that their texts decide.

    ``weights`` says how often the group holds each. ``reference``: whether there is an answer to compare them with
    that is no response of the group; its number is ``len(weights)``.
    """

    weights: tuple[int, ...]
    reference: bool = False

    @property
    def numbers(self) -> range:
        """The members' numbers."""
        return range(len(self.weights))


def round_robin(members: Members) -> Rounds:
    """Every pair; a member's scalar is its mean share over the group's other responses, in [0, 1].

    A response that stands there several times ties with itself, which is not asked.
    """
    pairs = list(combinations(members.numbers, 2))
    found = _both_ways(pairs, (yield pairs))
    scalars: list[Scalar] = []
    for number, copies in enumerate(members.weights):
        others = [(found[number, other], members.weights[other]) for other in members.numbers if other != number]
        read = [(share, weight) for share, weight in others if share is not None]
        read += [(0.5, copies - 1)] if read or not others else []
        weight = sum(each for _, each in read)
        scalars.append(sum(share * each for share, each in read) / weight if weight else None)
    return scalars


def bradley_terry(members: Members) -> Rounds:
    """Every pair; a member's scalar is its strength in a soft Bradley-Terry fit, in log-odds.

    A share of s counts as s wins and 1 - s defeats. One tie of each member with a stand-in of strength 0 keeps who
    always wins from being infinitely strong. Responses that stand in the group several times count once.
    """
    import evalica

    pairs = list(combinations(members.numbers, 2))
    read = [(pair, share) for pair, share in zip(pairs, (yield pairs), strict=True) if share is not None]
    rated = sorted({member for pair, _ in read for member in pair})
    if not rated:
        return [0.0 if len(pairs) == 0 and copies > 1 else None for copies in members.weights]
    games = [(*pair, share, evalica.Winner.X) for pair, share in read if share > 0]
    games += [(*pair, 1 - share, evalica.Winner.Y) for pair, share in read if share < 1]
    games += [(member, STAND_IN, 1.0, evalica.Winner.Draw) for member in rated]
    firsts, seconds, weights, winners = zip(*games, strict=True)
    fitted = evalica.bradley_terry(firsts, seconds, winners, weights=list(weights), tolerance=1e-12, limit=1000).scores
    return [math.log(fitted[n] / fitted[STAND_IN]) if n in rated else None for n in members.numbers]


def anchor(members: Members) -> Rounds:
    """Each member against one answer; its scalar is its share of that comparison.

    The answer is the reference, where there is one; else the median of three members, found by judging these three
    among each other first, which costs n pairs for n members in place of n(n - 1)/2. It has 0.5 itself.
    """
    if members.reference:
        return list((yield [(number, len(members.weights)) for number in members.numbers]))
    tried = members.numbers[:3]
    pairs = list(combinations(tried, 2))
    found = _both_ways(pairs, (yield pairs))
    means = {n: [share for other in tried if other != n and (share := found[n, other]) is not None] for n in tried}
    chosen = min(tried, key=lambda n: abs(fmean(means[n]) - 0.5) if means[n] else 1.0)
    pairs = [(chosen, number) for number in members.numbers[3:]]
    found |= _both_ways(pairs, (yield pairs))
    shares = [found.get((number, chosen)) for number in members.numbers]
    own = 0.5 if len(shares) == 1 < members.weights[0] or any(share is not None for share in shares) else None
    return [own if number == chosen else share for number, share in enumerate(shares)]


MODES: Mapping[str, Callable[[Members], Rounds]] = {m.__name__: m for m in (round_robin, anchor, bradley_terry)}
"""Every mode by its name."""


def _both_ways(pairs: Sequence[Pair], shares: Sequence[Share]) -> dict[Pair, Share]:
    """The share of every pair's first member, under both of its orders."""
    found: dict[Pair, Share] = {}
    for (first, second), share in zip(pairs, shares, strict=True):
        found[first, second], found[second, first] = share, None if share is None else 1 - share
    return found
