"""A judge at work for many clients: one thread owns the model; what is asked at a time becomes few batches."""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, wait
from typing import Any

from judgetrain.errors import JudgetrainError
from judgetrain.extras.server.config import LIMITS, Limits, ServeConfig
from judgetrain.judges.base import Judge, Prediction, Score
from judgetrain.schema import Candidates, Comparison

log = logging.getLogger(__name__)

PAUSE = 0.2
"""Seconds between two looks at a queue that is full."""

Asked = tuple[Comparison | Candidates, int, Future[Any]]
"""A comparison to judge or one response to score, with which seed, and who waits for it."""


class BusyError(JudgetrainError):
    """There is no room for what is asked (429), or the server ends (503): ask again after some seconds."""

    def __init__(self, status: int, message: str, seconds: int) -> None:
        self.status, self.seconds = status, seconds
        super().__init__(message)


class Service:
    """Answers comparisons with one judge, which one thread alone touches.

    While a batch is running others gather: the busier the server, the larger its batches. A batch has one seed, and
    comparisons alone or single responses alone, as what waits longest.

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
        self._changed = threading.Condition()
        self._waiting = deque[Asked]()
        self._thread = threading.Thread(target=self._work, name="judge", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many comparisons wait."""
        return len(self._waiting)

    def compare(self, comparisons: Sequence[Comparison | Candidates], seeds: Sequence[int]) -> list[Future[Any]]:
        """The predictions to come, and the scores of single responses, in the order of the comparisons (BusyError: the
        queue has no room for all of them, and none is judged; or after :meth:`close`)."""
        new = [(c, seed, Future[Any]()) for c, seed in zip(comparisons, seeds, strict=True)]
        with self._changed:
            if self._closed:
                raise BusyError(503, "the server is shutting down", 5)
            if len(self._waiting) + len(new) > self.limits.queue:
                self._waiting = deque(asked for asked in self._waiting if not asked[2].cancelled())
            if len(self._waiting) + len(new) > self.limits.queue:
                raise BusyError(429, "the queue is full; ask again in a second", 1)
            self._waiting.extend(new)
            self._changed.notify()
        return [future for *_, future in new]

    def patient(self, comparisons: Sequence[Comparison | Candidates], gone: threading.Event) -> list[Any]:
        """What :meth:`compare` gives, of one group, however large, which waits for room in the queue (BusyError: the
        server ends, or whoever asked has ``gone``)."""
        found: list[Any] = []
        size = min(self.limits.batch, self.limits.queue)
        for part in (comparisons[start : start + size] for start in range(0, len(comparisons), size)):
            waiting = self._placed(part, gone)
            while wait(waiting, PAUSE).not_done and not gone.is_set():
                pass
            if gone.is_set():
                for future in waiting:
                    future.cancel()
                raise BusyError(503, "nobody waits for this any more", 1)
            found += [future.result() for future in waiting]
        return found

    def _placed(self, part: Sequence[Comparison | Candidates], gone: threading.Event) -> list[Future[Any]]:
        while True:
            try:
                return self.compare(part, [self.seed] * len(part))
            except BusyError as busy:
                if busy.status != 429 or gone.wait(PAUSE):
                    raise

    def close(self) -> None:
        """Finish what was accepted, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next():
            for (*_, future), result in zip(batch, self._judged(batch), strict=True):
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    def _next(self) -> list[Asked]:
        """The next batch, without what nobody waits for any more; an empty one when all is done and closed."""
        size = self.limits.batch
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                    until = time.monotonic() + self.limits.wait
                    while 0 < len(self._waiting) < size and not self._closed and (left := until - time.monotonic()) > 0:
                        self._changed.wait(left)
                if not self._waiting:
                    return []
                first, seed, _ = self._waiting[0]
                batch = [a for a in self._waiting if (type(a[0]), a[1]) == (type(first), seed)][:size]
                taken = {id(asked) for asked in batch}
                self._waiting = deque(asked for asked in self._waiting if id(asked) not in taken)
            if batch := [asked for asked in batch if asked[2].set_running_or_notify_cancel()]:
                return batch

    def _judged(self, batch: Sequence[Asked]) -> Sequence[Prediction | Score | Exception]:
        """The predictions of a batch, an exception for a comparison that cannot be judged.

        Where the batch fails, each is judged alone, so that one takes no other with it.
        """
        try:
            rows: list[Any] = [asked for asked, *_ in batch]
            found: Sequence[Prediction | Score]
            if isinstance(rows[0], Candidates):
                found = [score for [score] in self.judge.score_all(rows, batch[0][1])]
            else:
                found = self.judge.compare_all(rows, batch[0][1])
            if len(found) != len(batch):
                raise ValueError(f"{len(found)} results for {len(batch)} comparisons")
            return found
        except Exception as error:
            if len(batch) == 1:
                return [error]
            log.warning("a batch of %d failed, each is judged alone: %s", len(batch), error)
            return [result for asked in batch for result in self._judged([asked])]
