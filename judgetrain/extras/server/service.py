"""A judge at work for many clients: batches, and what is counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

from judgetrain.extras.server.batches import Batches, Job, QueueFullError
from judgetrain.extras.server.config import LIMITS, Limits, ServeConfig
from judgetrain.extras.server.metrics import Metrics
from judgetrain.judges.base import Judge, Prediction
from judgetrain.schema import Comparison

PAUSE = 0.2
"""Seconds between two looks at a queue that is full."""


class Service:
    """Answers comparisons with one judge, which the thread of the batches alone touches.

    Args:
        judge: holds the model.
        config: how rewards are made.
        seed: of comparisons that come without one.
        limits: how large batches and queue are.
    """

    def __init__(self, judge: Judge, config: ServeConfig, seed: int, limits: Limits = LIMITS) -> None:
        self.judge, self.config, self.seed, self.limits = judge, config, seed, limits
        self.draining = False
        self.open_requests = 0
        self.metrics = Metrics(lambda: len(self._batches), lambda: self.open_requests)
        self._lock = threading.Lock()
        self._pending: dict[tuple[Comparison, int], Future[Prediction]] = {}
        self._batches = Batches(self._judge, limits)

    def compare(self, comparisons: Sequence[Comparison], seeds: Sequence[int]) -> list[Future[Prediction]]:
        """The predictions to come, in the order of the comparisons; what others wait for right now is judged once.

        Raises:
            QueueFullError: the queue has no room for all of them; then none is judged.
            ClosedError: the server is shutting down.
        """
        keys = list(zip(comparisons, seeds, strict=True))
        with self._lock:
            found = {key: future for key in keys if (future := self._pending.get(key)) is not None}
            jobs = {key: Job(*key) for key in dict.fromkeys(keys) if key not in found}
            self._batches.add(list(jobs.values()))
            self._pending |= {key: job.result for key, job in jobs.items()}
            found |= {key: job.result for key, job in jobs.items()}
        for key, job in jobs.items():  # not under the lock: what is done by now is forgotten at once
            job.result.add_done_callback(partial(self._forget, key))
        return [found[key] for key in keys]

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
        """Finish what was accepted."""
        self._batches.close()

    def _forget(self, key: tuple[Comparison, int], done: Future[Prediction]) -> None:
        self._pending.pop(key, None)

    def _judge(self, comparisons: Sequence[Comparison], seed: int) -> Sequence[Prediction]:
        started = time.perf_counter()
        found = self.judge.compare_all(comparisons, seed)
        self.metrics.judged(found, time.perf_counter() - started)
        return found
