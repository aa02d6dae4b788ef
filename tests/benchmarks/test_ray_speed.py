"""What the benchmark of the executor counts: shards after the first of every worker, as they were asked for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

from judgetrain.artifacts.executors.base import Done, Work, done
from tests.benchmarks.ray_speed import Timed


class ByTurns:
    """Has each shard done by the worker that is named for it."""

    def __init__(self, pids: Sequence[int], patch: pytest.MonkeyPatch) -> None:
        self.pids, self.patch = pids, patch

    def run(self, work: Work[Any], shards: Iterable[tuple[int, Any]]) -> Iterator[Done[Any]]:
        for pid, shard in zip(self.pids, shards, strict=True):
            self.patch.setattr(os, "getpid", lambda pid=pid: pid)
            yield done(work, *shard)

    def close(self) -> None: ...


def test_shards_are_counted_once_every_worker_has_made_one(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = Timed(ByTurns([1, 1, 1, 2, 1, 2, 2, 1], monkeypatch), workers=2)
    came = [d.result for d in timed.run(Work(process=lambda i, x: x * 10), ((i, i) for i in range(8)))]
    assert came == [10 * i for i in range(8)]
    assert timed.shards == 4 and timed.seconds > 0
    assert timed.rate == 4 / timed.seconds


def test_too_few_shards_are_no_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = Timed(ByTurns([1, 2, 1], monkeypatch), workers=2)
    list(timed.run(Work(process=lambda i, x: x), ((i, i) for i in range(3))))
    with pytest.raises(SystemExit, match="lower tree.shard_size"):
        _ = timed.rate
