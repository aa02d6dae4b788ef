"""Bradley-Terry ratings with intervals over prompts, finite whatever the data.

``evalica`` fits. Intervals are those of the Bayesian bootstrap (Rubin, Annals of Statistics 9, 1981) over prompts: a
resample weighs all comparisons of a prompt alike, by weights that are drawn from the flat Dirichlet distribution. Since
no weight is zero, no resample falls into parts that were connected. It also means that no resample is without the one
prompt that all of an order may hang on: whether a pair is told apart is asked of the ordinary bootstrap as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from judgetrain.serving.leaderboard.games import (
    Floats,
    Games,
    Ints,
    Swept,
    anchors_of,
    linked,
    parts_of,
    softened,
    swept,
)

MEAN, SCALE = 1000.0, 400.0 / np.log(10.0)
"""Elo's scale: ratings have mean 1000, and 400 points are odds of 10 to 1."""

ENDS = (2.5, 97.5)
"""The percentiles that 95% of the resamples lie between."""
LEAST, APART = 1e-3, 1.0
"""The weight of a prompt that is not drawn, and the rating points from which one system is above another."""
BATCH = 4_000_000
"""Numbers drawn at a time, to bound memory."""
STEPS, CLOSE = 100, 1e-9
"""Newton's steps at most, and the largest change of a log rating at which they end."""


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
    for size in _batches(resamples, prompts):
        drawn = rng.standard_exponential((size, prompts))
        yield drawn / drawn.mean(1, keepdims=True)


def drawn_again(resamples: int, prompts: int, rng: np.random.Generator) -> Iterator[Floats]:
    """How often each prompt is drawn, with replacement, in batches [batch, prompts]; one that is not weighs
    :data:`LEAST`, so that what it links stays linked."""
    for size in _batches(resamples, prompts):
        counts = rng.multinomial(prompts, np.full(prompts, 1.0 / prompts), size=size)
        yield np.maximum(counts, LEAST)


def _batches(resamples: int, prompts: int) -> Iterator[int]:
    """How many resamples to draw at a time."""
    size = max(1, BATCH // max(prompts, 1))
    yield from (min(size, resamples - first) for first in range(0, resamples, size))


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Ratings [systems] (NaN without any comparison), those of resamples [resamples, systems], the wins behind them.

    ``above``: in which share of ordinary resamples one system (row) is rated above another (column).

    ``won``: :attr:`Games.wins` of the data, and after that of the resamples [1 + resamples, systems, systems].

    ``sweeps``: where the data bounds no rating. The ratings take half of one more prompt to have gone the other way
    (Haldane, Annals of Human Genetics 20, 1956), and resamples a share between 0 and what Clopper and Pearson
    (Biometrika 26, 1934) allow: Beta(1, prompts).
    """

    games: Games
    sweeps: list[Swept]
    ratings: Floats
    resampled: Floats
    above: Floats
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

    def again(weights: Floats) -> tuple[Floats, Floats]:
        wins = games.weighted(weights)
        upsets = rng.beta(1.0, prompts, size=(len(wins), len(prompts)))
        return refitted(softened(wins, found, upsets), start), wins

    for weights in dirichlet(resamples, games.prompts, rng):
        ratings, wins = again(weights)
        logs.append(ratings)
        won.append(wins)
    above = np.zeros((games.systems, games.systems))
    for counts in drawn_again(resamples, games.prompts, rng):
        ratings, _ = again(counts)
        above += (ratings[:, :, None] - ratings[:, None, :] > APART / SCALE).sum(0)
    return Fit(
        games=games,
        sweeps=found,
        ratings=points(start, games.wins),
        resampled=points(np.concatenate(logs), games.wins),
        above=above / resamples,
        won=np.concatenate(won),
    )


def ends(values: Floats) -> Floats:
    """The 95% percentile interval along the first axis: [2, ...]."""
    return np.percentile(values, ENDS, axis=0)
