"""Exact and near-duplicate queries, by hashes and by MinHash signatures."""

from __future__ import annotations

import hashlib
import unicodedata
from functools import lru_cache
from typing import Any

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
