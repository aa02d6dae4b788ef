"""Stage ``leaderboard``: ranks and intervals from verdicts, on the console and as a self-contained page."""

import datetime
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from judgetrain.amounts import agree, amount
from judgetrain.artifacts.files import write_text_atomic
from judgetrain.artifacts.pages import render
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.intervals import FEWEST
from judgetrain.extras.leaderboard.ratings import read_battles
from judgetrain.extras.leaderboard.stages import LeaderboardSettings
from judgetrain.extras.leaderboard.standings import Leaderboard, Rate, Standing, SystemPair, leaderboard

TEMPLATE = Path(__file__).with_name("templates") / "leaderboard.html"


def run(settings: LeaderboardSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``leaderboard.json`` and ``.html``, and print the table."""
    battles = read_battles(settings.leaderboard.files or [inputs["judge"]], settings.leaderboard.prompt)
    board = leaderboard(battles, out.seed)
    # Those alone count for nothing: inconsistent verdicts are half a win for either.
    dropped = {name: board.outcomes.get(name, 0) for name in ("unreadable", "missing")}
    out.count(in_=board.comparisons, out=board.counted, dropped=dropped)
    out.write_json("leaderboard", asdict(board))
    write_text_atomic(
        out.path("leaderboard.html"), page(board, f"Leaderboard of {amount(len(board.systems), 'system')}")
    )
    out.tell(console(board))
    out.log(f"leaderboard: page: {out.path('leaderboard.html')}")


def console(board: Leaderboard) -> list[Any]:
    """Return what is printed: a table, narrow enough for 80 columns, and what a reader of it must know."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    # Short headers: with the longest numbers a row stays within 80 columns.
    for header in ("rank", "system", "rating", "95%", "between", "win %", "n", "unread"):
        justify: Any = "right"
        if header == "system":
            justify = "left"
        table.add_column(header, justify=justify, overflow="fold")
    for standing in board.systems:
        # A system's name is text, even where it looks like markup.
        table.add_row(*map(Text, _row(standing)))
    return [table, *map(Text, remarks(board))]


def _row(standing: Standing) -> list[str]:
    """Return the cells of a system's row."""
    rank = points = interval = ranks = win_rate = "–"
    games = 0
    if standing.rating:
        rank = str(standing.rating.rank)
        points = f"{standing.rating.points:.0f}"
        if standing.rating.interval:
            low, high = standing.rating.interval
            interval = f"{low:.0f}..{high:.0f}"
    if standing.ranks:
        # A single number where the best and the worst rank are the same.
        ranks = "-".join(map(str, dict.fromkeys(standing.ranks)))
    if standing.win_rate:
        win_rate = f"{100 * standing.win_rate.share:.1f}"
        games = standing.win_rate.games
    not_read = standing.unreadable + standing.missing
    return [rank, standing.system, points, interval, ranks, win_rate, str(games), str(not_read)]


def remarks(board: Leaderboard) -> list[str]:
    """Return sentences on what a reader of the ranks must know."""
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in board.outcomes.items())
    sentences = [
        f"{board.counted} of {amount(board.comparisons, 'comparison')} on {amount(board.prompts, 'prompt')} "
        f"count ({outcomes})."
    ]
    if board.repeated:
        sentences.append(
            f"{amount(board.repeated, 'verdict')} {agree(board.repeated, 'repeat')} a comparison that the same "
            "judge judged before: the last one counts; "
            f"on {amount(board.changed, 'comparison')} it is another one."
        )
    if len(board.judges) > 1:
        sentence = (
            f"{amount(len(board.judges), 'judge')} {agree(len(board.judges), 'are')} mixed: {', '.join(board.judges)}"
        )
        if board.shared:
            sentence += (
                f"; they agree on {board.agreed} of the {amount(board.shared, 'comparison')} that several of them "
                "judged"
            )
        sentences.append(f"{sentence}. Name one judge's files in leaderboard.files to rank by it alone.")
    if board.separability is not None:
        sentences.append(f"{100 * board.separability:.0f}% of the pairs of systems are told apart.")
    uncertain = [row.system for row in board.systems if row.rating and row.rating.interval is None]
    if uncertain:
        sentences.append(f"Fewer than {FEWEST} prompts, so no interval and no rank is certain: {', '.join(uncertain)}.")
    if board.unnamed:
        sentences.append(
            f"{amount(board.unnamed, 'comparison')} {agree(board.unnamed, 'name')} no prompt: each counts as "
            "one; set leaderboard.prompt=COLUMN"
        )
    if len(board.parts) > 1:
        parts = "; ".join(", ".join(part) for part in board.parts)
        sentences.append(f"No comparison links these parts, each ranked by itself: {parts}.")
    bounded = [row.system for row in board.systems if row.bounded]
    if bounded:
        sentences.append(
            f"Won or lost every comparison with others: {', '.join(bounded)}. No finite rating fits that, so half of "
            "one more prompt is taken to have gone the other way; the interval takes as many as chance may have hidden."
        )
    return sentences


def page(board: Leaderboard, title: str) -> str:
    """Return the page: ranks with intervals, and the matrix of pairs."""
    # Each part has a list of its own on the page, since ranks of two parts say nothing of each other.
    parts = []
    for number in range(len(board.parts)):
        parts.append([row for row in board.systems if row.part == number])
    cells: dict[tuple[str, str], tuple[Rate, bool]] = {}
    for pair in board.pairs:
        cells |= _cells(pair)
    return render(
        TEMPLATE,
        title=title,
        board=board,
        remarks=remarks(board),
        parts=parts,
        pairs=cells,
        day=datetime.date.today().isoformat(),
    )


def _cells(pair: SystemPair) -> Mapping[tuple[str, str], tuple[Rate, bool]]:
    """Return the two fields of a pair in the matrix: the row's win rate against the column, and if it is decided."""
    rate = pair.rate
    if rate is None:
        return {}
    interval = None
    if rate.interval:
        low, high = rate.interval
        interval = (1.0 - high, 1.0 - low)
    # The matrix has both halves: a reader looks up a system in its row.
    turned = Rate(share=1.0 - rate.share, interval=interval, games=rate.games)
    return {(pair.first, pair.second): (rate, pair.decided), (pair.second, pair.first): (turned, pair.decided)}
