"""Stage ``leaderboard``: ranks, intervals and a page from verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from judgetrain.artifacts.files import write_bytes_atomic, write_text_atomic
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.serving.leaderboard import text
from judgetrain.serving.leaderboard.battles import read_battles
from judgetrain.serving.leaderboard.differences import differences
from judgetrain.serving.leaderboard.page import page
from judgetrain.serving.leaderboard.stages import LeaderboardSettings
from judgetrain.serving.leaderboard.standings import leaderboard


def run(settings: LeaderboardSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``leaderboard.json``, ``.csv``, ``.parquet`` and ``.html``, and print the table."""
    config = settings.leaderboard
    battles = list(read_battles(config.files or [inputs["judge"]]))
    board = leaderboard(battles, config, out.seed)
    dropped = {name: board.outcomes.get(name, 0) for name in ("unreadable", "missing")}
    out.count(in_=board.comparisons, out=board.counted, dropped=dropped)
    out.write_json("leaderboard", board.to_json())
    table = text.rows(board)
    write_text_atomic(out.path("leaderboard.csv"), text.csv_of(table))
    write_bytes_atomic(out.path("leaderboard.parquet"), text.parquet_of(table))
    found = differences(board, battles, config.examples, {})
    write_text_atomic(out.path("leaderboard.html"), page(board, found, f"Leaderboard of {len(board.systems)} systems"))
    out.tell(text.console(board))
    out.log(f"leaderboard: page: {out.path('leaderboard.html')}")
