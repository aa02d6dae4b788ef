"""Exact and near-duplicate queries, and training dialogues that hold a benchmark's query."""

from __future__ import annotations

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from judgetrain.artifacts.fingerprint import fingerprint
from judgetrain.data.config import BenchmarkConfig, DialoguesConfig
from judgetrain.data.sources import read_dialogues
from judgetrain.errors import ConfigError
from judgetrain.schema import Dialogue

SHINGLE = 5
"""Characters of a shingle: short enough for scripts without spaces, long enough to tell queries apart."""

PERMUTATIONS = 128
"""Slots of a MinHash signature; the standard error of a similarity s is sqrt(s (1 - s) / PERMUTATIONS)."""

RECALL = 0.9
"""Least chance that LSH looks at a pair whose similarity is just the threshold; more similar pairs are missed less.

More would double the bands, and with them the memory and the unlike pairs that are looked at.
"""

_SEED = 1

DECONTAMINATE = "dialogues.decontaminate"
"""The key of the benchmarks whose queries are taken out of training."""

SHORTEST_TURN = 40
"""Earlier turns of a dialogue that are shorter than this (characters) are not looked up: greetings and the like."""


def normalised(query: str) -> str:
    """The query after Unicode NFKC, case folding and white-space folding."""
    return " ".join(unicodedata.normalize("NFKC", query).casefold().split())


class Seen:
    """Remembers texts by a hash of 16 bytes each."""

    def __init__(self) -> None:
        self._hashes: set[bytes] = set()

    def add(self, query: str) -> bool:
        """Remember a query; False if one that is equal after normalisation was there before."""
        return self.add_text(normalised(query))

    def add_text(self, text: str) -> bool:
        """Remember a text; False if exactly this text was there before."""
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if digest in self._hashes:
            return False
        self._hashes.add(digest)
        return True


def shingles(query: str) -> list[str]:
    """The character ``SHINGLE``-grams of the normalised query; a shorter query is its own."""
    text = normalised(query)
    return [text[i : i + SHINGLE] for i in range(max(1, len(text) - SHINGLE + 1))]


def jaccard(a: str, b: str) -> float:
    """The Jaccard similarity of two queries' shingle sets, in [0, 1]."""
    first, second = set(shingles(a)), set(shingles(b))
    return len(first & second) / len(first | second)


def bands(similarity: float) -> int:
    """The fewest LSH bands (a divisor of ``PERMUTATIONS``) that look at a pair at the threshold with ``RECALL``.

    With b bands of r = PERMUTATIONS / b rows, a pair of similarity s shares a band with chance 1 - (1 - s^r)^b.
    """
    for count in range(1, PERMUTATIONS + 1):
        rows, rest = divmod(PERMUTATIONS, count)
        if rest == 0 and 1 - (1 - similarity**rows) ** count >= RECALL:
            return count
    return PERMUTATIONS


def signature(query: str) -> Any:
    """The query's MinHash signature (rensa's ``RMinHash``) over its shingles."""
    from rensa import RMinHash

    sketch = RMinHash(PERMUTATIONS, _SEED)
    sketch.update(shingles(query))
    return sketch


Sign = Callable[[str], Any]
"""Gives a text's signature: computes it, or looks it up."""


class NearIndex:
    """Queries kept so far, by MinHash signature, with locality-sensitive hashing (rensa).

    Args:
        similarity: estimated Jaccard similarity of shingle sets from which two queries are near-duplicates.
        window: how many of the latest queries are remembered; about 2.5 kB of memory each.
    """

    def __init__(self, similarity: float, window: int | None = None) -> None:
        from rensa import RMinHashDeduplicator

        self._index: Any = RMinHashDeduplicator(
            similarity, PERMUTATIONS, use_lsh=True, num_bands=bands(similarity), seed=_SEED
        )
        self._window, self._added = window, 0

    def add(self, query: str, sign: Sign = signature) -> bool:
        """Remember a query; False if it is a near-duplicate of one that was there before."""
        if not self._index.add(str(self._added), sign(query)):
            return False
        self._added += 1
        if self._window is not None and self._added > self._window:
            self._index.remove(str(self._added - 1 - self._window))
        return True

    def __len__(self) -> int:
        return self._index.len()


@dataclass(frozen=True)
class Match:
    """A benchmark query that a dialogue holds: the benchmark's name, the query, their similarity, whether it is exact.

    ``exact``: equal after case folding, Unicode NFKC and white-space folding; else ``similarity`` is of their shingles.
    """

    benchmark: str
    query: str
    similarity: float
    exact: bool


class BenchmarkQueries:
    """The queries of benchmarks, to look training dialogues up in.

    A benchmark of several turns counts by all its user turns together.

    Args:
        queries: the benchmark's name and the query (:func:`asked`) of every comparison.
        near: whether near-duplicates are looked for, too.
        similarity: Jaccard similarity of shingles from which two queries are near-duplicates.

    ``counts`` are of queries by benchmark.
    """

    def __init__(self, queries: Iterable[tuple[str, str]], near: bool, similarity: float) -> None:
        self._exact: dict[str, int] = {}
        self._texts: list[tuple[str, str]] = []
        self.counts: Counter[str] = Counter()
        for name, query in queries:
            self.counts[name] += 1
            if self._exact.setdefault(normalised(query), len(self._texts)) == len(self._texts):
                self._texts.append((name, query))
        self._similarity = similarity
        self._near: Any = None
        if near and self._texts:
            from rensa import RMinHashLSH

            self._near = RMinHashLSH(similarity, PERMUTATIONS, bands(similarity))
            for number, (_, query) in enumerate(self._texts):
                self._near.insert(number, signature(query))

    @property
    def near(self) -> bool:
        """Whether signatures are looked at."""
        return self._near is not None

    def matches(self, dialogue: Dialogue, sign: Sign = signature) -> list[Match]:
        """The queries that the dialogue's query, its user turns together, or a long user turn is; the likest first."""
        found: dict[int, Match] = {}
        for text in looked_up(dialogue):
            exact = self._exact.get(normalised(text))
            if exact is not None:
                found[exact] = Match(*self._texts[exact], 1.0, True)
            for number in self._near.query(sign(text)) if self._near is not None else ():
                name, query = self._texts[number]
                match = Match(name, query, round(jaccard(text, query), 4), False)
                known = found[number].similarity if number in found else 0.0
                if match.similarity >= self._similarity and match.similarity > known:
                    found[number] = match
        return sorted(found.values(), key=lambda match: (not match.exact, -match.similarity))


def benchmark_queries(benchmarks: Sequence[BenchmarkConfig]) -> dict[str, list[str]]:
    """The queries of ``dialogues.decontaminate`` by benchmark, sorted.

    The generated world is left out: its held-out split shares no query with training by construction.

    Raises:
        ConfigError: a benchmark's file is missing.
        DataError: a malformed row; names file and line.
    """
    listed = ((f"{DECONTAMINATE}[{i}]", b) for i, b in enumerate(benchmarks) if b.source.type != "world")
    try:
        return {benchmark.name: sorted(_queries(benchmark, key)) for key, benchmark in listed}
    except ConfigError as error:
        raise ConfigError(
            f"{error}, or leave the benchmark out: its queries are taken out of the training dialogues"
        ) from error


def named_queries(settings: DialoguesConfig) -> BenchmarkQueries | None:
    """The queries of the benchmarks that ``dialogues.decontaminate`` names, or None where there are none.

    Raises:
        ConfigError, DataError: as :func:`benchmark_queries`.
    """
    found = [(name, q) for name, queries in benchmark_queries(settings.decontaminate).items() for q in queries]
    return BenchmarkQueries(found, settings.decontaminate_by == "near", settings.near_similarity) if found else None


def identity_of(benchmarks: Sequence[BenchmarkConfig]) -> dict[str, Any]:
    """What decides, by benchmark, which dialogues hold its queries: a hash of them, or the place on the Hub.

    Labels, responses and where a file lies are no part of it.

    Raises:
        ConfigError, DataError: as :func:`benchmark_queries`.
    """
    from judgetrain.data.benchmarks.reading import adapter_of, source_of

    local = [b for b in benchmarks if b.source.local]
    found: dict[str, Any] = {name: fingerprint({"queries": q}) for name, q in benchmark_queries(local).items()}
    for benchmark in benchmarks:
        if benchmark.source.type == "hub":
            adapter = asdict(adapter_of(benchmark)) if benchmark.adapter else None
            found[benchmark.name] = [asdict(source_of(benchmark)), adapter, dict(benchmark.where)]
    return found


def _queries(benchmark: BenchmarkConfig, key: str) -> set[str]:
    """A benchmark's queries, read as stage evaluate reads them."""
    # What the rows of a published benchmark mean is known there and nowhere else; it needs nothing but this room.
    from judgetrain.data.benchmarks.reading import read_cases, source_of

    if not benchmark.adapter:
        return {text for dialogue in read_dialogues(source_of(benchmark), f"{key}.source") for text in asked(dialogue)}
    return {text for case in read_cases(benchmark, key) for text in asked(case.comparison.dialogue)}


def turns(dialogue: Dialogue) -> str:
    """All user turns of a dialogue; for a single-turn one its query."""
    return "\n".join(m.content for m in dialogue.messages if m.role == "user")


def asked(dialogue: Dialogue) -> Iterator[str]:
    """What a benchmark's dialogue asks: all user turns, and where one follows another without an answer between them
    (MT-Bench's second question), also those before it alone."""
    yield turns(dialogue)
    users = [m for m in dialogue.messages if m.role != "system"]
    if all(message.role == "user" for message in users):
        yield from ("\n".join(m.content for m in users[:count]) for count in range(1, len(users)))


def looked_up(dialogue: Dialogue) -> Iterator[str]:
    """The texts of a dialogue that a benchmark's query may be."""
    yield dialogue.query
    users = [m.content for m in dialogue.messages[:-1] if m.role == "user"]
    if users:
        yield turns(dialogue)
        yield from (text for text in users if len(text) >= SHORTEST_TURN)
