"""From comparisons to the leaderboard."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from judgetrain.errors import DataError
from judgetrain.evaluate.metrics.intervals import FEWEST, Interval
from judgetrain.extras.leaderboard.ratings import Battle, Battles, Fit, Floats, Games, ends, fit

RESAMPLES = 1000
"""Resamples of prompts: the ends of a 95% interval then move by some 3% of its width between two seeds."""
APART = 1.0
"""Rating points from which one system is above another: less is the trace of prompts that were not drawn."""


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A share from 0 to 1 of so many ``games``, and its interval; None of fewer than :data:`FEWEST` prompts."""

    share: float
    interval: Interval | None
    games: int


@dataclass(frozen=True, kw_only=True)
class Rating:
    """Rating points (mean 1000; 400 are odds of 10 to 1), their interval, and the rank that they give in a part."""

    rank: int
    points: float
    interval: Interval | None


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A system's row. What is not known is None.

    ``part`` is the number of its part of the leaderboard: systems that are linked by comparisons; ranks are within it.
    ``ranks``: the best and the worst rank by the pairs that intervals tell apart. ``bounded``: it won, or lost, all
    comparisons with others, so that its rating is a matter of how that is bounded.
    ``win_rate``: the mean of its win rates against each other system.
    """

    system: str
    part: int | None
    rating: Rating | None
    ranks: tuple[int, int] | None
    bounded: bool
    win_rate: Rate | None
    wins: int
    ties: int
    losses: int
    inconsistent: int
    unreadable: int
    missing: int


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two systems of one part, the better one first: rating points between them, and the first one's win rate.

    ``decided``: the interval of the difference is above :data:`APART`; it is None where one of them has none.
    ``rate`` is None where they were never compared.
    """

    first: str
    second: str
    difference: float
    interval: Interval | None
    decided: bool
    rate: Rate | None


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """Everything that ``leaderboard.json`` holds: ``counted`` of ``comparisons`` are behind the ratings.

    ``separability``: the share of pairs that are decided, None where no pair has an interval. ``unnamed``: how many
    comparisons do not say which prompt they are about.
    """

    systems: list[Standing]
    pairs: list[Pair]
    separability: float | None
    outcomes: dict[str, int]
    comparisons: int
    counted: int
    prompts: int
    unnamed: int
    judges: list[str]
    parts: list[list[str]]


def leaderboard(battles: Iterable[Battle], seed: int, resamples: int = RESAMPLES) -> Leaderboard:
    """The standings of comparisons; the same for a seed."""
    read, outcomes = Battles(battles), dict[str, int]()
    for (*_, outcome), n in sorted(read.outcomes.items(), key=lambda item: item[0][-1]):
        outcomes[outcome] = outcomes.get(outcome, 0) + n
    if not (counted := len(read.games.share)):
        said = ", ".join(f"{n} {outcome}" for outcome, n in outcomes.items()) or "no row"
        raise DataError(f"leaderboard: nothing to rank by, of {read.outcomes.total()} comparisons ({said}) none counts")
    found = fit(read.games, resamples, seed)
    pairs = list(_pairs(found, read.names))
    return Leaderboard(
        systems=_standings(found, read, pairs),
        pairs=pairs,
        separability=sum(p.decided for p in pairs) / len(pairs) if any(p.interval for p in pairs) else None,
        outcomes=outcomes,
        comparisons=read.outcomes.total(),
        counted=counted,
        prompts=found.games.prompts,
        unnamed=read.unnamed,
        judges=read.judges,
        parts=[[read.names[i] for i in members] for members in found.parts],
    )


def rate_between(games: Games, won: Floats, first: int, others: Sequence[int]) -> Rate | None:
    """The mean of a system's win rates against others, over those it met, with its interval over resamples.

    Where all resamples are alike, as where all was won or tied, the interval reaches as far as Clopper and Pearson's
    for so many prompts. None without a comparison.
    ``won``: the wins of the data and, after that, of resamples (:meth:`Games.resampled`).
    """
    from scipy.stats import beta

    prompts, met = games.between([first], others), [j for j in others if won[0, first, j] + won[0, j, first] > 0]
    if not met:
        return None
    shares = (won[:, first, met] / (won[:, first, met] + won[:, met, first])).mean(1).clip(0.0, 1.0)
    share, (low, high), n = float(shares[0]), ends(shares[1:]), len(np.unique(prompts))
    if min(share, 1.0 - share) < 1e-12:
        share = float(round(share))
    if high - low < 1e-9:
        unseen = float(beta.ppf(0.975, 1, n))
        low, high = share * (1.0 - unseen), share + (1.0 - share) * unseen
    return Rate(share=share, interval=(float(low), float(high)) if n >= FEWEST else None, games=len(prompts))


def _pairs(found: Fit, names: Sequence[str]) -> Iterator[Pair]:
    for members in found.parts:
        for i, j in combinations(sorted(members.tolist(), key=lambda m: -found.ratings[0, m]), 2):
            apart = found.ratings[:, i] - found.ratings[:, j]
            low, high = (float(end) for end in ends(apart[1:]))
            known = min(found.prompts_of(i), found.prompts_of(j)) >= FEWEST
            yield Pair(
                first=names[i],
                second=names[j],
                difference=float(apart[0]),
                interval=(low, high) if known else None,
                decided=known and low > APART,
                rate=rate_between(found.games, found.won, i, [j]),
            )


def _standings(found: Fit, read: Battles, pairs: Sequence[Pair]) -> list[Standing]:
    """The systems' rows: the largest part first, best first; then systems of which nothing could be read."""
    worse, better = Counter(p.second for p in pairs if p.decided), Counter(p.first for p in pairs if p.decided)
    part, names = {int(i): k for k, members in enumerate(found.parts) for i in members}, read.names
    ratings, everyone = found.ratings[0], range(len(names))
    rows = []
    for i in sorted(everyone, key=lambda i: (part.get(i, len(names)), -ratings[i] if i in part else 0.0, i)):
        name, members = names[i], found.parts[part[i]] if i in part else ratings[:0]
        rows.append(
            Standing(
                system=name,
                part=part.get(i),
                rating=_rating(i, found, members),
                ranks=(1 + worse[name], len(members) - better[name]) if i in part else None,
                bounded=i in found.bounded,
                win_rate=rate_between(found.games, found.won, i, [j for j in everyone if j != i]),
                **_counts(name, read),
            )
        )
    return rows


def _rating(system: int, found: Fit, members: Any) -> Rating | None:
    points = found.ratings[0, system]
    if np.isnan(points):
        return None
    low, high = (float(end) for end in ends(found.ratings[1:, system]))
    rank = 1 + int((found.ratings[0, members] > points).sum())
    return Rating(rank=rank, points=float(points), interval=(low, high) if found.prompts_of(system) >= FEWEST else None)


def _counts(name: str, read: Battles) -> dict[str, int]:
    words, of = {"A": ("wins", "losses"), "B": ("losses", "wins"), "tie": ("ties", "ties")}, Counter[str]()
    for (*pair, outcome), n in read.outcomes.items():
        if name in pair:
            of[words[outcome][pair.index(name)] if outcome in words else outcome] += n
    return {name: of[name] for name in ("wins", "ties", "losses", "inconsistent", "unreadable", "missing")}
