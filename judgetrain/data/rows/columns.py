"""The columns that the fields of a row are read from: their usual names, and those that a source gives."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from judgetrain.data.cells import EMPTY, TWO_COLUMNS, RowError, label_text
from judgetrain.errors import ConfigError
from judgetrain.messages import scalar_text

DEFAULT_FIELDS = {
    # MT-Bench has question_id, GLUE and its like idx.
    "id": ("id", "question_id", "idx"),
    # OpenAI's name, ShareGPT's, and that of Chatbot Arena's conversations.
    "messages": ("messages", "conversations", "conversation"),
    # AlpacaEval and Alpaca say instruction, with an input below it.
    "query": ("query", "prompt", "instruction", "question"),
    "input": ("input",),
    # Without a default: a column of such a name may hold anything, so ``fields`` has to name it.
    "system": (),
    "options": (),
    "answer": (),
    "reference": ("reference", "reference_answer", "output", "answer"),
    "category": ("category", "scenario"),
    # AlpacaEval says output_1 and generator_1.
    "response_a": ("response_a", "response_1", "answer_a", "answer_1", "output_1"),
    "response_b": ("response_b", "response_2", "answer_b", "answer_2", "output_2"),
    "model_a": ("model_a", "generator_1"),
    "model_b": ("model_b", "generator_2"),
    "response": ("response", "completion"),
    "responses": ("responses", "completions"),
    "criteria": ("criteria", "rubric", "rubrics"),
    # Chatbot Arena says winner.
    "label": ("label", "winner"),
    "score": ("score", "rating"),
    "rationale": ("rationale", "feedback", "explanation"),
    "group": ("group", "scenario", "category"),
}
"""The columns that each field is read from: the first one that holds something. ``fields`` names another column.

Where a row has none of them, one counts that differs in case, blanks, hyphens or underscores (:func:`usual_columns`).
"""
REFERENCES = ("reference", "reference_answer")
"""The columns of references that hold nothing else; an ``output`` or ``answer`` may be many things."""
LABEL_FIELDS = ("label", "score")
"""The fields that hold labels; of a single response a ``score`` is one."""
EXCEL_MOST = 32_767
"""The most characters of a cell in Excel, in UTF-16 as it counts; it cuts a longer text there."""
_NO_LETTERS = re.compile(r"[\s_-]+")
"""What does not count in a column's name where none is called as usual to the letter."""
_PLACE = re.compile(r"\{([^{}]+)\}")
"""A column's name in braces, as ``fields`` may have it in a text."""


class Columns:
    """Finds the cells of a row's fields, and keeps which columns held something and which were read.

    Its methods raise a RowError that names the columns that a row lacks.

    Args:
        fields: columns by field, where they are not called by a usual name (:data:`DEFAULT_FIELDS`).
        key: the configuration key of the source, for messages; empty for rows that are given in Python.
        no_labels: labels that say nothing: a cell of labels with one of them counts as empty.

    Raises:
        ConfigError: ``fields`` names an unknown field, or gives several columns to a field that has one.
    """

    def __init__(self, fields: Mapping[str, Any], key: str, no_labels: Collection[str] = ()) -> None:
        self._fields = fields
        self._key = key
        self._no_labels = no_labels
        self._filled: Counter[str] = Counter()
        self._used: set[str] = set()
        # Of each field without a column of the user's choice, the usual ones that it was read from, in their order.
        self._read_from: dict[str, dict[str, None]] = {}
        self.cut_by_excel: Counter[str] = Counter()
        """Counts of the cells, by column, that have exactly as many characters as Excel leaves of a longer text."""

        # A misspelt field would otherwise be a column that is never looked for.
        unknown_fields = sorted(set(fields) - set(DEFAULT_FIELDS))
        if unknown_fields:
            known_fields = ", ".join(DEFAULT_FIELDS)
            raise ConfigError(f"{key}.fields: unknown field {unknown_fields[0]!r}; known: {known_fields}")
        for field, column in fields.items():
            # A label may be several annotators', or one a criterion; everything else stands in one column.
            if not isinstance(column, str) and (field != "label" or not columns_in(column)):
                raise ConfigError(
                    f"{key}.fields.{field}={column!r}: expected a column's name; label alone may be a list of "
                    "annotators' columns, or a column a criterion"
                )

    def check(self, row: Any, labelled: bool = False) -> None:
        """Raise a RowError unless a source's first row has the columns of a comparison, whatever they hold.

        Args:
            row: the first row; all columns that it lacks are named.
            labelled: a column of labels is needed, too.
        """
        if not isinstance(row, Mapping):
            return
        fields = self._fields
        # All that are missing, so that a user mends the settings once.
        missing: dict[str, list[str]] = {}
        needed = ["query", "response_a", "response_b"]
        if labelled:
            needed.append("label")
        for field in needed:
            columns = list(DEFAULT_FIELDS[field])
            if field in fields:
                columns = columns_in(fields[field])
            elif field == "query" and "messages" in fields:
                # A list of messages ends with the query.
                columns.append(fields["messages"])
            elif field == "query":
                columns += DEFAULT_FIELDS["messages"]
            has_field = any(_has_column(row, column) for column in columns)
            if not has_field and field not in fields:
                has_field = bool(usual_columns(row, columns))
            if not has_field:
                missing[field] = columns
        if not missing:
            return

        places = "; no column for ".join(f"{field}: looked for {', '.join(names)}" for field, names in missing.items())
        raise RowError(
            "missing_column", f"no column for {places}; found {', '.join(map(str, row))}; {self._remedy([*missing])}"
        )

    def _remedy(self, fields: Sequence[str]) -> str:
        """Return the end of a message about fields that no column holds: how a user says which columns do."""
        # Rows that are given in Python have no configuration key.
        if not self._key:
            if len(fields) > 1:
                return "rename the columns that hold them"
            return "rename the column that holds it"
        columns = ", ".join(f"{field}: COLUMN" for field in fields)
        return f"say '{self._key}.fields={{{columns}}}'"

    def count_filled(self, row: Mapping[str, Any]) -> None:
        """Count the columns of a row that hold something."""
        # A Parquet file has every column in every row: those that hold nothing are no oversight.
        self._filled.update(str(name) for name, value in row.items() if value is not None)
        self.cut_by_excel.update(str(name) for name, value in row.items() if _may_be_cut_by_excel(value))

    def unused(self) -> list[tuple[str, int]]:
        """Return the columns that held something and that nothing was read from, with their numbers of rows."""
        return [item for item in sorted(self._filled.items()) if item[0] not in self._used]

    def mixed(self) -> Iterator[str]:
        """Yield a message for each field that some rows have in one of its usual columns, and others in another."""
        for field, columns in self._read_from.items():
            if len(columns) < 2:
                continue
            remedy = ""
            if self._key:
                remedy = f"; '{self._key}.fields={{{field}: COLUMN}}' names the only one"
            yield f"{field} is read from {' in some rows, from '.join(columns)} in others{remedy}"

    def value(self, row: Mapping[str, Any], field: str) -> Any:
        """Return the cell of a field, or None; the columns that it is read from count as used.

        A label that says nothing is None, too.
        """
        cell = self._cell(row, field)
        if self._no_labels and field in LABEL_FIELDS and label_text(cell) in self._no_labels:
            return None
        return cell

    def _cell(self, row: Mapping[str, Any], field: str) -> Any:
        """Return the cell of a field as it stands in the row, or None."""
        column = self._fields.get(field)
        if column == "":
            # An empty name in ``fields`` says that no column holds this field.
            return None
        if column is not None and not isinstance(column, str):
            self._used.update(columns_in(column))
            with self._all_missing(row):
                return _cells(row, column, field)
        if column is not None:
            # All ways in which ``fields`` can name a column: itself, an entry of it, and in braces within a text.
            self._used.update([column, column.partition(".")[0], *_PLACE.findall(column)])
            with self._all_missing(row):
                return _column(row, column, field)
        column = _first_column(row, field)
        if column is None:
            return None
        self._used.add(column)
        self._read_from.setdefault(field, {})[column] = None
        return row[column]

    def text(self, row: Mapping[str, Any], field: str) -> str:
        """Return the text of a field that every row must have."""
        value = self.value(row, field)
        if value is None:
            where = self._looked_for(row, field)
            raise RowError("missing_field", f"expected text in field {field}, found nothing{where}")
        if not isinstance(value, str):
            raise RowError("wrong_type", f"expected text in field {field}, found {type(value).__name__}")
        return value

    def optional_text(self, row: Mapping[str, Any], field: str) -> str | None:
        """Return the cell of a field as text (:func:`scalar_text`), or None."""
        value = scalar_text(self.value(row, field))
        if value is None:
            return None
        return str(value)

    def column(self, row: Mapping[str, Any], field: str) -> str | None:
        """Return the column that a field is read from, or None where none of its usual ones holds something."""
        return self._fields.get(field) or _first_column(row, field)

    def has_column(self, row: Mapping[str, Any], field: str) -> bool:
        """Return whether a row has a column for a field, whatever it holds."""
        column = self._fields.get(field)
        if column:
            return _has_column(row, column)
        return bool(usual_columns(row, DEFAULT_FIELDS[field]))

    def names_references(self, row: Mapping[str, Any]) -> bool:
        """Return whether the row's column of the reference is called so, or ``fields`` names one."""
        if "reference" in self._fields:
            return True
        column = _first_column(row, "reference")
        return column is not None and loose_name(column) in map(loose_name, REFERENCES)

    def has_responses(self, row: Any) -> bool:
        """Return whether the row carries two responses."""
        if not isinstance(row, Mapping):
            return False
        return self.value(row, "response_a") is not None and self.value(row, "response_b") is not None

    def is_scored(self, row: Any) -> bool:
        """Return whether the row holds one response, or a list of them, in the place of two."""
        if not isinstance(row, Mapping):
            return False
        if self.value(row, "responses") is None and self.value(row, "response") is None:
            return False
        return not self.has_responses(row)

    def holds_one_response(self, row: Any) -> bool:
        """Return whether the row holds one response, with a label or without."""
        if not self.is_scored(row) or self.value(row, "response") is None:
            return False
        # A column ``response`` may have been given to another field, as the reference.
        return not self.belongs_to_other_field(row, "response")

    def is_rated(self, row: Any) -> bool:
        """Return whether the row holds one response and a label of it."""
        return self.holds_one_response(row) and self.rating(row) not in EMPTY

    def rating(self, row: Mapping[str, Any]) -> Any:
        """Return the label of a row's only response, or its score where it has no label."""
        label = self.value(row, "label")
        if label is None:
            return self.value(row, "score")
        return label

    def belongs_to_other_field(self, row: Mapping[str, Any], field: str) -> bool:
        """Return whether ``fields`` gives the default column of a field to another field."""
        columns_of_others: set[str] = set()
        for name, column in self._fields.items():
            if name == field:
                continue
            for own in columns_in(column):
                # Also those that stand in braces, and one whose entry is meant.
                columns_of_others.update([own, own.partition(".")[0], *_PLACE.findall(own)])
        return _first_column(row, field) in columns_of_others

    def _looked_for(self, row: Mapping[str, Any], field: str) -> str:
        """Return the end of a message about a field that no column of a row holds; empty where one does."""
        columns = list(DEFAULT_FIELDS[field])
        if field == "query":
            # A list of messages ends with the query.
            columns += DEFAULT_FIELDS["messages"]
        if field in self._fields or usual_columns(row, columns):
            return ""
        return f": looked for {', '.join(columns)}; found {', '.join(map(str, row))}; {self._remedy([field])}"

    @contextmanager
    def _all_missing(self, row: Mapping[str, Any]) -> Iterator[None]:
        """Name all columns of ``fields`` that a row lacks in the RowError for the first of them."""
        try:
            yield
        except RowError as error:
            missing = []
            for field, columns in self._fields.items():
                missing += [f"{name!r} (field {field})" for name in columns_in(columns) if not _has_column(row, name)]
            if error.reason != "missing_field" or len(missing) < 2:
                raise
            raise RowError(
                error.reason, f"expected the columns {', '.join(missing)}; found {', '.join(map(str, row))}"
            ) from error


def _column(row: Mapping[str, Any], name: str, field: str) -> Any:
    """Return the cell of a column that ``fields`` names.

    ``a.b`` is the entry ``b`` of a column ``a`` of objects. In a text with braces, ``{a}`` is replaced by the cell of
    ``a``, an empty one by nothing; where all are empty, so is the field.
    """
    if name in row:
        return row[name]
    if "{" in name:
        texts = {place: _text_in(row, place, field) for place in _PLACE.findall(name)}
        if not any(texts.values()):
            return None
        return _PLACE.sub(lambda place: texts[place[1]], name)
    # Tried after the whole name: a column's own name may hold a dot.
    value: Any = row
    for part in name.split("."):
        if value is None:
            return None
        if not isinstance(value, Mapping) or part not in value:
            columns = ", ".join(map(str, row))
            raise RowError("missing_field", f"expected the column {name!r} (field {field}), found {columns}")
        value = value[part]
    return value


def _text_in(row: Mapping[str, Any], name: str, field: str) -> str:
    """Return the cell of a column that stands in braces as text; empty for one that holds nothing.

    Raises:
        RowError: there is no such column, or it holds a list or an object.
    """
    value = scalar_text(_column(row, name, field))
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RowError(
            "wrong_type", f"expected text or a number in column {name!r} (field {field}), found {type(value).__name__}"
        )
    return value


def _may_be_cut_by_excel(value: Any) -> bool:
    """Return whether a cell is a text of exactly as many characters as Excel leaves of a longer one."""
    # A character is one or two in UTF-16, so that most texts need not be written in it.
    if not isinstance(value, str) or not EXCEL_MOST / 2 <= len(value) <= EXCEL_MOST:
        return False
    return len(value.encode("utf-16-le", "surrogatepass")) == 2 * EXCEL_MOST


def columns_in(columns: Any) -> list[str]:
    """Return the names of columns that ``fields`` gives a field: one, a list, or one (or a list) a criterion.

    Anything else gives none.
    """
    if isinstance(columns, str):
        return [columns]
    values = columns
    if isinstance(columns, Mapping):
        values = columns.values()
    if not isinstance(values, Iterable):
        return []
    names: list[str] = []
    for value in values:
        of_value = columns_in(value)
        if not of_value:
            return []
        names.extend(of_value)
    return names


def _cells(row: Mapping[str, Any], columns: Any, field: str) -> Any:
    """Return the cells of several columns in the shape in which ``fields`` names them; None where all hold nothing."""
    if isinstance(columns, str):
        return _column(row, columns, field)
    if isinstance(columns, Mapping):
        named = {name: _cells(row, column, field) for name, column in columns.items()}
        if all(cell in EMPTY for cell in named.values()):
            return None
        return named
    cells = [_cells(row, column, field) for column in columns]
    if all(cell in EMPTY for cell in cells):
        return None
    return cells


def _has_column(row: Mapping[str, Any], name: str) -> bool:
    """Return whether :func:`_column` could read a column of this name; a text with braces is taken on trust."""
    return name in row or "{" in name or name.partition(".")[0] in row


def _first_column(row: Mapping[str, Any], field: str) -> str | None:
    """Return the first default column of a field that holds something, or None."""
    return first_filled(row, DEFAULT_FIELDS[field])


def first_filled(row: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Return the first of the :func:`usual_columns` of some names that holds something, or None."""
    for column in usual_columns(row, names):
        if row[column] is not None:
            return column
    return None


def usual_columns(row: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return the columns of a row that have one of some usual names, in the order of these.

    Where none is called so to the letter, case, blanks, hyphens and underscores do not count: ``Response A`` is
    ``response_a``.

    Raises:
        RowError: two columns differ in these alone.
    """
    exact = [name for name in names if name in row]
    # An exact name goes first: the other column may well be another thing.
    if exact:
        return exact
    by_loose_name = _by_loose_name(tuple(row))
    columns: list[str] = []
    for name in dict.fromkeys(map(loose_name, names)):
        spellings = by_loose_name.get(name, ())
        if len(spellings) > 1:
            raise RowError(
                TWO_COLUMNS,
                f"the columns {' and '.join(map(repr, spellings))} differ in nothing that counts in a name; expected "
                "one of them: rename the other",
            )
        columns += spellings
    return columns


def loose_name(column: object) -> str:
    """Return a column's name in lower case, without blanks, hyphens and underscores."""
    return _NO_LETTERS.sub("", str(column).casefold())


# The rows of a file have the same columns, mostly.
@lru_cache(maxsize=1024)
def _by_loose_name(columns: tuple[str, ...]) -> Mapping[str, Sequence[str]]:
    """Return columns by their loose name."""
    by_name: dict[str, list[str]] = {}
    for column in columns:
        by_name.setdefault(loose_name(column), []).append(column)
    return by_name
