"""A Ray cluster: joining it, and the workers for which its nodes have room."""

from __future__ import annotations

import logging
import os
from collections import Counter
from dataclasses import dataclass

from judgetrain.errors import EngineError

PASSED_ON = ("HF_", "TRANSFORMERS_", "TOKENIZERS_", "VLLM_", "OMP_", "CUDA_DEVICE_ORDER", "PYTHONPATH", "WANDB_MODE")
"""Beginnings of the environment variables that workers get as they are here; never one that holds a secret."""
SAID = 8
"""Nodes that a message names; of more, how many there are of each size."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """GPUs and CPU cores: those of a node, or those that a worker needs."""

    gpus: float
    cpus: float

    def holds(self, worker: Share) -> int:
        """How many such workers this node has room for; one that needs nothing, once.

        Several workers share a GPU, but a part of one is never spread over two.
        """
        room = []
        if worker.gpus:
            part = worker.gpus < 1
            room.append(int(self.gpus) * _times(1, worker.gpus) if part else _times(self.gpus, worker.gpus))
        if worker.cpus:
            room.append(_times(self.cpus, worker.cpus))
        return min(room, default=1)

    def __str__(self) -> str:
        return f"{self.gpus:g} GPU, {self.cpus:g} CPU"


def _times(whole: float, part: float) -> int:
    return int(whole / part + 1e-6)  # 1 / 0.1 is a little less than 10


def nodes() -> list[tuple[str, Share]]:
    """The address of each node that is alive, and what it has in all."""
    import ray

    return [(str(node["NodeManagerAddress"]), _share(node["Resources"])) for node in ray.nodes() if node["Alive"]]


def _share(resources: dict[str, float]) -> Share:
    return Share(gpus=resources.get("GPU", 0.0), cpus=resources.get("CPU", 0.0))


def described() -> str:
    """What the cluster has, node by node, and what of it nobody has taken."""
    import ray

    found = nodes()
    if len(found) > SAID:
        sizes = Counter(str(share) for _, share in found)
        has = "; ".join(f"{number} nodes of {size}" for size, number in sizes.most_common(SAID))
    else:
        has = "; ".join(f"{address}: {share}" for address, share in found) or "no node"
    return f"{has} (free now: {_share(ray.available_resources())})"


def connect() -> None:
    """Join the Ray cluster of ``RAY_ADDRESS``, or start one on this machine; once in a process.

    Raises:
        EngineError: Ray is not installed, or the cluster cannot be reached.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise EngineError("executor=ray needs Ray: pip install 'judgetrain[ray]'") from error
    if ray.is_initialized():
        return
    logging.getLogger("ray").setLevel(logging.ERROR)  # what it warns of before ray.init comes to logging_level
    address = os.environ.get("RAY_ADDRESS") or "local"
    try:
        _join(address)
    except Exception as error:  # Ray raises plain ones too, as where a node does not start in time
        said = " ".join(str(error).split())[:300]
        told = "" if address == "local" else " (one that asks for a token: set RAY_AUTH_MODE=token)"
        raise EngineError(f"RAY_ADDRESS={address}: no Ray cluster is reached there: {said}{told}") from error


def _join(address: str) -> None:
    import ray

    here = {}
    if address == "local":
        # Ray would start a process for every core at once, none of which has the variables of our workers.
        os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
        # What a worker has started (vLLM's engine, which holds the GPU) ends with it, also where it is killed.
        os.environ.setdefault("RAY_process_group_cleanup_enabled", "true")
        here = {"include_dashboard": False}
    ray.init(
        address=address,
        runtime_env={"env_vars": {name: value for name, value in os.environ.items() if _passed_on(name)}},
        log_to_driver=False,
        logging_level="ERROR",
        configure_logging=False,
        **here,
    )


def _passed_on(name: str) -> bool:
    secret = any(part in name for part in ("TOKEN", "KEY", "SECRET", "PASSWORD"))
    return name.startswith(PASSED_ON) and not (secret and not name.startswith("TOKENIZERS_"))
