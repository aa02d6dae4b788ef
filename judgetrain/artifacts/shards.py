"""Rows as JSON lines, in one file or in shards ``NAME-I-of-N.jsonl``; a hidden marker says that a shard is whole."""

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

from judgetrain.amounts import amount
from judgetrain.artifacts.files import described, read_json
from judgetrain.errors import DataError

SECONDS = ".seconds.json"
"""The file of an artifact that holds the seconds spent on it."""
TOLD = "{in:,} read, {out:,} made"
"""The form in which counts are printed."""
_SHARD = re.compile(r"-(\d{5,})-of-(\d{5,})")


@dataclass
class ShardResult:
    """The rows that one shard made, and what it adds to the manifest's counts.

    Args:
        rows: written to the shard's file.
        counts_in: how many things were processed.
        dropped: how many were left out, by reason.
        prompt_tokens: tokens that an engine read.
        generated_tokens: tokens that an engine wrote.
        counts_out: how many things came out; None: one a row.
        facts: anything else about the shard, as JSON values; its marker keeps them.
    """

    rows: list[dict[str, Any]]
    counts_in: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    _: KW_ONLY
    prompt_tokens: int = 0
    generated_tokens: int = 0
    counts_out: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def counted(self) -> dict[str, Any]:
        """Return counts and tokens in the form of markers and manifests (:func:`counted`)."""
        out = self.counts_out
        if out is None:
            out = len(self.rows)
        return counted(
            in_=self.counts_in,
            out=out,
            dropped=self.dropped,
            prompt=self.prompt_tokens,
            generated=self.generated_tokens,
        )


def tokens_of(parts: Sequence[Any]) -> dict[str, Any]:
    """Return the sums of the attributes ``prompt_tokens`` and ``generated_tokens`` over some parts, by name."""
    return {name: sum(getattr(part, name) for part in parts) for name in ("prompt_tokens", "generated_tokens")}


def counted(
    *, in_: int = 0, out: int = 0, dropped: Mapping[str, int] | None = None, prompt: int = 0, generated: int = 0
) -> dict[str, Any]:
    """Return counts and tokens in the form of markers and manifests.

    Args:
        in_: how many things were processed.
        out: how many came out.
        dropped: how many were left out, by reason; reasons with 0 are not written.
        prompt: tokens that an engine read.
        generated: tokens that an engine wrote.
    """
    # Without zeros, so that equal results have equal manifests, whatever reasons a stage counts.
    reasons = {reason: number for reason, number in (dropped or {}).items() if number}
    return {"counts": {"in": in_, "out": out, "dropped": reasons}, "tokens": {"prompt": prompt, "generated": generated}}


def shards_of(directory: Path, name: str, *, markers: bool = False) -> list[tuple[Path, int]]:
    """Return the paths of a name's shards in order, each with the number of shards that it is one of.

    Args:
        directory: the artifact's.
        name: the shards' name. It is matched whole, so that the shards of ``a-1`` are none of ``a``.
        markers: return the paths of the hidden markers instead.
    """
    prefix = name
    suffix = ".jsonl"
    if markers:
        prefix = f".{name}"
        suffix = ".json"

    shards = []
    for path in directory.glob(f"{glob.escape(prefix)}-*{suffix}"):
        # The glob also matches other names that begin like this one.
        match = _SHARD.fullmatch(path.name[len(prefix) : -len(suffix)])
        if match:
            shards.append((int(match[1]), int(match[2]), path))
    # By number: names sort alike only up to 100,000 shards.
    return [(path, total) for _, total, path in sorted(shards)]


def markers_of(directory: Path, name: str) -> list[dict[str, Any]]:
    """Return what the markers of a name's finished shards hold, in order.

    Each has ``counts``, ``tokens``, ``seconds``, ``facts`` and ``file``.
    """
    return [json.loads(path.read_text(encoding="utf-8")) for path, _ in shards_of(directory, name, markers=True)]


def seconds_of(directory: Path, name: str) -> float:
    """Return the seconds that a name's finished shards took, whichever run made them."""
    return float(sum(marker["seconds"] for marker in markers_of(directory, name)))


def seconds_so_far(directory: Path) -> tuple[float, float]:
    """Return the seconds spent on an artifact, on the clock and of processors, up to what was finished last.

    Both are 0 where they are unknown.
    """
    seconds = read_json(directory / SECONDS)
    if not isinstance(seconds, list) or len(seconds) != 2:
        return 0.0, 0.0
    return float(seconds[0]), float(seconds[1])


def read_rows(directory: Path, name: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of ``<name>.jsonl``, or of all its shards in order.

    Raises:
        DataError: a file or shard is missing, or a line is no JSON.
    """
    for path in _files(directory, name):
        yield from _rows(path)


@dataclass(frozen=True)
class Rows(Collection[dict[str, Any]]):
    """The rows of a finished artifact as a collection that reads them anew whenever it is iterated."""

    directory: Path
    name: str

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return read_rows(self.directory, self.name)

    def __len__(self) -> int:
        return count_rows(self.directory, self.name)

    def __contains__(self, row: object) -> bool:
        return any(row == other for other in self)


def _rows(path: Path, start: int = 0, count: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file from ``start`` on, ``count`` at most; rows before are not parsed."""
    stop = None if count is None else start + count
    with path.open("rb") as lines:
        # Bytes are decoded line by line, so that an error names the line.
        for number, line in enumerate(islice(lines, start, stop), start=start + 1):
            try:
                yield json.loads(line.decode("utf-8"))
            except UnicodeDecodeError as error:
                raise DataError(f"{path}:{number}: not UTF-8 text ({error.reason})") from error
            except json.JSONDecodeError as error:
                raise DataError(f"{path}:{number}: not a JSON object ({error.msg})") from error


def rows_at(directory: Path, name: str, start: int, count: int) -> list[dict[str, Any]]:
    """Return ``count`` of the rows of :func:`read_rows` from ``start`` on; only the files that hold them are read.

    The artifact must be finished, since the number of a file's rows is counted once in a process.
    """
    rows: list[dict[str, Any]] = []
    for path in _files(directory, name):
        if len(rows) == count:
            break
        lines = _lines_once(path)
        # Files that end before the start are counted, not parsed.
        if start < lines:
            rows += _rows(path, start, count - len(rows))
        start = max(0, start - lines)
    return rows


def _lines(path: Path) -> int:
    """Return the number of lines in a file."""
    with path.open("rb") as lines:
        return sum(1 for _ in lines)


_lines_once = cache(_lines)


def _files(directory: Path, name: str) -> list[Path]:
    """Return the files that hold a name's rows, in order; raise DataError where one is missing."""
    # A stage writes one file where its rows are made at once, and shards where they take long.
    single = directory / f"{name}.jsonl"
    if single.exists():
        return [single]

    shards = shards_of(directory, name)
    if not shards:
        raise DataError(f"{directory} holds neither {name}.jsonl nor shards of it")
    # A run that was stopped leaves some of the shards that it planned.
    total = shards[0][1]
    if len(shards) != total:
        raise DataError(f"{directory}: {len(shards)} of {amount(total, 'shard')} of {name} are there")
    return [path for path, _ in shards]


def count_rows(directory: Path, name: str) -> int:
    """Return the number of rows of :func:`read_rows`, without parsing them.

    Raises:
        DataError: a file or shard is missing.
    """
    return sum(_lines(path) for path in _files(directory, name))


def whole_shard(path: Path, marker: Path) -> bool:
    """Return whether a shard's file is there and has the size and hash that its marker says."""
    facts = read_json(marker)
    if not isinstance(facts, dict) or not path.is_file():
        return False
    return described(path) == facts.get("file")


def shard_progress(directory: Path) -> tuple[int, int] | None:
    """Return how many shards of an unfinished artifact are finished, and how many there are; None: it has none.

    A shard that is not what was written is not finished: a run makes it again.
    """
    finished = 0
    total = 0
    for path in directory.glob(".*.plan.json"):
        # As .trees.plan.json, of the shards called trees.
        name = path.name[1 : -len(".plan.json")]
        plan = read_json(path)
        if not isinstance(plan, dict):
            continue
        planned = plan.get("shards", 0)
        total += planned
        for marker, shards in shards_of(directory, name, markers=True):
            rows = directory / f"{marker.stem.removeprefix('.')}.jsonl"
            # A run that split the items otherwise has left shards of other items.
            if shards == planned and whole_shard(rows, marker):
                finished += 1
    if not total:
        return None
    return finished, total


T = TypeVar("T")


class DiskList(Sequence[T], Generic[T]):
    """A sequence that grows at its end and keeps its elements in a file, which ends with the process.

    Args:
        encode: returns an element as JSON values.
        decode: returns the element that ``encode`` was given.
        directory: where the file lies; None: where temporary files do.
    """

    def __init__(self, encode: Callable[[T], Any], decode: Callable[[Any], T], directory: Path | None = None) -> None:
        self._encode = encode
        self._decode = decode
        # The file stays open for as long as the sequence is read.
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115
        # Where each element's line begins, in bytes.
        self._places = array("q")

    def extend(self, elements: Iterable[T]) -> None:
        """Add elements at the end."""
        for element in elements:
            line = json.dumps(self._encode(element)).encode() + b"\n"
            # The elements may be read from this very file, which moves its position.
            end = self._file.seek(0, 2)
            self._places.append(end)
            self._file.write(line)

    def only(self, indices: Iterable[int]) -> "DiskList[T]":
        """Return a list of some of the elements, in the order of the indices.

        Both lists use one file; each adds further elements at its end.
        """
        # Not by __init__, which would open a second file.
        part = object.__new__(DiskList)
        part._encode = self._encode
        part._decode = self._decode
        part._file = self._file
        part._places = array("q", (self._places[index] for index in indices))
        return part

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[T]:
        return map(self._at, self._places)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._at(place) for place in self._places[index]]
        return self._at(self._places[index])

    def _at(self, place: int) -> T:
        """Return the element whose line begins at a place in the file."""
        self._file.seek(place)
        return self._decode(json.loads(self._file.readline()))


def only(rows: Sequence[T], indices: Iterable[int]) -> Sequence[T]:
    """Return some of the rows, in the order of the indices; rows on disk stay there."""
    if isinstance(rows, DiskList):
        return rows.only(indices)
    return [rows[index] for index in indices]
