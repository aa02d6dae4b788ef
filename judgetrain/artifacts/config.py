"""Experiment tracking, and where shards are processed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from judgetrain import rooms
from judgetrain.artifacts.fingerprint import check_package
from judgetrain.keys import key

EXECUTORS = {"local": "judgetrain.artifacts.local_executor:LocalExecutor"} | {
    name: code for room in rooms.rooms() for name, code in room.executors.items()
}
"""What the types of executor make, as ``module:Class``."""


REPORTED = ("trackio", "mlflow", "tensorboard", "comet_ml", "clearml", "swanlab", "neptune", "dvclive")
"""Trackers, by the names of their packages, to which Transformers' trainers report the curves of training."""


@dataclass
class TrackConfig:
    """Experiment tracking; W&B itself reads WANDB_MODE, WANDB_PROJECT and WANDB_RUN_GROUP."""

    tracker: Any = key(
        "wandb",
        "one, or a list; wandb: as WANDB_MODE says, else online with a key (WANDB_API_KEY or netrc) and offline "
        "without; the others get the curves of training alone",
        choices=("wandb", "none", *REPORTED),
    )

    @property
    def names(self) -> list[str]:
        """The trackers."""
        return [name for name in ([self.tracker] if isinstance(self.tracker, str) else self.tracker) if name != "none"]

    def check_here(self) -> None:
        """Refuse trackers whose packages are not installed (``ConfigError``)."""
        for name in self.names:
            check_package(name, f"track.tracker={name}")


@dataclass
class ExecutorConfig:
    """Where work that goes by shards is done; what comes out is the same everywhere."""

    type: str = key(
        "local",
        "local: on this machine; ray: by workers on the Ray cluster of RAY_ADDRESS (else on this machine), each with a "
        "model of its own",
        choices=tuple(EXECUTORS),
        in_fingerprint=False,
    )
    workers: int | None = key(
        None,
        "processes with a model each; None: local: this one; ray: as many as the cluster has room for",
        low=1,
        in_fingerprint=False,
    )
