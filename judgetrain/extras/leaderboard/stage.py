"""Stage ``leaderboard``: ranks, intervals and a page from verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from judgetrain.artifacts.files import write_text_atomic
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.extras.leaderboard import text
from judgetrain.extras.leaderboard.battles import read_battles
from judgetrain.extras.leaderboard.stages import LeaderboardSettings
from judgetrain.extras.leaderboard.standings import leaderboard


def run(settings: LeaderboardSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``leaderboard.json``, ``.csv`` and ``.html``, and print the table."""
    config = settings.leaderboard
    board = leaderboard(list(read_battles(config.files or [inputs["judge"]])), config, out.seed)
    dropped = {name: board.outcomes.get(name, 0) for name in ("unreadable", "missing")}
    out.count(in_=board.comparisons, out=board.counted, dropped=dropped)
    out.write_json("leaderboard", asdict(board))
    write_text_atomic(out.path("leaderboard.csv"), text.csv_of(board))
    write_text_atomic(out.path("leaderboard.html"), text.page(board, f"Leaderboard of {len(board.systems)} systems"))
    out.tell(text.console(board))
    out.log(f"leaderboard: page: {out.path('leaderboard.html')}")
