"""Readers of sources, row by row: JSON lines, CSV, Parquet, ParlAI text and the Hub as streams, a JSON array whole.

A reader raises a DataError that names the place if a file is not what it seems, is cut off or has no row.
"""

import codecs
import csv
import gzip
import json
import logging
import random
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Literal, TypeVar, cast

from judgetrain.amounts import amount
from judgetrain.artifacts.files import named
from judgetrain.data.cells import NumberScale, RowError, check_names, number_scale, preference
from judgetrain.data.class_names import names_in_features, names_in_metadata, with_class_names
from judgetrain.data.config import SourceConfig
from judgetrain.data.rows.columns import DEFAULT_FIELDS, LABEL_FIELDS, columns_in, loose_name
from judgetrain.data.rows.reader import RowReader
from judgetrain.engines.hub import is_reachable
from judgetrain.errors import ConfigError, DataError
from judgetrain.json_text import DECODER
from judgetrain.schema import Comparison

log = logging.getLogger(__name__)

Row = tuple[str, Any]
"""A row's place (file and line or number) and the row."""
BEGINNING = 1 << 20
"""Characters at a file's beginning by which its format is recognised."""
CHUNK = 1 << 20
"""Characters, or bytes, of a file that are read at a time where its lines do not matter."""
PERSONA = "your persona:"
"""The beginning of a line in ParlAI's format that describes a speaker."""

BROKEN = (gzip.BadGzipFile, EOFError, zlib.error)
"""Python's errors for a file that is no gzip file, is cut off or damaged."""


def open_text(path: Path) -> IO[str]:
    """Open a UTF-8 text file, gzipped or not, with or without a byte order mark."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig")
    return path.open(encoding="utf-8-sig")


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading bytes, unpacked if it is gzipped."""
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    return path.open("rb")


def unreadable(path: Path, error: Exception) -> str:
    """Return the message for a file that is damaged or no UTF-8, with the first line that is none."""
    if not isinstance(error, UnicodeDecodeError):
        return f"{path}: not a whole gzip file ({error})"
    # The error counts bytes of a block that Python read; a user looks for a line.
    decoder = codecs.getincrementaldecoder("utf-8")()
    lines = 1
    with open_bytes(path) as file:
        for chunk in iter(partial(file.read, CHUNK), b""):
            try:
                lines += decoder.decode(chunk).count("\n")
            except UnicodeDecodeError as error_in_chunk:
                lines += error_in_chunk.object[: error_in_chunk.start].count(b"\n")
                return f"{path}:{lines}: expected UTF-8 text ({error_in_chunk.reason}); save the file as UTF-8"
    return f"{path}: expected UTF-8 text ({error.reason}); save the file as UTF-8"


class TooLargeError(DataError):
    """A row that is larger than a source's rows may be (``max_row_chars``)."""

    def __init__(self, place: str, most: int) -> None:
        super().__init__(f"{place}: {too_large(most)}")


def too_large(most: int) -> str:
    """Return what is said of a row that has more text than a source's rows may have."""
    return f"the row has more than {amount(most, 'character')}; raise max_row_chars of the source if it is meant"


class Lines(Iterator[str]):
    """Yields the lines of a text file, and raises TooLargeError where a row would have more text than it may have.

    A line is not held before it is known to be short enough. A row may be several lines: whoever reads them calls
    :meth:`end_row` at its end.

    Args:
        file: to read, from where it is.
        path: of the file, for messages.
        most: characters of a row.
        first: the number of the first line.
    """

    def __init__(self, file: IO[str], path: Path, most: int, first: int = 1) -> None:
        self._file = file
        self._path = path
        self._most = most
        self._row_begins = first
        self._next = first
        self._chars = 0

    def __next__(self) -> str:
        """Return the next line, with its end."""
        # One character more than is allowed: enough to see that there are too many, and no line is held beyond it.
        line = self._file.readline(self._most - self._chars + 1)
        if not line:
            raise StopIteration
        self._chars += len(line)
        if self._chars > self._most:
            raise TooLargeError(f"{self._path}:{self._row_begins}", self._most)
        self._next += 1
        return line

    def end_row(self) -> None:
        """Begin a row with the next line."""
        self._row_begins = self._next
        self._chars = 0

    def begin_row(self, line: str) -> None:
        """Begin a row with the line that was read last."""
        self._row_begins = self._next - 1
        self._chars = len(line)


WORKBOOKS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods", ".numbers")
"""The endings of workbooks, as Excel and its like save them."""
PACKED = {
    b"PK\x03\x04": "a ZIP archive",
    b"\xd0\xcf\x11\xe0": "a document of an older Office",
    b"\x28\xb5\x2f\xfd": "packed by zstd",
    b"BZh": "packed by bzip2",
    b"\xfd7zXZ": "packed by xz",
    b"\x1f\x8b": "packed by gzip",
}
"""Kinds of files that cannot be read under their name, by their first bytes."""


def check_form(path: Path) -> None:
    """Refuse (DataError) a file that is a workbook or packed in a way that is not read, with what to do."""
    name = path.name.lower()
    if name.endswith(WORKBOOKS):
        raise DataError(f"{path}: a workbook, which is not read; save the sheet as CSV (UTF-8)")
    # Parquet and gzip have beginnings of their own.
    if name.endswith((".gz", ".parquet")) or not path.is_file():
        return
    with path.open("rb") as file:
        # No beginning is longer than this.
        beginning = file.read(8)
    for magic, kind in PACKED.items():
        if beginning.startswith(magic):
            remedy = "unpack it"
            if kind == "a ZIP archive":
                remedy = "unpack it, or save the sheet as CSV (UTF-8) if it is a workbook"
            elif kind == "packed by gzip":
                remedy = f"name it {path.name}.gz"
            raise DataError(f"{path}: {kind}, which is not read; {remedy}")


def form_of(path: Path) -> str:
    """Return the format of a file: ``parquet``, ``parlai``, ``array`` (JSON), ``lines`` (JSON), ``table`` (CSV, TSV).

    The endings .parquet, .csv and .tsv decide it. Otherwise its beginning does: a file that can be read as JSON is
    JSON, whatever its name.
    """
    name = path.name.removesuffix(".gz")
    # Parquet is no text, so its beginning cannot be looked at as such.
    if name.endswith(".parquet"):
        return "parquet"
    # A table may begin with any character, a bracket among them.
    if name.endswith((".csv", ".tsv")):
        return "table"

    beginning = ""
    # A file that cannot be opened is named by the reader, with the place of the error.
    with suppress(UnicodeDecodeError, OSError, *BROKEN), open_text(path) as file:
        beginning = file.read(BEGINNING).lstrip()

    # What the file holds counts before its ending, which users choose freely.
    if _SEPARATOR.match(beginning):
        return "table"
    if beginning.startswith("["):
        # JSON lines may be lists, too; an array of objects is an array under any name.
        holds_objects = beginning[1:].lstrip().startswith("{")
        if name.endswith(".json") or holds_objects:
            return "array"
    if beginning.startswith("{"):
        return "lines"
    if name.endswith(".txt"):
        return "parlai"
    if name.endswith((".json", ".jsonl")):
        return "lines"
    first_line = beginning.partition("\n")[0]

    # Neither content nor name tells: a first line that splits into columns is a table's.
    columns = _cells(first_line, _delimiter(first_line, ","))
    if len(columns) >= 2:
        return "table"
    return "lines"


def json_array(path: Path, most: int) -> Iterator[Row]:
    """Yield the elements of a JSON array, with their numbers from 1; none is held that has more characters than that.

    Args:
        path: of the file.
        most: characters of an element.
    """
    with open_text(path) as file:
        elements = _Elements(file, path, most)
        for number, row in enumerate(elements, start=1):
            yield f"{path}:row {number}", row


_BLANKS = re.compile(r"[ \t\n\r]*")
"""The blanks that JSON allows between its parts."""
_CUT_NUMBER = re.compile(r"[-+.eE0-9]*\Z")
"""The rest of a number that is cut off by the end of what was read."""
_CUT = len("-Infinity")
"""The longest word of JSON as Python reads it, which may be cut off by the end of what was read."""


def _may_be_cut(error: Exception, length: int) -> bool:
    """Return whether JSON may be wrong for nothing but that it is cut off behind ``length`` characters."""
    if not isinstance(error, json.JSONDecodeError):
        return False
    return error.msg.startswith("Unterminated string") or error.pos >= length - _CUT


class _Elements:
    """Iterates over the elements of a JSON array, of which no more is held than the one that is read.

    Args:
        file: at the array's beginning.
        path: of the file, for messages.
        most: characters of an element.
    """

    def __init__(self, file: IO[str], path: Path, most: int) -> None:
        self._file = file
        self._path = path
        self._most = most
        self._text = ""
        self._place = 0
        self._is_whole = False

    def __iter__(self) -> Iterator[Any]:
        number = 0
        sign = self._sign("[")
        # An empty data set is a mistake, as is an empty file.
        if self._peek() == "]":
            raise DataError(f"{self._path}: the array is empty; expected an object a row")
        while sign != "]":
            number += 1
            yield self._element(number)
            sign = self._sign(",", "]")
        if self._peek():
            raise self._error("text stands behind its end")

    def _element(self, number: int) -> Any:
        """Return the next element; ``number`` is its own."""
        self._peek()
        while True:
            held = len(self._text) - self._place
            try:
                value, end = DECODER.raw_decode(self._text, self._place)
            # Brackets that are nested too deep are a RecursionError.
            except (ValueError, RecursionError) as error:
                if self._is_whole or not _may_be_cut(error, len(self._text)):
                    reason = getattr(error, "msg", str(error)).splitlines()[0]
                    raise self._error(f"row {number}: {reason}") from error
                # Only now: a cut element may become whole with the next block, one that is too long may not.
                if held > self._most:
                    raise TooLargeError(f"{self._path}:row {number}", self._most) from error
                # Twice as much each time: an element is decoded from its beginning again, and equal steps would make
                # reading a long one quadratic.
                self._fill(max(CHUNK, 2 * held))
                continue
            if end - self._place > self._most:
                raise TooLargeError(f"{self._path}:row {number}", self._most)
            # A number may go on behind what was read, as 1.5e3 behind 1.5e.
            is_cut = isinstance(value, (int, float)) and _CUT_NUMBER.match(self._text, end) is not None
            if is_cut and not self._is_whole:
                self._fill(held + CHUNK)
                continue
            self._place = end
            return value

    def _sign(self, *signs: str) -> str:
        """Return the next sign, which is one of these."""
        sign = self._peek()
        if sign not in signs:
            what_is_there = "the end of the file"
            if sign:
                what_is_there = repr(sign)
            raise self._error(f"expected {' or '.join(signs)}, found {what_is_there}")
        self._place += 1
        return sign

    def _peek(self) -> str:
        """Return the next character that is no white space, at which the reader then stands; empty at the end."""
        while True:
            blanks = _BLANKS.match(self._text, self._place)
            assert blanks is not None, "it matches nothing, too"
            self._place = blanks.end()
            if self._place < len(self._text):
                return self._text[self._place]
            if self._is_whole:
                return ""
            self._fill(CHUNK)

    def _fill(self, size: int) -> None:
        """Hold ``size`` characters from where the reader stands, as far as the file goes."""
        missing = size - (len(self._text) - self._place)
        if missing <= 0 or self._is_whole:
            return
        more = self._file.read(missing)
        self._is_whole = len(more) < missing
        # What was read is let go here, so that an array of any length is read in the memory of one element.
        self._text = self._text[self._place :] + more
        self._place = 0

    def _error(self, reason: str) -> DataError:
        """Return the error of a file that is no array."""
        return DataError(f"{self._path}: not a whole JSON array ({reason})")


SIGNS = (",", "\t", ";", "|")
"""The signs that may stand between the columns of a table."""
_SEPARATOR = re.compile(r'"?sep=([^"\r\n])"?[ \t,;]*\r?(?:\n|\Z)', re.IGNORECASE)
"""Excel's first line that says which sign stands between columns."""
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
"""A cell that a writer of tables has put into quotation marks."""


def _cells(line: str, delimiter: str) -> list[str]:
    """Return the cells of one line of a table."""
    return next(csv.reader([line], delimiter=delimiter), [])


def _delimiter(first_line: str, expected: str) -> str:
    """Return the sign that splits a table's first line into most columns; the ``expected`` one if several do."""
    # max() takes the first of equal ones.
    return max((expected, *SIGNS), key=lambda sign: len(_cells(first_line, sign)))


_DECIMAL_COMMA = re.compile(r"\s*(-?\d+),(\d+)\s*")
"""A number with a decimal comma."""


def label_columns(source: SourceConfig) -> frozenset[str]:
    """Return the loose names of the columns that a source's labels may stand in (:func:`loose_name`)."""
    columns: list[str] = []
    for name in LABEL_FIELDS:
        columns += columns_in(source.fields.get(name, DEFAULT_FIELDS[name]))
    return frozenset(map(loose_name, columns))


def table(path: Path, most: int, labels: Collection[str] = ()) -> Iterator[Row]:
    """Yield the rows of a CSV or TSV file, under the names of its first line; an empty cell is None.

    Where columns stand between semicolons or tabs, numbers of the columns of labels may have a decimal comma.

    A row with more or fewer cells than there are names comes as a text that says so. Its place is the line that it
    begins on.

    Args:
        path: of the file.
        most: characters of a row.
        labels: the loose names of the columns of labels.
    """
    # Python allows 131,072 characters by default, which long responses exceed.
    csv.field_size_limit(most)
    names: list[str] = []
    has_rows = False
    # A cell may hold line ends: a row's first line is the one after the last line of the row before.
    first_line = 1
    try:
        with open_text(path) as file:
            skipped, delimiter, has_quotes = _dialect(path, file, most)
            first_line += skipped
            lines = Lines(file, path, most, first_line)
            quoting: Literal[0, 3] = csv.QUOTE_NONE
            if has_quotes:
                quoting = csv.QUOTE_MINIMAL
            # Strict: an open quotation mark is an error, where Python would take the rest of the file for one cell.
            rows = csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)
            for cells in rows:
                lines.end_row()
                place = f"{path}:{first_line}"
                first_line = skipped + rows.line_num + 1
                if not has_quotes:
                    cells = [_unquoted(cell) for cell in cells]
                if not cells:
                    continue
                # The first line that is not blank has the names.
                if not names:
                    names = cells
                    check_names(names, place)
                    continue
                has_rows = True
                if len(cells) != len(names):
                    yield place, f"expected {amount(len(names), 'cell')}, as the first line has, found {len(cells)}"
                else:
                    row = {name: cell or None for name, cell in zip(names, cells, strict=True)}
                    # Between commas 4,5 may be two annotators' labels.
                    if delimiter in (";", "\t"):
                        _use_decimal_points(row, labels)
                    yield place, row
    except csv.Error as error:
        raise DataError(f"{path}:{first_line}: not a row of CSV ({error})") from error
    if not has_rows:
        raise DataError(f"{path}: the file has no rows; expected names in the first line, and a comparison a line")


def _use_decimal_points(row: dict[str, str | None], labels: Collection[str]) -> None:
    """Write numbers with a decimal comma as Python does, in the columns of a row that hold labels."""
    for name, cell in row.items():
        if cell is None or loose_name(name) not in labels:
            continue
        number = _DECIMAL_COMMA.fullmatch(cell)
        if number is not None:
            row[name] = f"{number[1]}.{number[2]}"


def _dialect(path: Path, file: IO[str], most: int) -> tuple[int, str, bool]:
    """Return how many lines stand before a table's names, the sign between its columns, and if marks enclose cells.

    Where every line has as many tabs as the first, a quotation mark is text: TSV files of plain text have lone ones,
    and a reader that pairs them would swallow lines. The file is left at the line of the names.
    """
    # First, what may stand above the names.
    skipped = 0
    separator = _SEPARATOR.match(file.read(BEGINNING))
    file.seek(0)
    if separator is not None:
        file.readline()
        skipped = 1
    start = file.tell()

    expected = ","
    if path.name.removesuffix(".gz").endswith(".tsv"):
        expected = "\t"
    if separator is not None:
        # The names stand in the line behind Excel's.
        delimiter = separator[1]
        first_line = file.readline(BEGINNING)
    else:
        first_line = file.read(BEGINNING).lstrip().partition("\n")[0]
        delimiter = _delimiter(first_line, expected)
        if delimiter != expected:
            log.warning("%s: read as a table with %r between its columns", path, delimiter)

    # Then, whether quotation marks enclose cells or are text.
    file.seek(start)
    has_quotes = True
    if delimiter == "\t":
        tabs = first_line.count("\t")
        has_quotes = _differs_in_tabs(Lines(file, path, most, skipped + 1), tabs)
    file.seek(start)
    return skipped, delimiter, has_quotes


def _differs_in_tabs(lines: Lines, tabs: int) -> bool:
    """Return whether a line has another number of tabs; blank lines do not count."""
    for line in lines:
        lines.end_row()
        if line.strip() and line.count("\t") != tabs:
            return True
    return False


def _unquoted(cell: str) -> str:
    """Return a cell without the quotation marks around it, if it has any."""
    if not _QUOTED.fullmatch(cell):
        return cell
    return cell[1:-1].replace('""', '"')


def parquet(path: Path, most: int) -> Iterator[Row]:
    """Yield the rows of a Parquet file, with their numbers from 1.

    Args:
        path: of the file.
        most: characters of a row. They are counted when the row was read, as the file does not tell.
    """
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        # In batches: a file may be larger than the memory.
        file = pyarrow.parquet.ParquetFile(path)
        # A row is a dictionary, which would hold the last of two columns alone.
        check_names(file.schema_arrow.names, str(path))
        names = names_in_metadata(file.schema_arrow.metadata)
        for batch in file.iter_batches(batch_size=1024):
            for row in batch.to_pylist():
                number += 1
                if sum(len(value) for value in row.values() if isinstance(value, str)) > most:
                    raise TooLargeError(f"{path}:row {number}", most)
                yield f"{path}:row {number}", with_class_names(row, names)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a whole Parquet file; after row {number}: {error}") from error
    if number == 0:
        raise DataError(f"{path}: the file has no rows")


def parlai(path: Path, most: int) -> Iterator[Row]:
    """Yield dialogues of ParlAI's text format as ``{"persona": [lines], "turns": [texts]}``.

    A line is a number, a blank, and either a line about a persona or the texts of both speakers, with a tab between
    them; candidate answers may follow a second tab. Number 1 starts a dialogue.

    Args:
        path: of the file.
        most: characters of a dialogue.
    """
    place = ""
    dialogue: dict[str, list[str]] | None = None
    with open_text(path) as file:
        lines = Lines(file, path, most)
        for number, line in enumerate(lines, start=1):
            # Only line ends are stripped: a tab at the end stands for a speaker who says nothing.
            count, _, text = line.strip("\n").partition(" ")
            is_blank = not line.strip()
            if not is_blank and not count.isdigit():
                raise DataError(f"{path}:{number}: expected a line number and a text, as in '1 hello\\thi'")
            if is_blank:
                # Between dialogues there may be any number of blank lines.
                lines.end_row()
            if count == "1" or (dialogue is None and not is_blank):
                lines.begin_row(line)
                if dialogue is not None:
                    yield place, dialogue
                place = f"{path}:{number}"
                dialogue = {"persona": [], "turns": []}
            if dialogue is None:
                continue
            if text.lower().startswith(PERSONA):
                dialogue["persona"].append(text)
            elif "\t" in text:
                # Behind a second tab stand candidates, which nobody said.
                dialogue["turns"] += text.split("\t")[:2]
    if dialogue is None:
        raise DataError(f"{path}: the file is empty; expected ParlAI's numbered lines")
    yield place, dialogue


T = TypeVar("T")
RAW_CHARS = 500
"""The most characters of a rejected row that are kept."""


@dataclass
class Rejects:
    """Rows that cannot be used, counted by reason.

    Args:
        strict: stop at the first one.
        remedy: what to do about it, after a strict message.
        keep: writes a row's place, reason, message and beginning, and its id where it is known.
        counts: the number of rows by reason.
    """

    strict: bool
    remedy: str = " (dialogues.strict=false keeps such rows aside)"
    keep: Callable[[Mapping[str, Any]], None] | None = None
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    """By reason, the first row's place and what was expected there."""

    def add(self, place: str, reason: str, message: str, raw: str, name: str | None = None) -> None:
        """Count a row and keep it aside.

        Args:
            place: the file and the line or number of the row.
            reason: a short word, by which rows are counted.
            message: what was expected.
            raw: the row as it is written.
            name: the row's id.

        Raises:
            DataError: rejecting is ``strict``.
        """
        # A strict run stops before anything is made of rows that may all be wrong.
        if self.strict:
            raise DataError(f"{place}: {message}{self.remedy}")
        self.counts[reason] += 1
        self.examples.setdefault(reason, f"{place} ({message})")
        if self.keep is not None:
            rejected = {"place": place, "reason": reason, "message": message, "raw": raw[:RAW_CHARS]}
            if name is not None:
                rejected["id"] = name
            self.keep(rejected)


def read(source: SourceConfig, key: str, take: Callable[[Any, int], T], rejects: Rejects | None = None) -> Iterator[T]:
    """Yield the result of ``take`` for every row of a source, in order.

    Args:
        source: the files or Hub data set; at most ``source.limit`` rows are used.
        key: the configuration key of the source, for messages.
        take: gets a row and its number, from 1 over all files of the source; raises a :class:`RowError` for a row that
            it cannot use.
        rejects: where unusable rows go.

    Raises:
        DataError: without ``rejects``, a row cannot be used; or a file cannot be read.
        ConfigError: there is no such file.
    """

    # A source without a place for bad rows stops at the first one.
    if rejects is None:
        rejects = Rejects(strict=True, remedy="")
    # A source that names its columns says what they hold; only others may be in TRL's format of preferences.
    names_columns = source.adapter or source.fields.keys() & {"response_a", "response_b"}
    may_be_preferences = source.format == "auto" and not names_columns
    count = 0
    for number, (place, row, raw) in enumerate(_rows(source, key, rejects), start=1):
        # Rejected rows do not count, so that a limit of 100 gives 100 rows that can be used.
        if source.limit is not None and count >= source.limit:
            return
        try:
            row = _without_nan(row, raw)
            if may_be_preferences:
                row = preference(row)
            result = take(row, number)
        except RowError as error:
            rejects.add(place, error.reason, str(error), raw, error.id)
        except DataError as error:
            rejects.add(place, "wrong_message", str(error), raw)
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            # A row may hold anything. One that a reader has not foreseen is a row like any other bad one.
            rejects.add(place, "unreadable", f"cannot be read ({type(error).__name__}: {error})", raw)
        else:
            count += 1
            yield result


def _without_nan(row: Any, raw: str) -> Any:
    """Return a row with None for NaN, which is how pandas writes what is missing.

    Raises:
        RowError: a text is no UTF-8.
    """
    # JSON may escape half of a pair of surrogates; such a text could not be written again.
    if "\\ud" in raw.lower():
        try:
            json.dumps(row, ensure_ascii=False, default=str).encode()
        except UnicodeEncodeError as error:
            raise RowError("not_utf8", "the row holds half of a surrogate pair, which is no character") from error
    # NaN alone differs from itself.
    if isinstance(row, Mapping) and any(value != value for value in row.values()):
        without_nan = dict(row)
        for name, value in row.items():
            if value != value:
                without_nan[name] = None
        return without_nan
    return row


def sampled(rows: Iterable[T], number: int, seed: int) -> list[T]:
    """Return ``number`` of the rows in their order, or all if there are fewer.

    Each set of that many rows has the same chance (algorithm R of Vitter 1985), and no more rows are held at a time.
    """
    rng = random.Random(seed)
    kept: list[tuple[int, T]] = []
    for index, row in enumerate(rows):
        if index < number:
            kept.append((index, row))
            continue
        # Row i takes a place with the chance number / (i + 1), which keeps all sets equally likely.
        place = rng.randrange(index + 1)
        if place < number:
            kept[place] = (index, row)
    # Back into their order in the file, as replaced rows stand in any place.
    kept.sort(key=itemgetter(0))
    return [row for _, row in kept]


def files_of(path: str, key: str) -> list[Path]:
    """Return the file that a path names, or those that a glob names, sorted.

    Raises:
        ConfigError: there is none; ``key`` is the configuration key of the path.
    """
    files: list[Path] = []
    if path:
        files = named(path)
    if not files:
        raise ConfigError(f"{key}={path!r}: no such file; give an existing path")
    return files


_Row = tuple[str, Any, str]
"""A row's place, the row, and the row as it is written."""


def _rows(source: SourceConfig, key: str, rejects: Rejects) -> Iterator[_Row]:
    """Yield the rows of all files of a source, or those of its Hub data set."""
    if source.type == "hub":
        yield from _hub(source, key)
        return
    readers: dict[str, Callable[[Path, int], Iterator[Row]]] = {
        "parquet": parquet,
        "parlai": parlai,
        "array": json_array,
        "table": partial(table, labels=label_columns(source)),
    }
    # File after file, each in its own form: a glob may match several.
    for path in files_of(source.path, f"{key}.path"):
        check_form(path)
        form = form_of(path)
        try:
            if form == "lines":
                # Its lines are rejected one by one; an error elsewhere spoils the file.
                yield from _jsonl(path, rejects, source.max_row_chars)
                continue
            for place, row in readers[form](path, source.max_row_chars):
                # A row of a table with too few cells comes as its message.
                if form == "table" and isinstance(row, str):
                    rejects.add(place, "wrong_cells", row, "")
                else:
                    yield place, row, str(row)
        except (UnicodeDecodeError, *BROKEN) as error:
            raise DataError(unreadable(path, error)) from error


def _jsonl(path: Path, rejects: Rejects, most: int) -> Iterator[_Row]:
    """Yield the lines of a file of JSON lines; blank ones are skipped.

    Args:
        path: of the file.
        rejects: where lines go that are no JSON.
        most: bytes of a line, of which no more are held.
    """
    number = 0
    # Read as bytes: a line that is no UTF-8 is rejected, and the next one is read.
    with open_bytes(path) as file:
        # Beside the line, its end may be two bytes.
        for number, line in enumerate(iter(partial(file.readline, most + 2), b""), start=1):
            is_too_large = len(line.rstrip(b"\r\n")) > most
            if not line.strip() and not is_too_large:
                continue
            place = f"{path}:{number}"
            # For the message of a line that is no text.
            raw = repr(line[:RAW_CHARS])
            if is_too_large:
                rejects.add(place, "too_large", too_large(most), raw)
                _skip_line(file, line)
                continue
            encoding = "utf-8"
            if number == 1:
                # A byte order mark stands at the beginning of a file alone.
                encoding = "utf-8-sig"
            try:
                raw = line.decode(encoding)
                row = DECODER.decode(raw)
            except UnicodeDecodeError as error:
                rejects.add(place, "not_utf8", f"expected UTF-8 text ({error.reason})", raw)
            except RecursionError:
                rejects.add(place, "not_json", "expected a JSON object a line (brackets nested too deep)", raw)
            except ValueError as error:
                rejects.add(place, "not_json", f"expected a JSON object a line ({error})", raw)
            else:
                yield place, row, raw
    if number == 0:
        raise DataError(f"{path}: the file is empty; expected a JSON object a line")


def _skip_line(file: IO[bytes], beginning: bytes) -> None:
    """Read on to the end of a line, of which the beginning was read."""
    piece = beginning
    while piece and not piece.endswith(b"\n"):
        piece = file.readline(CHUNK)


def _hub(source: SourceConfig, key: str) -> Iterator[_Row]:
    """Yield the rows of a data set of the Hub, as they are downloaded."""
    import datasets
    from huggingface_hub import constants

    # A folder of this machine, and the name of a reader such as ``parquet``, need no Hub.
    is_on_hub = "/" in source.path and not Path(source.path).expanduser().exists()
    # Asked first, as the library tries again for most of a minute. Where it was told to be offline it says so at once.
    if is_on_hub and not constants.is_offline_mode() and not is_reachable():
        raise DataError(
            f"{key}.path={source.path}: cannot read this data set from the Hub, which does not answer (no network); "
            "or give a local file"
        )
    try:
        # Streamed: ``limit`` rows of a large data set need no download of the others.
        # What the user says under ``hub`` goes before the default split.
        rows = datasets.load_dataset(source.path, streaming=True, **{"split": source.split, **source.hub})
        names = names_in_features(getattr(rows, "features", None))
        for number, row in enumerate(rows, start=1):
            yield f"{source.path}[{source.split}]:row {number}", with_class_names(row, names), str(row)
    except (OSError, ValueError, datasets.exceptions.DatasetNotFoundError) as error:
        first_line = str(error).splitlines()[0][:200]
        raise DataError(
            f"{key}.path={source.path}: cannot read this data set from the Hub "
            f"({type(error).__name__}: {first_line}); or give a local file"
        ) from error


def row_reader(source: SourceConfig, key: str) -> RowReader:
    """Return a reader of a source's rows, which reads the whole column of ratings before it says what a number means.

    Args:
        source: where the rows are.
        key: the configuration key of the source, for messages.
    """
    return RowReader(source, key, partial(numbers_of, source, key))


def numbers_of(source: SourceConfig, key: str) -> dict[str, NumberScale]:
    """Return what the numbers that rate a source's single responses are read as, by criterion.

    Arguments as of :func:`row_reader`.
    """
    rows = _rows(source, key, Rejects(strict=False))
    # Only rows that are used decide, so that a far row cannot change what the first ones mean.
    used = islice(rows, source.limit)

    def without_nan() -> Iterator[Any]:
        for _, row, raw in used:
            # Rows that cannot be read are reported where they are read for their content.
            with suppress(RowError, TypeError, ValueError, AttributeError):
                yield _without_nan(row, raw)

    return numbers_among(without_nan(), source, key)


def numbers_among(rows: Iterable[Any], source: SourceConfig, key: str) -> dict[str, NumberScale]:
    """Return what the numbers that rate single responses are read as, by criterion, of all rows of a source.

    Args:
        rows: all of them.
        source: how they are read.
        key: the configuration key of the source, for messages; empty for rows that are given in Python.
    """
    # A reader of its own, as this one counts the labels of the whole column before the rows are read.
    reader = RowReader(source, key)
    numbers: dict[str, set[float]] = {}
    for row in rows:
        # Rows that cannot be read are reported where they are read for their content.
        with suppress(RowError, TypeError, ValueError, AttributeError):
            for name, of_row in reader.labels.rated_numbers(row).items():
                numbers.setdefault(name, set()).update(of_row)
    return {name: number_scale(of_name) for name, of_name in numbers.items()}


def read_comparisons(source: SourceConfig, key: str, *, labelled: bool | None = True) -> Iterator[Comparison]:
    """Yield the comparisons of a file or Hub data set.

    Args:
        source: where the rows are.
        key: the configuration key of the source, for messages.
        labelled: True requires a label in every row, None takes one where a row has it (neither null nor an empty
            text), False reads none.
    """
    reader = RowReader(source, key)
    yield from read(source, key, partial(reader.comparison, labelled=labelled))
