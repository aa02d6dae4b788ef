"""A judge at work for many clients: batches, kept answers, and what is counted."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from judgetrain.engines.base import Completion, Engine, Request
from judgetrain.judges.base import Judge, Prediction
from judgetrain.schema import Comparison
from judgetrain.serving.server.batches import Batches, Job, QueueFullError
from judgetrain.serving.server.config import ServeConfig
from judgetrain.serving.server.kept import KeptAnswers
from judgetrain.serving.server.metrics import Metrics

log = logging.getLogger(__name__)

JUDGE, CHAT = "judge", "chat"
PAUSE = 0.2
"""Seconds between two looks at a queue that is full."""


class Service:
    """Answers comparisons and chats with one judge's model.

    Args:
        judge: holds the model, which the thread of the batches alone touches.
        config: how large batches and queue are.
        kept: answers of before.
        seed: of comparisons that come without one.
    """

    def __init__(self, judge: Judge, config: ServeConfig, kept: KeptAnswers, seed: int) -> None:
        self.judge, self.config, self.seed = judge, config, seed
        self.draining = False
        self.open_requests = 0
        self.metrics = Metrics(lambda: len(self._batches), lambda: self.open_requests)
        self._kept = kept
        self._lock = threading.Lock()
        self._pending: dict[str, Future[Prediction]] = {}
        self._batches = Batches(self._do, config.batch, config.queue, config.wait, self._told)

    @property
    def longest(self) -> int:
        """Comparisons in one request at most: a request is taken whole, so that it has to fit into the queue."""
        return min(self.config.comparisons, self.config.queue)

    @property
    def part(self) -> int:
        """Comparisons put into the queue at a time where there may be more of them than it has room for."""
        return min(self.config.batch, self.config.queue)

    @property
    def engine(self) -> Engine | None:
        """What generates the judge's text; None for a judge that generates none."""
        return getattr(self.judge, "engine", None)

    def compare(self, comparisons: Sequence[Comparison], seeds: Sequence[int]) -> list[Future[Prediction]]:
        """The predictions to come, in the order of the comparisons.

        What was answered before is not judged again, and what another client waits for right now is judged once.

        Raises:
            QueueFullError: the queue has no room for all of them; then none is judged.
            ClosedError: the server is shutting down.
        """
        keys = [self._kept.key(c, seed) for c, seed in zip(comparisons, seeds, strict=True)]
        with self._lock:
            found: dict[str, Future[Prediction]] = {}
            jobs: dict[str, Job] = {}
            again = 0
            for key, comparison, seed in zip(keys, comparisons, seeds, strict=True):
                if key in found:
                    continue
                if key in self._pending:
                    found[key] = self._pending[key]
                elif (kept := self._kept.get(key)) is not None:
                    found[key] = Future()
                    found[key].set_result(kept)
                    again += 1
                else:
                    jobs[key] = Job((JUDGE, seed), (key, comparison))
                    found[key] = jobs[key].result
            self._batches.add(list(jobs.values()))
            self.metrics.given_again(again)
            self._pending |= {key: job.result for key, job in jobs.items()}
        for key, job in jobs.items():  # not under the lock: what is done by now is forgotten at once
            job.result.add_done_callback(partial(self._forget, key))
        return [found[key] for key in keys]

    def compare_patiently(self, comparisons: Sequence[Comparison], seed: int, wait: bool) -> list[Future[Prediction]]:
        """As :meth:`compare`; ``wait``: a full queue is waited for, since what asks has been taken before.

        Raises:
            QueueFullError: the queue has no room, and it is not waited for.
        """
        while True:
            try:
                return self.compare(comparisons, [seed] * len(comparisons))
            except QueueFullError:
                if not wait:
                    raise
                time.sleep(PAUSE)

    def chat(self, request: Request) -> Future[Completion]:
        """The completion to come.

        Raises:
            QueueFullError: the queue has no room.
            ClosedError: the server is shutting down.
        """
        job = Job((CHAT, None), request)
        self._batches.add([job])
        return job.result

    def close(self) -> None:
        """Finish what was accepted."""
        self._batches.close()
        self._kept.close()

    def _forget(self, key: str, done: Future[Prediction]) -> None:
        with self._lock:
            self._pending.pop(key, None)

    def _do(self, lane: tuple[str, Any], items: list[Any]) -> Sequence[Any]:
        work, seed = lane
        if work == CHAT:
            return self._generate(items)
        found = self.judge.compare_all([comparison for _, comparison in items], seed)
        try:
            self._kept.put({key: prediction for (key, _), prediction in zip(items, found, strict=True)})
        except sqlite3.Error as error:  # a full disk: who waits for the verdicts gets them all the same
            log.warning("%d answers are given, but not kept: %s", len(found), error)
        for prediction in found:
            self.metrics.judged(prediction)
        return found

    def _generate(self, requests: list[Request]) -> list[Completion]:
        assert self.engine is not None
        done = self.engine.generate(requests, self.seed)
        for completion in done:
            self.metrics.tokens(completion.prompt_tokens, completion.generated_tokens)
        return done

    def _told(self, lane: tuple[str, Any], rows: int, seconds: float) -> None:
        self.metrics.batch(lane[0], rows, seconds)
