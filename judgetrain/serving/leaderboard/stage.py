"""Stage ``leaderboard``: ranks, intervals and a page from verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from judgetrain.artifacts.files import write_bytes_atomic, write_text_atomic
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.judges.views.tree_page import DIRECTORY, write_views
from judgetrain.judges.views.verdict_rows import verdict_views
from judgetrain.serving.leaderboard import text
from judgetrain.serving.leaderboard.battles import has_reasons, read_battles, read_places
from judgetrain.serving.leaderboard.differences import Difference, differences
from judgetrain.serving.leaderboard.page import page
from judgetrain.serving.leaderboard.stages import LeaderboardSettings
from judgetrain.serving.leaderboard.standings import leaderboard


def run(settings: LeaderboardSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``leaderboard.json``, ``.csv``, ``.parquet`` and ``.html``, and print the table.

    In ``view`` are pages of the comparisons that the page names, where the verdicts have reasons.
    """
    config = settings.leaderboard
    files = [Path(name) for name in config.files] or [inputs["judge"]]
    battles = list(read_battles(files))
    board = leaderboard(battles, config, out.seed)
    dropped = {name: board.outcomes.get(name, 0) for name in ("unreadable", "missing")}
    out.count(in_=board.comparisons, out=board.counted, dropped=dropped)
    out.write_json("leaderboard", board.to_json())
    table = text.rows(board)
    write_text_atomic(out.path("leaderboard.csv"), text.csv_of(table))
    write_bytes_atomic(out.path("leaderboard.parquet"), text.parquet_of(table))
    found = differences(board, battles)
    title = f"Leaderboard of {len(board.systems)} systems"
    write_text_atomic(out.path("leaderboard.html"), page(board, found, title, _pages(found, files, out)))
    out.tell(text.console(board))
    out.log(f"leaderboard: page: {out.path('leaderboard.html')}")


def _pages(found: list[Difference], files: list[Path], out: StageRun) -> dict[str, str]:
    """Pages of the comparisons that are shown, out of the rows that have reasons: their addresses by place."""
    shown = {battle.place for d in found for battle in (*d.first, *d.second)}
    rows = [(place, row) for place, row in read_places(files) if place in shown and has_reasons(row)]
    if rows:
        write_views(verdict_views(row for _, row in rows), out.path(DIRECTORY), "Comparisons of the leaderboard")
    return {place: f"{DIRECTORY}/{number:05d}.html" for number, (place, _) in enumerate(rows, start=1)}
