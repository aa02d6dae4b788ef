"""Stage ``leaderboard``: what it reads, and what must hold before it runs."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.artifacts.stages import Stage, at
from judgetrain.errors import DataError
from judgetrain.extras.leaderboard.config import LeaderboardConfig
from judgetrain.judging.stages import VerdictsSettings


@dataclass(frozen=True, kw_only=True)
class LeaderboardSettings(VerdictsSettings):
    """Stage leaderboard."""

    leaderboard: LeaderboardConfig = at("leaderboard")
    files: list[str] = at("leaderboard.files", in_fingerprint=False)


def _check_here(settings: LeaderboardSettings) -> None:
    """Read every row of the files, or what is to be judged, and look for the systems that are to be ranked.

    Raises:
        DataError: a comparison does not name its systems, or none can be judged; says which, or why.
    """
    from judgetrain.extras.leaderboard.battles import read_battles

    if settings.files:
        read_battles(settings.files, settings.leaderboard.prompt)
        return
    items = settings.items()
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


LEADERBOARD = Stage(name="leaderboard", settings=LeaderboardSettings, artifact="evaluation", check_here=_check_here)
