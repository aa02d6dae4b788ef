"""Where two systems differ: the comparisons that say most for either side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from judgetrain.serving.leaderboard.battles import Battle
from judgetrain.serving.leaderboard.records import Leaderboard, Pair

SHOWN = 3
EVERY = 15
"""All pairs are shown where there are at most so many, else neighbours in the ranks."""


@dataclass(frozen=True)
class Difference:
    """A pair with the comparisons that the first won most clearly, and those that the second did."""

    pair: Pair
    first: Sequence[Battle]
    second: Sequence[Battle]


def differences(board: Leaderboard, battles: Sequence[Battle]) -> list[Difference]:
    """Up to :data:`SHOWN` comparisons for either side of each pair that is shown."""
    pairs = {(p.first, p.second): p for p in board.pairs}
    if len(pairs) > EVERY:
        ranked = [s.system for s in board.systems]
        pairs = {names: pairs[names] for names in pairwise(ranked) if names in pairs}
    of: dict[frozenset[str], list[Battle]] = {}
    for battle in battles:
        if battle.outcome in ("A", "B"):
            of.setdefault(frozenset((battle.system_a, battle.system_b)), []).append(battle)
    found = []
    for (first, second), pair in pairs.items():
        won: dict[str, list[Battle]] = {first: [], second: []}
        for battle in of.get(frozenset((first, second)), []):
            won[battle.system_a if battle.outcome == "A" else battle.system_b].append(battle)
        found.append(Difference(pair, *(sorted(won[name], key=_clarity)[:SHOWN] for name in (first, second))))
    return found


def _clarity(battle: Battle) -> tuple[float, str]:
    """Largest margins first, then by id."""
    return -abs(battle.margin or 0.0), battle.id
