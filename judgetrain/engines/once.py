"""Models that are loaded when they are first needed, and closed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from typing import Protocol, TypeVar


class Closable(Protocol):
    """What holds a model or a connection."""

    def close(self) -> None:
        """Free it."""


C = TypeVar("C", bound=Closable)


@contextmanager
def loaded_once(load: Callable[[], C]) -> Iterator[Callable[[], C]]:
    """A function that loads when it is first called, so that a stage whose shards are all there loads nothing.

    What it loaded is closed at the end.
    """
    with ExitStack() as stack:
        yield cache(lambda: stack.enter_context(closing(load())))
