"""Linking of raw texts: which new sentences say the same thing as which known ones, without a label or the vocabulary.

Held-out responses use sentences that no training response has, so that counting alone (:mod:`.counting`) says nothing
about them. But what is said in one text once at most can be counted among them, too, and what two sets of texts say is
then the same things in other words. An opponent of the world's floors thought of linking them by how alike their
sentences look, each thing to one other thing: seven of the ten links are right by letters alone, and all ten by a
small pretrained encoder of sentences.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from judgetrain.data.responses import sentences
from judgetrain.data.world.counting import never_meeting

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

BLANK = "_"
"""Stands in a pattern for the words that change."""
LONGEST_BLANK = 3
"""The most words that a blank stands for."""
LEAST_KEPT = 2
"""The fewest words of a pattern beside its blank."""
LEAST_FILLINGS = 6
"""Words that change are those that take so many forms between the same other words."""
FILLING = "it"
"""Stands in the place of a blank where sentences are compared."""
WEAK = 1 / 3
"""A pattern that stands in fewer texts than this share of its group's commonest one shows the group's thing weakly."""
LETTERS = (3, 5)
"""The fewest and the most letters of the parts of words by which sentences look alike."""
CERTAINTY = 2.0
"""How far likeness decides about links: the logarithm of a link's weight for each standard deviation of likeness."""
ROUNDS = 200
"""Rounds in which the weights of links come to sum to 1 on both sides."""

Likeness = Callable[[Sequence[str], Sequence[str]], "Floats"]
"""Returns how alike the sentences of two lists are [sentence of the first, sentence of the second]."""


@dataclass(frozen=True)
class Things:
    """What texts say, as groups of patterns of which a text has one at most.

    Args:
        groups: the patterns of each group.
        grades: 2 where a text shows a group by a common pattern, 1 by a rare one, else 0 [text, group].
    """

    groups: list[list[str]]
    grades: "Floats"

    def most_shown(self, count: int) -> "Things":
        """Return the ``count`` groups that the most texts show, the commonest first."""
        order = np.argsort(-(self.grades > 0).sum(axis=0), kind="stable")[:count]
        return Things([self.groups[place] for place in order], self.grades[:, order])


def patterns(texts: Sequence[str]) -> dict[str, str]:
    """Return the pattern of each sentence of some texts: the sentence, with a blank for the words that change."""
    distinct = sorted({sentence for text in texts for sentence in sentences(text)})
    fillings: dict[tuple[str, str], set[str]] = defaultdict(set)
    for sentence in distinct:
        for kept, filling in _blanks(sentence):
            fillings[kept].add(filling)

    result = {}
    for sentence in distinct:
        result[sentence] = sentence
        # Of equally many fillings the shortest, which leaves the longest pattern.
        best = max(_blanks(sentence), key=lambda blank: (len(fillings[blank[0]]), -len(blank[1])), default=None)
        if best is not None and len(fillings[best[0]]) >= LEAST_FILLINGS:
            before, after = best[0]
            result[sentence] = f"{before} {BLANK} {after}".strip()
    return result


def _blanks(sentence: str) -> list[tuple[tuple[str, str], str]]:
    """Return every way to leave out words of a sentence: the words before and after them, and the words left out."""
    words = sentence.split()
    result = []
    for start in range(len(words)):
        for end in range(start + 1, min(start + LONGEST_BLANK, len(words)) + 1):
            kept = words[:start] + words[end:]
            # Marks are no words: between two of them anything may stand.
            if sum(word.isalpha() for word in kept) < LEAST_KEPT:
                continue
            result.append(((" ".join(words[:start]), " ".join(words[end:])), " ".join(words[start:end])))
    return result


def two_sets(first: Sequence[str], second: Sequence[str]) -> tuple[Things, Things]:
    """Return what two sets of texts say in sentences of which the other set has none, equally many groups of each.

    What both sets say in the same words, as small talk, needs no link, and tells nothing of one.
    """
    pattern_of = patterns([*first, *second])
    first_patterns = [_patterns_of(text, pattern_of) for text in first]
    second_patterns = [_patterns_of(text, pattern_of) for text in second]
    shared = set().union(*first_patterns) & set().union(*second_patterns)
    first_things = _things([of_text - shared for of_text in first_patterns])
    second_things = _things([of_text - shared for of_text in second_patterns])

    # Where texts are few, rare patterns are groups of their own. The commonest groups are the things.
    count = min(len(first_things.groups), len(second_things.groups))
    return first_things.most_shown(count), second_things.most_shown(count)


def _patterns_of(text: str, pattern_of: dict[str, str]) -> set[str]:
    """Return the patterns of a text's sentences."""
    return {pattern_of[sentence] for sentence in sentences(text)}


def _things(by_text: Sequence[set[str]]) -> Things:
    """Return what texts say, from the patterns of each."""
    names = sorted(set().union(*by_text))
    places = {name: place for place, name in enumerate(names)}
    present = np.zeros((len(by_text), len(names)))
    for row, of_text in enumerate(by_text):
        present[row, [places[name] for name in of_text]] = 1.0

    totals = present.sum(axis=0)
    groups = never_meeting(present)
    grades = np.zeros((len(by_text), len(groups)))
    for column, group in enumerate(groups):
        strengths = np.where(totals[group] < WEAK * totals[group].max(), 1.0, 2.0)
        grades[:, column] = (present[:, group] * strengths).max(axis=1)
    return Things([[names[place] for place in group] for group in groups], grades)


def links(first: Things, second: Things, likeness: Likeness) -> "Floats":
    """Return how likely each group of the first things is the same as each of the second [group, group].

    Every group of one side is one of the other side (Sinkhorn's weights: rows and columns sum to 1).

    Args:
        first: two groups or more.
        second: as many groups.
        likeness: how alike two sentences are.
    """
    first_sentences, first_shares = _sentences_of(first)
    second_sentences, second_shares = _sentences_of(second)
    # Of groups, the mean over all their sentences.
    alike = first_shares @ likeness(first_sentences, second_sentences) @ second_shares.T
    scaled = (alike - alike.mean()) / max(float(alike.std()), 1e-9)
    weights = np.exp(CERTAINTY * scaled)
    for _ in range(ROUNDS):
        weights = weights / weights.sum(axis=1, keepdims=True)
        weights = weights / weights.sum(axis=0, keepdims=True)
    return weights


def _sentences_of(things: Things) -> tuple[list[str], "Floats"]:
    """Return the sentences of all groups, and the share of each in its group [group, sentence]."""
    texts = [pattern.replace(BLANK, FILLING) for group in things.groups for pattern in group]
    shares = np.zeros((len(things.groups), len(texts)))
    start = 0
    for row, group in enumerate(things.groups):
        shares[row, start : start + len(group)] = 1.0 / len(group)
        start += len(group)
    return texts, shares


def likeness_of_letters(first: Sequence[str], second: Sequence[str]) -> "Floats":
    """Return how alike sentences look: the cosines of tf-idf over parts of words of :data:`LETTERS` letters."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=LETTERS).fit([*first, *second])
    # Vectors have length 1, so that products are cosines.
    products: Floats = (vectorizer.transform(first) @ vectorizer.transform(second).T).toarray()
    return products
