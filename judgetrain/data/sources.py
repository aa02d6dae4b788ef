"""Reading sources row by row: JSON lines, JSON arrays, CSV, Parquet, ParlAI text, and the Hub."""

from __future__ import annotations

import glob
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from judgetrain.data import readers
from judgetrain.data.cells import RowError
from judgetrain.data.config import SourceConfig
from judgetrain.data.labelling import SHAPES, whole_tasks
from judgetrain.data.rows import RowReader
from judgetrain.errors import ConfigError, DataError
from judgetrain.schema import Comparison

T = TypeVar("T")
RAW_CHARS = 500


@dataclass
class Rejects:
    """Rows kept aside: counted by reason; ``keep`` gets each with its place, how its text begins, perhaps its id."""

    strict: bool
    remedy: str = " (dialogues.strict=false keeps such rows aside)"
    keep: Callable[[Mapping[str, Any]], None] | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, place: str, reason: str, message: str, raw: str, name: str | None = None) -> None:
        """Keep a row aside, or stop when strict."""
        if self.strict:
            raise DataError(f"{place}: {message}{self.remedy}")
        self.counts[reason] += 1
        if self.keep:
            known = {} if name is None else {"id": name}
            self.keep({"place": place, "reason": reason, "message": message, "raw": raw[:RAW_CHARS], **known})


def read(source: SourceConfig, key: str, take: Callable[[Any, int], T], rejects: Rejects | None = None) -> Iterator[T]:
    """What ``take`` makes of every row of a source, in order, at most ``source.limit`` rows.

    ``take`` gets a row and its number (from 1, over all files of the source) and raises :class:`RowError` for one
    that it cannot use; without ``rejects`` the first such row stops the reading. ``key`` is the source's configuration
    key, for messages.

    Raises:
        ConfigError: a missing path.
        DataError: a malformed row when strict, an empty file, or a Hub data set that cannot be reached.
    """
    count, rejects = 0, rejects or Rejects(strict=True, remedy="")
    named = source.adapter or source.fields.keys() & {"response_a", "response_b"}
    shape = None if named and source.format == "auto" else SHAPES.get(source.format)
    rows = _rows(source, key, rejects)
    rows = whole_tasks(rows) if source.format == "label_studio" else rows
    for number, (place, row, raw) in enumerate(rows, start=1):
        if source.limit is not None and count >= source.limit:
            return
        try:
            row = _cleared(row, raw)
            value = take(shape(row) if shape else row, number)
        except RowError as error:
            rejects.add(place, error.reason, str(error), raw, error.id)
        except DataError as error:
            rejects.add(place, "wrong_message", str(error), raw)
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            rejects.add(place, "unreadable", f"cannot be read ({type(error).__name__}: {error})", raw)
        else:
            count += 1
            yield value


def _cleared(row: Any, raw: str) -> Any:
    """The row; NaN, as pandas writes what is missing, is None."""
    if "\\ud" in raw.lower():
        try:
            json.dumps(row, ensure_ascii=False, default=str).encode()
        except UnicodeEncodeError as error:
            raise RowError("not_utf8", "the row holds half of a surrogate pair, which is no character") from error
    if isinstance(row, Mapping) and any(value != value for value in row.values()):
        return {name: None if value != value else value for name, value in row.items()}
    return row


def sampled(rows: Iterable[T], number: int, seed: int) -> list[T]:
    """``number`` of the rows (all where there are no more), each set of so many with the same chance, in their order.

    Algorithm R: no more than ``number`` rows are held.
    """
    rng, kept = random.Random(seed), list[tuple[int, T]]()
    for index, row in enumerate(rows):
        if index < number:
            kept.append((index, row))
        elif (place := rng.randrange(index + 1)) < number:
            kept[place] = (index, row)
    return [row for _, row in sorted(kept, key=itemgetter(0))]


def files_of(path: str, key: str) -> list[Path]:
    """The file that a path names, or those that a glob names, sorted; ``key`` is its configuration key."""
    literal = Path(path).expanduser()
    found = [literal] if path and literal.exists() else [Path(p) for p in sorted(glob.glob(str(literal)))]
    if not path or not found:
        raise ConfigError(f"{key}={path!r}: no such file; give an existing path")
    return found


_Row = tuple[str, Any, str]


def _rows(source: SourceConfig, key: str, rejects: Rejects) -> Iterator[_Row]:
    if source.type == "hub":
        yield from _hub(source, key)
        return
    for path in files_of(source.path, f"{key}.path"):
        form = readers.form_of(path)
        try:
            if form == "lines":  # rejected one by one
                yield from _jsonl(path, rejects)
                continue
            for place, row in FORMS[form](path):
                if form == "table" and isinstance(row, str):
                    rejects.add(place, "wrong_cells", row, "")
                else:
                    yield place, row, str(row)
        except (UnicodeDecodeError, *readers.BROKEN) as error:
            raise DataError(readers.unreadable(path, error)) from error


FORMS: Mapping[str, Callable[[Path], Iterator[readers.Row]]] = {
    "parquet": readers.parquet,
    "parlai": readers.parlai,
    "array": readers.json_array,
    "table": readers.table,
}


def _jsonl(path: Path, rejects: Rejects) -> Iterator[_Row]:
    number = 0
    with readers.open_bytes(path) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            place, raw = f"{path}:{number}", repr(line[:RAW_CHARS])
            try:
                raw = line.decode("utf-8-sig" if number == 1 else "utf-8")
                row = readers.DECODER.decode(raw)
            except UnicodeDecodeError as error:
                rejects.add(place, "not_utf8", f"expected UTF-8 text ({error.reason})", raw)
            except (RecursionError, ValueError) as error:
                found = "brackets nested too deep" if isinstance(error, RecursionError) else str(error)
                reason = "repeated_key" if isinstance(error, readers.RepeatedKeyError) else "not_json"
                rejects.add(place, reason, f"expected a JSON object a line ({found})", raw)
            else:
                yield place, row, raw
    if number == 0:
        raise DataError(f"{path}: the file is empty; expected a JSON object a line")


def _hub(source: SourceConfig, key: str) -> Iterator[_Row]:
    import datasets

    try:
        rows = datasets.load_dataset(source.path, streaming=True, **{"split": source.split, **source.hub})
        for number, row in enumerate(rows, start=1):
            yield f"{source.path}[{source.split}]:row {number}", row, str(row)
    except (OSError, ValueError, datasets.exceptions.DatasetNotFoundError) as error:
        told = f"cannot read this data set from the Hub ({type(error).__name__}: {str(error).splitlines()[0][:200]})"
        advice = "check the name and the network, or give a local file with type=jsonl"
        raise DataError(f"{key}.path={source.path}: {told}; {advice}") from error


def read_comparisons(
    source: SourceConfig, key: str, *, labelled: bool | None = True, rejects: Rejects | None = None
) -> Iterator[Comparison]:
    """The comparisons of a file or Hub data set.

    ``labelled``: every row needs a label; None: a row may have none (no column, null or an empty text).
    """
    yield from read(source, key, partial(RowReader(source, key).comparison, labelled=labelled), rejects)
