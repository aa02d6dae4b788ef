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
        "a system's part of a comparison: verdicts (1, a tie 0.5, else 0), orders (the mean over both orders' "
        "verdicts), margins (a logistic curve over the margin)",
        choices=("verdicts", "orders", "margins"),
    )
    margin_scale: float = key(
        1.0, "the margin that counts as 0.73 of a win", above=0.0, active_if=lambda c: c.scores == "margins"
    )
    inconsistent: str = key(
        "tie", "what different verdicts in the two orders count as; drop: nothing", choices=("tie", "drop")
    )
    style: bool = key(True, "also rank with length and markdown held equal, where responses are known")
    baseline: str | None = key(None, "a system that all others are set against")
    bootstrap: int = key(1000, "resamples of prompts", low=100)
    budget: int | None = key(
        None,
        "judge so many of stage judge's comparisons, chosen in waves where the ranks are least certain; null: all",
        low=1,
        unit="comparisons",
    )
    wave: int = key(64, "comparisons chosen at a time", low=1, active_if=lambda c: c.budget is not None)
    examples: int = key(3, "comparisons shown of each pair of neighbours in the ranks, for either side", low=0)
