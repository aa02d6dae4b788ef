"""Stage ``leaderboard``: what it reads, and what must hold before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from judgetrain.artifacts.stages import Stage, StageSettings, at
from judgetrain.data.config import WorldConfig
from judgetrain.errors import DataError
from judgetrain.extras.leaderboard.config import LeaderboardConfig
from judgetrain.judging.config import VerdictsConfig
from judgetrain.judging.stages import JUDGE, items_here


@dataclass(frozen=True, kw_only=True)
class LeaderboardSettings(StageSettings):
    """Stage leaderboard."""

    leaderboard: LeaderboardConfig = at("leaderboard")
    verdicts: VerdictsConfig = at("verdicts", in_fingerprint=False)
    world: WorldConfig = at("dialogues.world", in_fingerprint=False)
    """What stage judge is to judge, looked at before it does."""


def _inputs(settings: LeaderboardSettings) -> Sequence[str]:
    return () if settings.leaderboard.files else (JUDGE.name,)


def _check_here(settings: LeaderboardSettings) -> None:
    """Read every row of the files, or what is to be judged, and look for the systems that are to be ranked.

    Raises:
        DataError: a comparison does not name its systems, or none can be judged; says which, or why.
    """
    from judgetrain.extras.leaderboard.battles import read_battles

    if settings.leaderboard.files:
        for _ in read_battles(settings.leaderboard.files):
            pass
        return
    items = items_here(settings.verdicts, settings.world, settings.seed)
    judged = [item.comparison for item in items if item.failure is None]
    if items and not judged:
        raise DataError(f"leaderboard: none of {len(items)} comparisons can be judged; the first: {items[0].failure}")
    for comparison in judged:
        a, b = comparison.model_a, comparison.model_b
        if not (a and b) or a == b:
            raise DataError(
                f"leaderboard: {comparison.id}: expected the names of two systems in model_a and model_b, found {a!r} "
                f"and {b!r}; other columns are named as in 'verdicts.source.fields={{model_a: COLUMN}}'"
            )


LEADERBOARD = Stage(
    name="leaderboard",
    settings=LeaderboardSettings,
    code="judgetrain.extras.leaderboard.stage:run",
    artifact="evaluation",
    inputs=_inputs,
    check_here=_check_here,
)
