"""One thread owns the model; what many clients ask for at a time becomes few batches, out of a bounded queue."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from judgetrain.errors import JudgetrainError

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
    """One thing to do. Jobs of one ``lane`` can be done together; ``result`` is set by the thread that does them."""

    lane: Hashable
    item: Any
    result: Future[Any] = field(default_factory=Future)


Do = Callable[[Any, list[Any]], Sequence[Any]]
"""Given a lane and its items, the results in their order."""

Told = Callable[[Any, int, float], None]
"""Told of every batch: its lane, how many items it had, and the seconds it took."""


class Batches:
    """A queue of jobs and the thread that does them, those of one lane together.

    While a batch is running others gather, so that the busier the server the larger its batches; ``wait`` seconds are
    waited only where the model is idle. Lanes take turns in the order of their oldest jobs.

    Args:
        do: does the items of one lane.
        size: items of a batch at most.
        room: jobs that may wait.
        wait: seconds.
        told: of every batch.
    """

    def __init__(self, do: Do, size: int, room: int, wait: float, told: Told) -> None:
        self._do, self._size, self._room, self._wait, self._told = do, size, room, wait, told
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
            if len(self._jobs) + len(jobs) > self._room:
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
            seconds = time.perf_counter() - started
            self._pace = (self._pace or seconds / len(batch)) * 0.7 + seconds / len(batch) * 0.3
            self._told(batch[0].lane, len(batch), seconds)  # first: who has an answer finds it in the numbers
            for job, result in zip(batch, found, strict=True):
                if isinstance(result, Exception):
                    job.result.set_exception(result)
                else:
                    job.result.set_result(result)

    def _next(self) -> list[Job]:
        """The next batch; an empty one when all is done and closed."""
        with self._changed:
            while not self._jobs and not self._closed:
                self._changed.wait()
                until = time.monotonic() + self._wait
                while self._jobs and len(self._jobs) < self._size and not self._closed:
                    if (left := until - time.monotonic()) <= 0:
                        break
                    self._changed.wait(left)
            if not self._jobs:
                return []
            lane, batch, others = self._jobs[0].lane, list[Job](), deque[Job]()
            while self._jobs:
                job = self._jobs.popleft()
                (batch if job.lane == lane and len(batch) < self._size else others).append(job)
            self._jobs = others
            return batch

    def _run(self, batch: Sequence[Job]) -> list[Any]:
        """What a batch's jobs come to, an exception for one that cannot be done.

        Where the batch fails, each is done alone, so that one takes no other with it.
        """
        try:
            found = list(self._do(batch[0].lane, [job.item for job in batch]))
            if len(found) != len(batch):
                raise ValueError(f"{len(found)} results for {len(batch)} jobs")
            return found
        except Exception as error:
            if len(batch) == 1:
                return [error]
            log.warning("a batch of %d failed, each is done alone: %s", len(batch), error)
            return [result for job in batch for result in self._run([job])]
