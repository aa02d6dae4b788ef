"""Judge for many clients: one thread owns the model, and requests of the same time become few batches."""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any

from judgetrain.amounts import amount
from judgetrain.errors import JudgetrainError
from judgetrain.extras.server.config import LIMITS, Limits, ServeConfig
from judgetrain.judges.base import Judge
from judgetrain.judges.predictions import Prediction, Score
from judgetrain.schema import Candidates, Comparison

log = logging.getLogger(__name__)

PAUSE = 0.2
"""Seconds between two looks at a queue that is full."""


@dataclass(frozen=True, eq=False)
class _Job:
    """One comparison to judge, or one response to score.

    Args:
        item: the comparison or response.
        seed: of the judge.
        reasons: whether the judge writes its reasons; None: as it is set.
        future: gets the result.
    """

    item: Comparison | Candidates
    seed: int
    reasons: bool | None
    future: Future[Any]


class BusyError(JudgetrainError):
    """Raised where the queue has no room (429), or the server ends (503): the client should ask again after a while.

    Args:
        status: HTTP's.
        message: for the client.
        seconds: after which to ask again.
    """

    def __init__(self, status: int, message: str, seconds: int) -> None:
        super().__init__(message)
        self.status = status
        self.seconds = seconds


class Service:
    """Answers comparisons with one judge, which one thread alone touches.

    While a batch is running others gather: the busier the server, the larger its batches. A batch has one seed, one
    way to ask (with reasons or without), and comparisons alone or single responses alone, as what waits longest.

    Args:
        judge: holds the model.
        config: how rewards are made.
        seed: of comparisons that come without one.
        limits: how large batches and queue are, and how long an idle model waits for more.
    """

    def __init__(self, judge: Judge, config: ServeConfig, seed: int, limits: Limits = LIMITS) -> None:
        self.judge = judge
        self.config = config
        self.seed = seed
        self.limits = limits
        self.draining = False
        self.open_requests = 0
        self._closed = False
        self._changed = threading.Condition()
        self._waiting = deque[_Job]()
        self._thread = threading.Thread(target=self._work, name="judge", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Return the number of comparisons that wait."""
        return len(self._waiting)

    def compare(
        self, comparisons: Sequence[Comparison | Candidates], seeds: Sequence[int], reasons: bool | None = None
    ) -> list[Future[Any]]:
        """Return the predictions to come, and the scores of single responses, in the order of the comparisons.

        Args:
            comparisons: to be judged.
            seeds: of each.
            reasons: whether the judge writes its reasons; None: as it is set.

        Raises:
            BusyError: the queue has no room for all of them, and none is judged; or after :meth:`close`.
        """
        jobs = [_Job(item, seed, reasons, Future()) for item, seed in zip(comparisons, seeds, strict=True)]
        with self._changed:
            if self._closed:
                raise BusyError(503, "the server is shutting down", 5)
            if len(self._waiting) + len(jobs) > self.limits.queue:
                # Clients that have gone leave their jobs behind.
                self._waiting = deque(job for job in self._waiting if not job.future.cancelled())
            if len(self._waiting) + len(jobs) > self.limits.queue:
                raise BusyError(429, "the queue is full; ask again in a second", 1)
            self._waiting.extend(jobs)
            self._changed.notify()
        return [job.future for job in jobs]

    def patient(
        self, comparisons: Sequence[Comparison | Candidates], gone: threading.Event, reasons: bool | None = None
    ) -> list[Any]:
        """Return what :meth:`compare` promises, of one group, however large, which waits for room in the queue.

        Args:
            comparisons: of the group.
            gone: is set when nobody waits for the results any more.
            reasons: whether the judge writes its reasons; None: as it is set.

        Raises:
            BusyError: the server ends, or nobody waits any more.
        """
        results: list[Any] = []
        # In parts: a large group would else fill the queue, and other clients would be turned away.
        size = min(self.limits.batch, self.limits.queue)
        for start in range(0, len(comparisons), size):
            futures = self._queued(comparisons[start : start + size], gone, reasons)

            # In pauses, to notice between them that the client has gone.
            while wait(futures, PAUSE).not_done and not gone.is_set():
                pass
            if gone.is_set():
                for future in futures:
                    future.cancel()
                raise BusyError(503, "nobody waits for this any more", 1)
            results += [future.result() for future in futures]
        return results

    def _queued(
        self, part: Sequence[Comparison | Candidates], gone: threading.Event, reasons: bool | None
    ) -> list[Future[Any]]:
        """Return :meth:`compare` of a part, as soon as there is room for it."""
        seeds = [self.seed] * len(part)
        while True:
            try:
                return self.compare(part, seeds, reasons)
            except BusyError as busy:
                is_full = busy.status == 429

                # The pause before the next try ends at once where the client goes.
                if not is_full or gone.wait(PAUSE):
                    raise

    def close(self) -> None:
        """Finish what was accepted, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        """Judge batch after batch, until all is done and closed."""
        while True:
            batch = self._next_batch()
            if not batch:
                return
            # Each job gets its own result or error: one row that fails must not fail the others' requests.
            for job, result in zip(batch, self._judged(batch), strict=True):
                if isinstance(result, Exception):
                    job.future.set_exception(result)
                else:
                    job.future.set_result(result)

    def _next_batch(self) -> list[_Job]:
        """Return the next batch, without what nobody waits for any more; an empty one when all is done and closed."""
        while True:
            with self._changed:
                self._wait_for_jobs()
                if not self._waiting:
                    return []
                # Taken under the lock, judged without it: meanwhile others can join the queue.
                batch = self._take_batch()

            # False says that the job was cancelled. After True nobody can cancel it any more.
            running = [job for job in batch if job.future.set_running_or_notify_cancel()]
            if running:
                return running

    def _wait_for_jobs(self) -> None:
        """Wait until jobs are there, and then a little for others to come, so that batches are large."""
        while not self._waiting and not self._closed:
            self._changed.wait()

            # Counted from the first job, so that it does not wait longer the more come after it.
            until = time.monotonic() + self.limits.wait
            while 0 < len(self._waiting) < self.limits.batch and not self._closed:
                remaining = until - time.monotonic()
                if remaining <= 0:
                    break
                self._changed.wait(remaining)

    def _take_batch(self) -> list[_Job]:
        """Take the longest waiting job out of the queue, with others of its kind that are asked alike."""
        first = self._waiting[0]
        batch: list[_Job] = []
        others = deque[_Job]()
        for job in self._waiting:
            # A judge takes comparisons or single responses, and one seed, in a call.
            fits = type(job.item) is type(first.item) and job.seed == first.seed
            is_asked_alike = job.reasons == first.reasons
            if fits and is_asked_alike and len(batch) < self.limits.batch:
                batch.append(job)
            else:
                others.append(job)
        self._waiting = others
        return batch

    def _judged(self, batch: Sequence[_Job]) -> Sequence[Prediction | Score | Exception]:
        """Return the results of a batch, an exception for a comparison that cannot be judged.

        Where the batch fails, each is judged alone, so that one takes no other with it.
        """
        items: list[Any] = [job.item for job in batch]
        seed = batch[0].seed
        reasons = batch[0].reasons
        results: Sequence[Prediction | Score]
        try:
            judge = self.judge
            if reasons is not None:
                judge = judge.writing(reasons)
            if isinstance(items[0], Candidates):
                results = [score for (score,) in judge.score_batch(items, seed)]
            else:
                results = judge.compare_readable(items, seed)

            # Handing out unequal numbers would end this thread, and all clients would wait for ever.
            if len(results) != len(batch):
                raise ValueError(f"{len(results)} results for {amount(len(batch), 'comparison')}")
        except Exception as error:
            if len(batch) == 1:
                return [error]
            log.warning("a batch of %d failed, each is judged alone: %s", len(batch), error)
            alone: list[Prediction | Score | Exception] = []
            for job in batch:
                alone += self._judged([job])
            return alone
        return results
