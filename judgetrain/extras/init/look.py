"""Look at what stands in a data file, as the project's own readers read it."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from judgetrain.amounts import agree, amount
from judgetrain.data.cells import EMPTY, NO_LABEL, RowError, label_text, number_in
from judgetrain.data.config import SourceConfig
from judgetrain.data.duplicates import Seen
from judgetrain.data.prompt_keys import normalised
from judgetrain.data.rows.columns import DEFAULT_FIELDS, first_filled, usual_columns
from judgetrain.data.rows.reader import RowReader
from judgetrain.data.sources import Rejects, read, row_reader
from judgetrain.engines.answers import estimated_tokens
from judgetrain.errors import DataError
from judgetrain.extras.init.meanings import (
    LEAST_KNOWN,
    MOST_VALUES,
    Labels,
    answers_with_labels,
    labels_of_pairs,
    labels_of_single_responses,
    may_be_of_pairs,
    responses_by_system,
    slips,
    unread_labels,
)
from judgetrain.schema import Dialogue

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
MOST = 20_000
"""Rows of a file that are looked at."""
PAIRS = "comparison"
RATED = "rated response"
UNRATED = "unlabelled response"
DIALOGUES = "dialogue"
"""The kinds of rows."""
SLIPS_SHOWN = 4
"""The most labels without a meaning that are shown."""
SHOWN = ("query", "messages", "response_a", "response_b", "response", "reference", "label", "criteria")
"""Fields whose columns are shown."""


@dataclass
class FileContents:
    """The contents of a data file.

    Args:
        path: of the file.
        fields: columns by field that a recipe has to name, since their names are other than the usual ones.
        labels: meanings of labels that a recipe has to name, likewise.
        kinds: numbers of rows by what they are.
        roles: the column that each field is read from.
        labels_of_rows: of the rows that could be read; None: a row has no label.
        spellings: how a label is written in the first row with it, by its lower case: either case says the same.
        labels_by_criterion: how many responses have a label by a criterion, by its name.
        unknown: numbers of the rows whose label has no meaning, by that label.
        unused: columns that nothing is read from.
        unread_labels: a column that is named as labels are and was not understood, with its values' numbers of rows.
        dialogues: of the rows.
        references: number of rows with a good answer.
        tokens: an estimate for each row.
        duplicates: number of rows whose texts an earlier row has.
        rejects: why rows could not be read.
        kind: the kind that every row is read as, since nearly all are of it; None: each row is read as what it is.
        empty: numbers of the rows of which a response is empty.
        without_response: how many of these have no other response.
        columns: of all rows.
    """

    path: Path
    fields: dict[str, str]
    labels: dict[str, str] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    roles: dict[str, str] = field(default_factory=dict)
    labels_of_rows: list[str | None] = field(default_factory=list)
    spellings: dict[str, str] = field(default_factory=dict)
    labels_by_criterion: Counter[str] = field(default_factory=Counter)
    unknown: dict[str, list[int]] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)
    unread_labels: tuple[str, Mapping[str, int]] | None = None
    dialogues: list[Dialogue] = field(default_factory=list)
    references: int = 0
    tokens: list[int] = field(default_factory=list)
    duplicates: int = 0
    rejects: list[str] = field(default_factory=list)
    kind: str | None = None
    empty: list[int] = field(default_factory=list)
    without_response: int = 0
    columns: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Return the number of rows that could be read."""
        return self.kinds.total()

    @property
    def holds_ratings(self) -> bool:
        """Return whether every row holds one response, and some have a label."""
        return bool(self.kinds[RATED]) and self.kinds.keys() <= {RATED, UNRATED}

    @property
    def without_label(self) -> int:
        """Return the number of comparisons and single responses that nobody labelled."""
        with_responses = self.kinds[PAIRS] + self.kinds[RATED] + self.kinds[UNRATED]
        return with_responses - self.labelled - sum(self.unknown_counts.values())

    @property
    def verdicts(self) -> Counter[str]:
        """Return the numbers of rows by label."""
        return Counter(label for label in self.labels_of_rows if label is not None)

    @property
    def labelled(self) -> int:
        """Return the number of comparisons and single responses with a label."""
        return self.verdicts.total()

    @property
    def unknown_counts(self) -> dict[str, int]:
        """Return the numbers of rows by a label that has no meaning."""
        return {label: len(numbers) for label, numbers in self.unknown.items()}

    @property
    def has_slips(self) -> bool:
        """Return whether the labels without a meaning are a few slips of the pen, beside many that have one."""
        return bool(slips(self.unknown_counts, self.labelled))

    @property
    def can_measure(self) -> bool:
        """Return whether agreement with the file's labels can be measured: they say more than one thing."""
        if self.unknown and not self.has_slips:
            return False
        if self.holds_ratings:
            return len(self.verdicts) > 1
        # Of ties alone no agreement can be measured.
        return bool(self.kinds[PAIRS] and self.verdicts.keys() & {"A", "B"})

    @property
    def has_single_responses(self) -> bool:
        """Return whether rows hold one response each, with or without a label."""
        return "response" in self.roles and not self.kinds[PAIRS]

    @property
    def is_test(self) -> bool:
        """Return whether the file's name says that it is to measure on."""
        return any(word in self.path.name.casefold() for word in ("test", "eval", "dev", "bench", "heldout"))

    def lines(self) -> Iterator[str]:
        """Yield the lines in which a user reads what the file holds."""
        kinds = ", ".join(f"{count:,} {kind}s" for kind, count in self.kinds.most_common())
        headline = [self.path.name, kinds or "no row that can be read"]
        roles = [name if name == column else f"{name} (column {column})" for name, column in self.roles.items()]
        if roles:
            headline.append(", ".join(roles))
        yield ": ".join(headline)

        facts = []
        if self.labelled:
            facts.append(self._labels())
            if self.without_label:
                count = self.without_label
                facts.append(f"{amount(count, 'row')} {agree(count, 'have')} no label")
        if self.has_slips:
            facts.append(self._slips())
        elif self.unknown:
            facts.append(self._unknown_labels())
        if self.references and not self.labelled:
            facts.append(f"{self.references:,} good answers")
        if self.rows:
            facts.append(f"about {median(self.tokens):,.0f} tokens a row, the longest {max(self.tokens):,}")
        if self.duplicates:
            facts.append(f"{self.duplicates:,} duplicates")
        if self.unused:
            facts.append(f"nothing is read from column {', '.join(self.unused)}")
        missing_fields = self._missing_fields()
        if self.unread_labels and not missing_fields:
            facts.append(self._unread_labels())
        if self.empty:
            facts.append(self._empty_responses())
        if self.rejects:
            facts.append(f"{amount(len(self.rejects), 'row')} cannot be read: {self.rejects[0]}")
        if missing_fields:
            facts.append(self._columns_to_name(missing_fields))
        yield "  " + "; ".join(facts)

    def _labels(self) -> str:
        """Return the numbers of labels, and what their values mean if a recipe has to say so."""
        text = f"labels {counts_in_order(self.verdicts)}"
        if self.labels:
            known = {value: label for value, label in sorted(self.labels.items()) if label != NO_LABEL}
            meanings = ", ".join(f"{value} is {label}" for value, label in known.items())
            if meanings:
                text += f" ({meanings})"
        if self.labels_by_criterion:
            names = ", ".join(f"{name} {count:,}" for name, count in self.labels_by_criterion.items())
            text += f"; labels by criterion: {names}: add criteria=FILE with criteria of these names, which they teach"
        return text

    def _slips(self) -> str:
        """Return which rows have a label without a meaning, where they are few."""
        rows = []
        for label, numbers in self.unknown.items():
            rows += [f"row {number} says {label!r}" for number in numbers]
        text = ", ".join(rows[:SLIPS_SHOWN])
        if len(rows) > SLIPS_SHOWN:
            text += f" and {len(rows) - SLIPS_SHOWN} more"
        labels = "1 label has"
        if len(rows) > 1:
            labels = f"{amount(len(rows), 'label')} {agree(len(rows), 'have')}"
        return f"{labels} no meaning and {'is' if len(rows) == 1 else 'are'} not used: {text}"

    def _empty_responses(self) -> str:
        """Return which rows have an empty response, and what is made of it."""
        count = len(self.empty)
        numbers = ", ".join(f"row {number}" for number in self.empty[:SLIPS_SHOWN])
        if count > SLIPS_SHOWN:
            numbers += f" and {count - SLIPS_SHOWN} more"
        return f"{amount(count, 'row')} {agree(count, 'have')} an empty response, which counts as one: {numbers}"

    def _unknown_labels(self) -> str:
        """Return which labels have no meaning, where they are many."""
        return f"labels without a meaning: {_commonest(self.unknown_counts)}"

    def _unread_labels(self) -> str:
        """Return which column may hold labels, and what to do if it does."""
        assert self.unread_labels is not None
        column, counts = self.unread_labels
        single = not self.kinds[PAIRS]
        meanings: dict[str, str]
        if single:
            meanings = _scores_to_correct(counts)
        else:
            meanings = _sides_to_correct(counts)
        remedy = _to_say(meanings, {"label": column}, single)
        return f"column {column} may hold labels, as {_commonest(counts)}: if so, {remedy}"

    def _missing_fields(self) -> list[str]:
        """Return the fields that no column was found for, where rows hold neither responses nor good answers."""
        if self.kinds[PAIRS] or self.kinds[RATED] or self.kinds[UNRATED] or self.references:
            return []
        # A file of which no row is one says why itself.
        if not self.columns:
            return []
        missing_fields = []
        if not self._has_column("query") and not self._has_column("messages"):
            missing_fields.append("query")
        if self._has_column("response") or self._has_column("responses"):
            return missing_fields
        pair = [name for name in ("response_a", "response_b") if not self._has_column(name)]
        is_of_one_response = self.unread_labels is not None and not may_be_of_pairs(self.unread_labels[1])
        if len(pair) == 2 and is_of_one_response:
            return [*missing_fields, "response"]
        return missing_fields + pair

    def _has_column(self, name: str) -> bool:
        """Return whether a field has a column: one that the user names, or a usual one."""
        if name in self.fields:
            return True
        try:
            return bool(usual_columns(dict.fromkeys(self.columns), DEFAULT_FIELDS[name]))
        except RowError:
            # Two of them have nearly one name: each row says so.
            return True

    def _columns_to_name(self, missing_fields: Sequence[str]) -> str:
        """Return the words that tell a user how to name the columns of fields that none was found for."""
        fields = {name: repr(column) for name, column in self.fields.items()}
        fields |= dict.fromkeys(missing_fields, _COLUMN)
        if self.unread_labels is not None and not self._has_column("label"):
            fields["label"] = repr(self.unread_labels[0])
        named = ", ".join(f"{name}: {column}" for name, column in fields.items())
        source = f"{{name: own, fields: {{{named}}}}}"
        remedy = (
            f'name the columns behind the command, as in init DIR "dialogues.sources=[{source}]", '
            f"with a column's name for each {_COLUMN}"
        )
        if "response_a" in missing_fields and "response_b" in missing_fields:
            remedy += f", and response: {_COLUMN} in place of these two where a row holds one response"
        return remedy

    @property
    def remedy(self) -> str:
        """Return the words that tell a user how to say what labels without a meaning mean."""
        single = bool(self.kinds[RATED])
        meanings: dict[str, str]
        if single:
            meanings = _scores_to_correct(self.unknown)
        elif self.verdicts:
            meanings = {label: label for label in sorted(self.verdicts)} | dict.fromkeys(self.unknown, NO_LABEL)
        else:
            meanings = _sides_to_correct(self.unknown)
        return _to_say(meanings, self.fields, single)


_COLUMN = "COLUMN"
"""What stands for a column's name that a user has to say."""
_KEY = "dialogues.sources[0]"
"""The key of what the user says of columns and labels behind the command, for messages."""
_SIDE = "SIDE"
"""What stands for A, B or tie, which a guess would teach wrongly if it were taken as it is printed."""
_SCORE = "SCORE"
"""What stands for the score of a label of one response, likewise."""
_WRITABLE = re.compile(r"[A-Za-z0-9_./%+ -]+")
"""Texts that an override on the command line can have as a key."""
_NO_TEXTS = ("true", "false", "null")
"""Keys that an override takes for values of another kind, in lower case, so that they are no labels of a file."""


def _sides_to_correct(values: Iterable[str]) -> dict[str, str]:
    """Return placeholders for the meanings of labels of two responses, which no run takes as they are."""
    return dict.fromkeys(values, _SIDE)


def _scores_to_correct(values: Iterable[str]) -> dict[str, str]:
    """Return a scale for labels of single responses that are numbers, and placeholders for words."""
    labels = [*values]
    numbers = [number for number in map(number_in, labels) if number is not None]
    if len(numbers) == len(labels) > 1:
        # The ends of the scale: numbers between them count by their place.
        return {f"{min(numbers):g}": "0", f"{max(numbers):g}": "1"}
    return dict.fromkeys(labels, _SCORE)


def _to_say(meanings: Mapping[str, str], columns: Mapping[str, str], single: bool) -> str:
    """Return the words that tell a user how to say what labels mean.

    Args:
        meanings: of labels, for the user to put right.
        columns: that have to be named, by field.
        single: whether they are labels of one response.
    """
    usual = "A, B and tie"
    if single:
        usual = "pass and fail, or 1 to 5"
    if not all(_WRITABLE.fullmatch(label) and label.casefold() not in _NO_TEXTS for label in meanings):
        return f"write {usual} in their place: a command line cannot hold them"
    if len(meanings) > MOST_VALUES:
        return f"write {usual} in their place: {len(meanings):,} different ones are too many for a command line"
    labels = ", ".join(f"{label}: {meaning}" for label, meaning in meanings.items())
    fields = ""
    if columns:
        named = ", ".join(f"{name}: '{column}'" for name, column in columns.items())
        fields = f"fields: {{{named}}}, "
    said = f'say what they mean, as in init DIR "dialogues.sources=[{{name: own, {fields}labels: {{{labels}}}}}]"'
    if _SIDE in meanings.values():
        said += f", with A, B or tie for each {_SIDE}"
    if _SCORE in meanings.values():
        said += f", with a number from 0 (worst) to 1 for each {_SCORE}"
    return said


def _commonest(counts: Mapping[str, int]) -> str:
    """Return the commonest values with their numbers of rows, as text."""
    shown = Counter(counts).most_common(SLIPS_SHOWN)
    values = ", ".join(f"{label} ({count:,})" for label, count in shown)
    if len(counts) > SLIPS_SHOWN:
        values += f" and {len(counts) - SLIPS_SHOWN} more"
    return values


def counts_in_order(counts: Mapping[str, int]) -> str:
    """Return numbers of rows by label as text; labels that are numbers in their order, before words."""

    def place(label: str) -> tuple[bool, float, str]:
        number = number_in(label)
        return number is None, number or 0.0, label

    return ", ".join(f"{label} {counts[label]:,}" for label in sorted(counts, key=place))


def look(path: Path, fields: Mapping[str, str], labels: Mapping[str, str] | None = None) -> FileContents:
    """Return what stands in a file; of a big one in its first :data:`MOST` rows.

    Args:
        path: of the file.
        fields: columns by field that the user names.
        labels: meanings of labels that the user names.
    """
    rows = _rows(path)
    named = dict(fields)
    meanings = dict(labels or {})
    by_columns = None
    # Of two columns with nearly one name, each row says so where it is read.
    with suppress(RowError):
        if not fields:
            by_columns = responses_by_system(rows) or answers_with_labels(rows)
    if by_columns is not None:
        named |= by_columns.fields
        meanings = {**by_columns.meanings, **meanings}
    contents = _contents(path, named, meanings)
    # Labels of another spelling ("left", "model_b") stand in a column that the reader did not take for labels, or could
    # not read as such.
    is_unknown = contents.labelled < LEAST_KNOWN * (contents.labelled + sum(contents.unknown_counts.values()))
    if meanings or (contents.labelled and not contents.unknown):
        return _with_slips(contents)
    found = _labels_in(contents, rows)
    # Where nearly all labels are known, only what the others in their column mean is looked for.
    if contents.labelled and not is_unknown and found is not None and found.column != contents.roles.get("label"):
        found = None
    if found is None:
        if not contents.roles.get("label"):
            contents.unread_labels = unread_labels(rows, contents.roles.values())
        return _with_slips(contents)
    # A column that the reader takes for the label by itself need not be named.
    if found.column != contents.roles.get("label"):
        named |= {"label": found.column}
    return _with_slips(_contents(path, named, dict(found.meanings)))


def _labels_in(contents: FileContents, rows: Sequence[Mapping[str, Any]]) -> Labels | None:
    """Return the column of labels that the reader did not take as such, or None.

    Args:
        contents: of the file, as the reader reads it.
        rows: of the file, as they are written.
    """
    # A column that is read as something else holds no labels, whatever its values look like.
    used = [column for name, column in contents.roles.items() if name != "label"]
    if contents.kinds[PAIRS]:
        return labels_of_pairs(rows, used)
    if not contents.kinds[RATED] and not contents.kinds[UNRATED]:
        return None
    if contents.kinds[RATED]:
        # The reader found their column, and only what its values mean is looked for.
        own = contents.roles.get("label")
        used = [column for column in dict.fromkeys(name for row in rows for name in row) if column != own]
    return labels_of_single_responses(rows, used)


def _with_slips(contents: FileContents) -> FileContents:
    """Return the contents, whose few labels without a meaning are said to have none."""
    contents.labels |= slips(contents.unknown_counts, contents.labelled)
    return contents


def _source(path: Path, fields: Mapping[str, str], labels: Mapping[str, str], format_: str = "auto") -> SourceConfig:
    """Return a file as a source of rows of a format."""
    return SourceConfig(
        name=path.stem, path=str(path), fields=dict(fields), labels=dict(labels), format=format_, limit=MOST
    )


def _rows(path: Path) -> list[Mapping[str, Any]]:
    """Return the rows of a file as they are written; rows that are none are left out."""
    rows: list[Mapping[str, Any]] = []

    def take(row: Any, number: int) -> None:
        if isinstance(row, Mapping):
            rows.append(row)

    try:
        for _ in read(_source(path, {}, {}), _KEY, take, Rejects(strict=False)):
            pass
    except DataError:
        # It is told where the file is read for what its rows hold.
        pass
    return rows


def _contents(path: Path, fields: dict[str, str], labels: dict[str, str]) -> FileContents:
    """Return what stands in a file, of which these columns and meanings of labels are named."""
    row_by_row = _contents_as(None, path, fields, labels)
    # A few rows of another kind, as one with an empty cell, do not decide what the file is.
    for kind in (PAIRS, RATED):
        if not row_by_row.kinds[kind]:
            continue
        contents = _contents_as(kind, path, fields, labels)
        of_kind = contents.kinds[kind]
        if kind == RATED:
            of_kind += contents.kinds[UNRATED]
        # Rows of TRL's preferences, for one, are comparisons only where each is read as what it is.
        if of_kind - contents.without_response >= LEAST_KNOWN * row_by_row.rows:
            return contents
    return row_by_row


def _contents_as(kind: str | None, path: Path, fields: dict[str, str], labels: dict[str, str]) -> FileContents:
    """Return what stands in a file, every row of which is read as one of a kind; None: as what it is."""
    contents = FileContents(path, dict(fields), dict(labels), kind=kind)
    columns: dict[str, None] = {}
    format_ = "auto"
    if kind == PAIRS:
        format_ = "comparison"
    # The project's own readers, so that what is shown here is what a run will read.
    source = _source(path, fields, labels, format_)
    # It refuses what the user says of columns and labels, and names the key of it.
    row_reader(source, _KEY)
    # Messages about rows have no key: which columns to name is said once, of all of them.
    reader = row_reader(source, "")
    seen = Seen()

    def take(row: Any, number: int) -> None:
        if isinstance(row, Mapping):
            columns.update(dict.fromkeys(map(str, row)))
        _take(contents, reader, seen, row, number)

    def keep_reject(reject: Mapping[str, Any]) -> None:
        contents.rejects.append("{place}: {message}".format(**reject))

    try:
        # Not strict: init shows all that is wrong, where a run stops at the first row.
        for _ in read(source, _KEY, take, Rejects(strict=False, keep=keep_reject)):
            pass
    except DataError as error:
        # The whole file cannot be read; what was seen of it stays.
        contents.rejects.append(str(error))
    contents.columns = [*columns]
    contents.unused = [column for column, _ in reader.columns.unused()]
    return contents


def _take(contents: FileContents, reader: RowReader, seen: Seen, row: Any, number: int) -> None:
    """Read a row by what it is, and count what it holds.

    Args:
        contents: where it is counted.
        reader: of the file.
        seen: the texts of earlier rows.
        row: of the file.
        number: of the row, from 1.
    """
    kind, dialogue, responses, label = _content(contents, reader, row, number)
    # A row that cannot be read is none of any kind, so it is counted once it is read.
    contents.kinds[kind] += 1
    if label is not None:
        label = contents.spellings.setdefault(label.casefold(), label)
    contents.labels_of_rows.append(label)
    contents.dialogues.append(dialogue)
    contents.references += bool(dialogue.reference)
    empty = [response for response in responses if not response.strip()]
    if empty:
        contents.empty.append(number)
    if len(empty) == len(responses):
        contents.without_response += 1
    # All that a judge would be shown of the row.
    texts = [*(message.content for message in dialogue.messages), *responses]
    contents.tokens.append(sum(map(estimated_tokens, texts)))
    contents.duplicates += not seen.add(normalised("\n".join(texts)))
    for name in SHOWN:
        # Readers know several usual names of a column, the first of which that has a value counts.
        column = contents.fields.get(name) or first_filled(row, DEFAULT_FIELDS[name])
        # An answer that is the response is no reference.
        belongs_to_other = name not in contents.fields and reader.columns.belongs_to_other_field(row, name)
        if column and not belongs_to_other:
            contents.roles.setdefault(name, column)
    if kind == RATED and "label" not in contents.roles:
        # The score of a single response is its label.
        score = first_filled(row, DEFAULT_FIELDS["score"])
        if score:
            contents.roles["label"] = score


def _content(
    contents: FileContents, reader: RowReader, row: Any, number: int
) -> tuple[str, Dialogue, tuple[str, ...], str | None]:
    """Return a row's kind, dialogue, responses and label; a label without a meaning is kept in ``contents``.

    Arguments as of :func:`_take`.
    """
    if contents.kind == PAIRS or (contents.kind is None and reader.columns.has_responses(row)):
        comparison = reader.comparison(row, number, labelled=False)
        verdict = reader.labels.known_verdict(row)
        written = reader.labels.written(row)
        if verdict is None and written not in EMPTY:
            contents.unknown.setdefault(label_text(written), []).append(number)
        return PAIRS, comparison.dialogue, (comparison.response_a, comparison.response_b), verdict
    if contents.kind == RATED and reader.columns.value(row, "response") in EMPTY:
        return _without_response(contents, reader, row, number)
    if not reader.columns.is_rated(row):
        dialogue = reader.dialogue(row, number)
        response = None
        if reader.columns.holds_one_response(row):
            response = reader.columns.value(row, "response")
        if response in EMPTY:
            return DIALOGUES, dialogue, (), None
        return UNRATED, dialogue, (str(response),), None

    written = reader.columns.rating(row)
    label: str | None = label_text(written)
    try:
        comparison = reader.rated(row, number)
    except RowError as error:
        if error.reason != "unknown_label":
            raise
        contents.unknown.setdefault(label_text(written), []).append(number)
        response = str(reader.columns.value(row, "response"))
        return RATED, reader.dialogue(row, number), (response,), None
    if comparison.rating_a is not None:
        contents.labels_by_criterion.update(comparison.rating_a.by_criterion.keys())
    if isinstance(written, (list, Mapping)) and comparison.rating_a is not None:
        # Several annotators' labels are one, their mean.
        label = f"{comparison.rating_a.score:g}"
    return RATED, comparison.dialogue, (comparison.response_a,), label


def _without_response(
    contents: FileContents, reader: RowReader, row: Any, number: int
) -> tuple[str, Dialogue, tuple[str, ...], str | None]:
    """Return as :func:`_content` a row whose only response is empty: a benchmark counts its label as any other."""
    written = reader.columns.rating(row)
    try:
        # Rows without the column cannot be read as one response, in a benchmark neither.
        dialogue = reader.labelled(row, number).candidates.dialogue
    except RowError as error:
        if error.reason != "unknown_label":
            raise
        contents.unknown.setdefault(label_text(written), []).append(number)
        return RATED, reader.dialogue(row, number), ("",), None
    if written in EMPTY:
        return UNRATED, dialogue, ("",), None
    return RATED, dialogue, ("",), label_text(written)
