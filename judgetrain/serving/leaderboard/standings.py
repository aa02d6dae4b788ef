"""From comparisons to the leaderboard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from judgetrain.errors import DataError
from judgetrain.serving.leaderboard.battles import Battle, check_baseline
from judgetrain.serving.leaderboard.config import LeaderboardConfig
from judgetrain.serving.leaderboard.fit import ENDS, Fit, ends, fit
from judgetrain.serving.leaderboard.games import Floats
from judgetrain.serving.leaderboard.rates import games_of, position_bias, rate_between, rates_by_group
from judgetrain.serving.leaderboard.records import Leaderboard, Pair, Rating, Standing, Sweep
from judgetrain.serving.leaderboard.style import Controlled, controlled

RESAMPLES = 1000
"""Resamples of prompts: the ends of a 95% interval then move by some 3% of its width between two seeds."""


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
    styled = controlled(found, styles, resamples, seed) if len(styles) == len(kept) else None
    pairs = list(_pairs(found, names))
    return Leaderboard(
        systems=_standings(found, names, battles, styled, pairs, config.baseline),
        pairs=pairs,
        separability=sum(p.decided for p in pairs) / len(pairs) if pairs else None,
        position=position_bias(battles, resamples, seed),
        style=styled.effects if styled else {},
        outcomes=dict(sorted(Counter(b.outcome for b in battles).items())),
        comparisons=len(battles),
        counted=len(kept),
        prompts=found.games.prompts,
        judges=sorted({b.judge for b in battles if b.judge}),
        parts=[[names[i] for i in members] for members in found.parts],
        sweeps=[Sweep([names[i] for i in s.winners], [names[i] for i in s.losers], s.prompts) for s in found.sweeps],
        by_group=rates_by_group(kept, names, resamples, seed),
        baseline=config.baseline,
        scores=config.scores,
        resamples=resamples,
    )


def counted(battles: Sequence[Battle], config: LeaderboardConfig) -> list[tuple[Battle, float]]:
    """The comparisons that count, with the first system's share.

    Raises:
        DataError: there is none.
    """
    shares = [b.share(config) for b in battles]
    kept = [(b, share) for b, share in zip(battles, shares, strict=True) if share is not None]
    if not kept:
        found = ", ".join(f"{n} {outcome}" for outcome, n in Counter(b.outcome for b in battles).items()) or "no row"
        raise DataError(
            f"leaderboard: nothing to rank by, of {len(battles)} comparisons ({found}) none counts with "
            f"leaderboard.scores={config.scores}; give verdicts that could be read"
            + (", or scores=verdicts for rows without margins" if config.scores == "margins" else "")
        )
    return kept


def _pairs(found: Fit, names: Sequence[str]) -> Iterator[Pair]:
    for members in found.parts:
        for i, j in combinations(sorted(members, key=lambda m: -found.ratings[m]), 2):
            low, high = (float(end) for end in ends(found.resampled[:, i] - found.resampled[:, j]))
            difference = float(found.ratings[i] - found.ratings[j])
            yield Pair(
                first=names[i],
                second=names[j],
                difference=difference,
                interval=(low, high),
                decided=low > 0.0 and bool(found.above[i, j] >= ENDS[1] / 100.0),
                expected=1.0 / (1.0 + 10.0 ** (-difference / 400.0)),
                rate=rate_between(found, [i], [j]),
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
    intervals, everyone = ends(found.resampled), range(len(names))
    part = {i: k for k, members in enumerate(found.parts) for i in members.tolist()}
    order = sorted(everyone, key=lambda i: (part.get(i, len(names)), -found.ratings[i] if i in part else 0.0, i))
    base = [] if baseline is None else [names.index(baseline)]
    rows = []
    for i in order:
        name, members = names[i], found.parts[part[i]].tolist() if i in part else []
        free, styles = i not in found.bounded, styled if members else None
        rows.append(
            Standing(
                system=name,
                part=part.get(i),
                rating=_rating(i, found.ratings, intervals, members) if members else None,
                ranks=(1 + worse[name], len(members) - better[name]) if members else None,
                bounded=not free,
                styled=_rating(i, styles.ratings, styles.intervals if free else None, members) if styles else None,
                win_rate=rate_between(found, [i], [j for j in everyone if j != i]),
                against=rate_between(found, [i], base) if base and base != [i] else None,
                **_counts(name, battles),
            )
        )
    return rows


def _rating(system: int, ratings: Floats, intervals: Floats | None, members: Sequence[int]) -> Rating:
    rank = 1 + sum(bool(ratings[m] > ratings[system]) for m in members)
    ends = None if intervals is None else (float(intervals[0, system]), float(intervals[1, system]))
    return Rating(rank=rank, points=float(ratings[system]), interval=ends)


def _counts(name: str, battles: Sequence[Battle]) -> dict[str, Any]:
    """How a system's comparisons came out, and how long its responses are."""
    own = [(b, name == b.system_b) for b in battles if name in (b.system_a, b.system_b)]
    words = ({"A": "wins", "B": "losses", "tie": "ties"}, {"A": "losses", "B": "wins", "tie": "ties"})
    of = Counter(words[second].get(b.outcome, b.outcome) for b, second in own)
    lengths = [b.style[second].length for b, second in own if b.style]
    names = ("wins", "ties", "losses", "inconsistent", "unreadable", "missing")
    return {n: of[n] for n in names} | {"length": float(np.mean(lengths)) if lengths else None}
