"""Exact deduplication of queries."""

from __future__ import annotations

import hashlib
import unicodedata


def normalised(query: str) -> str:
    """The query after Unicode NFKC, case folding and white-space folding."""
    return " ".join(unicodedata.normalize("NFKC", query).casefold().split())


class Seen:
    """Remembers queries by a hash of their normalised text (16 bytes each)."""

    def __init__(self) -> None:
        self._hashes: set[bytes] = set()

    def add(self, query: str) -> bool:
        """Whether the query is new."""
        digest = hashlib.blake2b(normalised(query).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if digest in self._hashes:
            return False
        self._hashes.add(digest)
        return True
