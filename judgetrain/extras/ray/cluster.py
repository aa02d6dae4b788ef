"""A Ray cluster: joining it, and the workers for which its nodes have room."""

from __future__ import annotations

import logging
import os
from collections import Counter
from dataclasses import dataclass

from judgetrain.errors import EngineError

PASSED_ON = ("HF_", "TRANSFORMERS_", "TOKENIZERS_", "VLLM_", "OMP_", "CUDA_DEVICE_ORDER", "PYTHONPATH", "WANDB_MODE")
"""Beginnings of the environment variables that workers get as they are here; never one that holds a secret."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """GPUs and CPU cores: those of a node, or those that a worker needs."""

    gpus: int
    cpus: int = 1

    def holds(self, worker: Share) -> int:
        """How many such workers this node has room for."""
        return min(self.cpus // worker.cpus, self.gpus // worker.gpus if worker.gpus else self.cpus)

    def __str__(self) -> str:
        return f"{self.gpus} GPU, {self.cpus} CPU"


def nodes() -> list[tuple[str, Share]]:
    """The address of each node that is alive, and what it has in all."""
    import ray

    return [(str(node["NodeManagerAddress"]), _share(node["Resources"])) for node in ray.nodes() if node["Alive"]]


def _share(resources: dict[str, float]) -> Share:
    return Share(gpus=int(resources.get("GPU", 0)), cpus=int(resources.get("CPU", 0)))


def described() -> str:
    """What the cluster has, by the sizes of its nodes, and what of it nobody has taken."""
    import ray

    sizes = Counter(str(share) for _, share in nodes())
    has = "; ".join(f"{number} x {size}" for size, number in sizes.most_common()) or "no node"
    return f"{has} (free now: {_share(ray.available_resources())})"


def connect() -> None:
    """Join the Ray cluster of ``RAY_ADDRESS``, or start one on this machine; once in a process (EngineError: Ray is not
    installed, or the cluster cannot be reached)."""
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
