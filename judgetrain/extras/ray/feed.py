"""Which shard a free worker gets: those in their order, and those that are done again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

Shard = tuple[int, Any]
"""A shard's number and its items."""


class Feed:
    """Shards to be processed, in their order, each read when a worker is free for it."""

    def __init__(self, shards: Iterable[Shard]) -> None:
        self._left: Iterator[Shard] = iter(shards)
        self._again: deque[Shard] = deque()
        self._last: deque[Shard] = deque()
        if (first := next(self._left, None)) is not None:
            self._again.append(first)

    @property
    def empty(self) -> bool:
        """Whether, before any was taken, there is none."""
        return not self._again

    def next(self) -> Shard | None:
        """A shard; None: there is none. One that is to come last comes when no other is left."""
        if self._again:
            return self._again.popleft()
        if (shard := next(self._left, None)) is not None:
            return shard
        return self._last.popleft() if self._last else None

    def lost(self, shard: Shard, last: bool) -> None:
        """This shard is to be done again: next, or after the others (``last``)."""
        (self._last if last else self._again).append(shard)
