"""Bradley-Terry ratings with intervals over prompts, finite whatever the data.

``evalica`` fits. Intervals are those of the Bayesian bootstrap (Rubin, Annals of Statistics 9, 1981) over prompts: a
resample weighs all comparisons of a prompt alike, by weights that are drawn from the flat Dirichlet distribution. Since
no weight is zero, no resample falls into parts that were connected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

MEAN, SCALE = 1000.0, 400.0 / np.log(10.0)
"""Elo's scale: ratings have mean 1000, and 400 points are odds of 10 to 1."""

ENDS = (2.5, 97.5)
"""The percentiles that 95% of the resamples lie between."""
BATCH = 4_000_000
"""Numbers drawn at a time, to bound memory."""
STEPS, CLOSE = 100, 1e-9
"""Newton's steps at most, and the largest change of a log rating at which they end."""


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


def bradley_terry(wins: Floats) -> Floats:
    """Log ratings [systems] by evalica, of mean 0 in every part that comparisons link; NaN without any comparison.

    Args:
        wins: shares that one system won from another [systems, systems]; within a part, wins both ways.
    """
    import evalica

    found = np.full(len(wins), np.nan)
    for members in parts_of(wins):
        i, j = np.nonzero(wins[np.ix_(members, members)])
        result = evalica.bradley_terry(
            members[i].tolist(),
            members[j].tolist(),
            [evalica.Winner.X] * len(i),
            weights=wins[members[i], members[j]].tolist(),
            tolerance=1e-10,
            limit=100_000,
        )
        logs = np.log(result.scores.loc[members].to_numpy(dtype=float))
        found[members] = logs - logs.mean()
    return found


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


def points(logs: Floats, wins: Floats) -> Floats:
    """Rating points of log ratings [..., systems], by the wins of the data [systems, systems]."""
    found = np.full(logs.shape, np.nan)
    for members, anchors in zip(parts_of(wins), anchors_of(wins), strict=True):
        found[..., members] = MEAN + SCALE * (logs[..., members] - logs[..., anchors].mean(-1, keepdims=True))
    return found


def refitted(wins: Floats, start: Floats) -> Floats:
    """:func:`bradley_terry` of many resamples at once [resamples, systems]: Newton's method from ``start`` [systems].

    Raises:
        ArithmeticError: it does not settle.
    """
    found = np.tile(start, (len(wins), 1))
    for members in parts_of(wins[0]):
        won = wins[:, members[:, None], members]
        both, logs = won + np.swapaxes(won, 1, 2), found[:, members]
        for _ in range(STEPS):
            expected = both / (1.0 + np.exp(logs[:, None, :] - logs[:, :, None]))
            slope = (won - expected).sum(2)
            links = expected * np.swapaxes(expected, 1, 2) / np.where(both > 0, both, 1.0)
            curve = np.einsum("rij,jk->rjk", links, np.eye(len(members))) - links
            # Ratings are known up to a constant; a constant added to the curve keeps their mean.
            step = np.linalg.solve(curve + links.mean(axis=(1, 2), keepdims=True), slope[..., None])[..., 0]
            step /= np.maximum(1.0, np.abs(step).max(1, keepdims=True) / 2.0)
            logs = logs + step
            if np.abs(step).max() < CLOSE:
                break
        else:
            raise ArithmeticError(f"the ratings of a resample do not settle in {STEPS} steps")
        found[:, members] = logs - logs.mean(1, keepdims=True)
    return found


def dirichlet(resamples: int, prompts: int, rng: np.random.Generator) -> Iterator[Floats]:
    """Weights of the prompts in batches [batch, prompts], of mean 1."""
    size = max(1, BATCH // max(prompts, 1))
    for first in range(0, resamples, size):
        drawn = rng.standard_exponential((min(size, resamples - first), prompts))
        yield drawn / drawn.mean(1, keepdims=True)


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Ratings [systems] (NaN without any comparison), those of resamples [resamples, systems], the wins behind them.

    ``won``: :attr:`Games.wins` of the data, and after that of the resamples [1 + resamples, systems, systems].

    ``sweeps``: where the data bounds no rating. The ratings take half of one more prompt to have gone the other way
    (Haldane, Annals of Human Genetics 20, 1956), and resamples a share between 0 and what Clopper and Pearson
    (Biometrika 26, 1934) allow: Beta(1, prompts).
    """

    games: Games
    sweeps: list[Swept]
    ratings: Floats
    resampled: Floats
    won: Floats

    @cached_property
    def parts(self) -> list[Ints]:
        """Systems linked by comparisons: only within a part can ratings be set against each other."""
        return parts_of(self.games.wins)

    @cached_property
    def bounded(self) -> set[int]:
        """The systems whose distance to most others is not in the data, since they won or lost everything."""
        swept = {i for s in self.sweeps for i in (*s.winners, *s.losers)}
        held = {int(i) for a in anchors_of(self.games.wins) if len(a) > 1 for i in a}
        alone = linked(self.games.wins, mutual=True)
        return {i for i in swept if i not in held or np.count_nonzero(alone == alone[i]) == 1}


def fit(games: Games, resamples: int, seed: int) -> Fit:
    """The ratings and their resamples; the same for a seed."""
    rng, found = np.random.default_rng(seed), swept(games)
    prompts = np.array([s.prompts for s in found], dtype=float)
    start = bradley_terry(softened(games.wins, found, 0.5 / (prompts + 1.0)))
    logs, won = [], [games.wins[None]]
    for weights in dirichlet(resamples, games.prompts, rng):
        wins = games.weighted(weights)
        upsets = rng.beta(1.0, prompts, size=(len(wins), len(prompts)))
        logs.append(refitted(softened(wins, found, upsets), start))
        won.append(wins)
    return Fit(
        games=games,
        sweeps=found,
        ratings=points(start, games.wins),
        resampled=points(np.concatenate(logs), games.wins),
        won=np.concatenate(won),
    )


def ends(values: Floats) -> Floats:
    """The 95% percentile interval along the first axis: [2, ...]."""
    return np.percentile(values, ENDS, axis=0)


def softened_shares(games: Games, found: Sequence[Swept]) -> Floats:
    """The shares of :class:`Games` with the part of every sweep gone the other way that :func:`fit` takes."""
    share = games.share.copy()
    for sweep in found:
        for first, second in ((games.a, games.b), (games.b, games.a)):
            there = np.isin(first, sweep.winners) & np.isin(second, sweep.losers)
            share[there] += (1.0 - 2.0 * share[there]) * 0.5 / (sweep.prompts + 1.0)
    return share
