"""Experiment tracking."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.keys import key


@dataclass
class TrackConfig:
    """Experiment tracking."""

    tracker: str = key(
        "auto",
        "auto: W&B online with a key (WANDB_API_KEY or netrc), else offline",
        choices=("auto", "wandb", "wandb_offline", "none"),
    )
    project: str = key("judgetrain", "W&B project")
    group: str | None = key(None, "W&B group; None takes the recipe's name")
    upload: bool = key(
        False, "send the files of every stage, weights and text of the data among them; else references to them"
    )
