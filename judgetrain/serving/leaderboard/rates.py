"""Win rates with intervals over prompts: of pairs, of groups of prompts, of what is shown first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from judgetrain.serving.leaderboard.battles import Battle
from judgetrain.serving.leaderboard.fit import Fit, dirichlet, ends
from judgetrain.serving.leaderboard.games import Floats, Games
from judgetrain.serving.leaderboard.records import Position, Rate


def rate(won: Floats, lost: Floats, games: int, prompts: int) -> Rate | None:
    """The share that was won, from wins and losses in the data and, after that, in its resamples [1 + resamples].

    Where all or nothing was won, the interval reaches as far as Clopper and Pearson's for so many prompts. None
    without a game.
    """
    from scipy.stats import beta

    if not games:
        return None
    shares = won / (won + lost)
    share = float(np.clip(shares[0], 0.0, 1.0))
    low, high = (float(np.clip(end, 0.0, 1.0)) for end in ends(shares[1:]))
    unseen = float(beta.ppf(0.975, 1, prompts))
    if min(share, 1.0 - share) < 1e-12:
        share = float(round(share))
        low, high = (1.0 - unseen, 1.0) if share else (0.0, unseen)
    return Rate(share=share, interval=(low, high), games=games)


def rate_between(found: Fit, first: Sequence[int], second: Sequence[int]) -> Rate | None:
    """The win rate of the first systems against the second."""
    games = found.games
    won, lost = (found.won[:, x][:, :, y].sum((1, 2)) for x, y in ((first, second), (second, first)))
    return rate(won, lost, int(games.between(first, second).sum()), games.prompts_of(first, second))


def rate_of(share: Sequence[float], prompts: Sequence[str], resamples: int, seed: int) -> Rate | None:
    """The mean of shares [n], with its interval over their prompts [n]."""
    numbers: dict[str, int] = {}
    place = np.array([numbers.setdefault(p, len(numbers)) for p in prompts], dtype=np.intp)
    won = np.bincount(place, np.asarray(share, dtype=float))
    both = np.bincount(place).astype(float)
    weights = [np.ones((1, len(won))), *dirichlet(resamples, len(won), np.random.default_rng(seed))]
    return rate(
        np.concatenate([w @ won for w in weights]),
        np.concatenate([w @ (both - won) for w in weights]),
        len(place),
        len(won),
    )


def rates_by_group(
    kept: Sequence[tuple[Battle, float]], names: Sequence[str], resamples: int, seed: int
) -> dict[str, dict[str, Rate]]:
    """Each system's win rate within each group of prompts, where there are two groups or more."""
    found: dict[str, dict[str, Rate]] = {}
    groups = sorted({str(b.group) for b, _ in kept if b.group is not None})
    for group in groups if len(groups) > 1 else ():
        inside = [(b, s) for b, s in kept if b.group is not None and str(b.group) == group]
        for name in names:
            own = [(b, s) for b, s in inside if name in (b.system_a, b.system_b)]
            won = [s if name == b.system_a else 1.0 - s for b, s in own]
            if own and (got := rate_of(won, [b.prompt for b, _ in own], resamples, seed)):
                found.setdefault(group, {})[name] = got
    return found


def position_bias(battles: Sequence[Battle], resamples: int, seed: int) -> Position | None:
    """How often the response that was shown first won; None where no verdict is known by its order."""
    shown = [(b.ab == "A", b.prompt) for b in battles if b.ab in ("A", "B")]
    shown += [(b.ba == "B", b.prompt) for b in battles if b.ba in ("A", "B")]
    first = rate_of([float(s) for s, _ in shown], [p for _, p in shown], resamples, seed) if shown else None
    twice = [sum((b.ab, b.ba) == both for b in battles) for both in (("A", "B"), ("B", "A"))]
    return Position(first, *twice) if first else None


def games_of(kept: Sequence[tuple[Battle, float]], names: Sequence[str]) -> Games:
    """Comparisons and their shares as numbers; systems as ``names`` has them, prompts as they first occur."""
    place, prompts = {name: i for i, name in enumerate(names)}, dict[str, int]()
    return Games(
        np.array([place[b.system_a] for b, _ in kept], dtype=np.intp),
        np.array([place[b.system_b] for b, _ in kept], dtype=np.intp),
        np.array([prompts.setdefault(b.prompt, len(prompts)) for b, _ in kept], dtype=np.intp),
        np.array([share for _, share in kept], dtype=float),
        len(names),
    )
