"""Which systems to compare next: where one more comparison tells most about their order.

A preposterior analysis (Raiffa and Schlaifer, Applied Statistical Decision Theory, 1961) of the ratings' normal
approximation: ratings have a Gaussian prior; comparing two systems sharpens every difference that the pair bears on, by
the Fisher information of Bradley-Terry; chosen is the pair that lowers the expected number of misordered pairs most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from judgetrain.serving.leaderboard.fit import Floats, Ints

PRIOR = 1.5
"""Standard deviation of log ratings before anything is known: 260 rating points."""
CHUNKS = 16
"""Into so many parts a wave is cut, each of which goes to one pair of systems."""
NODES = 9
"""Of the Gauss-Hermite quadrature over what a comparison may find."""


@dataclass(frozen=True)
class Belief:
    """What is known of log ratings: mean [systems] and covariance [systems, systems]."""

    mean: Floats
    covariance: Floats

    @classmethod
    def of(cls, wins: Floats) -> Belief:
        """The normal approximation of the posterior, by wins [systems, systems] (fractions too)."""
        size = len(wins)
        both, mean = wins + wins.T, np.zeros(size)
        for _ in range(50):
            likely = 1.0 / (1.0 + np.exp(mean[None] - mean[:, None]))
            slope = (wins - both * likely).sum(1) - mean / PRIOR**2
            step = np.linalg.solve(_precision(both * likely * likely.T), slope)
            mean = mean + step / max(1.0, float(np.abs(step).max()))
            if np.abs(step).max() < 1e-8:
                break
        return cls(mean, np.linalg.inv(_precision(both * likely * likely.T)))

    def after(self, first: int, second: int, games: float) -> Floats:
        """The covariance after so many further comparisons of two systems."""
        towards = self.covariance[:, first] - self.covariance[:, second]
        chance = 1.0 / (1.0 + np.exp(self.mean[second] - self.mean[first]))
        information = games * chance * (1.0 - chance)
        return self.covariance - np.outer(towards, towards) * information / (
            1.0 + information * (towards[first] - towards[second])
        )


def _precision(information: Floats) -> Floats:
    """Of the posterior, by the Fisher information of every pair [systems, systems]."""
    return np.diag(information.sum(1)) - information + np.eye(len(information)) / PRIOR**2


def spreads(covariance: Floats) -> Floats:
    """The variance of every pair's difference [..., pairs] under covariances [..., systems, systems]."""
    i, j = np.triu_indices(covariance.shape[-1], 1)
    return covariance[..., i, i] + covariance[..., j, j] - 2.0 * covariance[..., i, j]


def misordered(mean: Floats, before: Floats, after: Floats) -> Floats:
    """The expected number of misordered pairs once variances fell from ``before`` [pairs] to ``after`` [..., pairs].

    The new mean of a difference is normal about the old one, with the variance that was taken away.
    """
    from scipy.special import ndtr

    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    i, j = np.triu_indices(len(mean), 1)
    moved = np.sqrt(np.maximum(before - after, 0.0))
    found = np.zeros(after.shape)
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        found += weight * ndtr(-np.abs(mean[i] - mean[j] + moved * node) / np.sqrt(after))
    return found.sum(-1)


def plan(wins: Floats, left: Ints, games: int, rng: np.random.Generator) -> Ints:
    """How many comparisons of every pair to make next [systems, systems], in its upper triangle.

    Args:
        wins: shares won so far, one system (row) from another.
        left: how many comparisons of every pair there are to choose from, in the upper triangle.
        games: how many to choose in all; fewer where fewer are left.
        rng: decides between pairs that tell as much.
    """
    size = len(wins)
    belief, left, chosen = Belief.of(wins), np.triu(left, 1).copy(), np.zeros((size, size), dtype=np.intp)
    games = min(games, int(left.sum()))
    while games:
        pairs = np.argwhere(left > 0)
        each = min(games, max(1, -(-games // CHUNKS)))
        before = spreads(belief.covariance)
        after = np.stack([spreads(belief.after(int(i), int(j), min(each, int(left[i, j])))) for i, j in pairs])
        expected = misordered(belief.mean, before, after) + 1e-9 * rng.random(len(pairs))
        i, j = (int(x) for x in pairs[expected.argmin()])
        number = min(each, int(left[i, j]))
        belief = Belief(belief.mean, belief.after(i, j, number))
        chosen[i, j] += number
        left[i, j] -= number
        games -= number
    return chosen
