"""Shards on the workers of a Ray cluster: actors that hold a model, take shards, and give their results back."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from judgetrain.artifacts.executor import Done, Executor, ExecutorConfig, R, Work
from judgetrain.artifacts.fingerprint import check_package
from judgetrain.errors import EngineError, EngineLostError, JudgetrainError
from judgetrain.extras.ray.cluster import Share, Worker, connect, described, is_alive, nodes

DEATHS = 3
"""Deaths for each worker, with no shard finished in between, after which a run gives up; and failures to start, with no
start in between, after which none is started again."""
WORST = 8
"""Deaths over one shard, which comes after the others once it was lost, after which a run gives up."""
UNREADY = "before it was ready"
"""When a worker died that has held no model yet."""
NO_ENVIRONMENT = "most often a node lacks this environment: the same Python, packages and paths are needed on every one"
TOO_LARGE = (
    "most often a worker's memory does not hold the model; give it more GPUs, a smaller model or fewer requests at "
    "once (engine.batch_size, engine.vllm.max_num_seqs)"
)
PATIENCE = 600.0
"""Seconds for a first worker to be ready: others have the GPUs, or nodes have yet to come."""
ENDING = 30.0
"""Seconds that workers have to free their models, and then to be gone."""


Shard = tuple[int, Any]
"""A shard's number and its items."""


class RayExecutor(Executor):
    """A pool of workers that lasts from a stage's first shard to its end (:meth:`close`).

    Where what is to be done says what its model takes (``Work.gpus``), and the workers have another number of GPUs,
    they end and others take their place.

    Shards go to the workers that are ready, however many of those that were asked for the cluster has room for. A
    worker that dies costs the shard that it had: another takes its place, and the shard is processed again. This
    process ends: its workers end with it, and the next run goes on with the shards that are missing.

    Args:
        config: the keys ``executor.*``, with ``type=ray``.
        gpus: GPUs that a worker needs where the work does not say, and the cluster has any.
        say: prints a line.
    """

    def __init__(self, config: ExecutorConfig, gpus: int = 1, say: Callable[[str], object] = print) -> None:
        self._config, self._default, self._say = config, gpus, say
        self._workers: list[Any] = []
        self._coming: dict[Any, Any] = {}  # by the call that will say that they are ready
        self._free: deque[Any] = deque()
        self._at: dict[Any, tuple[str, int]] = {}
        self._calls = self._deaths = self._failed = 0
        self._need = Share(gpus=0)

    @staticmethod
    def check(config: ExecutorConfig) -> None:
        """Refuse to go without the package (``ConfigError``)."""
        check_package("ray", "executor=ray")

    def run(self, work: Work[R], shards: Iterable[tuple[int, Any]]) -> Iterator[Done[R]]:
        """The shards in the order in which workers finish them; each is taken when a worker is free (JudgetrainError:
        what ``process`` raised; EngineError: Ray is not installed or not reached, no worker is ready in time, or
        workers die and nothing is finished)."""
        left, lost = iter(shards), deque[Shard]()  # those that a worker died over come after the others
        if (first := next(left, None)) is None:  # nothing is left to do: no cluster is started for it
            return
        left = chain([first], left)
        self._start(work.gpus)
        import ray
        from ray import cloudpickle
        from ray.exceptions import RayError, RayTaskError

        self._calls += 1
        self._deaths, self._over = 0, Counter[int]()
        name, packed = str(self._calls), ray.put(cloudpickle.dumps(work))
        under_way: dict[Any, tuple[Any, Shard]] = {}
        while True:
            while self._free and (shard := next(left, None) or (lost.popleft() if lost else None)) is not None:
                worker = self._free.popleft()
                under_way[worker.shard.remote(name, packed, *shard)] = worker, shard
            if self._free and not under_way:
                return
            call = self._first(under_way)
            if call in self._coming:
                self._joined(call)
                continue
            worker, shard = under_way.pop(call)
            try:
                found = ray.get(call)
                if isinstance(found, EngineLostError):
                    raise found
            except RayTaskError:  # an error of ours
                raise
            except (RayError, EngineLostError) as error:  # the end of a worker, its engine or node, or of a result
                self._replace(worker, shard[0], error)
                lost.append(shard)
                continue
            self._free.append(worker)
            self._deaths = 0
            if isinstance(found, JudgetrainError):
                raise found
            yield found

    def close(self) -> None:
        """End the workers, and wait until they are gone: their memory is free, and their GPUs are for others."""
        if not self._workers:
            return
        import ray

        if calls := [worker.free.remote() for worker in self._free]:
            ray.wait(calls, num_returns=len(calls), timeout=ENDING)
        for worker in self._workers:
            ray.kill(worker)
        calls = [worker.ready.remote() for worker in self._workers]  # fails as soon as Ray knows of the death
        _, alive = ray.wait(calls, num_returns=len(calls), timeout=ENDING)
        here, until = ray.get_runtime_context().get_node_id(), time.monotonic() + ENDING
        mine = [pid for node, pid in self._at.values() if node == here]
        while (left := [pid for pid in mine if is_alive(pid)]) and time.monotonic() < until:
            time.sleep(0.05)
        if number := max(len(alive), len(left)):
            self._say(f"executor=ray: {number} workers run on after {ENDING:g} s: their GPUs may not be free yet")
        self._workers.clear()
        self._free.clear()
        self._coming.clear()
        self._at.clear()

    def _start(self, gpus: int | None) -> None:
        if len(self._free) + len(self._coming) < len(self._workers):
            self.close()  # an earlier call was left before its end: its shards are not ours
        connect()
        import ray

        found = [share for _, share in nodes()]
        wanted = self._default if gpus is None else gpus
        need = Share(gpus=wanted if any(share.gpus for share in found) else 0)
        if self._workers and need != self._need:
            self.close()
        if self._workers:
            return
        self._failed, self._need = 0, need
        if not (number := self._config.workers or sum(share.holds(need) for share in found)):
            raise EngineError(f"executor=ray: no worker of {need} fits on a node of the cluster: {described()}")
        kind: Any = ray.remote(Worker).options(num_cpus=self._need.cpus, num_gpus=self._need.gpus, max_restarts=0)
        self._make: Callable[[], Any] = lambda: kind.remote(str(Path.cwd()))
        for _ in range(number):
            self._add()

    def _add(self) -> None:
        worker = self._make()
        self._workers.append(worker)
        self._coming[worker.ready.remote()] = worker

    def _joined(self, call: Any) -> None:
        import ray
        from ray.exceptions import RayError

        worker = self._coming.pop(call)
        try:
            self._at[worker] = ray.get(call)
        except RayError as error:
            self._not_started(worker, error)
        else:
            self._failed = 0
            self._free.append(worker)

    def _replace(self, dead: Any, shard: int, error: Exception) -> None:
        """Have another worker in the place of one that died over a shard."""
        self._end(dead)
        self._add()
        self._deaths += 1
        self._over[shard] += 1
        if self._over[shard] >= WORST or self._deaths > max(WORST, DEATHS * len(self._workers)):
            raise self._hopeless(f"over shard {shard}", error) from error

    def _not_started(self, dead: Any, error: Exception) -> None:
        """Have another worker in the place of one that could not start, while there is hope that it can.

        Where there are others, the run goes on with those: what fails to start says nothing of their shards.
        """
        number = len(self._workers)
        self._end(dead)
        self._failed += 1
        if self._failed <= DEATHS * number:
            self._add()
        elif not self._workers:
            raise self._hopeless(UNREADY, error) from error
        else:
            told = f"executor=ray: a worker could not start, {self._failed} times in a row, and is left out"
            self._say(f"{told}: {len(self._workers)} go on ({_last(error)}): {NO_ENVIRONMENT}")

    def _end(self, dead: Any) -> None:
        import ray

        ray.kill(dead)  # one that only cannot be reached would keep its GPUs
        self._workers.remove(dead)
        self._at.pop(dead, None)

    def _first(self, under_way: Iterable[Any]) -> Any:
        """The first call to be answered, of shards that are under way and of workers that come."""
        import ray

        busy = [*under_way]
        wait = None if busy else PATIENCE
        if not (answered := ray.wait([*busy, *self._coming], num_returns=1, timeout=wait)[0]):
            told = f"executor=ray: none of {len(self._workers)} workers was ready within {PATIENCE:g} s"
            raise EngineError(f"{told}: each needs {self._need} on one node of {described()}: ask for less, or wait")
        return answered[0]

    def _hopeless(self, when: str, error: Exception) -> EngineError:
        told = f"executor=ray: workers died again and again and finished nothing, the last {when} ({_last(error)})"
        return EngineError(f"{told}: {NO_ENVIRONMENT if when == UNREADY else TOO_LARGE}")


def _last(error: Exception) -> str:
    """The end of what Ray says, where the cause stands."""
    return " ".join(str(error).split())[-300:]
