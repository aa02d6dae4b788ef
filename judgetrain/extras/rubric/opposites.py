"""Opposites by their words: an encoder of sentences has "formal tone" and "casual tone" near each other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bools = NDArray[np.bool_]

NEGATING = frozenset(
    {"avoid", "avoids", "avoiding", "no", "not", "without", "free", "never", "lack", "lacks", "absence"}
)
"""Words that say that what follows must not be."""
FRAME = frozenset(
    "answer answers response responses reply replies text user users query does do is are was it its".split()
)
"""Words by which a criterion speaks of any response. They tell no two criteria apart."""
PREFIXES = ("un", "in", "im", "dis", "non")
"""Beginnings that turn a word around, as in informal."""
ENDINGS = re.compile(r"(?:ness|ity|ty|ly|ing|ed|es|s|e|y)$")
STEM = 4
"""Letters that are left of a word at least, where an ending is taken off."""
Opposites = Sequence[tuple[frozenset[str], frozenset[str]]]


@dataclass(frozen=True)
class Demand:
    """The words of a criterion.

    Args:
        wanted: stems of the words that stand under no negation.
        unwanted: stems of those that do.
    """

    wanted: frozenset[str]
    unwanted: frozenset[str]


def without_frame(text: str) -> str:
    """Return a criterion's words in small letters, without those by which any criterion speaks of a response."""
    kept = [word for word in _words(text) if word not in FRAME]
    return " ".join(kept) or text


def demand_of(text: str) -> Demand:
    """Return which words a criterion demands and which it forbids; a negation holds to the end of the text."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    wanted = set()
    unwanted = set()
    is_negated = False
    for word in _words(text.casefold().replace("non-", "not ")):
        if word in NEGATING:
            is_negated = True
        elif word in FRAME or word in ENGLISH_STOP_WORDS:
            continue
        elif is_negated:
            unwanted.add(stem(word))
        else:
            wanted.add(stem(word))
    return Demand(frozenset(wanted), frozenset(unwanted))


def opposed(texts: Sequence[str], opposites: Opposites) -> Bools:
    """Return which criteria demand the opposite of each other, as far as their words tell [text, text].

    One forbids all that the other demands, or they demand words that are opposites, and neither has both.

    Args:
        texts: the criteria.
        opposites: stems on either side of an opposition.
    """
    demands = [demand_of(text) for text in texts]
    result = np.zeros((len(texts), len(texts)), dtype=bool)
    for one_side, other_side in opposites:
        has_one = np.array([bool(demand.wanted & one_side) for demand in demands], dtype=bool)
        has_other = np.array([bool(demand.wanted & other_side) for demand in demands], dtype=bool)
        result |= np.outer(has_one & ~has_other, has_other & ~has_one)
    for place, demand in enumerate(demands):
        if demand.unwanted:
            result[place] |= [demand.unwanted <= other.wanted for other in demands]
        turned = {original for word in demand.wanted for original in _turned(word)}
        if turned:
            result[place] |= [bool(turned & other.wanted) for other in demands]
    return result | result.T


def _turned(word: str) -> set[str]:
    """Return what a word says the opposite of by its beginning, as formal for informal."""
    return {word.removeprefix(prefix) for prefix in PREFIXES if word.startswith(prefix)}


@cache
def stem(word: str) -> str:
    """Return a word without its endings: polite for politeness, both as ``polit``."""
    while True:
        shorter = ENDINGS.sub("", word)
        if shorter == word or len(shorter) < STEM:
            return word
        word = shorter


def _words(text: str) -> list[str]:
    """Return the words of a text in small letters."""
    return re.findall(r"[^\W\d_]+(?:-[^\W\d_]+)*", text.casefold())
