"""Stage ``leaderboard``: ranks and intervals from verdicts, on the console and as a self-contained page."""

import datetime
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from judgetrain.artifacts.files import write_text_atomic
from judgetrain.artifacts.pages import render
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.evaluate.metrics.intervals import FEWEST
from judgetrain.extras.leaderboard.ratings import read_battles
from judgetrain.extras.leaderboard.stages import LeaderboardSettings
from judgetrain.extras.leaderboard.standings import Leaderboard, Pair, Rate, leaderboard

TEMPLATE = Path(__file__).with_name("templates") / "leaderboard.html"


def run(settings: LeaderboardSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``leaderboard.json`` and ``.html``, and print the table."""
    battles = read_battles(settings.leaderboard.files or [inputs["judge"]], settings.leaderboard.prompt)
    board = leaderboard(battles, out.seed)
    dropped = {name: board.outcomes.get(name, 0) for name in ("unreadable", "missing")}
    out.count(in_=board.comparisons, out=board.counted, dropped=dropped)
    out.write_json("leaderboard", asdict(board))
    write_text_atomic(out.path("leaderboard.html"), page(board, f"Leaderboard of {len(board.systems)} systems"))
    out.tell(console(board))
    out.log(f"leaderboard: page: {out.path('leaderboard.html')}")


def console(board: Leaderboard) -> list[Any]:
    """What is printed: a table, narrow enough for 80 columns, and what must be known beside it."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for header in ("rank", "system", "rating", "95%", "between", "win %", "n", "unread"):
        table.add_column(header, justify="left" if header == "system" else "right", overflow="fold")
    for s in board.systems:
        ends, ranks, rate = s.rating and s.rating.interval, s.ranks, s.win_rate
        cells = [str(s.rating.rank) if s.rating else "–", s.system, f"{s.rating.points:.0f}" if s.rating else "–"]
        cells.append(f"{ends[0]:.0f}..{ends[1]:.0f}" if ends else "–")
        cells.append("-".join(map(str, dict.fromkeys(ranks))) if ranks else "–")
        cells += [f"{100 * rate.share:.1f}" if rate else "–", str(rate.games if rate else 0)]
        table.add_row(*map(Text, [*cells, str(s.unreadable + s.missing)]))
    return [table, *map(Text, remarks(board))]


def remarks(board: Leaderboard) -> list[str]:
    """Sentences on what a reader of the ranks must know."""
    outcomes = ", ".join(f"{n} {outcome}" for outcome, n in board.outcomes.items())
    said = [f"{board.counted} of {board.comparisons} comparisons on {board.prompts} prompts count ({outcomes})."]
    if board.separability is not None:
        said.append(f"{100 * board.separability:.0f}% of the pairs of systems are told apart.")
    if few := [s.system for s in board.systems if s.rating and s.rating.interval is None]:
        said.append(f"Fewer than {FEWEST} prompts, so no interval and no rank is certain: {', '.join(few)}.")
    if board.unnamed:
        said.append(f"{board.unnamed} comparisons name no prompt: each counts as one; set leaderboard.prompt=COLUMN")
    if len(board.parts) > 1:
        parts = "; ".join(", ".join(part) for part in board.parts)
        said.append(f"No comparison links these parts, each ranked by itself: {parts}.")
    if bounded := [s.system for s in board.systems if s.bounded]:
        said.append(
            f"Won or lost every comparison with others: {', '.join(bounded)}. No finite rating fits that, so half of "
            "one more prompt is taken to have gone the other way; the interval takes as many as chance may have hidden."
        )
    return said


def page(board: Leaderboard, title: str) -> str:
    """The page: ranks with intervals, the matrix of pairs."""
    return render(
        TEMPLATE,
        title=title,
        board=board,
        remarks=remarks(board),
        parts=[[s for s in board.systems if s.part == k] for k in range(len(board.parts))],
        pairs={key: cell for p in board.pairs for key, cell in _cells(p).items()},
        day=datetime.date.today().isoformat(),
    )


def _cells(pair: Pair) -> Mapping[tuple[str, str], tuple[Rate, bool]]:
    """The two fields of a pair in the matrix: the row's win rate against the column, and whether it is decided."""
    if pair.rate is None:
        return {}
    rate, ends = pair.rate, pair.rate.interval
    turned = Rate(share=1.0 - rate.share, interval=ends and (1.0 - ends[1], 1.0 - ends[0]), games=rate.games)
    return {(pair.first, pair.second): (rate, pair.decided), (pair.second, pair.first): (turned, pair.decided)}
