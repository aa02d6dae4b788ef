"""Stage ``leaderboard``: what it reads, and what must hold before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from judgetrain.artifacts.stages import Stage, StageSettings, at
from judgetrain.serving.leaderboard.config import LeaderboardConfig


@dataclass(frozen=True, kw_only=True)
class LeaderboardSettings(StageSettings):
    """Stage leaderboard."""

    leaderboard: LeaderboardConfig = at("leaderboard")


def _check_here(config: Any) -> None:
    """Read every row of the files."""
    from judgetrain.serving.leaderboard.battles import read_battles

    for _ in read_battles(config.leaderboard.files):
        pass


LEADERBOARD = Stage(
    name="leaderboard",
    makes="systems ranked by a judge's verdicts, with intervals, and a page",
    settings=LeaderboardSettings,
    code="judgetrain.serving.leaderboard.stage:run",
    artifact="evaluation",
    inputs=lambda config: () if config.leaderboard.files else ("judge",),
    check_here=_check_here,
)
