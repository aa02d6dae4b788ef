"""What runs in a process of Ray: a worker that holds a model and processes shards with it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from judgetrain.artifacts.executor import Done, Work, done, free_held
from judgetrain.errors import JudgetrainError


class Worker:
    """One worker: it unpacks what is to be done once, and with it holds the model that it needs.

    Args:
        place: this run's working directory, in which relative paths are meant.
    """

    def __init__(self, place: str) -> None:
        from judgetrain.artifacts.console import quiet_libraries

        if Path(place).is_dir():
            os.chdir(place)
        quiet_libraries()
        self._name = ""
        self._work: Work[Any] | None = None

    def ready(self) -> tuple[str, int]:
        """That it has been placed and started: its node's id and its process."""
        import ray

        return ray.get_runtime_context().get_node_id(), os.getpid()

    def shard(self, name: str, packed: bytes, index: int, items: Any) -> Done[Any] | JudgetrainError:
        """Process a shard with what is packed, which goes by ``name``; an expected failure is given, not raised."""
        from ray import cloudpickle

        try:
            if self._work is None or name != self._name:
                self._name, self._work = name, cloudpickle.loads(packed)
            return done(self._work, index, items)
        except JudgetrainError as error:
            return error

    def free(self) -> None:
        """Close the models that it holds, and with them the processes that these have started."""
        self._work = None
        free_held()


def is_alive(pid: int) -> bool:
    """Whether a process of this machine has its memory still."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
