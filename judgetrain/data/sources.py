"""Reading sources row by row: JSON lines, CSV, Parquet, ParlAI text and the Hub as streams, a JSON array whole.

A file that is not what it seems, is cut off or has no row is a DataError that names its place.
"""

import csv
import gzip
import json
import logging
import random
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Literal, TypeVar, cast

from judgetrain.artifacts.files import named
from judgetrain.data.cells import RowError, preference
from judgetrain.data.config import SourceConfig
from judgetrain.data.rows import RowReader
from judgetrain.errors import ConfigError, DataError
from judgetrain.schema import Comparison

log = logging.getLogger(__name__)

Row = tuple[str, Any]
"""A row's place (file and line or number) and the row."""
BEGINNING = 1 << 20
"""Characters by which it is told how a file is to be read."""
LONGEST = 64 << 20
"""Characters of the longest cell of a table."""
PERSONA = "your persona:"

BROKEN = (gzip.BadGzipFile, EOFError, zlib.error)
"""How Python says of a gzip file that it is none, is cut off or damaged."""


def open_text(path: Path) -> IO[str]:
    """A UTF-8 text file, gzipped or not, with or without a byte order mark."""
    return gzip.open(path, "rt", encoding="utf-8-sig") if path.suffix == ".gz" else path.open(encoding="utf-8-sig")


def open_bytes(path: Path) -> IO[bytes]:
    """A file's bytes, unpacked where it is gzipped."""
    return cast(IO[bytes], gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def unreadable(path: Path, error: Exception) -> str:
    """Why a file cannot be read, with the line where that can be told: one that is no UTF-8, or a damaged file."""
    if not isinstance(error, UnicodeDecodeError):
        return f"{path}: not a whole gzip file ({error})"
    with open_bytes(path) as lines:
        for number, line in enumerate(lines, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as here:
                return f"{path}:{number}: expected UTF-8 text ({here}); save the file as UTF-8"
    return f"{path}: expected UTF-8 text ({error}); save the file as UTF-8"


def form_of(path: Path) -> str:
    """How a file is to be read: ``parquet``, ``parlai``, ``array`` (JSON), ``lines`` (JSON) or ``table`` (CSV, TSV).

    Its name says so where it ends in .parquet, .csv or .tsv, else its beginning: what can be read as JSON is JSON,
    whatever the file is called.
    """
    name, begins = path.name.removesuffix(".gz"), ""
    if name.endswith((".parquet", ".csv", ".tsv")):
        return "parquet" if name.endswith(".parquet") else "table"
    with suppress(UnicodeDecodeError, OSError, *BROKEN), open_text(path) as file:
        begins = file.read(BEGINNING).lstrip()
    if begins.startswith("[") and (name.endswith(".json") or begins[1:].lstrip().startswith("{")):
        return "array"
    if name.endswith(".txt") and not begins.startswith("{"):
        return "parlai"
    first = begins.partition("\n")[0]
    known = name.endswith((".json", ".jsonl")) or begins.startswith("{")
    return "lines" if known or len(_cells(first, _between(first, ","))) < 2 else "table"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
        raise ValueError(f"the key {twice!r} stands twice in an object")
    return found


DECODER = json.JSONDecoder(object_pairs_hook=_once)
"""Reads JSON, and takes no key twice."""


def json_array(path: Path) -> Iterator[Row]:
    """The elements of a JSON array."""
    with open_text(path) as file:
        text = file.read()
    try:
        rows = DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not a whole JSON array ({str(error).splitlines()[0]})") from error
    if not rows:
        raise DataError(f"{path}: the array is empty; expected an object a row")
    yield from ((f"{path}:row {number}", row) for number, row in enumerate(rows, start=1))


SIGNS = (",", "\t", ";", "|")
"""What may stand between the columns of a table."""
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
"""A cell that a writer of tables has put into quotation marks."""


def _cells(line: str, between: str) -> list[str]:
    return next(csv.reader([line], delimiter=between), [])


def _between(first: str, expected: str) -> str:
    """The sign that parts a table's first line into most columns; of equal ones the ``expected``."""
    return max((expected, *SIGNS), key=lambda sign: len(_cells(first, sign)))


def table(path: Path) -> Iterator[Row]:
    """The rows of a CSV or TSV file, under the names of its first line; an empty cell is None.

    What stands between the columns is what parts the first line. Where tabs do, and each line has as many as the first,
    quotation marks part nothing: a lone one is text. A row that has more or fewer cells than there are names is a text
    that says so. Places are the lines that rows begin on.
    """
    csv.field_size_limit(LONGEST)
    names, begins, found = list[str](), 1, False
    expected = "\t" if path.name.removesuffix(".gz").endswith(".tsv") else ","
    try:
        with open_text(path) as file:
            first = file.read(BEGINNING).lstrip().partition("\n")[0]
            between, tabs = _between(first, expected), first.count("\t")
            file.seek(0)
            plain = between == "\t" and all(line.count("\t") == tabs for line in file if line.strip())
            file.seek(0)
            quoting: Literal[0, 3] = csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL
            rows = csv.reader(file, delimiter=between, quoting=quoting, strict=True)
            if between != expected:
                log.warning("%s: read as a table with %r between its columns", path, between)
            for cells in rows:
                place, begins = f"{path}:{begins}", rows.line_num + 1
                if plain:
                    cells = [c[1:-1].replace('""', '"') if _QUOTED.fullmatch(c) else c for c in cells]
                if cells and not names:
                    names = cells
                    if twice := [name for name, n in Counter(names).items() if n > 1 and name.strip()]:
                        raise DataError(f"{place}: two columns are called {twice[0]!r}; give each a name of its own")
                elif cells:
                    found, whole = True, len(cells) == len(names)
                    told = f"expected {len(names)} cells, as the first line has, found {len(cells)}"
                    yield place, {n: cell or None for n, cell in zip(names, cells, strict=True)} if whole else told
    except csv.Error as error:
        raise DataError(f"{path}:{begins}: not a row of CSV ({error})") from error
    if not found:
        raise DataError(f"{path}: the file has no rows; expected names in the first line, and a comparison a line")


def parquet(path: Path) -> Iterator[Row]:
    """The rows of a Parquet file."""
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=1024):
            for row in batch.to_pylist():
                number += 1
                yield f"{path}:row {number}", row
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a whole Parquet file; after row {number}: {error}") from error
    if number == 0:
        raise DataError(f"{path}: the file has no rows")


def parlai(path: Path) -> Iterator[Row]:
    """Dialogues of ParlAI's text format as ``{"persona": [lines], "turns": [texts]}``, the first speaker's turn first.

    A line is a number, a blank, and either a persona's line or what both speakers say, a tab between them (what
    follows a second tab are candidate answers). Number 1 starts a dialogue.
    """
    rows: list[Row] = []
    with open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            count, _, text = line.strip("\n").partition(" ")
            if line.strip() and not count.isdigit():
                raise DataError(f"{path}:{number}: expected a line number and a text, as in '1 hello\\thi'")
            if count == "1" or (line.strip() and not rows):
                yield from rows
                rows = [(f"{path}:{number}", {"persona": [], "turns": []})]
            if text.lower().startswith(PERSONA):
                rows[0][1]["persona"].append(text)
            elif "\t" in text:
                rows[0][1]["turns"] += text.split("\t")[:2]
    if not rows:
        raise DataError(f"{path}: the file is empty; expected ParlAI's numbered lines")
    yield from rows


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
    that it cannot use; without ``rejects`` the first such row stops the reading (DataError). ``key`` is the source's
    configuration key, for messages.
    """
    count, rejects = 0, rejects or Rejects(strict=True, remedy="")
    named = source.adapter or source.fields.keys() & {"response_a", "response_b"}
    as_pairs = source.format == "auto" and not named
    for number, (place, row, raw) in enumerate(_rows(source, key, rejects), start=1):
        if source.limit is not None and count >= source.limit:
            return
        try:
            row = _cleared(row, raw)
            value = take(preference(row) if as_pairs else row, number)
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
    if not path or not (found := named(path)):
        raise ConfigError(f"{key}={path!r}: no such file; give an existing path")
    return found


_Row = tuple[str, Any, str]


def _rows(source: SourceConfig, key: str, rejects: Rejects) -> Iterator[_Row]:
    if source.type == "hub":
        yield from _hub(source, key)
        return
    for path in files_of(source.path, f"{key}.path"):
        form = form_of(path)
        try:
            if form == "lines":  # rejected one by one
                yield from _jsonl(path, rejects)
                continue
            read_rows = {"parquet": parquet, "parlai": parlai, "array": json_array, "table": table}[form]
            for place, row in read_rows(path):
                if form == "table" and isinstance(row, str):
                    rejects.add(place, "wrong_cells", row, "")
                else:
                    yield place, row, str(row)
        except (UnicodeDecodeError, *BROKEN) as error:
            raise DataError(unreadable(path, error)) from error


def _jsonl(path: Path, rejects: Rejects) -> Iterator[_Row]:
    number = 0
    with open_bytes(path) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            place, raw = f"{path}:{number}", repr(line[:RAW_CHARS])
            try:
                raw = line.decode("utf-8-sig" if number == 1 else "utf-8")
                row = DECODER.decode(raw)
            except UnicodeDecodeError as error:
                rejects.add(place, "not_utf8", f"expected UTF-8 text ({error.reason})", raw)
            except (RecursionError, ValueError) as error:
                found = "brackets nested too deep" if isinstance(error, RecursionError) else str(error)
                rejects.add(place, "not_json", f"expected a JSON object a line ({found})", raw)
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
        why = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
        told = f"{key}.path={source.path}: cannot read this data set from the Hub ({why}); or give a local file"
        raise DataError(told) from error


def read_comparisons(source: SourceConfig, key: str, *, labelled: bool | None = True) -> Iterator[Comparison]:
    """The comparisons of a file or Hub data set.

    ``labelled``: every row needs a label; None: a row may have none (no column, null or an empty text).
    """
    yield from read(source, key, partial(RowReader(source, key).comparison, labelled=labelled))
