"""A Ray cluster: joining it, the workers for which its nodes have room, and what runs in a worker's process."""

import logging
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from judgetrain.artifacts.executor import HELD, Done, Work, done
from judgetrain.errors import EngineError, JudgetrainError

PASSED_ON = ("HF_", "TRANSFORMERS_", "TOKENIZERS_", "VLLM_", "OMP_", "CUDA_DEVICE_ORDER", "PYTHONPATH", "WANDB_MODE")
"""Beginnings of the environment variables that workers get as they are here; never one that holds a secret."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """GPUs and CPU cores: those of a node, or those that a worker needs."""

    gpus: int
    cpus: int = 1

    def holds(self, worker: "Share") -> int:
        """Return how many such workers this node has room for."""
        # Every worker takes a core, also one that computes on a GPU.
        by_cpus = self.cpus // worker.cpus
        if not worker.gpus:
            return by_cpus
        return min(by_cpus, self.gpus // worker.gpus)

    def __str__(self) -> str:
        return f"{self.gpus} GPU, {self.cpus} CPU"


def nodes() -> list[tuple[str, Share]]:
    """Return the address of each node that is alive, and its share of cores and GPUs in all."""
    import ray

    shares = []
    for node in ray.nodes():
        # Ray lists nodes that have gone as well.
        if node["Alive"]:
            shares.append((str(node["NodeManagerAddress"]), _share(node["Resources"])))
    return shares


def _share(resources: dict[str, float]) -> Share:
    """Return what Ray's names of resources stand for."""
    return Share(gpus=int(resources.get("GPU", 0)), cpus=int(resources.get("CPU", 0)))


def described() -> str:
    """Return a text on what the cluster has, by the sizes of its nodes, and on what of it is free."""
    import ray

    sizes = Counter(str(share) for _, share in nodes())
    nodes_by_size = "; ".join(f"{count} x {size}" for size, count in sizes.most_common())
    return f"{nodes_by_size or 'no node'} (free now: {_share(ray.available_resources())})"


def connect() -> None:
    """Join the Ray cluster of ``RAY_ADDRESS``, or start one on this machine; once in a process.

    Raises:
        EngineError: Ray is not installed, or the cluster cannot be reached.
    """
    # Before Ray is imported, which reads it then: no run reports its use to anybody unasked.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise EngineError("executor=ray needs Ray: pip install 'judgetrain[ray]'") from error
    if ray.is_initialized():
        return
    # ray.init sets the level only once it has warned of what comes before.
    logging.getLogger("ray").setLevel(logging.ERROR)
    address = os.environ.get("RAY_ADDRESS") or "local"
    try:
        _join(address)
    except Exception as error:
        # Ray raises plain ones too, as where a node does not start in time.
        reason = " ".join(str(error).split())[:300]
        hint = ""
        if address != "local":
            # Ray does not say that it is the token which is missing.
            hint = " (one that asks for a token: set RAY_AUTH_MODE=token)"
        raise EngineError(f"RAY_ADDRESS={address}: no Ray cluster is reached there: {reason}{hint}") from error


def _join(address: str) -> None:
    """Join the cluster at an address; ``local``: start one."""
    import ray

    options: dict[str, Any] = {}
    if address == "local":
        # Ray would start a process for every core at once, none of which has the variables of our workers.
        os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
        # What a worker has started (vLLM's engine, which holds the GPU) ends with it, also where it is killed.
        os.environ.setdefault("RAY_process_group_cleanup_enabled", "true")
        options["include_dashboard"] = False
    # A node's shell may have other caches and settings than the one that started the run.
    variables = {name: value for name, value in os.environ.items() if passed_on(name)}
    ray.init(
        address=address,
        runtime_env={"env_vars": variables},
        log_to_driver=False,
        logging_level="ERROR",
        configure_logging=False,
        **options,
    )


def passed_on(name: str) -> bool:
    """Return whether workers get an environment variable of this name."""
    if not name.startswith(PASSED_ON):
        return False
    # Ray shows variables in its logs and on its dashboard. "TOKEN" is in TOKENIZERS_PARALLELISM as well.
    is_secret = any(word in name for word in ("TOKEN", "KEY", "SECRET", "PASSWORD"))
    return not is_secret or name.startswith("TOKENIZERS_")


class Worker:
    """One worker: it unpacks what is to be done once, and with it holds the model that it needs.

    Args:
        place: this run's working directory, in which relative paths are meant.
    """

    def __init__(self, place: str) -> None:
        from judgetrain.artifacts.console import quiet_libraries

        # On another node the directory may be missing; absolute paths work there all the same.
        if Path(place).is_dir():
            os.chdir(place)
        quiet_libraries()
        self._name = ""
        self._work: Work[Any] | None = None

    def ready(self) -> tuple[str, int]:
        """Return this worker's node and process, which says that it has been placed and started."""
        import ray

        return ray.get_runtime_context().get_node_id(), os.getpid()

    def shard(self, name: str, packed: bytes, index: int, items: Any) -> Done[Any] | JudgetrainError:
        """Process a shard and return the result; an expected failure is returned, not raised.

        Args:
            name: of what is packed, by which it is unpacked once.
            packed: what is to be done with a shard.
            index: the shard's number.
            items: of the shard.
        """
        from ray import cloudpickle

        try:
            if self._work is None or name != self._name:
                self._work = cloudpickle.loads(packed)
                self._name = name
            return done(self._work, index, items)
        except JudgetrainError as error:
            return error

    def free(self) -> None:
        """Close the models that it holds, and with them the processes that these have started."""
        self._work = None
        for close in HELD:
            close()


def is_alive(pid: int) -> bool:
    """Return True if a process of this machine has its memory still."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    # The state follows the command, which stands in brackets and may hold blanks and brackets itself.
    state = stat.rpartition(")")[2].split()[0]
    # A zombie and a dead process have none.
    return state not in "ZX"
