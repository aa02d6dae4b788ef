"""MinHash signatures of many texts, in chunks by the run's executor: where they are looked up goes on in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any, TypeVar

from judgetrain.artifacts.executors.base import Executor, Work
from judgetrain.data.dedup import signature

T = TypeVar("T")

CHUNK = 4096
"""Items whose texts a worker signs at once: a second of its work, and megabytes of text."""
AHEAD = 16
"""Chunks that are held at once, the one that is waited for among them: several times what keeps the driver busy."""


def signed(
    items: Iterable[T], texts: Callable[[T], Iterable[str]], executor: Executor
) -> Iterator[tuple[T, Mapping[str, Any]]]:
    """The items in their order, each with the signatures (rensa's ``RMinHash``) of its ``texts``, among others.

    A text is signed once in a chunk. Of the items no more than :data:`AHEAD` chunks are held, however late one is.
    """
    held: dict[int, tuple[list[T], list[str]]] = {}
    found: dict[int, list[Any]] = {}

    def chunks() -> Iterator[tuple[int, list[str]]]:
        source = iter(items)
        for index in count():
            if not (chunk := list(islice(source, CHUNK))):
                return
            held[index] = chunk, list(dict.fromkeys(text for item in chunk for text in texts(item)))
            yield index, held[index][1]

    turn = 0
    for done in executor.run(Work(process=_sign, gpus=0, ahead=AHEAD), chunks()):
        assert isinstance(done.result, list)
        found[done.index] = done.result
        while turn in found:
            chunk, own = held.pop(turn)
            signatures = dict(zip(own, found.pop(turn), strict=True))
            yield from ((item, signatures) for item in chunk)
            turn += 1


def _sign(_: int, texts: Sequence[str]) -> list[Any]:
    return [signature(text) for text in texts]
