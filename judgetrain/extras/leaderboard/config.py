"""Stage leaderboard."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.keys import beside, key


@dataclass
class LeaderboardConfig:
    """Stage leaderboard: systems ranked by verdicts, with intervals over prompts."""

    files: list[str] = key(
        [],
        "files or globs of verdicts (stage judge's rows, or rows with model_a, model_b, winner) and directories of "
        "stage judge; empty: the verdicts of stage judge",
        content=beside(lambda path, owner: path),
    )
    scores: str = key(
        "verdicts",
        "a system's part of a comparison: verdicts (1; a tie, or different verdicts in the two orders, 0.5; else 0), "
        "consistent (the same, but different verdicts count nothing), orders (the mean over both orders' verdicts), "
        "margins (a logistic curve over the margin)",
        choices=("verdicts", "consistent", "orders", "margins"),
    )
    baseline: str | None = key(None, "a system that all others are set against")
