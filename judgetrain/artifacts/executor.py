"""Executors process shards: in this process, in several on this machine that hold a model each, or elsewhere."""

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
from judgetrain.amounts import amount
from judgetrain.artifacts.console import quiet_libraries
from judgetrain.artifacts.signals import start_resource_tracker
from judgetrain.errors import EngineError, JudgetrainError, UnansweredError
from judgetrain.keys import key

EXECUTORS = {"local": "judgetrain.artifacts.executor:LocalExecutor"}
for _room in rooms.rooms():
    EXECUTORS |= _room.executors
"""``module:Class`` of every executor, by the value of ``executor.type``."""


@dataclass
class ExecutorConfig:
    """The place where shards are processed; results are the same everywhere."""

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
"""The result of a shard."""
_THREADS_CHOSEN = "OMP_NUM_THREADS" in os.environ
"""True where the user has chosen how many threads a process has."""


@dataclass(frozen=True, kw_only=True)
class Work(Generic[R]):
    """The work on every shard of one name.

    Args:
        process: returns a shard's result, given its number and its items.
        load: loads what ``process`` needs; it is called before a shard is timed.
        clock: returns seconds from any beginning. It is the stage's own, which ``StageRun.sharded`` puts here: the
            clock goes with the work, as other processes have no stage to ask.
        gpus: how many GPUs a copy of the model takes, where there are any. None: as many as the stage's largest model.
            0: there is no model, and no GPU is taken.
        spread: the shards may be processed elsewhere and in any order. ``process`` and ``load`` can then be pickled,
            and depend on nothing that happens here meanwhile.
    """

    process: Callable[[int, Any], R]
    load: Callable[[], object] | None = None
    clock: Callable[[], float] = time.monotonic
    gpus: int | None = None
    spread: bool = False


@dataclass(frozen=True)
class Done(Generic[R]):
    """A shard that was processed.

    Args:
        index: the shard's number.
        result: what ``process`` returned, or the error of a server that left requests unanswered.
        seconds: the time spent, on the work's clock.
        cpu: seconds of processor time that a worker on this machine spent; 0 where this process did the work.
    """

    index: int
    result: R | UnansweredError
    seconds: float
    cpu: float = 0.0


def share_cores(processes: int = 0) -> str | None:
    """Set OpenMP's environment so that threads share the cores, unless the user has chosen otherwise.

    Returns a sentence for the user where this process alone gets fewer threads than it has cores, else None.

    Threads that wait soon sleep, and there are no more of them than idle cores. Threads that spin on beside other
    processes slow training down tenfold; threads that never spin, by half. Call it before PyTorch is imported.

    Args:
        processes: how many processes will fill the cores together; 0: this process alone.
    """
    # What the user sets stays: a cluster may give each process cores of its own.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        # GNU's OpenMP then still spins for a tenth of a millisecond; others do not spin at all.
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")

    usable = _usable_cores()
    idle = min(usable, idle_cores())
    # Without workers and with all cores idle, OpenMP's own choice (one thread a core) is right.
    if _THREADS_CHOSEN or (not processes and idle >= usable):
        return None
    threads = max(1, idle // max(1, processes))
    os.environ["OMP_NUM_THREADS"] = str(threads)
    # Workers share the cores among themselves, which is no news. One core has one thread however busy it is.
    if processes or threads == usable:
        return None
    return (
        "other programs keep cores of this machine busy, so that this command computes with "
        f"{amount(threads, 'thread')} to its end; OMP_NUM_THREADS={usable} before it takes {amount(usable, 'core')}"
    )


def _usable_cores() -> int:
    """Return how many cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def idle_cores() -> int:
    """Return how many cores are idle, rounded: the most in up to three looks of a tenth of a second."""
    import psutil

    cores = psutil.cpu_count() or 1
    most_idle = 0
    after = psutil.cpu_times()
    for _ in range(3):
        # Differences of cpu_times, since cpu_times_percent is wrong where all cores together spend under a second.
        before = after
        time.sleep(0.1)
        after = psutil.cpu_times()

        # The first eight kinds of time add up to the whole; guests' time, behind them, is in user time already.
        seconds = [end - start for start, end in zip(before, after, strict=True)][:8]
        idle_seconds = sum(seconds[3:5])  # idle, and waiting for a disk
        most_idle = max(most_idle, round(cores * idle_seconds / max(sum(seconds), 1e-9)))
        if most_idle >= cores:
            break
    return most_idle


def done(work: Work[R], index: int, items: Any) -> Done[R]:
    """Process one shard in this process; a server's unanswered requests are its result, not an error."""
    # Models take seconds to minutes to load: that is no time of the first shard, whose seconds are reported.
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
"""Functions that close models which this process loaded for shards from elsewhere; called before it is ended."""


LOOKS = 0.5
"""Seconds between two looks at whether a parent that gives no notice of its end is there."""
_watching: set[int] = set()
"""The processes (this one, or one that forked it) that end with their parents."""


def end_with_parent() -> None:
    """Make this process die with its parent, also when that is killed, so that no orphan holds a model or writes.

    It may be called several times, as by the jobs of a sweep that a worker does one after the other.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    if os.getpid() in _watching:
        return
    # By process, not a flag: a forked child inherits the set, but none of the threads.
    _watching.add(os.getpid())

    def watch() -> None:
        if getattr(parent, "_sentinel", None) is not None:
            parent.join()
        else:
            # joblib's workers (loky) get no sentinel. They are direct children, unlike those of a fork server.
            while os.getppid() == parent.pid:
                time.sleep(LOOKS)
        # sys.exit would end this thread alone; the main one may be in a computation that hears nothing for minutes.
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Executor:
    """Processes shards one after the other in this process. Subclasses process them elsewhere.

    An executor writes no files; its caller does. A shard's result must depend on its number and its items alone, so
    that it is the same wherever the shard is processed.

    Args:
        config: ``executor`` of the configuration.
        gpus: how many GPUs the stage's largest model needs.
        say: prints a line.
    """

    cpu = 0.0
    """Seconds of processor time that workers on this machine have spent."""

    def __init__(self, config: ExecutorConfig | None = None, gpus: int = 1, say: Callable[[str], object] = print):
        """Take what all executors take; this one needs none of it."""

    @staticmethod
    def check(config: ExecutorConfig) -> None:
        """Raise ConfigError where this machine cannot do what the configuration says."""

    def run(self, work: Work[R], shards: Iterable[tuple[int, Any]]) -> Iterator[Done[R]]:
        """Yield shards as they are finished.

        Args:
            work: what to do with a shard.
            shards: numbers and items; each is fetched when there is room for it.

        Raises:
            Exception: whatever ``process`` raised, except UnansweredError, which is a shard's result.
        """
        for index, items in shards:
            yield done(work, index, items)

    def close(self) -> None:
        """Give back what workers hold: processes, models, GPUs."""


_CALLS = count()
_WORK: dict[str, Work[Any]] = {}
"""In a worker, the work that was sent last, by the name of the call."""
IMPORTED = [
    "judgetrain.artifacts.preloading",
    "judgetrain.engines.local.transformers_engine",
    "transformers.modeling_utils",
    "judgetrain.pipeline.cli",
]
"""Modules that the server from which workers are forked imports once; otherwise each worker takes 7 seconds to.

The first has it end with its parent meanwhile."""


class LocalExecutor(Executor):
    """Processes shards here, or with ``executor.workers`` in that many processes where they need a model.

    One small model on a CPU does not fill the cores with its threads; several copies do. Workers share the cores, and
    end with the stage or with this process. On a machine with a GPU there are none, since one process fills it.
    """

    def __init__(self, config: ExecutorConfig | None = None, gpus: int = 1, say: Any = print) -> None:
        self._workers = 1
        if config is not None and config.workers is not None:
            self._workers = config.workers
        self._gpus = gpus
        self._say = say
        self._pool: ProcessPoolExecutor | None = None

    def run(self, work: Work[R], shards: Iterable[tuple[int, Any]]) -> Iterator[Done[R]]:
        """Yield shards in the order in which they are finished.

        Raises:
            EngineError: a worker died.
        """
        # Two are fetched to see whether there are several; one shard alone is done here, without starting workers.
        shards = iter(shards)
        first = [*islice(shards, 2)]
        every_shard = chain(first, shards)
        gpus = work.gpus
        if gpus is None:
            gpus = self._gpus
        needs_model = gpus > 0
        has_several = len(first) == 2
        # A GPU is looked for last, since that imports PyTorch.
        if self._workers > 1 and needs_model and has_several and not self._fills_gpu():
            yield from self._spread(work, every_shard)
        else:
            yield from super().run(work, every_shard)

    def _fills_gpu(self) -> bool:
        """Return whether there is a GPU, and then say once that workers do not help."""
        import torch

        if torch.cuda.is_available():
            self._say(f"executor.workers={self._workers}: there is a GPU, which this process fills alone")
            self._workers = 1
        return self._workers == 1

    def _spread(self, work: Work[R], shards: Iterator[tuple[int, Any]]) -> Iterator[Done[R]]:
        """Yield shards as the workers finish them; each worker has one shard at a time."""
        import cloudpickle

        # The pool stays for the stage's later shards, so that each worker loads its model once.
        if self._pool is None:
            self._pool = _forked(self._workers)
        # Workers unpickle the work once a call, by its name.
        name = f"{os.getpid()}-{next(_CALLS)}"
        packed = cloudpickle.dumps(work)
        running: set[Future[Any]] = set()
        try:
            # As many shards as there are workers: items are fetched late, and an early end leaves no queue behind.
            while True:
                free_workers = self._workers - len(running)
                for index, items in islice(shards, free_workers):
                    running.add(self._pool.submit(_shard, name, packed, index, items))
                if not running:
                    return

                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    shard = future.result()
                    # Raised here, so that the message is the one of a run without workers.
                    if isinstance(shard, JudgetrainError):
                        raise shard
                    self.cpu += shard.cpu
                    yield shard
        except BrokenProcessPool as error:
            self.close()
            raise EngineError(
                f"executor.workers={self._workers}: a worker was killed, most often for want of memory; what is "
                f"finished stays: run it again with fewer"
            ) from error

    def close(self) -> None:
        """End the workers, and with them their models."""
        pool = self._pool
        self._pool = None
        if pool is None:
            return
        # Before Python 3.14 a pool can only wait for its workers; one in a shard would go on for minutes.
        for worker in (pool._processes or {}).values():
            worker.kill()
        pool.shutdown(cancel_futures=True)


def _forked(workers: int) -> ProcessPoolExecutor:
    """Return a pool of workers, forked from a server without threads or models that has imported :data:`IMPORTED`."""
    # Before the pool: its processes inherit the environment, and read it when they import PyTorch.
    share_cores(workers)
    method = "forkserver" if sys.platform == "linux" else "spawn"
    context = multiprocessing.get_context(method)
    # A job of sweep=joblib has joblib's own start method, which workers do not know.
    if multiprocessing.get_start_method(allow_none=True) == "loky":
        multiprocessing.set_start_method(method, force=True)
    context.set_forkserver_preload(IMPORTED)
    # The pool's locks and queues are registered with it.
    start_resource_tracker()
    return ProcessPoolExecutor(workers, context, begin_worker)


def begin_worker() -> None:
    """Initialise a worker process."""
    # Ctrl-C reaches the parent too, which ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    quiet_libraries()


def _shard(name: str, packed: bytes, index: int, items: Any) -> Done[Any] | JudgetrainError:
    """Process a shard in a worker, and return an expected failure instead of raising it.

    Args:
        name: the name of the call, which is the same for all its shards.
        packed: the pickled :class:`Work`.
        index: the shard's number.
        items: the shard's items.
    """
    import cloudpickle

    before = time.process_time()
    # Work of an earlier call may hold a model: it goes before the next one is loaded.
    if name not in _WORK:
        _WORK.clear()
        _WORK[name] = cloudpickle.loads(packed)
    try:
        shard = done(_WORK[name], index, items)
    except JudgetrainError as error:
        return error
    return replace(shard, cpu=time.process_time() - before)


def executor_type(config: ExecutorConfig) -> type[Executor]:
    """Return the class of the configured executor."""
    executor_class: type[Executor] = resolve_name(EXECUTORS[config.type])
    return executor_class


def make_executor(config: ExecutorConfig, gpus: int = 1, say: Callable[[str], object] = print) -> Executor:
    """Return the configured executor; one on a cluster connects to it with its first shards."""
    return executor_type(config)(config, gpus, say)
