"""Which training dialogues hold a benchmark's query, word for word or nearly so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from judgetrain.data.config import BenchmarkConfig
from judgetrain.data.dedup import PERMUTATIONS, bands, jaccard, normalised, signature
from judgetrain.data.sources import read_dialogues
from judgetrain.schema import Dialogue

SHORTEST_TURN = 40
"""Earlier turns of a dialogue that are shorter than this (characters) are not looked up: greetings and the like."""


@dataclass(frozen=True)
class Match:
    """The benchmark query that a dialogue holds: the benchmark's name, the query, and their similarity."""

    benchmark: str
    query: str
    similarity: float


class BenchmarkQueries:
    """The queries of the benchmarks that ``evaluate`` lists, to look training dialogues up in.

    A benchmark of several turns counts by all its user turns together. The generated world is left out: its held-out
    split shares no query with training by construction.

    Raises:
        ConfigError: a benchmark's file is missing.
        DataError: a malformed row; names file and line.
    """

    def __init__(self, benchmarks: Sequence[BenchmarkConfig], mode: str, similarity: float) -> None:
        self._exact: dict[str, int] = {}
        self._texts: list[tuple[str, str]] = []
        self.counts: dict[str, int] = {}
        for index, benchmark in enumerate(benchmarks):
            if benchmark.source.type == "world":
                continue
            queries = _queries(benchmark, f"evaluate.benchmarks[{index}]")
            self.counts[benchmark.name] = len(queries)
            for query in sorted(queries):
                if self._exact.setdefault(normalised(query), len(self._texts)) == len(self._texts):
                    self._texts.append((benchmark.name, query))
        self._similarity, self._near = similarity, None
        if mode == "near" and self._texts:
            self._near = _index([query for _, query in self._texts], similarity)

    def find(self, dialogue: Dialogue) -> Match | None:
        """The benchmark query that the dialogue's query, its user turns together, or a long user turn matches."""
        looked_up = list(_texts(dialogue))
        for text in looked_up:
            number = self._exact.get(normalised(text))
            if number is not None:
                name, query = self._texts[number]
                return Match(name, query, 1.0)
        if self._near is None:
            return None
        for text in looked_up:
            candidates = (self._texts[n] for n in self._near.query(signature(text)))
            found = [Match(name, query, round(jaccard(text, query), 4)) for name, query in candidates]
            best = max(found, key=lambda match: match.similarity, default=None)
            if best and best.similarity >= self._similarity:
                return best
        return None


def _queries(benchmark: BenchmarkConfig, key: str) -> set[str]:
    """A benchmark's queries, read as stage evaluate reads them."""
    if not benchmark.adapter:
        return {turns(dialogue) for dialogue in read_dialogues(benchmark.source, f"{key}.source")}
    # What the rows of a published benchmark mean is known there and nowhere else; it needs nothing but this room.
    from judgetrain.data.benchmarks.reading import read_cases

    return {turns(case.comparison.dialogue) for case in read_cases(benchmark, key)}


def _index(queries: Sequence[str], similarity: float) -> Any:
    from rensa import RMinHashLSH

    index = RMinHashLSH(similarity, PERMUTATIONS, bands(similarity))
    for number, query in enumerate(queries):
        index.insert(number, signature(query))
    return index


def turns(dialogue: Dialogue) -> str:
    """All user turns of a dialogue; for a single-turn one its query."""
    return "\n".join(m.content for m in dialogue.messages if m.role == "user")


def _texts(dialogue: Dialogue) -> Iterator[str]:
    yield dialogue.query
    users = [m.content for m in dialogue.messages[:-1] if m.role == "user"]
    if users:
        yield turns(dialogue)
        yield from (text for text in users if len(text) >= SHORTEST_TURN)
