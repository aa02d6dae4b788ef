"""Experiment tracking, and where shards are processed."""

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


@dataclass
class ExecutorConfig:
    """Where work that goes by shards is done; what comes out is the same everywhere."""

    type: str = key(
        "local",
        "local: in this process; ray: by workers on a Ray cluster, each with a model of its own",
        choices=("local", "ray"),
        in_fingerprint=False,
    )
    workers: int | None = key(
        None, "ray: workers; None takes as many as the cluster has room for", low=1, in_fingerprint=False
    )
    gpus_per_worker: float | None = key(
        None,
        "ray: GPUs of each worker; None takes what engine.* needs where there are any",
        low=0.0,
        in_fingerprint=False,
    )
    cpus_per_worker: float = key(1.0, "ray: CPU cores of each worker", low=0.0, in_fingerprint=False)
    start_timeout: float = key(
        600.0,
        "ray: for a first worker to be ready, where the cluster has no room for one yet",
        low=1.0,
        unit="s",
        in_fingerprint=False,
    )
    address: str | None = key(
        None,
        "ray: the cluster, as in auto or HOST:6379; None takes RAY_ADDRESS, else starts one on this machine",
        in_fingerprint=False,
    )
