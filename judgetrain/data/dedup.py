"""Exact and near-duplicate queries, by hashes and by MinHash signatures, which the run's executor makes."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any, TypeVar

from judgetrain.artifacts.executors.base import Executor, Work

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

CHUNK = 4096
"""Items whose texts a worker signs at once: a second of its work, and megabytes of text."""

AHEAD = 16
"""Chunks that are held at once, the one that is waited for among them: several times what keeps the driver busy."""

T = TypeVar("T")


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


def signature(query: str) -> Any:
    """The query's MinHash signature (rensa's ``RMinHash``) over its shingles."""
    from rensa import RMinHash

    sketch = RMinHash(PERMUTATIONS, _SEED)
    sketch.update(shingles(query))
    return sketch


Sign = Callable[[str], Any]
"""Gives a text's signature: computes it, or looks it up."""


class NearIndex:
    """The :data:`NEAR_WINDOW` latest queries kept, by MinHash signature, with locality-sensitive hashing (rensa)."""

    def __init__(self) -> None:
        from rensa import RMinHashDeduplicator

        self._index: Any = RMinHashDeduplicator(
            NEAR_SIMILARITY, PERMUTATIONS, use_lsh=True, num_bands=BANDS, seed=_SEED
        )
        self._added = 0

    def add(self, query: str, sign: Sign = signature) -> bool:
        """Remember a query; False if it is a near-duplicate of one that was there before."""
        if not self._index.add(str(self._added), sign(query)):
            return False
        self._added += 1
        if self._added > NEAR_WINDOW:
            self._index.remove(str(self._added - 1 - NEAR_WINDOW))
        return True


def signed(
    items: Iterable[T], texts: Callable[[T], Iterable[str]], executor: Executor
) -> Iterator[tuple[T, Mapping[str, Any]]]:
    """The items in their order, each with the signatures (rensa's ``RMinHash``) of its ``texts``, among others.

    A text is signed once in a chunk. Of the items no more than :data:`AHEAD` chunks are held, however late one is.
    """
    held: dict[int, tuple[list[T], list[str]]] = {}
    found: dict[int, list[Any]] = {}

    def chunks() -> Iterator[tuple[int, list[str]]]:
        source = iter(items)
        for index in count():
            if not (chunk := list(islice(source, CHUNK))):
                return
            held[index] = chunk, list(dict.fromkeys(text for item in chunk for text in texts(item)))
            yield index, held[index][1]

    turn = 0
    for done in executor.run(Work(process=_sign, gpus=0, ahead=AHEAD), chunks()):
        assert isinstance(done.result, list)
        found[done.index] = done.result
        while turn in found:
            chunk, own = held.pop(turn)
            signatures = dict(zip(own, found.pop(turn), strict=True))
            yield from ((item, signatures) for item in chunk)
            turn += 1


def _sign(_: int, texts: Sequence[str]) -> list[Any]:
    return [signature(text) for text in texts]
