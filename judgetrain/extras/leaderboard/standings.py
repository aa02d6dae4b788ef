"""From comparisons to the leaderboard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from judgetrain.errors import DataError
from judgetrain.extras.leaderboard.battles import Battle, check_baseline
from judgetrain.extras.leaderboard.config import LeaderboardConfig
from judgetrain.extras.leaderboard.ratings import Fit, Floats, Games, ends, fit
from judgetrain.extras.leaderboard.records import Leaderboard, Pair, Rate, Rating, Standing
from judgetrain.extras.leaderboard.style import Controlled, controlled

RESAMPLES = 1000
"""Resamples of prompts: the ends of a 95% interval then move by some 3% of its width between two seeds."""
APART = 1.0
"""Rating points from which one system is above another: less is the trace of prompts that were not drawn."""

Kept = Sequence[tuple[Battle, float]]
"""The comparisons that count, with the first system's share."""


def leaderboard(
    battles: Sequence[Battle], config: LeaderboardConfig, seed: int, resamples: int = RESAMPLES
) -> Leaderboard:
    """The standings of comparisons; the same for a seed.

    Raises:
        DataError: none of them can be counted, or there is no such baseline.
    """
    names = check_baseline(config.baseline, ((b.system_a, b.system_b) for b in battles))
    kept = counted(battles, config)
    found = fit(games_of(kept, names), resamples, seed)
    styles = [b.style for b, _ in kept if b.style is not None]
    styled = controlled(found, styles, seed) if len(styles) == len(kept) else None
    pairs = list(_pairs(found, names))
    groups = sorted({b.group for b, _ in kept if b.group is not None})
    return Leaderboard(
        systems=_standings(found, names, battles, styled, pairs, config.baseline),
        pairs=pairs,
        separability=sum(p.decided for p in pairs) / len(pairs) if pairs else None,
        style=styled.effects if styled else {},
        outcomes=dict(sorted(Counter(b.outcome for b in battles).items())),
        comparisons=len(battles),
        counted=len(kept),
        prompts=found.games.prompts,
        judges=sorted({b.judge for b in battles if b.judge}),
        parts=[[names[i] for i in members] for members in found.parts],
        by_group={g: _of_group(g, kept, names, resamples, seed) for g in (groups if len(groups) > 1 else ())},
        baseline=config.baseline,
        scores=config.scores,
    )


def counted(battles: Sequence[Battle], config: LeaderboardConfig) -> Kept:
    """The comparisons that count.

    Raises:
        DataError: there is none.
    """
    kept = [(b, share) for b in battles if (share := b.share(config)) is not None]
    if not kept:
        found = ", ".join(f"{n} {outcome}" for outcome, n in Counter(b.outcome for b in battles).items()) or "no row"
        raise DataError(
            f"leaderboard: nothing to rank by, of {len(battles)} comparisons ({found}) none counts with "
            f"leaderboard.scores={config.scores}; give verdicts that could be read"
            + (", or scores=verdicts for rows without margins" if config.scores == "margins" else "")
        )
    return kept


def games_of(kept: Kept, names: Sequence[str]) -> Games:
    """Comparisons and their shares as numbers; systems as ``names`` has them, prompts as they first occur."""
    place, prompts = {name: i for i, name in enumerate(names)}, dict[str, int]()
    return Games(
        np.array([place[b.system_a] for b, _ in kept], dtype=np.intp),
        np.array([place[b.system_b] for b, _ in kept], dtype=np.intp),
        np.array([prompts.setdefault(b.prompt, len(prompts)) for b, _ in kept], dtype=np.intp),
        np.array([share for _, share in kept], dtype=float),
        len(names),
    )


def rate_between(games: Games, won: Floats, first: int, others: Sequence[int]) -> Rate | None:
    """The mean of a system's win rates against others, over those it met, with its interval over resamples.

    Where all or nothing was won, the interval reaches as far as Clopper and Pearson's for so many prompts. None
    without a comparison. ``won``: the wins of the data and, after that, of resamples (:meth:`Games.resampled`).
    """
    from scipy.stats import beta

    prompts, met = games.between([first], others), [j for j in others if won[0, first, j] + won[0, j, first] > 0]
    if not met:
        return None
    shares = (won[:, first, met] / (won[:, first, met] + won[:, met, first])).mean(1).clip(0.0, 1.0)
    share, (low, high) = float(shares[0]), ends(shares[1:])
    unseen = float(beta.ppf(0.975, 1, len(np.unique(prompts))))
    if min(share, 1.0 - share) < 1e-12:
        share = float(round(share))
        low, high = (1.0 - unseen, 1.0) if share else (0.0, unseen)
    return Rate(share=share, interval=(float(low), float(high)), games=len(prompts))


def _of_group(group: str, kept: Kept, names: Sequence[str], resamples: int, seed: int) -> dict[str, Rate]:
    """The win rates of the systems on one group of prompts."""
    games = games_of([(b, share) for b, share in kept if b.group == group], names)
    won, everyone = games.resampled(resamples, seed), range(len(names))
    rates = {n: rate_between(games, won, i, [j for j in everyone if j != i]) for i, n in enumerate(names)}
    return {name: rate for name, rate in rates.items() if rate}


def _pairs(found: Fit, names: Sequence[str]) -> Iterator[Pair]:
    for members in found.parts:
        for i, j in combinations(sorted(members.tolist(), key=lambda m: -found.ratings[0, m]), 2):
            apart = found.ratings[:, i] - found.ratings[:, j]
            low, high = (float(end) for end in ends(apart[1:]))
            yield Pair(
                first=names[i],
                second=names[j],
                difference=float(apart[0]),
                interval=(low, high),
                decided=low > APART,
                rate=rate_between(found.games, found.won, i, [j]),
            )


def _standings(
    found: Fit,
    names: Sequence[str],
    battles: Sequence[Battle],
    styled: Controlled | None,
    pairs: Sequence[Pair],
    baseline: str | None,
) -> list[Standing]:
    """The systems' rows: the largest part first, best first; then systems of which nothing could be read."""
    worse, better = Counter(p.second for p in pairs if p.decided), Counter(p.first for p in pairs if p.decided)
    part, everyone = {int(i): k for k, members in enumerate(found.parts) for i in members}, range(len(names))
    ratings = found.ratings[0]
    rows = []
    for i in sorted(everyone, key=lambda i: (part.get(i, len(names)), -ratings[i] if i in part else 0.0, i)):
        name, members = names[i], found.parts[part[i]] if i in part else ratings[:0]
        rows.append(
            Standing(
                system=name,
                part=part.get(i),
                rating=_rating(i, found.ratings, members),
                ranks=(1 + worse[name], len(members) - better[name]) if i in part else None,
                bounded=i in found.bounded,
                styled=_rating(i, styled.ratings, members) if styled else None,
                win_rate=rate_between(found.games, found.won, i, [j for j in everyone if j != i]),
                against=None
                if baseline in (None, name)
                else rate_between(found.games, found.won, i, [names.index(baseline)]),
                **_counts(name, battles),
            )
        )
    return rows


def _rating(system: int, ratings: Floats, members: Any) -> Rating | None:
    """A system's rating of :class:`Fit` or :class:`Controlled`, and its rank within its part."""
    points = ratings[0, system]
    if np.isnan(points):
        return None
    low, high = ends(ratings[1:, system])
    rank = 1 + int((ratings[0, members] > points).sum())
    return Rating(rank=rank, points=float(points), interval=(float(low), float(high)))


def _counts(name: str, battles: Sequence[Battle]) -> dict[str, Any]:
    """How a system's comparisons came out, and how long its responses are."""
    own = [(b, name == b.system_b) for b in battles if name in (b.system_a, b.system_b)]
    words = ({"A": "wins", "B": "losses", "tie": "ties"}, {"A": "losses", "B": "wins", "tie": "ties"})
    of = Counter(words[second].get(b.outcome, b.outcome) for b, second in own)
    lengths = [b.style[second].length for b, second in own if b.style]
    names = ("wins", "ties", "losses", "inconsistent", "unreadable", "missing")
    return {n: of[n] for n in names} | {"length": float(np.mean(lengths)) if lengths else None}
