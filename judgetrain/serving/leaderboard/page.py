"""The leaderboard as one self-contained page: ranks with intervals, the matrix of pairs, and where systems differ."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from judgetrain.artifacts.pages import render
from judgetrain.serving.leaderboard.differences import Difference
from judgetrain.serving.leaderboard.records import Leaderboard, Pair, Standing

TEMPLATE = Path(__file__).with_name("templates") / "leaderboard.html"
LEFT, RIGHT, ROW = 190, 660, 30
"""Where the ratings' axis begins and ends in the picture, and the height of a system's line."""


@dataclass(frozen=True)
class Ladder:
    """The picture of ranks: a line for each system of a part, with its rating, interval, and rating at equal style."""

    rows: Sequence[Standing]
    low: float
    high: float

    @classmethod
    def of(cls, rows: Sequence[Standing]) -> Ladder:
        """The axis holds all intervals, but for those that reach far since nothing bounds them."""
        held = [s for s in rows if not s.bounded] or list(rows)
        ratings = [r for s in held for r in (s.rating, s.styled) if r]
        values = [v for r in ratings for v in (r.points, *(r.interval or ()))]
        values += [s.rating.points for s in rows if s.rating]
        room = 0.05 * (max(values) - min(values)) or 1.0
        return cls(rows, min(values) - room, max(values) + room)

    def x(self, points: float) -> float:
        """Where a rating lies; what is off the axis lies at its end."""
        share = (min(max(points, self.low), self.high) - self.low) / (self.high - self.low)
        return round(LEFT + (RIGHT - LEFT) * share, 1)

    @property
    def ticks(self) -> list[int]:
        """Round ratings, at most about six."""
        step = next(s for k in range(1, 9) for s in (10**k, 2 * 10**k, 5 * 10**k) if (self.high - self.low) / s <= 6)
        return list(range(int(-(-self.low // step)) * step, int(self.high) + 1, step))

    @property
    def height(self) -> int:
        """Of the picture."""
        return ROW * len(self.rows) + 34


def page(board: Leaderboard, found: Sequence[Difference], title: str, links: Mapping[str, str]) -> str:
    """The page. ``links``: addresses of the pages of comparisons, by their place."""
    parts = [[s for s in board.systems if s.part == k] for k in range(len(board.parts))]
    places = [(d.pair.first, d.pair.second) for d in found]
    return render(
        TEMPLATE,
        title=title,
        board=board,
        ladders=[Ladder.of(rows) for rows in parts],
        unranked=[s for s in board.systems if s.part is None],
        pairs={key: cell for p in board.pairs for key, cell in _cells(p).items()},
        differences=found,
        links=links,
        places={key: n for n, pair in enumerate(places) for key in (pair, pair[::-1])},
        day=datetime.date.today().isoformat(),
        left=LEFT,
        right=RIGHT,
        row=ROW,
    )


@dataclass(frozen=True)
class Cell:
    """A field of the matrix: the row's win rate against the column, and whether the pair is decided."""

    share: float
    games: int
    interval: tuple[float, float]
    decided: bool


def _cells(pair: Pair) -> dict[tuple[str, str], Cell]:
    """The two fields of a pair; none where the two were never compared."""
    if pair.rate is None:
        return {}
    (low, high), share, games = pair.rate.interval, pair.rate.share, pair.rate.games
    return {
        (pair.first, pair.second): Cell(share, games, (low, high), pair.decided),
        (pair.second, pair.first): Cell(1.0 - share, games, (1.0 - high, 1.0 - low), pair.decided),
    }
