"""One thread owns the model; what many clients ask for at a time becomes few batches, out of a bounded queue."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from judgetrain.errors import JudgetrainError
from judgetrain.extras.server.config import Limits
from judgetrain.judges.base import Prediction
from judgetrain.schema import Comparison

log = logging.getLogger(__name__)

LONGEST_RETRY = 60
"""Seconds that a client is told to stay away at most."""


class QueueFullError(JudgetrainError):
    """There is no room for what is asked; ``retry_after``: seconds until there is, by the pace so far."""

    def __init__(self, retry_after: int) -> None:
        self.retry_after = retry_after
        super().__init__(f"the queue is full; ask again in {retry_after} s")


class ClosedError(JudgetrainError):
    """The server ends and takes no further work."""


@dataclass(frozen=True, eq=False)
class Job:
    """A comparison to judge with a seed; the thread that judges sets the ``result``."""

    comparison: Comparison
    seed: int
    result: Future[Prediction] = field(default_factory=Future)


Do = Callable[[Sequence[Comparison], int], Sequence[Prediction]]
"""Judges comparisons of one seed."""


class Batches:
    """A queue of jobs and the thread that does them, those of one seed together.

    While a batch is running others gather: the busier the server, the larger its batches. Seeds take turns in the order
    of their oldest jobs.

    Args:
        do: judges a batch.
        limits: how large batches and queue are, and how long an idle model waits for more.
    """

    def __init__(self, do: Do, limits: Limits) -> None:
        self._do, self._limits = do, limits
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._pace = 0.0  # seconds an item, over the last batches
        self._thread = threading.Thread(target=self._work, name="judge", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """Jobs that wait."""
        return len(self._jobs)

    def add(self, jobs: Sequence[Job]) -> None:
        """Put all of the jobs into the queue, or none.

        Raises:
            QueueFullError: there is no room for them.
            ClosedError: after :meth:`close`.
        """
        with self._changed:
            if self._closed:
                raise ClosedError("the server is shutting down")
            if len(self._jobs) + len(jobs) > self._limits.queue:
                raise QueueFullError(min(LONGEST_RETRY, max(1, math.ceil(len(self._jobs) * self._pace))))
            self._jobs.extend(jobs)
            self._changed.notify()

    def close(self) -> None:
        """Do what waits, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next():
            started = time.perf_counter()
            found = self._run(batch)
            pace = (time.perf_counter() - started) / len(batch)
            self._pace = (self._pace or pace) * 0.7 + pace * 0.3
            for job, result in zip(batch, found, strict=True):
                if isinstance(result, Exception):
                    job.result.set_exception(result)
                else:
                    job.result.set_result(result)

    def _next(self) -> list[Job]:
        """The next batch; an empty one when all is done and closed."""
        size = self._limits.batch
        with self._changed:
            while not self._jobs and not self._closed:
                self._changed.wait()
                until = time.monotonic() + self._limits.wait
                while 0 < len(self._jobs) < size and not self._closed and (left := until - time.monotonic()) > 0:
                    self._changed.wait(left)
            batch, others = list[Job](), deque[Job]()
            for job in self._jobs:
                (batch if job.seed == self._jobs[0].seed and len(batch) < size else others).append(job)
            self._jobs = others
            return batch

    def _run(self, batch: Sequence[Job]) -> Sequence[Prediction | Exception]:
        """The predictions of a batch, an exception for a job that cannot be done.

        Where the batch fails, each is done alone, so that one takes no other with it.
        """
        try:
            found = self._do([job.comparison for job in batch], batch[0].seed)
            if len(found) != len(batch):
                raise ValueError(f"{len(found)} results for {len(batch)} jobs")
            return found
        except Exception as error:
            if len(batch) == 1:
                return [error]
            log.warning("a batch of %d failed, each is done alone: %s", len(batch), error)
            return [result for job in batch for result in self._run([job])]
