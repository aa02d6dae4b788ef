"""Shards on the workers of a Ray cluster: actors that hold a model, take shards, and give their results back."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from judgetrain.artifacts.config import ExecutorConfig
from judgetrain.artifacts.executors.base import Done, R, Work, done
from judgetrain.errors import EngineError, JudgetrainError

DEATHS = 3
"""Deaths for each worker, with no shard finished in between, after which a run gives up."""
PASSED_ON = ("HF_", "TRANSFORMERS_", "TOKENIZERS_", "VLLM_", "OMP_", "CUDA_DEVICE_ORDER", "PYTHONPATH", "WANDB_MODE")
"""Beginnings of the environment variables that workers get as they are here; never one that holds a secret."""


class Worker:
    """One worker: it unpacks what is to be done once, and with it holds the model that it needs.

    Args:
        place: this run's working directory, in which relative paths are meant.
    """

    def __init__(self, place: str) -> None:
        from judgetrain.artifacts.console import quiet_libraries

        if Path(place).is_dir():
            os.chdir(place)
        quiet_libraries(False)
        self._name = ""
        self._work: Work[Any] | None = None

    def shard(self, name: str, packed: bytes, index: int, items: Any) -> Done[Any] | JudgetrainError:
        """Process a shard with what is packed, which goes by ``name``; an expected failure is given, not raised."""
        from ray import cloudpickle

        try:
            if self._work is None or name != self._name:
                self._name, self._work = name, cloudpickle.loads(packed)
            return done(self._work, index, items)
        except JudgetrainError as error:
            return error


class RayExecutor:
    """A pool of workers that lasts from a stage's first shard to its end (:meth:`close`).

    A worker that dies costs the shard that it had: another takes its place, and the shard is processed again. This
    process ends: its workers end with it, and the next run goes on with the shards that are missing.

    Args:
        config: the keys ``executor.*``, with ``type=ray``.
        gpus: GPUs that a worker needs where ``gpus_per_worker`` does not say, and the cluster has any.
    """

    def __init__(self, config: ExecutorConfig, gpus: int = 1) -> None:
        self._config, self._needs = config, gpus
        self._workers: list[Any] = []
        self._free: deque[Any] = deque()
        self._calls = 0

    def run(self, work: Work[R], shards: Iterable[tuple[int, Any]]) -> Iterator[Done[R]]:
        """The shards in the order in which workers finish them; each is taken when a worker is free.

        Raises:
            JudgetrainError: what ``process`` raised.
            EngineError: Ray is not installed or not reached, or workers die and nothing is finished.
        """
        left = iter(shards)
        again: deque[tuple[int, Any]] = deque(islice(left, 1))
        if not again:  # nothing is left to do: no cluster is started for it
            return
        self._start()
        import ray
        from ray import cloudpickle
        from ray.exceptions import OutOfMemoryError, RayActorError

        self._calls += 1
        name, packed = str(self._calls), ray.put(cloudpickle.dumps(work))
        under_way: dict[Any, tuple[Any, tuple[int, Any]]] = {}
        deaths = 0
        while True:
            while self._free and (shard := again.popleft() if again else next(left, None)) is not None:
                worker = self._free.popleft()
                under_way[worker.shard.remote(name, packed, *shard)] = worker, shard
            if not under_way:
                return
            ready, _ = ray.wait(list(under_way), num_returns=1)
            worker, shard = under_way.pop(ready[0])
            try:
                found = ray.get(ready[0])
            except (RayActorError, OutOfMemoryError) as error:
                again.append(shard)
                self._replace(worker)
                if (deaths := deaths + 1) > DEATHS * len(self._workers):
                    raise self._hopeless(shard[0], error) from error
                continue
            self._free.append(worker)
            deaths = 0
            if isinstance(found, JudgetrainError):
                raise found
            yield found

    def close(self) -> None:
        """End the workers: their memory is free, and their GPUs are for others."""
        if self._workers:
            import ray

            for worker in self._workers:
                ray.kill(worker)
        self._workers.clear()
        self._free.clear()

    def _start(self) -> None:
        if self._workers:
            if len(self._free) < len(self._workers):  # an earlier call was left before its end: its shards are not ours
                self.close()
            else:
                return
        connect(self._config)
        self._make = self._maker()
        for _ in range(self._number()):
            self._add()

    def _maker(self) -> Callable[[], Any]:
        import ray

        gpus = self._gpus()
        kind = ray.remote(Worker).options(num_cpus=self._config.cpus_per_worker, num_gpus=gpus, max_restarts=0)
        return lambda: kind.remote(str(Path.cwd()))

    def _add(self) -> None:
        worker = self._make()
        self._workers.append(worker)
        self._free.append(worker)

    def _replace(self, dead: Any) -> None:
        self._workers.remove(dead)
        self._add()

    def _gpus(self) -> float:
        import ray

        if self._config.gpus_per_worker is not None:
            return self._config.gpus_per_worker
        return float(self._needs) if ray.cluster_resources().get("GPU") else 0.0

    def _number(self) -> int:
        """``executor.workers``, or as many as the cluster has room for.

        Raises:
            EngineError: it has room for none.
        """
        import ray

        if self._config.workers is not None:
            return self._config.workers
        has, gpus, cpus = ray.cluster_resources(), self._gpus(), self._config.cpus_per_worker
        room = [int(has.get("GPU", 0) // gpus)] if gpus else []
        room += [int(has.get("CPU", 0) // cpus)] if cpus else []
        if not (number := min(room, default=1)):
            found = ", ".join(f"{has.get(name, 0):g} {name}" for name in ("GPU", "CPU"))
            raise EngineError(
                f"executor=ray: no worker of {gpus:g} GPU and {cpus:g} CPU fits on a cluster with {found}: set "
                "executor.gpus_per_worker and executor.cpus_per_worker to what a node has"
            )
        return number

    def _hopeless(self, index: int, error: Exception) -> EngineError:
        said = " ".join(str(error).split())[:300]
        return EngineError(
            f"executor=ray: workers died {DEATHS} times each and finished nothing, the last over shard {index} "
            f"({said}): most often a worker's memory does not hold the model; give it more GPUs "
            "(executor.gpus_per_worker), a smaller model or fewer requests at once (engine.batch_size, "
            "engine.max_num_seqs)"
        )


def connect(config: ExecutorConfig) -> None:
    """Join the Ray cluster of ``executor.address``, or start one on this machine; once in a process.

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
    address = config.address or os.environ.get("RAY_ADDRESS") or "local"
    variables = {name: value for name, value in os.environ.items() if _passed_on(name)}
    here = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(
            address=address,
            runtime_env={"env_vars": variables},
            log_to_driver=False,
            logging_level="ERROR",
            configure_logging=False,
            **here,
        )
    except Exception as error:  # Ray raises plain ones too, as where a node does not start in time
        said = " ".join(str(error).split())[:300]
        raise EngineError(f"executor.address={address}: no Ray cluster is reached there: {said}") from error


def _passed_on(name: str) -> bool:
    secret = any(part in name for part in ("TOKEN", "KEY", "SECRET", "PASSWORD"))
    return name.startswith(PASSED_ON) and not (secret and not name.startswith("TOKENIZERS_"))
