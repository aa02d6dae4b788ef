"""A judge at work for many clients: one thread owns the model; what is asked at a time becomes few batches."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import islice

from judgetrain.errors import JudgetrainError
from judgetrain.extras.server.config import LIMITS, Limits, ServeConfig
from judgetrain.extras.server.metrics import Metrics
from judgetrain.judges.base import Judge, Prediction
from judgetrain.schema import Comparison

log = logging.getLogger(__name__)

PAUSE = 0.2
"""Seconds between two looks at a queue that is full."""
LONGEST_RETRY = 60
"""Seconds that a client is told to stay away at most."""

Key = tuple[Comparison, int]
"""A comparison to judge, and with which seed."""


class QueueFullError(JudgetrainError):
    """There is no room for what is asked; ``retry_after``: seconds until there is, by the pace so far."""

    def __init__(self, retry_after: int) -> None:
        self.retry_after = retry_after
        super().__init__(f"the queue is full; ask again in {retry_after} s")


class ClosedError(JudgetrainError):
    """The server ends and takes no further work."""


class Service:
    """Answers comparisons with one judge, which one thread alone touches.

    While a batch is running others gather: the busier the server, the larger its batches. A batch has one seed; seeds
    take turns in the order of what waits longest.

    Args:
        judge: holds the model.
        config: how rewards are made.
        seed: of comparisons that come without one.
        limits: how large batches and queue are, and how long an idle model waits for more.
    """

    def __init__(self, judge: Judge, config: ServeConfig, seed: int, limits: Limits = LIMITS) -> None:
        self.judge, self.config, self.seed, self.limits = judge, config, seed, limits
        self.draining = self._closed = False
        self.open_requests = 0
        self.metrics = Metrics(lambda: len(self._waiting), lambda: self.open_requests)
        self._changed = threading.Condition()
        self._waiting: dict[Key, Future[Prediction]] = {}
        self._running: dict[Key, Future[Prediction]] = {}
        self._pace = 0.0  # seconds a comparison, over the last batches
        self._thread = threading.Thread(target=self._work, name="judge", daemon=True)
        self._thread.start()

    def compare(self, comparisons: Sequence[Comparison], seeds: Sequence[int]) -> list[Future[Prediction]]:
        """The predictions to come, in the order of the comparisons; what others wait for right now is judged once.

        Raises:
            QueueFullError: the queue has no room for all of them; then none is judged.
            ClosedError: after :meth:`close`.
        """
        keys = list(zip(comparisons, seeds, strict=True))
        with self._changed:
            if self._closed:
                raise ClosedError("the server is shutting down")
            new = {key: Future[Prediction]() for key in keys if key not in self._running and key not in self._waiting}
            if len(self._waiting) + len(new) > self.limits.queue:
                raise QueueFullError(min(LONGEST_RETRY, max(1, math.ceil(len(self._waiting) * self._pace))))
            self._waiting |= new
            self._changed.notify()
            return [self._running.get(key) or self._waiting[key] for key in keys]

    def patient(self) -> Callable[[Sequence[Comparison]], list[Prediction]]:
        """A way to ask about one group, however large it is, in parts that fit into the queue.

        A full queue refuses a group (QueueFullError). One that has begun waits for room, in whatever round it is.
        """
        begun, size = False, min(self.limits.batch, self.limits.queue)

        def ask(comparisons: Sequence[Comparison]) -> list[Prediction]:
            found = list[Prediction]()
            for start in range(0, len(comparisons), size):
                found += [future.result() for future in added(comparisons[start : start + size])]
            return found

        def added(part: Sequence[Comparison]) -> list[Future[Prediction]]:
            nonlocal begun
            while True:
                try:
                    futures, begun = self.compare(part, [self.seed] * len(part)), True
                    return futures
                except QueueFullError:
                    if not begun:
                        raise
                    time.sleep(PAUSE)

        return ask

    def close(self) -> None:
        """Finish what was accepted, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next():
            started = time.perf_counter()
            found = self._judged([*batch])
            pace = (time.perf_counter() - started) / len(batch)
            self._pace = (self._pace or pace) * 0.7 + pace * 0.3
            with self._changed:
                self._running = {}  # before anybody is told: who then asks again is judged again
            for future, result in zip(batch.values(), found, strict=True):
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    def _next(self) -> dict[Key, Future[Prediction]]:
        """The next batch; an empty one when all is done and closed."""
        size = self.limits.batch
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
                until = time.monotonic() + self.limits.wait
                while 0 < len(self._waiting) < size and not self._closed and (left := until - time.monotonic()) > 0:
                    self._changed.wait(left)
            seed = next((seed for _, seed in self._waiting), None)
            keys = list(islice((key for key in self._waiting if key[1] == seed), size))
            self._running = {key: self._waiting.pop(key) for key in keys}
            return self._running

    def _judged(self, batch: Sequence[Key]) -> Sequence[Prediction | Exception]:
        """The predictions of a batch, an exception for a comparison that cannot be judged.

        Where the batch fails, each is judged alone, so that one takes no other with it.
        """
        started = time.perf_counter()
        try:
            found = self.judge.compare_all([comparison for comparison, _ in batch], batch[0][1])
            if len(found) != len(batch):
                raise ValueError(f"{len(found)} results for {len(batch)} comparisons")
            self.metrics.judged(found, time.perf_counter() - started)
            return found
        except Exception as error:
            if len(batch) == 1:
                return [error]
            log.warning("a batch of %d failed, each is judged alone: %s", len(batch), error)
            return [result for key in batch for result in self._judged([key])]
