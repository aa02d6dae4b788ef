"""Experiment tracking, and where shards are processed."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain import rooms
from judgetrain.keys import key

EXECUTORS = {"local": "judgetrain.artifacts.executors.base:Executor"} | {
    name: code for room in rooms.rooms() for name, code in room.executors.items()
}
"""What the types of executor make, as ``module:Class``."""


@dataclass
class TrackConfig:
    """Experiment tracking; W&B itself reads WANDB_MODE, WANDB_PROJECT and WANDB_RUN_GROUP."""

    tracker: str = key(
        "wandb",
        "wandb: as WANDB_MODE says, else online with a key (WANDB_API_KEY or netrc) and offline without",
        choices=("wandb", "none"),
    )


@dataclass
class ExecutorConfig:
    """Where work that goes by shards is done; what comes out is the same everywhere."""

    type: str = key(
        "local",
        "local: in this process; ray: by workers on the Ray cluster of RAY_ADDRESS (else on this machine), each with a "
        "model of its own",
        choices=tuple(EXECUTORS),
        in_fingerprint=False,
    )
    workers: int | None = key(
        None, "ray: workers; None takes as many as the cluster has room for", low=1, in_fingerprint=False
    )
