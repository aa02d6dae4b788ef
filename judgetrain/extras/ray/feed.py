"""Which shard a free worker gets: those in their order, and those that are done again; and how far ahead is read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

Shard = tuple[int, Any]
"""A shard's number and its items."""


class Feed:
    """Shards to be processed, each read when a worker is free for it.

    Args:
        shards: in their order.
        ahead: how many may be read from the first that is not finished on; None: any number.
    """

    def __init__(self, shards: Iterable[Shard], ahead: int | None = None) -> None:
        self._left: Iterator[Shard] = iter(shards)
        self._ahead = ahead
        self._again: deque[Shard] = deque()
        self._last: deque[Shard] = deque()
        self._read: deque[int] = deque()  # from the first that is not finished on
        self._finished: set[int] = set()
        if (first := self._new()) is not None:
            self._again.append(first)

    @property
    def empty(self) -> bool:
        """Whether, before any was taken, there is none."""
        return not self._again

    def next(self) -> Shard | None:
        """A shard; None: none before one that is under way is finished, or none at all.

        One that is to come last comes when no other is left, or may be read before it is finished.
        """
        if self._again:
            return self._again.popleft()
        if (shard := self._new()) is not None:
            return shard
        return self._last.popleft() if self._last else None

    def finished(self, number: int) -> None:
        """This shard is finished."""
        self._finished.add(number)
        while self._read and self._read[0] in self._finished:
            self._finished.remove(self._read.popleft())

    def lost(self, shard: Shard, last: bool) -> None:
        """This shard is to be done again: next, or after the others (``last``)."""
        (self._last if last else self._again).append(shard)

    def _new(self) -> Shard | None:
        if self._ahead is not None and len(self._read) >= self._ahead:
            return None
        if (shard := next(self._left, None)) is not None:
            self._read.append(shard[0])
        return shard
