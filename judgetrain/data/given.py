"""Labels that the data brings: published comparisons as training data, and whether there are labels at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from judgetrain.data.benchmarks.adapter import load_adapter
from judgetrain.data.benchmarks.reading import CaseReader, placed
from judgetrain.data.cells import majority
from judgetrain.data.config import DialogueSourceConfig, ResponsesConfig, SourceConfig
from judgetrain.data.rows import SHOWN, RowReader
from judgetrain.data.sources import Rejects, read
from judgetrain.errors import ConfigError
from judgetrain.schema import Comparison


def adapted(source: SourceConfig, key: str, rejects: Rejects) -> Iterator[list[Comparison]]:
    """The comparisons of each row of a source that an adapter reads, with the label that most of its votes give."""
    source = placed(source)
    for cases in read(source, key, CaseReader(source).cases, rejects):
        yield [replace(case.comparison, label=majority(case.votes)) for case in cases]


def check_adapter(source: SourceConfig, key: str) -> None:
    """Refuse (ConfigError) an adapter that is none, whose rows are single votes, or that is at no place on the Hub."""
    if source.adapter and load_adapter(source.adapter, key).kind == "votes":
        told = "its rows are single votes; give one row a comparison, with the label that most votes gave"
        raise ConfigError(f"{key}.adapter={source.adapter}: {told}")
    if source.adapter and source.type == "hub" and not placed(source).path:
        raise ConfigError(f"{key}.path is empty: give the data set's Hub id")


def check_labelled(
    sources: list[DialogueSourceConfig], responses: ResponsesConfig, wanted: str = "label.source=given"
) -> None:
    """Check that there are labels to learn from, as ``wanted`` asks, reading no more rows than it takes to find one.

    Labels are those of the sources' comparisons, of pairs that are constructed, and of the generated world. What the
    Hub holds is not looked at.

    Raises:
        ConfigError: none of the sources has a label; names what stands in the column, and the remedy.
    """
    constructed, found = bool(responses.contrast), Counter[str]()
    if responses.models:
        if constructed or any(source.type == "world" for source in sources):
            return
        told = "responses.models answer the dialogues anew, and the labels are about the responses of dialogues.sources"
        raise ConfigError(f"{wanted}: {told}; set responses.models=[], or responses.contrast to construct pairs")
    for index, source in enumerate(sources):
        there = source.type == "hub" or (constructed and source.type == "world")
        if there or _serves(source, index, found, constructed):
            return
    column = "name its column with 'dialogues.sources[0].fields={label: COLUMN}'"
    if constructed:
        told = f"{wanted} with responses.contrast={[*responses.contrast]}: no good answer to construct a pair from"
        advice = "name its column with 'dialogues.sources[0].fields={reference: COLUMN}', or give responses.models"
        raise ConfigError(f"{told}; {advice}")
    written = ", ".join(repr(label) for label in islice(found, SHOWN))
    told = f": the column holds {written}; say what they mean with 'dialogues.sources[0].labels={{...: A, ...: B}}'"
    told = told if found else f"; {column}, or construct pairs with responses.contrast"
    raise ConfigError(f"{wanted}: no comparison of dialogues.sources has a label{told}")


def _serves(source: SourceConfig, index: int, found: Counter[str], references: bool) -> bool:
    """Whether a row of a source has a label that is known, or with ``references`` a reference answer.

    ``found`` counts how other labels are written.
    """
    rejects, key = Rejects(strict=False), f"dialogues.sources[{index}]"
    if source.adapter:
        return any(c.label for comparisons in adapted(source, key, rejects) for c in comparisons)
    reader = RowReader(source, key)

    def serves(row: Any, number: int) -> bool:
        if reader.is_rated(row) or (reader.has_responses(row) and reader.label(row) is not None):
            return True
        return references and reader.dialogue(row, number).reference is not None

    there = any(read(source, key, serves, rejects))
    found.update(reader.unknown)
    return there
