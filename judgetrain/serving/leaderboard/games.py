"""Comparisons as numbers: who won what from whom, which systems they link, and where they bound no rating."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


class Swept(NamedTuple):
    """Systems that won every comparison with others, so that no finite rating fits, and on how many prompts."""

    winners: tuple[int, ...]
    losers: tuple[int, ...]
    prompts: int


@dataclass(frozen=True)
class Games:
    """Comparisons that count: the systems of each, its prompt (numbers [n]) and the first system's share [n]."""

    a: Ints
    b: Ints
    prompt: Ints
    share: Floats
    systems: int

    @cached_property
    def wins(self) -> Floats:
        """Shares that one system (row) has won from another (column) [systems, systems]."""
        return self.weighted(np.ones((1, self.prompts)))[0]

    @property
    def prompts(self) -> int:
        """How many prompts there are."""
        return int(self.prompt.max()) + 1 if len(self.prompt) else 0

    @cached_property
    def by_prompt(self) -> Floats:
        """The comparisons of every pair on every prompt, as a sparse matrix [prompts, systems * systems]."""
        from scipy.sparse import csr_matrix

        rows = np.concatenate([self.prompt, self.prompt])
        columns = np.concatenate([self.a * self.systems + self.b, self.b * self.systems + self.a])
        shares = np.concatenate([self.share, 1.0 - self.share])
        return csr_matrix((shares, (rows, columns)), shape=(self.prompts, self.systems**2))

    def weighted(self, weights: Floats) -> Floats:
        """:attr:`wins` under weights of the prompts [resamples, prompts]: [resamples, systems, systems]."""
        found = np.asarray((self.by_prompt.T @ weights.T).T)
        return found.reshape(len(weights), self.systems, self.systems)

    def between(self, first: Sequence[int], second: Sequence[int]) -> NDArray[np.bool_]:
        """Which comparisons are between one of the first systems and one of the second [n]."""
        return (np.isin(self.a, first) & np.isin(self.b, second)) | (np.isin(self.b, first) & np.isin(self.a, second))

    def prompts_of(self, first: Sequence[int], second: Sequence[int]) -> int:
        """On how many prompts one of the first systems was compared with one of the second."""
        return len(np.unique(self.prompt[self.between(first, second)]))


def linked(wins: Floats, mutual: bool) -> Ints:
    """The number of each system's group [systems]: of those linked by comparisons, or if ``mutual`` by wins both ways.

    Within a group that is linked by wins both ways ratings are finite (Ford, American Mathematical Monthly 64, 1957).
    """
    from scipy.sparse.csgraph import connected_components

    return connected_components(wins > 0, directed=True, connection="strong" if mutual else "weak")[1]


def parts_of(wins: Floats) -> list[Ints]:
    """The parts: two or more systems that are linked by comparisons, the largest first."""
    groups = linked(wins, mutual=False)
    sizes = np.bincount(groups, minlength=1)
    return [np.flatnonzero(groups == g) for g in np.argsort(-sizes, kind="stable") if sizes[g] > 1]


def anchors_of(wins: Floats) -> list[Ints]:
    """Of every part, the systems whose mean is 1000: all, but for those that no win or no loss ties to the others.

    Those are the largest group that is linked by wins both ways, so that a rating which the data does not bound moves
    no other one; the whole part where there is no such group.
    """
    groups, found = linked(wins, mutual=True), []
    for members in parts_of(wins):
        sizes = np.bincount(groups[members])
        found.append(members[groups[members] == sizes.argmax()] if sizes.max() > 1 else members)
    return found


def swept(games: Games) -> list[Swept]:
    """The groups of systems that lost nothing to others which they were compared with."""
    groups = linked(games.wins, mutual=True)
    i, j = np.nonzero(games.wins)
    pairs = sorted({(int(groups[x]), int(groups[y])) for x, y in zip(i, j, strict=True) if groups[x] != groups[y]})
    members = {g: tuple(np.flatnonzero(groups == g).tolist()) for g in range(groups.max(initial=-1) + 1)}
    return [Swept(members[g], members[h], games.prompts_of(members[g], members[h])) for g, h in pairs]


def softened(wins: Floats, found: Sequence[Swept], upsets: Floats) -> Floats:
    """The wins [..., systems, systems] with a share of every sweep gone the other way: ``upsets`` [..., sweeps]."""
    wins = wins.copy()
    for k, sweep in enumerate(found):
        (i, j), share = np.ix_(sweep.winners, sweep.losers), upsets[..., k, None, None]
        won = wins[..., i, j]
        wins[..., j.T, i.T] = np.swapaxes(won * share, -1, -2)
        wins[..., i, j] = won * (1.0 - share)
    return wins


def softened_shares(games: Games, found: Sequence[Swept]) -> Floats:
    """The shares of :class:`Games` with the part of every sweep gone the other way that :func:`fit` takes."""
    share = games.share.copy()
    for sweep in found:
        for first, second in ((games.a, games.b), (games.b, games.a)):
            there = np.isin(first, sweep.winners) & np.isin(second, sweep.losers)
            share[there] += (1.0 - 2.0 * share[there]) * 0.5 / (sweep.prompts + 1.0)
    return share
