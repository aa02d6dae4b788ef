"""Process shards on the workers of a Ray cluster: actors that hold a model, take shards and return their results."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from judgetrain.amounts import agree, amount
from judgetrain.artifacts.executor import Done, Executor, ExecutorConfig, R, Work
from judgetrain.artifacts.fingerprint import check_package
from judgetrain.errors import EngineError, EngineLostError, JudgetrainError
from judgetrain.extras.ray.cluster import Share, Worker, connect, described, is_alive, nodes

DEATHS = 3
"""Deaths for each worker, with no shard finished in between, after which a run gives up; and failures to start, with no
start in between, after which none is started again."""
WORST = 8
"""Deaths over one shard, which comes after the others once it was lost, after which a run gives up."""
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
        self._config = config
        self._default_gpus = gpus
        self._say = say
        self._workers: list[Any] = []
        self._coming: dict[Any, Any] = {}
        """Workers that are starting, by the call that will return when they are ready."""
        self._free: deque[Any] = deque()
        self._places: dict[Any, tuple[str, int]] = {}
        """Node and process of each worker that is ready."""
        self._runs = 0
        self._deaths = 0
        """Deaths since a shard was finished."""
        self._deaths_over = Counter[int]()
        """Deaths by the shard that the worker had."""
        self._failed_starts = 0
        """Failures to start since a worker was ready."""
        self._need = Share(gpus=0)

    @staticmethod
    def check(config: ExecutorConfig) -> None:
        """Refuse to go without the package (``ConfigError``)."""
        check_package("ray", "executor=ray")

    def run(self, work: Work[R], shards: Iterable[tuple[int, Any]]) -> Iterator[Done[R]]:
        """Yield the shards in the order in which workers finish them; each is taken when a worker is free.

        Raises:
            JudgetrainError: ``process`` raised it.
            EngineError: Ray is not installed or not reached, no worker is ready in time, or workers die and nothing is
                finished.
        """
        remaining = iter(shards)
        first = next(remaining, None)
        if first is None:
            # Nothing is left to do, so no cluster is started for it.
            return
        remaining = chain([first], remaining)
        lost: deque[Shard] = deque()
        self._start(work.gpus)
        import ray
        from ray import cloudpickle
        from ray.exceptions import RayError, RayTaskError

        self._runs += 1
        self._deaths = 0
        self._deaths_over.clear()

        # Workers unpickle the work once a call, by this name.
        name = str(self._runs)
        # Into Ray's store once, and not with each shard.
        packed = ray.put(cloudpickle.dumps(work))
        under_way: dict[Any, tuple[Any, Shard]] = {}
        while True:
            # Only as many shards as there are free workers: the others' items are fetched when their turn comes.
            while self._free:
                shard = _next_shard(remaining, lost)
                if shard is None:
                    break
                worker = self._free.popleft()
                under_way[worker.shard.remote(name, packed, *shard)] = (worker, shard)
            if self._free and not under_way:
                return

            # Either a shard is finished, or a worker is ready for its first one.
            call = self._first_answered(under_way)
            if call in self._coming:
                self._welcome(call)
                continue
            worker, shard = under_way.pop(call)
            try:
                done = ray.get(call)
                if isinstance(done, EngineLostError):
                    raise done
            except RayTaskError:
                # The code of the work raised it, and would do so again.
                raise
            except (RayError, EngineLostError) as error:
                # A worker has ended, or its engine or node, or a result is gone.
                self._replace(worker, shard[0], error)
                lost.append(shard)
                continue

            # An expected error ends the run, but the worker is sound and stays for the next one.
            self._free.append(worker)
            self._deaths = 0
            if isinstance(done, JudgetrainError):
                raise done
            yield done

    def close(self) -> None:
        """End the workers, and wait until they are gone: their memory is free, and their GPUs are for others."""
        if not self._workers:
            return
        import ray

        # Closed first and killed then: what a model has started, as vLLM's engine, ends by itself.
        calls = [worker.free.remote() for worker in self._free]
        if calls:
            ray.wait(calls, num_returns=len(calls), timeout=ENDING)
        for worker in self._workers:
            ray.kill(worker)
        # These calls fail as soon as Ray knows of a worker's death.
        calls = [worker.ready.remote() for worker in self._workers]
        _, alive = ray.wait(calls, num_returns=len(calls), timeout=ENDING)
        remaining = max(len(alive), self._wait_for_processes())
        if remaining:
            self._say(
                f"executor=ray: {amount(remaining, 'worker')} {agree(remaining, 'run')} on after {ENDING:g} s: "
                "their GPUs may not be free yet"
            )
        self._workers.clear()
        self._free.clear()
        self._coming.clear()
        self._places.clear()

    def _wait_for_processes(self) -> int:
        """Wait until this node's workers have no memory any more, and return how many still have some in the end.

        Ray calls an actor dead before its process has freed a GPU.
        """
        import ray

        here = ray.get_runtime_context().get_node_id()
        processes = [process for node, process in self._places.values() if node == here]
        until = time.monotonic() + ENDING
        while True:
            alive = [process for process in processes if is_alive(process)]
            if not alive or time.monotonic() >= until:
                return len(alive)
            time.sleep(0.05)

    def _start(self, gpus: int | None) -> None:
        """Start workers, unless those of the right size are there.

        Args:
            gpus: of a worker; None: as many as by default.

        Raises:
            EngineError: no worker fits on a node.
        """
        if len(self._free) + len(self._coming) < len(self._workers):
            # An earlier call was left before its end, and its shards are not ours.
            self.close()
        connect()
        import ray

        shares = [share for _, share in nodes()]
        if gpus is None:
            gpus = self._default_gpus
        # On a cluster without GPUs the model runs on CPU cores, as on a machine without one.
        if not any(share.gpus for share in shares):
            gpus = 0
        need = Share(gpus=gpus)
        if self._workers and need != self._need:
            self.close()
        if self._workers:
            return
        self._failed_starts = 0
        self._need = need
        # Counted by what nodes have in all, not by what is free: others may leave while this run goes on.
        count = self._config.workers or sum(share.holds(need) for share in shares)
        if not count:
            raise EngineError(f"executor=ray: no worker of {need} fits on a node of the cluster: {described()}")
        # No restart by Ray: it would not say that the shard is lost, and a new worker is started here.
        kind: Any = ray.remote(Worker).options(num_cpus=need.cpus, num_gpus=need.gpus, max_restarts=0)
        self._make: Callable[[], Any] = lambda: kind.remote(str(Path.cwd()))
        for _ in range(count):
            self._add()

    def _add(self) -> None:
        """Start another worker."""
        worker = self._make()
        self._workers.append(worker)
        self._coming[worker.ready.remote()] = worker

    def _welcome(self, call: Any) -> None:
        """Take a worker that is ready, or do without one that failed to start; ``call`` is the one that says so."""
        import ray
        from ray.exceptions import RayError

        worker = self._coming.pop(call)
        try:
            self._places[worker] = ray.get(call)
        except RayError as error:
            self._not_started(worker, error)
        else:
            self._failed_starts = 0
            self._free.append(worker)

    def _replace(self, dead: Any, shard: int, error: Exception) -> None:
        """Have another worker in the place of one that died over a shard."""
        self._end(dead)
        self._add()
        self._deaths += 1
        self._deaths_over[shard] += 1
        # Either one shard kills each worker that takes it, or workers die whatever they do.
        if self._deaths_over[shard] >= WORST or self._deaths > max(WORST, DEATHS * len(self._workers)):
            raise EngineError(
                f"executor=ray: workers died again and again and finished nothing, the last over shard {shard} "
                f"({_last(error)}): {TOO_LARGE}"
            ) from error

    def _not_started(self, dead: Any, error: Exception) -> None:
        """Have another worker in the place of one that could not start, while there is hope that it can.

        Where there are others, the run goes on with those: what fails to start says nothing of their shards.
        """
        workers_before = len(self._workers)
        self._end(dead)
        self._failed_starts += 1
        if self._failed_starts <= DEATHS * workers_before:
            self._add()
        elif not self._workers:
            raise EngineError(
                "executor=ray: workers died again and again and finished nothing, the last before it was ready "
                f"({_last(error)}): {NO_ENVIRONMENT}"
            ) from error
        else:
            self._say(
                f"executor=ray: a worker could not start, {self._failed_starts} times in a row, and is left out: "
                f"{len(self._workers)} go on ({_last(error)}): {NO_ENVIRONMENT}"
            )

    def _end(self, dead: Any) -> None:
        """Take a worker out of the pool."""
        import ray

        # A worker that only cannot be reached would keep its GPUs.
        ray.kill(dead)
        self._workers.remove(dead)
        self._places.pop(dead, None)

    def _first_answered(self, under_way: Iterable[Any]) -> Any:
        """Return the first call to be answered, of shards that are under way and of workers that are starting.

        Raises:
            EngineError: no worker was ready in time.
        """
        import ray

        busy = [*under_way]
        # A shard may take as long as it likes.
        timeout = None
        if not busy:
            timeout = PATIENCE
        answered, _ = ray.wait([*busy, *self._coming], num_returns=1, timeout=timeout)
        if not answered:
            raise EngineError(
                f"executor=ray: none of {amount(len(self._workers), 'worker')} was ready within {PATIENCE:g} s: "
                "each needs "
                f"{self._need} on one node of {described()}: ask for less, or wait"
            )
        return answered[0]


def _next_shard(remaining: Iterator[Shard], lost: deque[Shard]) -> Shard | None:
    """Return the next shard to process; those that a worker died over come after the others."""
    shard = next(remaining, None)
    if shard is None and lost:
        return lost.popleft()
    return shard


def _last(error: Exception) -> str:
    """Return the end of what Ray says, where the cause stands."""
    return " ".join(str(error).split())[-300:]
