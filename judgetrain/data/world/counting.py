"""Counting of raw texts: groups of phrases that stand for one thing, found without reading.

The world's sentences are templates, and a response shows a property in one sentence at most. So phrases that are common
and never stand in one response say the same thing in other words. An opponent of the world's first floors thought of
it: whoever counts thousands of responses needs no vocabulary.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from judgetrain.data.responses import sentences

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

WORDS = 3
"""Words of a phrase."""
EXPECTED = 6.0
"""Two phrases that should meet in so many responses by chance, and meet in none, say the same thing."""


def phrases(text: str) -> set[str]:
    """Return the phrases of a text: every :data:`WORDS` words that follow one another in a sentence."""
    result = set()
    for sentence in sentences(text):
        words = sentence.split()
        for start in range(len(words) - WORDS + 1):
            result.add(" ".join(words[start : start + WORDS]))
    return result


def exclusive_groups(texts: Sequence[str]) -> list[frozenset[str]]:
    """Return groups of common phrases that never stand in one text (:func:`never_meeting`)."""
    by_text = [phrases(text) for text in texts]
    counts = Counter(phrase for of_text in by_text for phrase in of_text)
    # A phrase so rare that it should meet no other often enough can be joined with none.
    common = [phrase for phrase, count in counts.items() if count >= (EXPECTED * len(texts)) ** 0.5]
    places = {phrase: place for place, phrase in enumerate(common)}
    present = np.zeros((len(texts), len(common)))
    for row, of_text in enumerate(by_text):
        columns = [places[phrase] for phrase in of_text if phrase in places]
        present[row, columns] = 1.0

    return [frozenset(common[place] for place in group) for group in never_meeting(present)]


def never_meeting(present: "Floats") -> list[list[int]]:
    """Return groups of columns that never meet in one text, each as the places of its columns.

    Two columns are of one group where they meet in no text although :data:`EXPECTED` meetings were to be expected, or
    where a chain of such pairs joins them.

    Args:
        present: 1 where a text has what the column stands for, else 0 [text, column].
    """
    # How often two columns meet in a text, beside how often they would by chance.
    together = present.T @ present
    totals = present.sum(axis=0)
    expected = np.outer(totals, totals) / max(len(present), 1)
    return _components((together == 0) & (expected >= EXPECTED))


def _components(joined: "NDArray[np.bool_]") -> list[list[int]]:
    """Return the connected components of a symmetric matrix of what is joined [place, place]."""
    from scipy.sparse.csgraph import connected_components

    count, numbers = connected_components(joined, directed=False)
    groups: list[list[int]] = [[] for _ in range(count)]
    for place, number in enumerate(numbers):
        groups[number].append(place)
    return groups


def shown(groups: Sequence[frozenset[str]], texts: Sequence[str]) -> "Floats":
    """Return which groups of phrases each text has a phrase of: 1 or 0 [text, group]."""
    result = np.zeros((len(texts), len(groups)))
    for row, text in enumerate(texts):
        of_text = phrases(text)
        for column, group in enumerate(groups):
            result[row, column] = float(not of_text.isdisjoint(group))
    return result
