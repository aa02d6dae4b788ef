"""Ratings with length and markdown held equal: Bradley-Terry with covariates (LMSYS, "Does style matter?", 2024)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from judgetrain.serving.leaderboard.fit import SCALE, Fit, dirichlet, ends, points
from judgetrain.serving.leaderboard.games import Floats, softened_shares
from judgetrain.serving.leaderboard.markdown import Style

WEAK = 1e6
"""scikit-learn's C: a penalty too weak to be seen, which bounds what the data do not."""


@dataclass(frozen=True, kw_only=True)
class Controlled:
    """Ratings [systems] at equal style (NaN where not known), their intervals [2, systems], and what style is worth.

    ``effects``: by covariate, rating points for one standard deviation more of it than the other response has, with
    its interval.
    """

    ratings: Floats
    intervals: Floats
    effects: dict[str, tuple[float, tuple[float, float]]]


def differences(styles: Sequence[tuple[Style, Style]]) -> Floats:
    """Covariates [n, 4]: what the first response has more of, as a share of both, in standard deviations.

    The deviations are from 0, the mean of both ways to name two responses, so that it does not matter which is first.
    """
    pair = np.array(styles, dtype=float).reshape(len(styles), 2, len(Style._fields))
    both = pair.sum(1)
    shares = (pair[:, 0] - pair[:, 1]) / np.where(both > 0, both, 1.0)
    spread = np.sqrt((shares**2).mean(0))
    return shares / np.where(spread > 0, spread, 1.0)


def controlled(found: Fit, styles: Sequence[tuple[Style, Style]], resamples: int, seed: int) -> Controlled:
    """Ratings by logistic regression (scikit-learn) on the systems and :func:`differences`.

    Intervals: the Bayesian bootstrap over prompts again, one Newton step from the estimate in each resample, which says
    nothing of ratings that the data do not bound (:attr:`Fit.bounded`).
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    games, style = found.games, differences(styles)
    free = [i for members in found.parts for i in members[1:]]  # the first of each part stands for 0
    design = np.zeros((len(games.a), games.systems + style.shape[1]))
    rows = np.arange(len(games.a))
    design[rows, games.a], design[rows, games.b], design[:, games.systems :] = 1.0, -1.0, style
    used = [*free, *(games.systems + np.flatnonzero(style.any(0)))]
    x, share = design[:, used], softened_shares(games, found.sweeps)
    model = LogisticRegression(C=WEAK, fit_intercept=False, solver="newton-cholesky", tol=1e-8, max_iter=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(
            np.concatenate([x, x]),
            np.repeat([1, 0], len(x)),
            sample_weight=np.concatenate([share, 1.0 - share]),
        )
    estimate = np.zeros(design.shape[1])
    estimate[used] = model.coef_[0]
    likely = 1.0 / (1.0 + np.exp(-(x @ model.coef_[0])))
    curve = (x * (likely * (1.0 - likely))[:, None]).T @ x + np.eye(len(used)) / WEAK
    slopes = np.zeros((games.prompts, len(used)))
    np.add.at(slopes, games.prompt, x * (share - likely)[:, None])
    steps = [
        (weights - 1.0) @ slopes @ np.linalg.inv(curve)
        for weights in dirichlet(resamples, games.prompts, np.random.default_rng(seed))
    ]
    drawn = np.tile(estimate, (resamples, 1))
    drawn[:, used] += np.concatenate(steps)
    every = np.concatenate([estimate[None], drawn])
    ratings = points(every[:, : games.systems], games.wins)
    worth = SCALE * every[:, games.systems :]
    low, high = ends(worth[1:])
    effects = {
        name: (float(worth[0, k]), (float(low[k]), float(high[k])))
        for k, name in enumerate(Style._fields)
        if style[:, k].any()
    }
    return Controlled(ratings=ratings[0], intervals=ends(ratings[1:]), effects=effects)
