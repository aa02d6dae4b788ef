"""Rank systems by comparisons: from battles to the leaderboard."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from judgetrain.amounts import amount
from judgetrain.data.intervals import FEWEST, Interval
from judgetrain.errors import DataError
from judgetrain.extras.leaderboard.ratings import Battle, Battles, Fit, Floats, Games, ends, fit

RESAMPLES = 1000
"""Resamples of prompts: the ends of a 95% interval then move by some 3% of its width between two seeds."""
APART = 1.0
"""Rating points by which one system is above another at least: less is the trace of prompts that were not drawn."""
ROUNDING = 1e-4
"""Rating points that a fit is off at most. One more comparison of a million moves a rating by ten times as much."""


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A share (0 to 1) of so many ``games``, and its interval.

    The interval is None where one of the opponents was met on fewer than :data:`FEWEST` prompts.
    """

    share: float
    interval: Interval | None
    games: int


@dataclass(frozen=True, kw_only=True)
class SystemRating:
    """Rating points (mean 1000; 400 are odds of 10 to 1), their interval, and the rank that they give in a part."""

    rank: int
    points: float
    interval: Interval | None


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A system's row. What the comparisons do not tell is None.

    Args:
        system: its name.
        part: the number of its part of the leaderboard: systems that are linked by comparisons.
        rating: with the rank in the part.
        ranks: the best and the worst rank by the pairs that intervals tell apart.
        bounded: whether it won, or lost, all comparisons with others, so that its rating is a matter of how that is
            bounded.
        win_rate: the mean of its win rates against each other system.
        wins: comparisons, as the following ones.
    """

    system: str
    part: int | None
    rating: SystemRating | None
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
class SystemPair:
    """Two systems of one part, the better one first.

    Args:
        first: the better one.
        second: the other.
        difference: rating points between them.
        interval: of the difference; None where one of them has too few prompts.
        decided: whether the interval is above :data:`APART`.
        rate: the first one's win rate; None where they were never compared.
    """

    first: str
    second: str
    difference: float
    interval: Interval | None
    decided: bool
    rate: Rate | None


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """The content of ``leaderboard.json``.

    Args:
        systems: a row a system, best first.
        pairs: of systems of one part.
        separability: the share of pairs that are decided; None where no pair has an interval.
        outcomes: numbers of comparisons by outcome.
        comparisons: number of them.
        counted: number of those that are behind the ratings.
        prompts: number of prompts.
        unnamed: number of comparisons that do not say which prompt they are about.
        judges: who judged.
        repeated: number of verdicts that a later one of the same judge on the same comparison replaces.
        changed: number of comparisons on which one judge gave different verdicts.
        shared: number of comparisons that several judges gave a verdict on.
        agreed: number of those on which all of them say the same.
        parts: systems that are linked by comparisons.
    """

    systems: list[Standing]
    pairs: list[SystemPair]
    separability: float | None
    outcomes: dict[str, int]
    comparisons: int
    counted: int
    prompts: int
    unnamed: int
    judges: list[str]
    repeated: int
    changed: int
    shared: int
    agreed: int
    parts: list[list[str]]


def leaderboard(battles: Iterable[Battle], seed: int, resamples: int = RESAMPLES) -> Leaderboard:
    """Return the standings of comparisons; the same for a seed.

    Raises:
        DataError: no comparison counts.
    """
    comparisons = Battles(battles)
    outcomes: dict[str, int] = {}
    # By outcome, whoever was compared; sorted, so that the file does not depend on the order of the rows.
    for (_, _, outcome), count in sorted(comparisons.outcomes.items(), key=lambda item: item[0][-1]):
        outcomes[outcome] = outcomes.get(outcome, 0) + count
    total = comparisons.outcomes.total()
    counted = len(comparisons.games.share)
    if not counted:
        numbers = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()) or "no row"
        raise DataError(f"leaderboard: nothing to rank by, of {amount(total, 'comparison')} ({numbers}) none counts")
    ratings = fit(comparisons.games, resamples, seed)
    pairs = list(_pairs(ratings, comparisons.names))
    separability = None
    if any(pair.interval for pair in pairs):
        # Of all pairs, also of those with too few prompts for an interval: they are not told apart.
        separability = sum(pair.decided for pair in pairs) / len(pairs)
    parts = []
    for members in ratings.parts:
        parts.append([comparisons.names[system] for system in members])
    return Leaderboard(
        systems=_standings(ratings, comparisons, pairs),
        pairs=pairs,
        separability=separability,
        outcomes=outcomes,
        comparisons=total,
        counted=counted,
        prompts=ratings.games.prompts,
        unnamed=comparisons.unnamed,
        judges=comparisons.judges,
        repeated=comparisons.repeats.repeated,
        changed=comparisons.repeats.changed,
        shared=comparisons.repeats.shared,
        agreed=comparisons.repeats.agreed,
        parts=parts,
    )


def rate_between(games: Games, won: Floats, first: int, others: Sequence[int]) -> Rate | None:
    """Return the mean of a system's win rates against others, over those it met, with its interval over resamples.

    Where all resamples against an opponent are alike, as where all was won or tied, they show no chance of another
    outcome. The interval then reaches further, by what Clopper and Pearson allow for as many prompts as it met this
    opponent on. If the mean over opponents is further off, so is the win rate against one of them: that is as unlikely,
    whatever prompts opponents share.

    Args:
        games: the comparisons.
        won: the wins of the data and, after that, of resamples (:meth:`Games.resampled`).
        first: the system.
        others: those it is compared with.

    Returns:
        None where it met none of them. Its interval is None where it met one of them on fewer than :data:`FEWEST`
        prompts, which the mean over opponents rests on as much as on any other's.
    """
    from scipy.stats import beta

    # In the data, not in a resample: a pair that a resample did not draw keeps the small weight of LEAST.
    met = [other for other in others if won[0, first, other] + won[0, other, first] > 0]
    if not met:
        return None
    wins = won[:, first, met]
    losses = won[:, met, first]
    shares = (wins / (wins + losses)).clip(0.0, 1.0)
    # The mean over opponents and not over comparisons: an opponent that is met often does not count for more.
    means = shares.mean(1)
    share = float(means[0])
    # A share of all or nothing is written as such, without the trace of rounding.
    if min(share, 1.0 - share) < 1e-12:
        share = float(round(share))

    prompts = games.prompts_between[first, met]
    interval = None
    if prompts.min() >= FEWEST:
        low, high = ends(means[1:])
        is_alike = np.ptp(shares, axis=0) < 1e-9
        unseen = np.where(is_alike, beta.ppf(0.975, 1, prompts), 0.0)
        low -= (shares[0] * unseen).mean()
        high += ((1.0 - shares[0]) * unseen).mean()
        interval = (max(0.0, float(low)), min(1.0, float(high)))
    return Rate(share=share, interval=interval, games=int(games.comparisons_between[first, met].sum()))


def _pairs(ratings: Fit, names: Sequence[str]) -> Iterator[SystemPair]:
    """Yield every two systems of a part, the better one first."""
    for members in ratings.parts:
        best_first = sorted(members.tolist(), key=lambda system: -ratings.ratings[0, system])
        for first, second in combinations(best_first, 2):
            # Within each resample: both ratings of it move together, so that two intervals that overlap may still be
            # apart.
            distances = ratings.ratings[:, first] - ratings.ratings[:, second]
            low, high = map(float, ends(distances[1:]))
            interval = None
            if min(ratings.prompts_of(first), ratings.prompts_of(second)) >= FEWEST:
                interval = (low, high)
            yield SystemPair(
                first=names[first],
                second=names[second],
                difference=float(distances[0]),
                interval=interval,
                decided=interval is not None and low > APART,
                rate=rate_between(ratings.games, ratings.won, first, [second]),
            )


def _standings(ratings: Fit, comparisons: Battles, pairs: Sequence[SystemPair]) -> list[Standing]:
    """Return the systems' rows: the largest part first, best first; then systems of which nothing could be read."""
    # How many systems are surely above each one, and how many below: the ends of its ranks.
    above = Counter(pair.second for pair in pairs if pair.decided)
    below = Counter(pair.first for pair in pairs if pair.decided)
    part_of: dict[int, int] = {}
    for number, members in enumerate(ratings.parts):
        part_of |= dict.fromkeys(members.tolist(), number)
    names = comparisons.names
    systems = range(len(names))

    def best_first(system: int) -> tuple[int, float, int]:
        if system not in part_of:
            # There are no more parts than names, so that these stand behind all parts.
            return len(names), 0.0, system
        return part_of[system], -ratings.ratings[0, system], system

    rows = []
    for system in sorted(systems, key=best_first):
        name = names[system]
        rating = None
        ranks = None
        if system in part_of:
            members = ratings.parts[part_of[system]]
            rating = _rating(system, ratings, members)

            # Among the systems that no interval tells apart any order is possible.
            ranks = (1 + above[name], len(members) - below[name])
        others = [other for other in systems if other != system]
        rows.append(
            Standing(
                system=name,
                part=part_of.get(system),
                rating=rating,
                ranks=ranks,
                bounded=system in ratings.bounded,
                win_rate=rate_between(ratings.games, ratings.won, system, others),
                **_counts(name, comparisons),
            )
        )
    return rows


def _rating(system: int, ratings: Fit, members: Any) -> SystemRating | None:
    """Return a system's rating; None without a comparison.

    Args:
        system: its number.
        ratings: of all systems.
        members: the systems of its part.
    """
    points = ratings.ratings[0, system]
    if np.isnan(points):
        return None
    # Equal ratings share the better rank, and a fit finds none to the last digit.
    rank = 1 + int((ratings.ratings[0, members] > points + ROUNDING).sum())
    interval = None
    if ratings.prompts_of(system) >= FEWEST:
        low, high = map(float, ends(ratings.ratings[1:, system]))
        interval = (low, high)
    return SystemRating(rank=rank, points=float(points), interval=interval)


def _counts(name: str, comparisons: Battles) -> dict[str, int]:
    """Return how many comparisons of a system had which outcome, as columns of its row."""
    # The column of the first system, and that of the second.
    columns = {"A": ("wins", "losses"), "B": ("losses", "wins"), "tie": ("ties", "ties")}
    counts = dict.fromkeys(("wins", "ties", "losses", "inconsistent", "unreadable", "missing"), 0)
    for (system_a, system_b, outcome), count in comparisons.outcomes.items():
        if name not in (system_a, system_b):
            continue
        first, second = columns.get(outcome, (outcome, outcome))
        if name == system_a:
            counts[first] += count
        else:
            counts[second] += count
    return counts
