"""Which systems to compare next: where comparisons tell most about the order of all of them.

The ratings so far are taken as normal, with a Gaussian prior. Comparing two systems sharpens every difference that the
pair bears on, by the Fisher information of Bradley-Terry. The pair is chosen that sharpens most the differences whose
sign is least certain: the sum, over all pairs, of the chance that they are in the wrong order times the share of the
difference's variance that goes. In simulations it needed fewer comparisons than minimising the variance of all ratings,
and no more than the expected number of wrong pairs one step ahead (tests/benchmarks/leaderboard_truth.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from judgetrain.serving.leaderboard.games import Floats, Ints

PRIOR = 1.5
"""Standard deviation of log ratings before anything is known: 260 rating points."""
CHUNKS = 16
"""Into so many parts a wave is cut, each of which goes to one pair of systems."""
CLOSE, STEPS = 1e-8, 50
"""Newton's method ends at a step this small, or after so many."""


@dataclass(frozen=True)
class Belief:
    """What is known of log ratings: mean [systems] and covariance [systems, systems]."""

    mean: NDArray[np.floating]
    covariance: NDArray[np.floating]

    @classmethod
    def of(cls, wins: Floats) -> Self:
        """The normal approximation of the posterior, by wins [systems, systems] (fractions too)."""
        both, mean = wins + wins.T, np.zeros(len(wins))
        for _ in range(STEPS):
            likely = 1.0 / (1.0 + np.exp(mean[None] - mean[:, None]))
            slope = (wins - both * likely).sum(1) - mean / PRIOR**2
            step = np.linalg.solve(_precision(both * likely * likely.T), slope)
            mean = mean + step / max(1.0, float(np.abs(step).max()))
            if np.abs(step).max() < CLOSE:
                break
        likely = 1.0 / (1.0 + np.exp(mean[None] - mean[:, None]))
        return cls(mean, np.linalg.inv(_precision(both * likely * likely.T)))


def _precision(information: Floats) -> Floats:
    """Of the posterior, by the Fisher information of every pair [systems, systems]."""
    return np.diag(information.sum(1)) - information + np.eye(len(information)) / PRIOR**2


def plan(wins: Floats, left: Ints, games: int, rng: np.random.Generator) -> Ints:
    """How many comparisons of every pair to make next [systems, systems], in its upper triangle.

    Args:
        wins: shares won so far, one system (row) from another.
        left: how many comparisons of every pair there are to choose from, in the upper triangle.
        games: how many to choose in all; fewer where fewer are left.
        rng: decides between pairs that tell as much.
    """
    from scipy.special import ndtr

    belief, (i, j) = Belief.of(wins), np.triu_indices(len(wins), 1)
    difference, rows = belief.mean[i] - belief.mean[j], belief.covariance[i] - belief.covariance[j]
    covariance = rows[:, i] - rows[:, j]  # of all pairs' differences [pairs, pairs]
    information = 0.25 / np.cosh(difference / 2.0) ** 2  # of one comparison: the chances of both sides multiplied
    chosen, free = np.zeros(len(i), dtype=np.intp), left[i, j].copy()
    games = min(games, int(free.sum()))
    each = max(1, -(-games // CHUNKS))
    while games:
        variance = np.diag(covariance)
        wrong = ndtr(-np.abs(difference) / np.sqrt(variance))
        more = information * np.minimum(np.minimum(each, games), free)
        gain = (covariance**2 * (wrong / variance)).sum(1) * more / (1.0 + more * variance)
        best = int(np.where(free > 0, gain * (1.0 + 1e-9 * rng.random(len(gain))), -1.0).argmax())
        number, towards = min(each, games, int(free[best])), covariance[best]
        covariance = covariance - np.outer(towards, towards) * more[best] / (1.0 + more[best] * variance[best])
        chosen[best] += number
        free[best] -= number
        games -= number
    found = np.zeros_like(left)
    found[i, j] = chosen
    return found
