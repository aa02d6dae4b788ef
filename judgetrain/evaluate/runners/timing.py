"""The time that shards of an evaluation took, kept beside them: a resumed run still knows it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from judgetrain.artifacts.files import write_text_atomic
from judgetrain.artifacts.stage_run import StageRun


class ShardTimes:
    """Seconds of the shards that go by one name."""

    def __init__(self, shards: str, out: StageRun) -> None:
        self._shards, self._out = shards, out
        self.spent = 0.0
        """Seconds of the shards that this run made."""

    @contextmanager
    def measured(self, index: int) -> Iterator[None]:
        """Time the making of a shard, and keep it."""
        started = time.perf_counter()
        yield
        seconds = time.perf_counter() - started
        self.spent += seconds
        write_text_atomic(self._out.path(self._file(index)), json.dumps(seconds))

    def total(self, rows: int, shard_size: int) -> float:
        """Seconds of all shards of so many rows, whichever run made them."""
        shards = range(-(-rows // shard_size))
        return float(sum(json.loads(self._out.path(self._file(i)).read_text()) for i in shards))

    def _file(self, index: int) -> str:
        return f".{self._shards}-{index:05d}.seconds"
