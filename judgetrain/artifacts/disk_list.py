"""Rows that are kept in a temporary file until they are written: of each, memory holds its place alone."""

from __future__ import annotations

import json
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class DiskList(Sequence[T], Generic[T]):
    """A sequence that grows at its end, in a file that is gone with the process.

    Args:
        encode: gives an element as JSON's values.
        decode: makes the element of them again.
        directory: where the file lies; None: where temporary files do.
    """

    def __init__(self, encode: Callable[[T], Any], decode: Callable[[Any], T], directory: Path | None = None) -> None:
        self._encode, self._decode = encode, decode
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 - open for as long as the rows are asked for
        self._places = array("q")

    def extend(self, elements: Iterable[T]) -> None:
        """Add elements at the end."""
        for element in elements:
            line = json.dumps(self._encode(element)).encode() + b"\n"
            self._places.append(self._file.seek(0, 2))  # the elements may be read from this very file
            self._file.write(line)

    def only(self, indices: Iterable[int]) -> DiskList[T]:
        """Some of the elements, in the order given, from the same file, to whose end each adds its own."""
        found = object.__new__(DiskList)
        found._encode, found._decode, found._file = self._encode, self._decode, self._file
        found._places = array("q", (self._places[i] for i in indices))
        return found

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[T]:
        return map(self._at, self._places)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        places = self._places[index]
        return self._at(places) if isinstance(places, int) else [self._at(place) for place in places]

    def _at(self, place: int) -> T:
        self._file.seek(place)
        return self._decode(json.loads(self._file.readline()))


def only(rows: Sequence[T], indices: Iterable[int]) -> Sequence[T]:
    """Some of the rows, in the order given; of spilled ones their places alone."""
    return rows.only(indices) if isinstance(rows, DiskList) else [rows[i] for i in indices]
