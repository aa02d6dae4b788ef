"""What a leaderboard holds, as it is written."""

from __future__ import annotations

from dataclasses import dataclass

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A share from 0 to 1 of so many comparisons, and its interval."""

    share: float
    interval: Interval
    games: int


@dataclass(frozen=True, kw_only=True)
class Rating:
    """Rating points (mean 1000; 400 are odds of 10 to 1) with their interval, and the place that they give."""

    rank: int
    points: float
    interval: Interval


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A system's row. What is not known is None.

    ``part`` is the number of its part of the leaderboard: systems that are linked by comparisons; ranks are within it.
    ``ranks``: the best and the worst rank by the pairs that intervals tell apart. ``bounded``: it won, or lost, all
    comparisons with others, so that its rating is a matter of how that is bounded. ``styled``: with style held equal.
    ``win_rate``: the mean of its win rates against each other system. ``against``: that against the baseline.
    ``length``: of its responses, on average, in characters.
    """

    system: str
    part: int | None
    rating: Rating | None
    ranks: tuple[int, int] | None
    bounded: bool
    styled: Rating | None
    win_rate: Rate | None
    against: Rate | None
    wins: int
    ties: int
    losses: int
    inconsistent: int
    unreadable: int
    missing: int
    length: float | None


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two systems of one part, the better one first: rating points between them, and the first one's win rate.

    ``decided``: the interval of the difference is above :data:`~judgetrain.extras.leaderboard.standings.APART`.
    ``rate`` is None where they were never compared.
    """

    first: str
    second: str
    difference: float
    interval: Interval
    decided: bool
    rate: Rate | None


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """Everything that ``leaderboard.json`` holds: ``counted`` of ``comparisons`` are behind the ratings.

    ``style``: rating points for one standard deviation more of length or markup, with their intervals; empty where
    style is not controlled. ``separability``: the share of pairs that are decided. ``by_group``: win rates of the
    systems within each group of prompts.
    """

    systems: list[Standing]
    pairs: list[Pair]
    separability: float | None
    style: dict[str, tuple[float, Interval]]
    outcomes: dict[str, int]
    comparisons: int
    counted: int
    prompts: int
    judges: list[str]
    parts: list[list[str]]
    by_group: dict[str, dict[str, Rate]]
    baseline: str | None
    scores: str
