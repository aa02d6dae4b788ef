"""What processes shards: in this process, in several on this machine, each with a model of its own, or elsewhere."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
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
CHECK_PARENT = 0.2
"""Seconds between a worker's looks at whether the process that started it is still there."""
LOOK = 0.1
"""Seconds over which it is seen how busy the cores are."""
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
    """A shard that was processed: its number, its result (or what a server left unanswered), and the seconds spent."""

    index: int
    result: R | UnansweredError
    seconds: float


def share_cores(processes: int = 0) -> None:
    """Have OpenMP's threads sleep while they wait, and be no more than idle cores, unless the user has chosen.

    Threads that spin beside other processes slow training down tenfold. For a PyTorch that is not yet imported: in this
    process, or in so many ``processes`` that it is about to start, which fill the cores together.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    idle = min(own, idle_cores(own))
    if not _CHOSEN and (processes or idle < own):
        os.environ["OMP_NUM_THREADS"] = str(max(1, idle // max(1, processes)))


def idle_cores(unknown: int) -> int:
    """How many cores nothing runs on, to the next whole one, at the quietest of up to three looks: what is busy for a
    moment does not take a core for a whole run; ``unknown``: where the system does not say."""
    cores, most, looks = os.cpu_count() or 1, 0.0, 3
    try:
        after = _ticks()
        while looks and round(cores * most) < cores:
            looks, before = looks - 1, after
            time.sleep(LOOK)
            after = _ticks()
            all_, idle = (sum(end) - sum(start) for start, end in ((before, after), (before[3:5], after[3:5])))
            most = max(most, idle / all_)
    except (OSError, ValueError, ZeroDivisionError):
        return unknown
    return round(cores * most)


def _ticks() -> list[int]:
    """What Linux counts of all cores together: user, nice, system, idle, iowait, irq, softirq, steal."""
    with open("/proc/stat", encoding="ascii") as file:
        return [int(field) for field in file.readline().split()[1:9]]


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


_HELD: list[Callable[[], object]] = []


def held(close: Callable[[], object]) -> None:
    """Have what was loaded for shards from elsewhere closed (``close``) before this process is ended."""
    _HELD.append(close)


def free_held() -> None:
    """Close all that this process has loaded for shards."""
    for close in _HELD:
        close()


def end_with(parent: int) -> None:
    """Have this process die with its parent, also when that is killed: no orphan holds a model or writes."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(CHECK_PARENT)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Executor:
    """Processes shards, one after the other in this process, and knows nothing of files: who asks writes what comes.

    What a shard holds must depend on its number and its items alone, so that it is the same wherever it is processed.
    Subclasses process shards elsewhere.
    """

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


class LocalExecutor(Executor):
    """Processes shards here; with ``executor.workers``, what needs a model is done by that many processes.

    On a CPU a small model does not fill the cores by threads, several of it do. Workers share the cores, and end with
    the stage or with this process. Where there is a GPU, which one process fills, there are none.
    """

    def __init__(self, config: ExecutorConfig | None = None, gpus: int = 1, say: Any = print) -> None:
        self._workers, self._gpus, self._started = config.workers or 1 if config else 1, gpus, False
        self._say = say

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

    def _spread(self, work: Work[R], shards: Iterable[tuple[int, Any]]) -> Iterator[Done[R]]:
        import cloudpickle
        from joblib import Parallel, delayed
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        if not self._started:  # other threads would be other workers to joblib, which load their models again
            share_cores(self._workers)
            self._started = True
        name, packed = f"{os.getpid()}-{next(_CALLS)}", cloudpickle.dumps(work)
        pool = Parallel(
            self._workers, "loky", "generator_unordered", pre_dispatch="n_jobs", batch_size=1, max_nbytes=None
        )
        try:
            for found in pool(delayed(_shard)(os.getpid(), name, packed, *shard) for shard in shards):
                if isinstance(found, JudgetrainError):
                    raise found
                yield found
        except TerminatedWorkerError as error:
            told = "a worker was killed, most often for want of memory; what is finished stays: run it again with fewer"
            raise EngineError(f"executor.workers={self._workers}: {told}") from error

    def close(self) -> None:
        """End the workers, and with them their models."""
        if self._started:
            from joblib.externals.loky import get_reusable_executor

            get_reusable_executor().shutdown(wait=True, kill_workers=True)
            self._started = False


def _shard(parent: int, name: str, packed: bytes, index: int, items: Any) -> Done[Any] | JudgetrainError:
    """Process a shard in a worker; an expected failure is given, not raised."""
    import cloudpickle
    from joblib.externals.loky import process_executor

    process_executor._USE_PSUTIL = False  # which takes a model that is loaded for a leak, and starts the worker anew
    if name not in _WORK:
        if not _WORK and os.getpid() != parent:  # joblib works here where the system has no semaphores
            end_with(parent)
            quiet_libraries()
        _WORK.clear()
        _WORK[name] = cloudpickle.loads(packed)
    try:
        return done(_WORK[name], index, items)
    except JudgetrainError as error:
        return error


def executor_type(config: ExecutorConfig) -> type[Executor]:
    """The class of a configuration's executor; one on a cluster reaches it when it gets its first shards."""
    found: type[Executor] = resolve_name(EXECUTORS[config.type])
    return found


def make_executor(config: ExecutorConfig, gpus: int = 1, say: Callable[[str], object] = print) -> Executor:
    """The executor of a configuration."""
    return executor_type(config)(config, gpus, say)
