"""What stands in a data file, as the project's own readers read it."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from judgetrain.data.config import SourceConfig
from judgetrain.data.duplicates import Seen, normalised
from judgetrain.data.rows import DEFAULT_FIELDS, RowReader
from judgetrain.data.sources import Rejects, read
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
"""How people write labels of two responses, in lower case."""
SHOWN = ("query", "messages", "response_a", "response_b", "response", "reference", "label", "criteria")


@dataclass
class Found:
    """One file: what its rows are (``kinds``), and what is in them.

    ``roles``: the column of each field. ``fields`` and ``labels``: what a recipe has to say of the file besides its
    path. ``unknown``: labels that are none, ``columns``: all there are. ``tokens``: an estimate for each row.
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
        """Rows that could be read."""
        return self.kinds.total()

    @property
    def labelled(self) -> int:
        """Comparisons and single responses with a label."""
        return self.verdicts.total()

    @property
    def is_test(self) -> bool:
        """Whether its name says that it is to measure on."""
        return any(word in self.path.name.casefold() for word in ("test", "eval", "dev", "bench", "heldout"))

    def lines(self) -> Iterator[str]:
        """What is told of the file."""
        kinds = ", ".join(f"{n:,} {kind}s" for kind, n in self.kinds.most_common()) or "no row that can be read"
        roles = ", ".join(f if f == c else f"{f} (column {c})" for f, c in self.roles.items())
        yield ": ".join(filter(None, (self.path.name, kinds, roles)))
        labels = ", ".join(f"{label} {n:,}" for label, n in sorted(self.verdicts.items()))
        means = ", ".join(f"{value} is {label}" for value, label in sorted(self.labels.items()))
        unused, tokens = [c for c in self.columns if c not in self.roles.values()], self.tokens or [0]
        parts = {
            f"labels {labels}{means and f' ({means})'}": self.labelled,
            f"{self.unknown.total():,} labels are none of A, B, tie: {', '.join([*self.unknown][:3])}": self.unknown,
            f"{self.references:,} good answers": self.references and not self.labelled,
            f"about {median(tokens):,.0f} tokens a row, the longest {max(tokens):,}": self.rows,
            f"{self.duplicates:,} duplicates": self.duplicates,
            f"nothing is read from column {', '.join(unused)}": unused,
            f"{len(self.rejects):,} rows cannot be read: {''.join(self.rejects[:1])}": self.rejects,
        }
        yield "  " + "; ".join(text for text, there in parts.items() if there)


def look(path: Path, fields: Mapping[str, str]) -> Found:
    """What stands in a file; of a big one in its first :data:`MOST` rows. ``fields``: columns that the user names."""
    found, seen, values = Found(path, dict(fields)), Seen(), dict[str, Counter[str]]()
    source = SourceConfig(name=path.stem, path=str(path), fields=found.fields, limit=MOST)
    reader = RowReader(source, "data")

    def take(row: Any, number: int) -> None:
        of, label, responses = None, None, tuple[str, ...]()
        found.columns.update(dict.fromkeys(row))
        kind = "comparison" if reader.has_responses(row) else "rated response" if reader.is_rated(row) else "dialogue"
        if kind == "comparison":
            of, label = reader.comparison(row, number, labelled=False), reader.label(row)
        elif kind == "rated response":
            of = reader.rated(row, number)
            label = f"{of.rating_a.score:.1g}" if of.rating_a else None  # type: ignore[assignment]
        if of:
            responses = of.response_a, of.response_b
            for name, value in row.items():
                values.setdefault(name, Counter()).update([] if value in (None, "") else [str(value)])
        dialogue = of.dialogue if of else reader.dialogue(row, number)
        found.kinds[kind] += 1
        found.dialogues.append(dialogue)
        found.verdicts.update([label] if label else [])
        found.references += bool(dialogue.reference)
        texts = (*(m.content for m in dialogue.messages), *responses)
        found.tokens.append(sum(map(estimated_tokens, texts)))
        found.duplicates += not seen.add(normalised("\n".join(texts)))
        for name in SHOWN:
            if column := fields.get(name) or next((c for c in DEFAULT_FIELDS[name] if row.get(c) is not None), None):
                found.roles.setdefault(name, column)

    rejects = Rejects(strict=False, keep=lambda row: found.rejects.append("{place}: {message}".format(**row)))
    try:
        for _ in read(source, "data", take, rejects):
            pass
    except DataError as error:
        found.rejects.append(str(error))
    found.unknown = reader.unknown
    if found.unknown or not found.verdicts:
        _find_labels(found, values)
    return found


def _find_labels(found: Found, values: Mapping[str, Counter[str]]) -> None:
    """Labels in a column that nothing was read from, all of whose values look like such."""
    taken = {column for name, column in found.roles.items() if name != "label"}
    for name, written in values.items():
        means = {value: MEANINGS.get(value.strip().casefold(), "") for value in written}
        if name not in taken and {"A", "B"} <= {*means.values()} <= {"A", "B", "tie"}:
            found.fields["label"] = found.roles["label"] = name
            found.labels, found.unknown = means, Counter()
            found.verdicts = Counter(means[value] for value in written.elements())
            return
