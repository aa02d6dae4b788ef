"""What processes shards: in this process, in several on this machine, each with a model of its own, or elsewhere."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from pkgutil import resolve_name
from typing import Any, Generic, TypeVar

from judgetrain import rooms
from judgetrain.artifacts.console import quiet_libraries
from judgetrain.errors import EngineError, JudgetrainError, UnansweredError
from judgetrain.keys import key

EXECUTORS = {"local": "judgetrain.artifacts.executor:LocalExecutor"} | {
    name: code for room in rooms.rooms() for name, code in room.executors.items()
}
"""What the types of executor make, as ``module:Class``."""


@dataclass
class ExecutorConfig:
    """Where work that goes by shards is done; what comes out is the same everywhere."""

    type: str = key(
        "local",
        "local: on this machine; ray: by workers on the cluster of RAY_ADDRESS, else on this machine",
        choices=tuple(EXECUTORS),
        in_fingerprint=False,
    )
    workers: int | None = key(
        None,
        "processes with a model each; None: local: this one; ray: as many as the cluster has room for",
        low=1,
        in_fingerprint=False,
    )


R = TypeVar("R")
"""What a shard gives."""
_CHOSEN = "OMP_NUM_THREADS" in os.environ
"""Whether the user has said how many threads a process has."""


@dataclass(frozen=True, kw_only=True)
class Work(Generic[R]):
    """What is to be done with every shard of a name: ``process`` gives its result from its number and its items.

    ``load`` is called before a shard is timed, to load what ``process`` needs. ``gpus``: that a copy of its model
    takes, where there are any; None: what the largest of the stage does; 0: there is no model, and no GPU is taken.
    """

    process: Callable[[int, Any], R]
    load: Callable[[], object] | None = None
    clock: Callable[[], float] = time.monotonic
    gpus: int | None = None


@dataclass(frozen=True)
class Done(Generic[R]):
    """A shard that was processed: its number, its result (or what a server left unanswered), and the seconds spent;
    ``cpu``: those of a processor, where a worker on this machine took them."""

    index: int
    result: R | UnansweredError
    seconds: float
    cpu: float = 0.0


def share_cores(processes: int = 0) -> None:
    """Have OpenMP's threads soon sleep while they wait, and be no more than idle cores, unless the user has chosen.

    Threads that spin on beside other processes slow training down tenfold; threads that never spin, by half. For a
    PyTorch not yet imported: in this process, or in as many ``processes`` as it starts, which fill the cores together.
    """
    if "OMP_WAIT_POLICY" not in os.environ:  # a tenth of a millisecond of spinning; OpenMPs other than GNU's: none
        os.environ |= {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", "10000")}
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    idle = min(own, idle_cores())
    if not _CHOSEN and (processes or idle < own):
        os.environ["OMP_NUM_THREADS"] = str(max(1, idle // max(1, processes)))


def idle_cores() -> int:
    """How many cores nothing runs on, rounded, at the quietest of up to three looks of a tenth of a second."""
    import psutil

    cores, most, looks, after = psutil.cpu_count() or 1, 0, 3, psutil.cpu_times()
    while looks and most < cores:  # cpu_times_percent is wrong for less than a second of all cores together
        time.sleep(0.1)
        looks, before, after = looks - 1, after, psutil.cpu_times()
        spent = [end - start for start, end in zip(before, after, strict=True)][:8]  # without guests
        most = max(most, round(cores * sum(spent[3:5]) / max(sum(spent), 1e-9)))
    return most


def done(work: Work[R], index: int, items: Any) -> Done[R]:
    """Process one shard here and now."""
    if work.load:
        work.load()
    started = work.clock()
    result: R | UnansweredError
    try:
        result = work.process(index, items)
    except UnansweredError as error:
        result = error
    return Done(index, result, work.clock() - started)


HELD: list[Callable[[], object]] = []
"""What closes, before this process is ended, what it has loaded for shards from elsewhere."""


def end_with_parent() -> None:
    """Have this process die with its parent, also when that is killed: no orphan holds a model or writes."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Executor:
    """Processes shards, one after the other in this process, and knows nothing of files: who asks writes what comes.

    What a shard holds must depend on its number and its items alone, so that it is the same wherever it is processed.
    Subclasses process shards elsewhere.
    """

    cpu = 0.0
    """Seconds of a processor that other processes of this machine have taken."""

    def __init__(self, config: ExecutorConfig | None = None, gpus: int = 1, say: Callable[[str], object] = print):
        """All executors are made alike: ``gpus`` is what a stage's models need, ``say`` prints a line."""

    @staticmethod
    def check(config: ExecutorConfig) -> None:
        """Refuse what cannot be had on this machine (``ConfigError``)."""

    def run(self, work: Work[R], shards: Iterable[tuple[int, Any]]) -> Iterator[Done[R]]:
        """The shards (number, items) as they are finished; each is taken when there is room for it.

        What ``process`` raised is raised here, but for what a server left unanswered.
        """
        for index, items in shards:
            yield done(work, index, items)

    def close(self) -> None:
        """Give back what workers hold: processes, models, GPUs."""


_CALLS = count()
_WORK: dict[str, Work[Any]] = {}
"""In a worker: what it was sent last, by the name of the call."""
IMPORTED = ["judgetrain.engines.local.transformers_engine", "transformers.modeling_utils", "judgetrain.pipeline.cli"]
"""What the process from which workers are forked imports once for those of all stages: 7 seconds each otherwise."""


class LocalExecutor(Executor):
    """Processes shards here; with ``executor.workers``, what needs a model is done by that many processes.

    On a CPU a small model does not fill the cores by threads, several of it do. Workers share the cores, and end with
    the stage or with this process. Where there is a GPU, which one process fills, there are none.
    """

    def __init__(self, config: ExecutorConfig | None = None, gpus: int = 1, say: Any = print) -> None:
        self._workers, self._gpus, self._say = config.workers or 1 if config else 1, gpus, say
        self._pool: ProcessPoolExecutor | None = None

    def run(self, work: Work[R], shards: Iterable[tuple[int, Any]]) -> Iterator[Done[R]]:
        """The shards in the order in which they are finished (EngineError: a worker died)."""
        shards = iter(shards)
        first = [*islice(shards, 2)]
        needs = self._gpus if work.gpus is None else work.gpus
        if self._workers == 1 or not needs or len(first) < 2 or self._fills_gpu():
            yield from super().run(work, chain(first, shards))
            return
        yield from self._spread(work, chain(first, shards))

    def _fills_gpu(self) -> bool:
        import torch

        if torch.cuda.is_available():
            self._say(f"executor.workers={self._workers}: there is a GPU, which this process fills alone")
            self._workers = 1
        return self._workers == 1

    def _spread(self, work: Work[R], shards: Iterator[tuple[int, Any]]) -> Iterator[Done[R]]:
        import cloudpickle

        self._pool = self._pool or _forked(self._workers)
        name, packed, waiting = f"{os.getpid()}-{next(_CALLS)}", cloudpickle.dumps(work), set[Future[Any]]()
        try:
            while True:
                free = islice(shards, self._workers - len(waiting))
                waiting |= {self._pool.submit(_shard, name, packed, *shard) for shard in free}
                if not waiting:
                    return
                ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in ended:
                    found = future.result()
                    if isinstance(found, JudgetrainError):
                        raise found
                    self.cpu += found.cpu
                    yield found
        except BrokenProcessPool as error:
            self.close()
            told = "a worker was killed, most often for want of memory; what is finished stays: run it again with fewer"
            raise EngineError(f"executor.workers={self._workers}: {told}") from error

    def close(self) -> None:
        """End the workers, and with them their models."""
        pool, self._pool = self._pool, None
        if pool is not None:
            for worker in (pool._processes or {}).values():
                worker.kill()
            pool.shutdown(cancel_futures=True)


def _forked(workers: int) -> ProcessPoolExecutor:
    """Workers that are forked from a process without threads or models, which has imported what all of them need."""
    share_cores(workers)
    context = multiprocessing.get_context(how := "forkserver" if sys.platform == "linux" else "spawn")
    if multiprocessing.get_start_method(allow_none=True) == "loky":  # in a job of sweep=joblib; workers know of none
        multiprocessing.set_start_method(how, force=True)
    context.set_forkserver_preload(IMPORTED)
    return ProcessPoolExecutor(workers, context, begin_worker)


def begin_worker() -> None:
    """What a process does first that works for this one, which it ends with."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends its workers
    end_with_parent()
    quiet_libraries()


def _shard(name: str, packed: bytes, index: int, items: Any) -> Done[Any] | JudgetrainError:
    """Process a shard in a worker; an expected failure is given, not raised."""
    import cloudpickle

    before = time.process_time()
    if name not in _WORK:
        _WORK.clear()
        _WORK[name] = cloudpickle.loads(packed)
    try:
        return replace(done(_WORK[name], index, items), cpu=time.process_time() - before)
    except JudgetrainError as error:
        return error


def executor_type(config: ExecutorConfig) -> type[Executor]:
    """The class of a configuration's executor; one on a cluster reaches it when it gets its first shards."""
    found: type[Executor] = resolve_name(EXECUTORS[config.type])
    return found


def make_executor(config: ExecutorConfig, gpus: int = 1, say: Callable[[str], object] = print) -> Executor:
    """The executor of a configuration."""
    return executor_type(config)(config, gpus, say)
