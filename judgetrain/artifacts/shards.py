"""Rows of JSON lines, in one file or in shards ``NAME-I-of-N.jsonl`` whose hidden markers say that they are whole."""

import glob
import json
import re
import tempfile
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

from judgetrain.artifacts.files import read_json
from judgetrain.errors import DataError

SECONDS = ".seconds.json"
"""The file of an artifact that holds the seconds spent on it."""
TOLD = "{in:,} read, {out:,} made"
"""How people are told counts."""
_SHARD = re.compile(r"-(\d{5,})-of-(\d{5,})")


@dataclass
class ShardResult:
    """What one shard gave: rows to write, and what it counts for in the manifest."""

    rows: list[dict[str, Any]]
    counts_in: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    _: KW_ONLY
    prompt_tokens: int = 0
    generated_tokens: int = 0
    counts_out: int | None = None
    """How many things came out; None: one a row."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What else is to be known of the shard later, kept in its marker (JSON)."""

    def counted(self) -> dict[str, Any]:
        """Counts and tokens as markers and manifests have them."""
        return counted(
            in_=self.counts_in,
            out=len(self.rows) if self.counts_out is None else self.counts_out,
            dropped=self.dropped,
            prompt=self.prompt_tokens,
            generated=self.generated_tokens,
        )


def tokens_of(parts: Sequence[Any]) -> dict[str, Any]:
    """The sums of ``prompt_tokens`` and of ``generated_tokens`` over parts that have both."""
    return {name: sum(getattr(part, name) for part in parts) for name in ("prompt_tokens", "generated_tokens")}


def counted(
    *, in_: int = 0, out: int = 0, dropped: Mapping[str, int] | None = None, prompt: int = 0, generated: int = 0
) -> dict[str, Any]:
    """Counts and tokens as markers and manifests have them."""
    reasons = {reason: number for reason, number in (dropped or {}).items() if number}
    return {"counts": {"in": in_, "out": out, "dropped": reasons}, "tokens": {"prompt": prompt, "generated": generated}}


def shards_of(directory: Path, name: str, *, markers: bool = False) -> list[tuple[Path, int]]:
    """The shards of ``name`` (or their hidden markers) in order, each with the number of shards it is one of.

    The name is matched whole: the shards of ``a-1`` are none of ``a``.
    """
    prefix, suffix = (f".{name}", ".json") if markers else (name, ".jsonl")
    found = []
    for path in directory.glob(f"{glob.escape(prefix)}-*{suffix}"):
        match = _SHARD.fullmatch(path.name[len(prefix) : -len(suffix)])
        if match:
            found.append((int(match[1]), int(match[2]), path))
    return [(path, total) for _, total, path in sorted(found)]


def markers_of(directory: Path, name: str) -> list[dict[str, Any]]:
    """What the markers of a name's finished shards say, in order: ``counts``, ``tokens``, ``seconds`` and ``facts``."""
    return [json.loads(path.read_text(encoding="utf-8")) for path, _ in shards_of(directory, name, markers=True)]


def seconds_of(directory: Path, name: str) -> float:
    """Seconds that a name's finished shards took, whichever run made them."""
    return float(sum(marker["seconds"] for marker in markers_of(directory, name)))


def seconds_so_far(directory: Path) -> tuple[float, float]:
    """Seconds on the clock, and of a processor, spent on an artifact up to what was finished last; 0 where unknown."""
    found = read_json(directory / SECONDS)
    wall, cpu = found if isinstance(found, list) and len(found) == 2 else (0.0, 0.0)
    return float(wall), float(cpu)


def read_rows(directory: Path, name: str) -> Iterator[dict[str, Any]]:
    """The rows of ``<name>.jsonl``, or of all its shards in order (DataError: one is missing, a malformed line)."""
    for path in _files(directory, name):
        yield from _rows(path)


@dataclass(frozen=True)
class Rows(Collection[dict[str, Any]]):
    """What :func:`read_rows` gives, read anew whenever it is gone through; the artifact must be finished."""

    directory: Path
    name: str

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return read_rows(self.directory, self.name)

    def __len__(self) -> int:
        return count_rows(self.directory, self.name)

    def __contains__(self, row: object) -> bool:
        return any(row == each for each in self)


def _rows(path: Path, start: int = 0, count: int | None = None) -> Iterator[dict[str, Any]]:
    """The rows of a file from ``start`` on, at most ``count`` of them; those before are not parsed."""
    with path.open("rb") as lines:
        chosen = islice(lines, start, None if count is None else start + count)
        for number, line in enumerate(chosen, start=start + 1):
            try:
                yield json.loads(line.decode("utf-8"))
            except UnicodeDecodeError as error:
                raise DataError(f"{path}:{number}: not UTF-8 text ({error.reason})") from error
            except json.JSONDecodeError as error:
                raise DataError(f"{path}:{number}: not a JSON object ({error.msg})") from error


def rows_at(directory: Path, name: str, start: int, count: int) -> list[dict[str, Any]]:
    """So many of the rows that :func:`read_rows` gives, from ``start`` on: only the files that hold them are read.

    The artifact must be finished: how many rows its files have is counted once in a process.
    """
    found: list[dict[str, Any]] = []
    for path in _files(directory, name):
        if len(found) == count:
            break
        lines = _lines_once(path)
        if start < lines:
            found += _rows(path, start, count - len(found))
        start = max(0, start - lines)
    return found


def _lines(path: Path) -> int:
    with path.open("rb") as lines:
        return sum(1 for _ in lines)


_lines_once = cache(_lines)


def _files(directory: Path, name: str) -> list[Path]:
    single = directory / f"{name}.jsonl"
    shards = [(single, 1)] if single.exists() else shards_of(directory, name)
    if not shards:
        raise DataError(f"{directory} holds neither {name}.jsonl nor shards of it")
    if len(shards) != shards[0][1]:
        raise DataError(f"{directory}: {len(shards)} of {shards[0][1]} shards of {name} are there")
    return [path for path, _ in shards]


def count_rows(directory: Path, name: str) -> int:
    """How many rows :func:`read_rows` gives, without parsing them (DataError: a missing file or shard)."""
    return sum(_lines(path) for path in _files(directory, name))


def shard_progress(directory: Path) -> tuple[int, int] | None:
    """How many shards of an unfinished artifact are finished, of how many; None if it has no shards."""
    done = total = 0
    for plan in directory.glob(".*.plan.json"):
        name = plan.name[1 : -len(".plan.json")]
        planned = read_json(plan)
        total += planned.get("shards", 0) if isinstance(planned, dict) else 0
        done += len(shards_of(directory, name, markers=True))
    return (done, total) if total else None


T = TypeVar("T")


class DiskList(Sequence[T], Generic[T]):
    """A sequence that grows at its end, in a file that is gone with the process.

    ``encode`` gives an element as JSON's values, ``decode`` makes it of them again. The file lies in ``directory``, or
    where temporary files do.
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

    def only(self, indices: Iterable[int]) -> "DiskList[T]":
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
