"""Models that are loaded when they are first needed, and closed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar


class Closable(Protocol):
    """What holds a model or a connection."""

    def close(self) -> None:
        """Free it."""
        ...


C = TypeVar("C", bound=Closable)


@contextmanager
def loaded_once(load: Callable[[], C]) -> Iterator[Callable[[], C]]:
    """A function that loads when it is first called, and then gives the same; what it loaded is closed at the end.

    So a stage whose shards are all there loads nothing.
    """
    loaded: list[C] = []

    def get() -> C:
        if not loaded:
            loaded.append(load())
        return loaded[0]

    try:
        yield get
    finally:
        for each in loaded:
            each.close()
