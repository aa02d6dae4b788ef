"""Stage ``leaderboard``: what it reads, and what must hold before it runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any

from judgetrain.artifacts.stages import Stage, at
from judgetrain.errors import ConfigError
from judgetrain.serving.config import VerdictsConfig
from judgetrain.serving.leaderboard.config import LeaderboardConfig
from judgetrain.serving.stages import JUDGE, JudgeSettings


@dataclass(frozen=True, kw_only=True)
class LeaderboardSettings(JudgeSettings):
    """Stage leaderboard, which judges by itself where it chooses what is judged."""

    leaderboard: LeaderboardConfig = at("leaderboard")
    verdicts: VerdictsConfig | None = at("verdicts")  # type: ignore[assignment]  # there where the stage judges

    @classmethod
    def unused(cls, config: Any) -> Collection[str]:
        """All that stage judge reads, where verdicts are given."""
        if config.leaderboard.budget is not None:
            return super().unused(config)
        return {field.name for field in fields(cls)} - {"seed", "leaderboard"}


def _inputs(config: Any) -> Sequence[str]:
    if config.leaderboard.budget is not None:
        return JUDGE.inputs(config)
    return () if config.leaderboard.files else (JUDGE.name,)


def _check(config: Any) -> None:
    settings = config.leaderboard
    if settings.budget is None:
        return
    if settings.files:
        raise ConfigError(
            f"leaderboard.budget={settings.budget}: leaderboard.files hold verdicts already; name comparisons to judge "
            "with verdicts.source.path or verdicts.systems, and leave leaderboard.files out"
        )
    JUDGE.check(config)


def _check_here(config: Any) -> None:
    """Read every row of the files, or what is to be judged."""
    from judgetrain.serving.leaderboard.battles import read_battles

    for _ in read_battles(config.leaderboard.files):
        pass
    if config.leaderboard.budget is not None:
        JUDGE.check_here(config)


LEADERBOARD = Stage(
    name="leaderboard",
    makes="systems ranked by a judge's verdicts, with intervals, and a page",
    settings=LeaderboardSettings,
    code="judgetrain.serving.leaderboard.stage:run",
    artifact="evaluation",
    inputs=_inputs,
    check=_check,
    check_here=_check_here,
)
