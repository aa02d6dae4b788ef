"""Ratings with length and markdown held equal: Bradley-Terry with covariates (LMSYS, "Does style matter?", 2024)."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from judgetrain.extras.leaderboard.ratings import SCALE, Fit, Floats, ends, points

WEAK = 1e6
"""scikit-learn's C: a penalty too weak to be seen, which bounds what the data do not."""

_CODE = re.compile(r"```.*?(```|\Z)", re.DOTALL)
_HEADER = re.compile(r"^#{1,6}\s", re.MULTILINE)
_LIST = re.compile(r"^[^\S\n]*(?:[-*+]|\d+[.)])\s", re.MULTILINE)
_BOLD = re.compile(r"\*\*[^*\n]+\*\*|__[^_\n]+__")


class Style(NamedTuple):
    """Characters of a response, and how many headers, list items and bold passages it has outside of code."""

    length: int
    headers: int
    lists: int
    bold: int


def style_of(response: str) -> Style:
    """The style of a response."""
    text = _CODE.sub("", response)
    return Style(len(response), *(len(pattern.findall(text)) for pattern in (_HEADER, _LIST, _BOLD)))


@dataclass(frozen=True, kw_only=True)
class Controlled:
    """Ratings of the data and of resamples at equal style [1 + resamples, systems] (NaN where not known).

    ``effects``: by covariate, rating points for one standard deviation more of it than the other response has, with
    its interval.
    """

    ratings: Floats
    effects: dict[str, tuple[float, tuple[float, float]]]


def controlled(found: Fit, styles: Sequence[tuple[Style, Style]], seed: int) -> Controlled:
    """Ratings by logistic regression (scikit-learn) on the systems and :func:`_differences`.

    Intervals: the cluster bootstrap over prompts again, one Newton step from the estimate in each resample. Of ratings
    that the data do not bound (:attr:`Fit.bounded`) it says nothing.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    games, style, rng = found.games, _differences(styles), np.random.default_rng(seed)
    rows, n, prompts = np.arange(len(games.a)), games.systems, games.prompts
    design = np.zeros((len(rows), n + style.shape[1]))
    design[rows, games.a], design[rows, games.b], design[:, n:] = 1.0, -1.0, style
    free = [i for members in found.parts for i in members[1:]]  # the first of each part stands for 0
    used = [*free, *(n + np.flatnonzero(style.any(0)))]
    x, share = design[:, used], games.share
    model = LogisticRegression(C=WEAK, fit_intercept=False, solver="newton-cholesky", tol=1e-8, max_iter=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        weights = np.concatenate([share, 1.0 - share])
        model.fit(np.concatenate([x, x]), np.repeat([1, 0], len(x)), sample_weight=weights)
    likely = 1.0 / (1.0 + np.exp(-(x @ model.coef_[0])))
    curve = (x * (likely * (1.0 - likely))[:, None]).T @ x + np.eye(len(used)) / WEAK
    slopes = np.zeros((prompts, len(used)))
    np.add.at(slopes, games.prompt, x * (share - likely)[:, None])
    counts = (rng.multinomial(prompts, np.full(prompts, 1.0 / prompts)) for _ in found.won[1:])
    steps = np.array([np.zeros(len(used)), *((count - 1.0) @ slopes for count in counts)]) @ np.linalg.inv(curve)
    every = np.zeros((len(found.won), design.shape[1]))
    every[:, used] = model.coef_[0] + steps
    ratings, worth = points(every[:, :n], found.won[0]), SCALE * every[:, n:]
    ratings[:, list(found.bounded)] = np.nan
    low, high = ends(worth[1:])
    effects = {
        name: (float(worth[0, k]), (float(low[k]), float(high[k])))
        for k, name in enumerate(Style._fields)
        if style[:, k].any()
    }
    return Controlled(ratings=ratings, effects=effects)


def _differences(styles: Sequence[tuple[Style, Style]]) -> Floats:
    """Covariates [n, 4]: what the first response has more of, as a share of both, in standard deviations.

    The deviations are from 0, the mean of both ways to name two responses, so that it does not matter which is first.
    """
    pair = np.array(styles, dtype=float).reshape(len(styles), 2, len(Style._fields))
    both = pair.sum(1)
    shares = (pair[:, 0] - pair[:, 1]) / np.where(both > 0, both, 1.0)
    spread = np.sqrt((shares**2).mean(0))
    return shares / np.where(spread > 0, spread, 1.0)
