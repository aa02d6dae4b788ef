"""Repeated queries: among the training dialogues, or in them and in a benchmark, word for word or nearly so.

Hashes find equal queries, and MinHash signatures find near-duplicates.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from judgetrain.artifacts.fingerprint import fingerprint
from judgetrain.data.benchmarks.benchmark import adapter_of, read_cases, source_of
from judgetrain.data.config import BenchmarkConfig, DialoguesConfig
from judgetrain.data.parts import PromptFilter, read_hashes
from judgetrain.data.prompt_keys import normalised
from judgetrain.data.rows.reader import RowReader
from judgetrain.data.sources import read
from judgetrain.errors import ConfigError
from judgetrain.schema import Dialogue

SHINGLE = 5
"""Characters of a shingle: few enough for scripts without spaces, and enough to distinguish queries."""
PERMUTATIONS = 128
"""Slots of a MinHash signature; the standard error of a similarity s is sqrt(s (1 - s) / PERMUTATIONS)."""
BANDS = 16
"""LSH bands of PERMUTATIONS / BANDS rows.

A share of 0.95 of the pairs whose similarity is just the threshold have a band in common, and more of those above it.
Twice as many bands would double the memory and the unlike pairs that are compared."""
_SEED = 1
NEAR_SIMILARITY = 0.8
"""The least Jaccard similarity of the shingles of near-duplicates."""
NEAR_WINDOW = 1_000_000
"""The latest kept queries among which near-duplicates are searched: about 2.5 kB of memory each."""


def digest_of(text: str) -> bytes:
    """Return a hash of a text."""
    # The chance that two of a billion texts share 16 bytes is below one in 10**20.
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class Seen:
    """Remembers texts by a hash of 16 bytes each."""

    def __init__(self) -> None:
        self._hashes: set[bytes] = set()

    def add(self, text: str) -> bool:
        """Remember a text, and return whether it is new."""
        digest = digest_of(text)
        if digest in self._hashes:
            return False
        self._hashes.add(digest)
        return True


def shingles(query: str) -> list[str]:
    """Return the character :data:`SHINGLE`-grams of the normalised query; a shorter query is its own."""
    text = normalised(query)
    number = max(1, len(text) - SHINGLE + 1)
    return [text[start : start + SHINGLE] for start in range(number)]


def jaccard(a: str, b: str) -> float:
    """Return the Jaccard similarity of two queries' shingle sets, in [0, 1]."""
    shingles_a = set(shingles(a))
    shingles_b = set(shingles(b))
    return len(shingles_a & shingles_b) / len(shingles_a | shingles_b)


# A dialogue's query is looked up among the benchmarks' queries, then among the dialogues before it.
@lru_cache(8)
def signature(query: str) -> Any:
    """Return the query's MinHash signature (rensa's ``RMinHash``) over its shingles."""
    from rensa import RMinHash

    # One seed for all: signatures of different hashes cannot be compared.
    sketch = RMinHash(PERMUTATIONS, _SEED)
    sketch.update(shingles(query))
    return sketch


class NearIndex:
    """The :data:`NEAR_WINDOW` latest dialogues kept, found by their queries with locality-sensitive hashing (rensa).

    A near-duplicate of an earlier dialogue is like it part by part: its query, what stands before the query, and either
    response. All parts together would make near-duplicates of whatever has a long system prompt in common.
    """

    def __init__(self) -> None:
        from rensa import RMinHashLSH

        self._by_query: Any = RMinHashLSH(NEAR_SIMILARITY, PERMUTATIONS, BANDS)
        self._kept: dict[int, list[Any]] = {}
        self._added = 0

    def add(self, query: str, *others: str) -> bool:
        """Remember a dialogue, and return whether it is new; a near-duplicate of an earlier one is not remembered.

        Args:
            query: its last question.
            others: its other parts, in the same order each time; empty where it has none.
        """
        parts: list[Any] = []
        for text in (query, *others):
            # Most dialogues have nothing but a query, so no signature is kept of what is empty.
            part = None
            if text:
                part = signature(text)
            parts.append(part)
        # The hashes find candidates by their queries; the other parts decide.
        for number in self._by_query.query(signature(query)):
            if all(map(_alike, parts, self._kept[number])):
                return False
        self._by_query.insert(self._added, signature(query))
        self._kept[self._added] = parts
        self._added += 1
        # The oldest makes room, so that memory stays the same however many dialogues follow.
        if self._added > NEAR_WINDOW:
            oldest = self._added - 1 - NEAR_WINDOW
            self._by_query.remove(oldest)
            del self._kept[oldest]
        return True


def _alike(part: Any, other: Any) -> bool:
    """Return whether two signatures are of near-duplicates; None is that of an empty text."""
    if part is None or other is None:
        return part is other
    return bool(part.jaccard(other) >= NEAR_SIMILARITY)


SHORTEST_TURN = 40
"""The fewest characters of an earlier turn that is looked up: shorter ones are greetings and the like."""


@dataclass(frozen=True)
class Match:
    """A benchmark's query that a dialogue holds.

    Args:
        benchmark: the benchmark's name.
        query: its query.
        similarity: Jaccard similarity of the shingles, 0 to 1.
        exact: the texts are equal after Unicode NFKC, case folding and white-space folding.
    """

    benchmark: str
    query: str
    similarity: float
    exact: bool


class BenchmarkQueries:
    """The queries of benchmarks, to look training dialogues up in.

    A benchmark of several turns counts by all its user turns together (:func:`asked`).

    Args:
        queries: pairs of a benchmark's name and a query.

    Attributes:
        counts: the number of queries by benchmark.
    """

    def __init__(self, queries: Iterable[tuple[str, str]]) -> None:
        from rensa import RMinHashLSH

        pairs = list(queries)
        self.counts = Counter(name for name, _ in pairs)
        # Of equal queries, the first benchmark's counts.
        different = {normalised(query): (name, query) for name, query in reversed(pairs)}
        self._texts = list(different.values())
        self._near: Any = RMinHashLSH(NEAR_SIMILARITY, PERMUTATIONS, BANDS)
        for number, (_, query) in enumerate(self._texts):
            self._near.insert(number, signature(query))

    def matches(self, dialogue: Dialogue) -> list[Match]:
        """Return the benchmarks' queries that a dialogue holds, equal ones first, then the most similar.

        Compared are its query, its user turns together, and its long user turns (:func:`looked_up`).
        """
        matches: dict[int, Match] = {}
        for text in looked_up(dialogue):
            # Equal texts have equal signatures, so this finds them, too.
            for number in self._near.query(signature(text)):
                name, query = self._texts[number]
                # Reported apart: an exact match needs no judgment, a similar one may be chance.
                exact = normalised(text) == normalised(query)
                similarity = round(jaccard(text, query), 4)
                # MinHash only estimates: a pair that shares a band may be less similar.
                if similarity < NEAR_SIMILARITY:
                    continue
                earlier = matches.get(number)
                if earlier is None or (exact, similarity) > (earlier.exact, earlier.similarity):
                    matches[number] = Match(name, query, similarity, exact)
        return sorted(matches.values(), key=lambda match: (not match.exact, -match.similarity))


def benchmark_queries(benchmarks: Sequence[BenchmarkConfig]) -> dict[str, list[str]]:
    """Return the queries of ``dialogues.decontaminate`` by benchmark, sorted; read as stage evaluate reads them.

    The generated world is left out: its held-out split shares no query with training by construction.

    Raises:
        ConfigError: files of benchmarks are not there; a line for each file.
    """
    queries: dict[str, list[str]] = {}
    problems: dict[str, str] = {}
    for index, benchmark in enumerate(benchmarks):
        if benchmark.source.type == "world":
            continue
        texts: set[str] = set()
        try:
            for dialogue in _dialogues(benchmark, f"dialogues.decontaminate[{index}]"):
                texts.update(question_texts(dialogue))
        except ConfigError as error:
            # A benchmark serves evaluation as well; training alone can do without it. A file's parts are one problem.
            problems.setdefault(benchmark.source.path, f"{error}, or leave the benchmark out")
        queries[benchmark.name] = sorted(texts)
    if problems:
        raise ConfigError("\n".join(problems.values()))
    return queries


def _dialogues(benchmark: BenchmarkConfig, key: str) -> Iterator[Dialogue]:
    """Yield the dialogues of a benchmark's rows."""
    if benchmark.source.adapter:
        for case in read_cases(benchmark, key):
            yield case.comparison.dialogue
        return
    source = source_of(benchmark)
    reader = RowReader(source, f"{key}.source")
    is_taken = PromptFilter(benchmark, key)
    for dialogue in read(source, f"{key}.source", reader.dialogue):
        if is_taken(dialogue):
            yield dialogue


def named_queries(settings: DialoguesConfig) -> BenchmarkQueries | None:
    """Return the queries of the benchmarks that ``dialogues.decontaminate`` names, or None where there are none."""
    pairs = []
    for name, queries in benchmark_queries(settings.decontaminate).items():
        pairs += [(name, query) for query in queries]
    if not pairs:
        return None
    return BenchmarkQueries(pairs)


def identity_of(benchmarks: Sequence[BenchmarkConfig]) -> dict[str, Any]:
    """Return the part of a fingerprint that decides which dialogues hold a benchmark's queries, by benchmark.

    It is a hash of the queries, or the place on the Hub. Labels, responses and the place of a file are no part of it.
    """
    # Files are read for it: their content counts, wherever they lie.
    local = benchmark_queries([benchmark for benchmark in benchmarks if benchmark.source.local])
    identity: dict[str, Any] = {name: fingerprint({"queries": queries}) for name, queries in local.items()}
    for benchmark in benchmarks:
        if benchmark.source.type == "hub":
            source = source_of(benchmark)
            adapter = None
            if source.adapter:
                adapter = asdict(adapter_of(source))
            # A fingerprint must not need the network, so the place stands for the content.
            identity[benchmark.name] = [asdict(source), adapter, dict(benchmark.where)]
            # Without a part the fingerprint is what it was before there were parts.
            if benchmark.part:
                identity[benchmark.name].append(list(benchmark.part))
            for name in ("only", "leave_out"):
                path = getattr(benchmark, name)
                if path:
                    hashes = read_hashes(path, f"dialogues.decontaminate: {benchmark.name}.{name}")
                    identity[benchmark.name].append([name, sorted(hashes)])
    return identity


def question_texts(dialogue: Dialogue) -> Iterator[str]:
    """Yield the texts that a benchmark's dialogue asks: all its user turns together.

    Where no answer stands between the turns (MT-Bench's second question), a model gets the earlier ones alone first;
    so they are yielded, too.
    """
    yield "\n".join(dialogue.user_texts)
    if any(message.role == "assistant" for message in dialogue.messages):
        return
    for count in range(1, len(dialogue.user_texts)):
        yield "\n".join(dialogue.user_texts[:count])


def looked_up(dialogue: Dialogue) -> Iterator[str]:
    """Yield the texts of a dialogue that may be a benchmark's query."""
    yield dialogue.query
    earlier_turns = dialogue.user_texts[:-1]
    if not earlier_turns:
        return
    yield "\n".join(dialogue.user_texts)
    for text in earlier_turns:
        if len(text) >= SHORTEST_TURN:
            yield text
