"""Stage leaderboard."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.keys import beside, key


@dataclass
class LeaderboardConfig:
    """Stage leaderboard: systems ranked by verdicts, with intervals over prompts."""

    files: list[str] = key(
        [],
        "files or globs of verdicts, or of rows with model_a, model_b, winner; empty: the verdicts of stage judge",
        content=beside(lambda path, owner: path),
    )
    prompt: str | None = key(
        None,
        "column that says which prompt a row is about; null: uid, question_id, prompt_id, or the user's words",
        active_if=lambda c: c.prompt is not None,
    )
