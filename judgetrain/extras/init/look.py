"""What stands in a data file, as the project's own readers read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from judgetrain.data.config import SourceConfig
from judgetrain.data.duplicates import BenchmarkQueries, Seen, normalised
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
    """One file: what its rows are, by kind (``comparison``, ``rated``, ``dialogue``), and what is in them.

    ``roles``: the column of each field. ``fields`` and ``labels``: what a recipe has to say of the file besides its
    path. ``tokens``: an estimate for each row, query and responses together.
    """

    path: Path
    kinds: Counter[str] = field(default_factory=Counter)
    roles: dict[str, str] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    verdicts: Counter[str] = field(default_factory=Counter)
    references: int = 0
    tokens: list[int] = field(default_factory=list)
    duplicates: int = 0
    dialogues: list[Dialogue] = field(default_factory=list)
    rejects: Counter[str] = field(default_factory=Counter)
    told: str = ""

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
        yield f"{self.path.name}: {kinds}: {roles}"
        parts = []
        if self.verdicts:
            parts.append("labels " + ", ".join(f"{label} {n:,}" for label, n in sorted(self.verdicts.items())))
        elif self.references:
            parts.append(f"{self.references:,} good answers")
        if self.tokens:
            parts.append(f"about {median(self.tokens):,.0f} tokens a row, the longest {max(self.tokens):,}")
        parts += [f"{self.duplicates:,} duplicates"] if self.duplicates else []
        parts += [f"{self.rejects.total():,} rows cannot be read: {self.told}"] if self.rejects else []
        yield f"  {'; '.join(parts)}"

    def overlap(self, others: Iterable[Found]) -> int:
        """Its queries that stand in others' dialogues too, word for word or nearly so."""
        queries = BenchmarkQueries([(self.path.name, "\n".join(d.asked)) for d in self.dialogues])
        return len({match.query for other in others for d in other.dialogues for match in queries.matches(d)})


def look(path: Path, fields: Mapping[str, str]) -> Found:
    """What stands in a file; of a big one in its first :data:`MOST` rows. ``fields``: columns that the user names."""
    found = _look(path, fields, {})
    if found.kinds["comparison"] and not found.labelled and (guess := _label_column(path, found)):
        found = _look(path, {**fields, "label": guess[0]}, guess[1])
    return found


def _look(path: Path, fields: Mapping[str, str], labels: Mapping[str, str]) -> Found:
    found = Found(path, fields=dict(fields), labels=dict(labels))
    source = SourceConfig(name=path.stem, path=str(path), fields=dict(fields), labels=dict(labels), limit=MOST)
    reader, seen, kept = RowReader(source, "data"), Seen(), list[Mapping[str, Any]]()

    def take(row: Any, number: int) -> None:
        responses: tuple[str, ...] = ()
        if reader.has_responses(row):
            kind, comparison = "comparison", reader.comparison(row, number, labelled=False)
            dialogue, responses = comparison.dialogue, (comparison.response_a, comparison.response_b)
            label: str | None = reader.label(row)
        elif reader.is_rated(row):
            kind, rated = "rated response", reader.rated(row, number)
            dialogue, responses = rated.dialogue, (rated.response_a,)
            label = f"{rated.rating_a.score:.1g}" if rated.rating_a else None
        else:
            kind, dialogue, label = "dialogue", reader.dialogue(row, number), None
        found.kinds[kind] += 1
        found.verdicts.update([label] if label else [])
        found.references += bool(dialogue.reference)
        texts = (*(m.content for m in dialogue.messages), *responses)
        found.tokens.append(sum(map(estimated_tokens, texts)))
        found.duplicates += not seen.add(normalised("\n".join(texts)))
        found.dialogues.append(dialogue)
        for name in SHOWN:
            column = fields.get(name) or next((c for c in DEFAULT_FIELDS[name] if row.get(c) is not None), None)
            if column:
                found.roles.setdefault(name, column)

    rejects = Rejects(strict=False, keep=lambda row: kept.append(row) if not kept else None)
    try:
        for _ in read(source, "data", take, rejects):
            pass
    except DataError as error:
        kept.append({"message": str(error)})
        rejects.counts["unreadable"] += 1
    found.rejects, found.told = rejects.counts, f"{kept[0]['message']}" if kept else ""
    return found


def _label_column(path: Path, found: Found) -> tuple[str, dict[str, str]] | None:
    """A column that nothing was read from and whose values all look like labels, and what they mean."""
    values: dict[str, set[str]] = {}

    def take(row: Mapping[str, Any], number: int) -> None:
        for name, value in row.items():
            taken = name in found.roles.values() and name != found.roles.get("label")
            if not taken and value is not None:
                values.setdefault(str(name), set()).add(str(value))

    for _ in read(SourceConfig(name=path.stem, path=str(path), limit=MOST), "data", take, Rejects(strict=False)):
        pass
    for name, written in values.items():
        means = {value: MEANINGS.get(value.strip().casefold(), "") for value in written}
        if {"A", "B"} <= {*means.values()} <= {"A", "B", "tie"}:
            return name, means
    return None
