"""Shards on this machine: in this process, or in several, each with a model of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import chain, count, islice
from typing import Any

import cloudpickle

from judgetrain.artifacts.executor import Done, Executor, ExecutorConfig, R, Work, done, end_with, share_cores
from judgetrain.errors import EngineError, JudgetrainError

_CALLS = count()
_WORK: dict[str, Work[Any]] = {}
"""In a worker: what it was sent last, by the name of the call."""


class LocalExecutor(Executor):
    """Processes shards here; with ``executor.workers``, what needs a model is done by that many processes.

    On a CPU a small model does not fill the cores by threads, several of it do. Workers share the cores between them,
    end with the stage, and end when this process is killed. On a GPU one process fills the device: there they are
    refused.
    """

    def __init__(self, config: ExecutorConfig | None = None, gpus: int = 1, say: Any = print) -> None:
        self._workers, self._gpus, self._started = config.workers or 1 if config else 1, gpus, False

    def run(self, work: Work[R], shards: Iterable[tuple[int, Any]]) -> Iterator[Done[R]]:
        """The shards in the order in which they are finished.

        Raises:
            JudgetrainError: what ``process`` raised, but for what a server left unanswered.
            EngineError: a worker died, or there is a GPU.
        """
        shards = iter(shards)
        first = [*islice(shards, 2)]
        needs = self._gpus if work.gpus is None else work.gpus
        if self._workers == 1 or not needs or len(first) < 2:
            yield from super().run(work, chain(first, shards))
            return
        yield from self._spread(work, chain(first, shards))

    def _spread(self, work: Work[R], shards: Iterable[tuple[int, Any]]) -> Iterator[Done[R]]:
        import torch
        from joblib import Parallel, delayed
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        if torch.cuda.is_available():
            raise EngineError(
                f"executor.workers={self._workers}: there is a GPU, which one process fills; leave it out"
            )
        self._started = True
        share_cores(self._workers)
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
            raise EngineError(
                f"executor.workers={self._workers}: a worker was killed, most often because the memory does not hold a "
                "model for each; what is finished stays, run it again with fewer"
            ) from error

    def close(self) -> None:
        """End the workers, and with them their models."""
        if self._started:
            from joblib.externals.loky import get_reusable_executor

            get_reusable_executor().shutdown(wait=True, kill_workers=True)
            self._started = False


def _shard(parent: int, name: str, packed: bytes, index: int, items: Any) -> Done[Any] | JudgetrainError:
    """Process a shard in a worker; an expected failure is given, not raised."""
    if name not in _WORK:
        if not _WORK:
            end_with(parent)
        _WORK.clear()
        _WORK[name] = cloudpickle.loads(packed)
    try:
        return done(_WORK[name], index, items)
    except JudgetrainError as error:
        return error
