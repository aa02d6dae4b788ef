"""Reading files row by row, whatever their published form; no file is ever held whole."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

from judgetrain.errors import DataError

Row = tuple[str, Any]
"""A row's place (file and line or number) and the row."""

CHUNK = 1 << 20
"""Characters of a JSON array read at a time."""

LONGEST = 64 << 20
"""Characters after which an element of a JSON array that does not end is taken for a malformed one."""

PERSONA = "your persona:"
SILENCE = "__SILENCE__"
"""What ParlAI writes for a speaker who has not said anything yet."""


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


def is_array(path: Path) -> bool:
    """Whether a file named ``.json`` or ``.json.gz`` holds one array; else it has an object a line."""
    if not path.name.removesuffix(".gz").endswith(".json"):
        return False
    try:
        with open_text(path) as file:
            return _begun("", file).startswith("[")
    except (UnicodeDecodeError, OSError, *BROKEN):
        return False


def json_array(path: Path) -> Iterator[Row]:
    """The elements of a JSON array, decoded as they are read.

    Raises:
        DataError: not an array, cut off, or malformed; names the element's number.
    """
    decoder, number = json.JSONDecoder(), 0
    with open_text(path) as file:
        buffer = _begun(_begun("", file).removeprefix("["), file)
        while not buffer.startswith("]"):
            value, buffer = _element(decoder, buffer, file, f"{path}:row {number + 1}")
            number += 1
            yield f"{path}:row {number}", value
    if number == 0:
        raise DataError(f"{path}: the array is empty; expected an object a row")


def _begun(buffer: str, file: IO[str]) -> str:
    """The buffer from its first character that is no white space on; read on where there is none."""
    while not (buffer := buffer.lstrip()) and (more := file.read(CHUNK)):
        buffer = more
    return buffer


def _element(decoder: json.JSONDecoder, buffer: str, file: IO[str], place: str) -> tuple[Any, str]:
    """The first element of the buffer, read on as far as needed, and what follows its comma."""
    while True:
        more = ""
        try:
            value, end = decoder.raw_decode(buffer)
            rest = buffer[end:].lstrip()
            if rest.startswith(","):
                return value, rest[1:].lstrip()
            if rest.startswith("]"):
                return value, rest
            problem = "expected a comma or the end of the array"
            broken = bool(rest)
        except (json.JSONDecodeError, RecursionError) as error:
            problem, broken = str(error).splitlines()[0], len(buffer) > LONGEST
        more = "" if broken else file.read(max(CHUNK, len(buffer)))
        if not more:
            raise DataError(f"{place}: not a whole JSON array ({problem})")
        buffer = (buffer + more).lstrip()


def delimited(names: Sequence[str]) -> str:
    """A hint, where the only column's name holds what other CSV files have between columns."""
    between = next((sign for sign in (";", "\t", "|") if len(names) == 1 and sign in names[0]), None)
    return f"; the columns seem to stand between {between!r}: a CSV file has commas there" if between else ""


def table(path: Path) -> Iterator[Row]:
    """The rows of a CSV file, or with tabs of a ``.tsv``, under the names of its first line; an empty cell is None.

    A row that has more or fewer cells than there are names is a text that says so. Places are the lines that rows
    begin on.

    Raises:
        DataError: quotes that do not end, or a file without rows.
    """
    csv.field_size_limit(LONGEST)
    tabs = path.name.removesuffix(".gz").endswith(".tsv")
    names, begins, found = list[str](), 1, False
    try:
        with open_text(path) as file:
            rows = csv.reader(file, "excel-tab" if tabs else "excel", strict=True)
            for cells in rows:
                place, begins = f"{path}:{begins}", rows.line_num + 1
                if not cells:
                    continue
                if not names:
                    names = cells
                    continue
                found = True
                if len(cells) == len(names):
                    yield place, {name: cell or None for name, cell in zip(names, cells, strict=True)}
                else:
                    told = f"expected {len(names)} cells, as the first line has, found {len(cells)}"
                    yield place, told + delimited(names)
    except csv.Error as error:
        raise DataError(f"{path}:{begins}: not a row of CSV ({error})") from error
    if not found:
        raise DataError(f"{path}: the file has no rows; expected names in the first line, and a comparison a line")


def parquet(path: Path) -> Iterator[Row]:
    """The rows of a Parquet file.

    Raises:
        DataError: not a Parquet file, or one without rows.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"{path}: not a Parquet file ({error})") from error
    number = 0
    try:
        for batch in file.iter_batches(batch_size=1024):
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

    Raises:
        DataError: a line that is neither, or a file without dialogues.
    """
    row: dict[str, Any] = {}
    place = ""
    with open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            count, _, text = line.strip("\n").partition(" ")
            if not count.isdigit():
                raise DataError(f"{path}:{number}: expected a line number and a text, as in '1 hello\\thi'")
            if count == "1" or not row:
                if row:
                    yield place, row
                row, place = {"persona": [], "turns": []}, f"{path}:{number}"
            if text.lower().startswith(PERSONA):
                row["persona"].append(text)
            elif "\t" in text:
                row["turns"] += text.split("\t")[:2]
    if not row:
        raise DataError(f"{path}: the file is empty; expected ParlAI's numbered lines")
    yield place, row
