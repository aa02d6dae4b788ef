"""Where two systems differ: the comparisons that say most for either side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from judgetrain.serving.leaderboard.battles import Battle
from judgetrain.serving.leaderboard.records import Leaderboard, Pair

EVERY = 15
"""All pairs are shown where there are at most so many, else neighbours in the ranks."""
SNIPPET = 160
"""Most characters of a query that are shown."""


@dataclass(frozen=True)
class Example:
    """A comparison that one of two systems won: its query, the margin for the winner, and its page, if there is one."""

    query: str
    margin: float | None
    link: str | None
    id: str


@dataclass(frozen=True)
class Difference:
    """A pair with the comparisons that the first won most clearly, and those that the second did."""

    pair: Pair
    first: Sequence[Example]
    second: Sequence[Example]


def differences(
    board: Leaderboard, battles: Sequence[Battle], limit: int, links: Mapping[str, str]
) -> list[Difference]:
    """Up to ``limit`` comparisons for either side of each pair that is shown; ``links``: addresses of pages by id."""
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
        sides = [[_example(b, links) for b in sorted(won[name], key=_clarity)[:limit]] for name in (first, second)]
        found.append(Difference(pair, *sides))
    return found


def _clarity(battle: Battle) -> tuple[float, str]:
    """Largest margins first, then by id."""
    return -abs(battle.margin or 0.0), battle.id


def _example(battle: Battle, links: Mapping[str, str]) -> Example:
    query = " ".join(battle.query.split()) or battle.prompt
    short = query if len(query) <= SNIPPET else f"{query[:SNIPPET]} …"
    return Example(short, None if battle.margin is None else abs(battle.margin), links.get(battle.id), battle.id)
