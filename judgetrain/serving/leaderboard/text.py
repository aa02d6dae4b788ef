"""The leaderboard on the console and as a table in files."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from judgetrain.serving.leaderboard.records import Interval, Leaderboard, Rate, Standing

COLUMNS = {
    "part": "int64",
    "rank": "int64",
    "system": "string",
    **dict.fromkeys(("rating", "rating_low", "rating_high"), "double"),
    **dict.fromkeys(("best_rank", "worst_rank"), "int64"),
    "bounded": "bool",
    "styled_rank": "int64",
    **dict.fromkeys(("styled_rating", "styled_low", "styled_high"), "double"),
    **dict.fromkeys(("win_rate", "win_rate_low", "win_rate_high", "against", "against_low", "against_high"), "double"),
    **dict.fromkeys(("games", "wins", "ties", "losses", "inconsistent", "unreadable", "missing"), "int64"),
    "length": "double",
}
"""The columns of ``leaderboard.csv`` and ``.parquet``, with Arrow's types."""


def rows(board: Leaderboard) -> list[dict[str, Any]]:
    """A row for each system, by :data:`COLUMNS`; None for what is not known."""
    return [dict(zip(COLUMNS, _row(s), strict=True)) for s in board.systems]


def _row(s: Standing) -> tuple[Any, ...]:
    return (
        *(s.part, s.rating.rank if s.rating else None, s.system),
        *(s.rating.points if s.rating else None, *_ends(s.rating.interval if s.rating else None)),
        *(s.ranks or (None, None)),
        s.bounded,
        *(s.styled.rank if s.styled else None, s.styled.points if s.styled else None),
        *_ends(s.styled.interval if s.styled else None),
        *_share(s.win_rate),
        *_share(s.against),
        s.win_rate.games if s.win_rate else 0,
        *(s.wins, s.ties, s.losses, s.inconsistent, s.unreadable, s.missing),
        s.length,
    )


def _ends(interval: Interval | None) -> tuple[float | None, float | None]:
    return interval or (None, None)


def _share(rate: Rate | None) -> tuple[float | None, float | None, float | None]:
    return (rate.share, *rate.interval) if rate else (None, None, None)


def csv_of(table: Sequence[Mapping[str, Any]]) -> str:
    """The rows as CSV; what is not known is empty."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(COLUMNS), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return file.getvalue()


def parquet_of(table: Sequence[Mapping[str, Any]]) -> bytes:
    """The rows as a Parquet file."""
    import pyarrow as arrow
    import pyarrow.parquet

    schema = arrow.schema([(name, arrow.type_for_alias(kind)) for name, kind in COLUMNS.items()])
    buffer = io.BytesIO()
    arrow.parquet.write_table(arrow.Table.from_pylist([dict(row) for row in table], schema=schema), buffer)
    return buffer.getvalue()


def console(board: Leaderboard) -> list[Any]:
    """What is printed: a table, narrow enough for 80 columns, and what must be known beside it."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    headers = ["rank", "system", "rating", "95%", "between", *(["styled"] if board.style else []), "win %"]
    headers += [*(["base %"] if board.baseline else []), "n", "unread"]
    for header in headers:
        table.add_column(header, justify="left" if header == "system" else "right", overflow="fold")
    for s in board.systems:
        cells = ["–" if s.rating is None else str(s.rating.rank), s.system, *_rating(s)]
        cells += [f"{s.styled.points:.0f}" if s.styled else "–"] if board.style else []
        cells += [_percent(s.win_rate), *([_percent(s.against)] if board.baseline else [])]
        cells += [str(s.win_rate.games if s.win_rate else 0), str(s.unreadable + s.missing)]
        table.add_row(*map(Text, cells))
    return [table, *map(Text, remarks(board))]


def _rating(s: Standing) -> list[str]:
    if s.rating is None or s.ranks is None:
        return ["–", "–", "–"]
    low, high = s.rating.interval or (s.rating.points, s.rating.points)
    best, worst = s.ranks
    return [f"{s.rating.points:.0f}", f"{low:.0f}..{high:.0f}", str(best) if best == worst else f"{best}-{worst}"]


def _percent(rate: Rate | None) -> str:
    return f"{100 * rate.share:.1f}" if rate else "–"


def remarks(board: Leaderboard) -> list[str]:
    """Sentences on what a reader of the ranks must know."""
    outcomes = ", ".join(f"{n} {outcome}" for outcome, n in board.outcomes.items())
    said = [f"{board.counted} of {board.comparisons} comparisons on {board.prompts} prompts count ({outcomes})."]
    if board.separability is not None:
        said.append(f"{100 * board.separability:.0f}% of the pairs of systems are told apart.")
    if len(board.parts) > 1:
        parts = "; ".join(", ".join(part) for part in board.parts)
        said.append(f"No comparison links these parts, each ranked by itself: {parts}.")
    for sweep in board.sweeps:
        pair = f"{', '.join(sweep.winners)} won every comparison with {', '.join(sweep.losers)}"
        how = "no finite rating fits, so half of one more is taken to have gone the other way"
        said.append(f"{pair} ({sweep.prompts} prompts): {how}.")
    if board.position:
        first = board.position.first
        low, high = (100 * end for end in first.interval)
        shown = f"What was shown first won {100 * first.share:.1f}% ({low:.1f} to {high:.1f})"
        said.append(f"{shown} of {first.games} orders that were no tie.")
    return said
