"""Stage ``leaderboard``: what it reads, and what must hold before it runs."""

from dataclasses import dataclass

from judgetrain.amounts import amount
from judgetrain.artifacts.stages import Stage, at
from judgetrain.errors import DataError
from judgetrain.extras.leaderboard.config import LeaderboardConfig
from judgetrain.judging.stages import VerdictsSettings


@dataclass(frozen=True, kw_only=True)
class LeaderboardSettings(VerdictsSettings):
    """Stage leaderboard."""

    leaderboard: LeaderboardConfig = at("leaderboard")
    # The base class asks for a judge only where no files are named; their content is in the section above.
    files: list[str] = at("leaderboard.files", in_fingerprint=False)


def _check_here(settings: LeaderboardSettings) -> None:
    """Read every row of the files, or what is to be judged, and look for the systems that are to be ranked."""
    from judgetrain.extras.leaderboard.ratings import read_battles

    if settings.files:
        # To the end: what is wrong about a row is raised when it is read.
        for _ in read_battles(settings.files, settings.leaderboard.prompt):
            pass
        return
    items = settings.items()
    if items and all(item.failure for item in items):
        raise DataError(
            f"leaderboard: none of {amount(len(items), 'comparison')} can be judged; the first: {items[0].failure}"
        )
    for item in items:
        # Rows that cannot be judged are counted, and rank nothing.
        if item.failure is not None:
            continue
        comparison = item.comparison
        system_a = comparison.model_a
        system_b = comparison.model_b
        # Found before a judge is paid: without two names a verdict ranks nobody.
        if not system_a or not system_b or system_a == system_b:
            raise DataError(
                f"leaderboard: {comparison.id}: expected the names of two systems in model_a and model_b, found "
                f"{system_a!r} and {system_b!r}; other columns are named as in "
                "'verdicts.source.fields={model_a: COLUMN}'"
            )


LEADERBOARD = Stage(
    name="leaderboard", format=2, settings=LeaderboardSettings, artifact="evaluation", check_here=_check_here
)
