"""Look at what stands in a data file, as the project's own readers read it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from judgetrain.data.config import SourceConfig
from judgetrain.data.duplicates import Seen
from judgetrain.data.prompt_keys import normalised
from judgetrain.data.rows.columns import DEFAULT_FIELDS
from judgetrain.data.rows.reader import RowReader
from judgetrain.data.sources import Rejects, read, row_reader
from judgetrain.engines.answers import estimated_tokens
from judgetrain.errors import DataError
from judgetrain.schema import Dialogue

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
MOST = 20_000
"""Rows of a file that are looked at."""
MEANINGS = {
    **dict.fromkeys(("a", "model_a", "response_a", "1", "first", "left"), "A"),
    **dict.fromkeys(("b", "model_b", "response_b", "2", "second", "right"), "B"),
    **dict.fromkeys(("tie", "0", "equal", "both", "draw", "same", "tie (bothbad)"), "tie"),
}
"""Labels of two responses as people write them, in lower case."""
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
        verdicts: numbers of rows by label.
        unknown: numbers of rows by a label that has no meaning.
        columns: all of them; a set that keeps its order.
        dialogues: of the rows.
        references: number of rows with a good answer.
        tokens: an estimate for each row.
        duplicates: number of rows whose texts an earlier row has.
        rejects: why rows could not be read.
    """

    path: Path
    fields: dict[str, str]
    labels: dict[str, str] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    roles: dict[str, str] = field(default_factory=dict)
    verdicts: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    columns: dict[str, None] = field(default_factory=dict)
    dialogues: list[Dialogue] = field(default_factory=list)
    references: int = 0
    tokens: list[int] = field(default_factory=list)
    duplicates: int = 0
    rejects: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Return the number of rows that could be read."""
        return self.kinds.total()

    @property
    def labelled(self) -> int:
        """Return the number of comparisons and single responses with a label."""
        return self.verdicts.total()

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
        if self.unknown:
            examples = ", ".join([*self.unknown][:3])
            facts.append(f"{self.unknown.total():,} labels are none of A, B, tie: {examples}")
        if self.references and not self.labelled:
            facts.append(f"{self.references:,} good answers")
        if self.rows:
            facts.append(f"about {median(self.tokens):,.0f} tokens a row, the longest {max(self.tokens):,}")
        if self.duplicates:
            facts.append(f"{self.duplicates:,} duplicates")
        unused = [column for column in self.columns if column not in self.roles.values()]
        if unused:
            facts.append(f"nothing is read from column {', '.join(unused)}")
        if self.rejects:
            facts.append(f"{len(self.rejects):,} rows cannot be read: {self.rejects[0]}")
        yield "  " + "; ".join(facts)

    def _labels(self) -> str:
        """Return the numbers of labels, and what their values mean if a recipe has to say so."""
        text = "labels " + ", ".join(f"{label} {count:,}" for label, count in sorted(self.verdicts.items()))
        if self.labels:
            meanings = ", ".join(f"{value} is {label}" for value, label in sorted(self.labels.items()))
            text += f" ({meanings})"
        return text


def look(path: Path, fields: Mapping[str, str]) -> FileContents:
    """Return what stands in a file; of a big one in its first :data:`MOST` rows.

    Args:
        path: of the file.
        fields: columns by field that the user names.
    """
    contents = FileContents(path, dict(fields))
    # The project's own readers, so that what is shown here is what a run will read.
    source = SourceConfig(name=path.stem, path=str(path), fields=contents.fields, limit=MOST)
    reader = row_reader(source, "data")
    seen = Seen()
    values: dict[str, Counter[str]] = {}

    def read_row(row: Any, number: int) -> None:
        contents.columns.update(dict.fromkeys(row))
        dialogue, responses = _read_content(row, number, reader, contents, values)
        contents.dialogues.append(dialogue)
        contents.references += bool(dialogue.reference)
        # All that a judge would be shown of the row.
        texts = [*(message.content for message in dialogue.messages), *responses]
        contents.tokens.append(sum(map(estimated_tokens, texts)))
        contents.duplicates += not seen.add(normalised("\n".join(texts)))
        for name in SHOWN:
            # Readers know several usual names of a column, the first of which that has a value counts.
            column = fields.get(name) or _first_column(row, DEFAULT_FIELDS[name])
            if column:
                contents.roles.setdefault(name, column)

    def keep_reject(reject: Mapping[str, Any]) -> None:
        contents.rejects.append("{place}: {message}".format(**reject))

    try:
        # Not strict: init shows all that is wrong, where a run stops at the first row.
        for _ in read(source, "data", read_row, Rejects(strict=False, keep=keep_reject)):
            pass
    except DataError as error:
        # The whole file cannot be read; what was seen of it stays.
        contents.rejects.append(str(error))
    contents.unknown = reader.labels.unknown
    # Labels of another spelling ("left", "model_b") stand in a column that the reader did not take for labels, or could
    # not read as such.
    if contents.unknown or not contents.verdicts:
        _find_labels(contents, values)
    return contents


def _read_content(
    row: Any, number: int, reader: RowReader, contents: FileContents, values: dict[str, Counter[str]]
) -> tuple[Dialogue, tuple[str, ...]]:
    """Read a row by what it is, count its kind and label, and return its dialogue and responses.

    Args:
        row: of the file.
        number: of the row.
        reader: of the file.
        contents: where kind and label are counted.
        values: where the values of the columns of comparisons and single responses are counted.
    """
    if reader.columns.has_responses(row):
        comparison = reader.comparison(row, number, labelled=False)
        label = reader.labels.known_verdict(row)
        # A row that cannot be read is none of any kind, so it is counted once it is read.
        contents.kinds["comparison"] += 1
        if label:
            contents.verdicts[label] += 1
    elif reader.columns.is_rated(row):
        comparison = reader.rated(row, number)
        contents.kinds["rated response"] += 1
        if comparison.rating_a:
            contents.verdicts[f"{comparison.rating_a.score:.1g}"] += 1
    else:
        dialogue = reader.dialogue(row, number)
        contents.kinds["dialogue"] += 1
        return dialogue, ()
    # Values of all columns are counted, as it is not known yet which of them holds labels.
    for name, value in row.items():
        counts = values.setdefault(name, Counter())
        if value not in (None, ""):
            counts[str(value)] += 1
    return comparison.dialogue, (comparison.response_a, comparison.response_b)


def _first_column(row: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Return the first of these columns that has a value in the row."""
    for name in names:
        if row.get(name) is not None:
            return name
    return None


def _find_labels(contents: FileContents, values: Mapping[str, Counter[str]]) -> None:
    """Take as labels a column that nothing was read from, all of whose values look like labels.

    Args:
        contents: of the file, to which the labels are added.
        values: numbers of rows by column and value.
    """
    # A column that is read as something else holds no labels, whatever its values look like.
    used = {column for name, column in contents.roles.items() if name != "label"}
    for name, counts in values.items():
        meanings = {value: MEANINGS.get(value.strip().casefold(), "") for value in counts}
        verdicts = set(meanings.values())
        # A column of ties alone, or of one side, may hold anything.
        if name in used or not {"A", "B"} <= verdicts <= {"A", "B", "tie"}:
            continue
        contents.fields["label"] = name
        contents.roles["label"] = name
        contents.labels = meanings
        # Labels that had no meaning have one by this column.
        contents.unknown = Counter()
        contents.verdicts = Counter(meanings[value] for value in counts.elements())
        return
