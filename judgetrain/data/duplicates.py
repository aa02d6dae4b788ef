"""Queries that stand twice: among the training dialogues, or in them and in a benchmark, word for word or nearly so.

What is the same is found by hashes, what is nearly the same by MinHash signatures.
"""

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from judgetrain.artifacts.fingerprint import fingerprint
from judgetrain.data.benchmarks.benchmark import adapter_of, read_cases, source_of
from judgetrain.data.config import BenchmarkConfig, DialoguesConfig
from judgetrain.data.rows import RowReader
from judgetrain.data.sources import read
from judgetrain.errors import ConfigError
from judgetrain.schema import Dialogue

SHINGLE = 5
"""Characters of a shingle: short enough for scripts without spaces, long enough to tell queries apart."""
PERMUTATIONS = 128
"""Slots of a MinHash signature; the standard error of a similarity s is sqrt(s (1 - s) / PERMUTATIONS)."""
BANDS = 16
"""LSH bands of PERMUTATIONS / BANDS rows. Of pairs whose similarity is just the threshold 0.95 share one, of more
similar ones more; twice as many would double the memory and the unlike pairs that are looked at."""
_SEED = 1
NEAR_SIMILARITY = 0.8
"""Jaccard similarity of shingles from which two queries are near-duplicates: of each other, of a benchmark's."""
NEAR_WINDOW = 1_000_000
"""Latest kept queries that near-duplicates are looked for among, about 2.5 kB of memory each."""


def normalised(query: str) -> str:
    """The query after Unicode NFKC, case folding and white-space folding."""
    return " ".join(unicodedata.normalize("NFKC", query).casefold().split())


class Seen:
    """Remembers texts by a hash of 16 bytes each."""

    def __init__(self) -> None:
        self._hashes: set[bytes] = set()

    def add(self, text: str) -> bool:
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


@lru_cache(8)  # a dialogue's query is looked up among the benchmarks', then among those before it
def signature(query: str) -> Any:
    """The query's MinHash signature (rensa's ``RMinHash``) over its shingles."""
    from rensa import RMinHash

    sketch = RMinHash(PERMUTATIONS, _SEED)
    sketch.update(shingles(query))
    return sketch


class NearIndex:
    """The :data:`NEAR_WINDOW` latest queries kept, by MinHash signature, with locality-sensitive hashing (rensa)."""

    def __init__(self) -> None:
        from rensa import RMinHashDeduplicator

        how = {"use_lsh": True, "num_bands": BANDS, "seed": _SEED}
        self._index, self._added = RMinHashDeduplicator(NEAR_SIMILARITY, PERMUTATIONS, **how), 0

    def add(self, query: str) -> bool:
        """Remember a query; False if it is a near-duplicate of one that was there before."""
        if not self._index.add(str(self._added), signature(query)):
            return False
        self._added += 1
        if self._added > NEAR_WINDOW:
            self._index.remove(str(self._added - 1 - NEAR_WINDOW))
        return True


SHORTEST_TURN = 40
"""Earlier turns of a dialogue that are shorter than this (characters) are not looked up: greetings and the like."""


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
    """The queries of benchmarks by name, to look training dialogues up in; ``counts`` are of queries by benchmark.

    A benchmark of several turns counts by all its user turns together (:func:`asked`).
    """

    def __init__(self, queries: Iterable[tuple[str, str]]) -> None:
        from rensa import RMinHashLSH

        every = [*queries]
        self.counts = Counter(name for name, _ in every)
        self._texts = [*{normalised(query): (name, query) for name, query in reversed(every)}.values()]
        self._near: Any = RMinHashLSH(NEAR_SIMILARITY, PERMUTATIONS, BANDS)
        for number, (_, query) in enumerate(self._texts):
            self._near.insert(number, signature(query))

    def matches(self, dialogue: Dialogue) -> list[Match]:
        """The queries that the dialogue's query, its user turns together, or a long user turn is; the likest first."""
        found: dict[int, Match] = {}
        for text in looked_up(dialogue):
            for number in self._near.query(signature(text)):  # of equal texts the signatures are equal
                name, query = self._texts[number]
                exact, similarity = normalised(text) == normalised(query), round(jaccard(text, query), 4)
                known = (found[number].exact, found[number].similarity) if number in found else (False, 0.0)
                if similarity >= NEAR_SIMILARITY and (exact, similarity) > known:
                    found[number] = Match(name, query, similarity, exact)
        return sorted(found.values(), key=lambda match: (not match.exact, -match.similarity))


def benchmark_queries(benchmarks: Sequence[BenchmarkConfig]) -> dict[str, list[str]]:
    """The queries of ``dialogues.decontaminate`` by benchmark, sorted; read as stage evaluate reads them.

    The generated world is left out: its held-out split shares no query with training by construction.
    """

    def dialogues(benchmark: BenchmarkConfig, key: str) -> Iterable[Dialogue]:
        if benchmark.source.adapter:
            return (case.comparison.dialogue for case in read_cases(benchmark, key))
        source = source_of(benchmark)
        return read(source, f"{key}.source", RowReader(source, f"{key}.source").dialogue)

    listed = ((f"dialogues.decontaminate[{i}]", b) for i, b in enumerate(benchmarks) if b.source.type != "world")
    try:
        return {b.name: sorted({text for d in dialogues(b, key) for text in asked(d)}) for key, b in listed}
    except ConfigError as error:
        raise ConfigError(f"{error}, or leave the benchmark out") from error


def named_queries(settings: DialoguesConfig) -> BenchmarkQueries | None:
    """The queries of the benchmarks that ``dialogues.decontaminate`` names, or None where there are none."""
    found = [(name, q) for name, queries in benchmark_queries(settings.decontaminate).items() for q in queries]
    return BenchmarkQueries(found) if found else None


def identity_of(benchmarks: Sequence[BenchmarkConfig]) -> dict[str, Any]:
    """What decides, by benchmark, which dialogues hold its queries: a hash of them, or the place on the Hub.

    Labels, responses and where a file lies are no part of it.
    """
    local = benchmark_queries([b for b in benchmarks if b.source.local])
    found: dict[str, Any] = {name: fingerprint({"queries": queries}) for name, queries in local.items()}
    for benchmark in benchmarks:
        if benchmark.source.type == "hub":
            source = source_of(benchmark)
            adapter = asdict(adapter_of(source)) if source.adapter else None
            found[benchmark.name] = [asdict(source), adapter, dict(benchmark.where)]
    return found


def asked(dialogue: Dialogue) -> Iterator[str]:
    """What a benchmark's dialogue asks: all user turns, and where one follows another without an answer between them
    (MT-Bench's second question), also those before it alone."""
    yield "\n".join(dialogue.asked)
    if not any(message.role == "assistant" for message in dialogue.messages):
        yield from ("\n".join(dialogue.asked[:count]) for count in range(1, len(dialogue.asked)))


def looked_up(dialogue: Dialogue) -> Iterator[str]:
    """The texts of a dialogue that a benchmark's query may be."""
    yield dialogue.query
    if earlier := dialogue.asked[:-1]:
        yield "\n".join(dialogue.asked)
        yield from (text for text in earlier if len(text) >= SHORTEST_TURN)
