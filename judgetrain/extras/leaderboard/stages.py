"""Stage ``leaderboard``: what it reads, and what must hold before it runs."""

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
    """Read every row of the files, or what is to be judged, and look for the systems that are to be ranked."""
    from judgetrain.extras.leaderboard.ratings import read_battles

    if settings.files:
        for _ in read_battles(settings.files, settings.leaderboard.prompt):  # what is wrong about a row is raised
            pass
        return
    items = settings.items()
    if items and all(item.failure for item in items):
        raise DataError(f"leaderboard: none of {len(items)} comparisons can be judged; the first: {items[0].failure}")
    for found in (item.comparison for item in items if item.failure is None):
        if not (found.model_a and found.model_b) or found.model_a == found.model_b:
            told = f"in model_a and model_b, found {found.model_a!r} and {found.model_b!r}; other columns are named as"
            told += " in 'verdicts.source.fields={model_a: COLUMN}'"
            raise DataError(f"leaderboard: {found.id}: expected the names of two systems {told}")


LEADERBOARD = Stage(name="leaderboard", settings=LeaderboardSettings, artifact="evaluation", check_here=_check_here)
