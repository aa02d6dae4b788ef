"""Kinds of query in words: typical queries, a name, a guideline for each criterion, and the rubric of all of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from judgetrain.data.rubric_kinds import RubricByKind, RubricKind
from judgetrain.extras.rubric.evidence import REPEATED, Evidence
from judgetrain.extras.rubric.kinds import Kinds
from judgetrain.extras.rubric.measure import KindFigures
from judgetrain.rubrics import Criterion, Rubric

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

WORDS = 3
"""Words in the name of a kind."""
SHRUNK = 5.0
"""Judgments that do not agree, which a guideline's count with, so that a rare one is not the best by chance."""


def typical_queries(evidence: Evidence, kinds: Kinds, number: int) -> list[list[str]]:
    """Return typical queries of each kind, all different: of each small kind in it the ones nearest its middle."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    queries = evidence.judgments.queries
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+|[^\w\s]").fit_transform(queries)
    small_kinds = kinds.grains[-1]
    typical = []
    for kind in range(kinds.number):
        inside = np.flatnonzero(kinds.of_tree == kind)
        # The largest small kind first. They take turns, so that each way to ask is there.
        sizes = Counter(small_kinds[inside].tolist())
        nearest = []
        for small, _ in sizes.most_common():
            rows = inside[small_kinds[inside] == small]
            middle = np.asarray(words[rows].mean(axis=0)).ravel()
            order = np.argsort(-(words[rows] @ middle), kind="stable")
            nearest.append([queries[row] for row in rows[order]])
        turns = [query for turn in zip_longest(*nearest) for query in turn if query is not None and query.strip()]
        typical.append(list(dict.fromkeys(turns))[:number])
    return typical


def kind_names(evidence: Evidence, kinds: Kinds) -> list[str]:
    """Return a name for each kind, all different: the words that more of its queries have than of the others."""
    from sklearn.feature_extraction.text import CountVectorizer

    if kinds.number == 1:
        return ["all"]
    # Two letters are seldom a word that says something; English words of every sentence never are.
    vectorizer = CountVectorizer(binary=True, token_pattern=r"[^\W\d_]{3,}", stop_words="english")
    try:
        has_word = vectorizer.fit_transform(evidence.judgments.queries).astype(float)
    except ValueError:
        # No query has such a word.
        return [f"kind {kind + 1}" for kind in range(kinds.number)]
    vocabulary = vectorizer.get_feature_names_out()
    overall = np.asarray(has_word.mean(axis=0)).ravel()
    names: list[str] = []
    for kind in range(kinds.number):
        share = np.asarray(has_word[np.flatnonzero(kinds.of_tree == kind)].mean(axis=0)).ravel()
        best = np.argsort(overall - share, kind="stable")[:WORDS]
        name = ", ".join(str(vocabulary[place]) for place in best)
        if name in names:
            name = f"{name} ({kind + 1})"
        names.append(name)
    return names


def guideline_for(evidence: Evidence, type_: int) -> str | None:
    """Return the guideline of a criterion by which repeated judgments agree most, or None without any.

    Where none stands often enough to know, it is the one that shares most words with the others.
    """
    products: dict[str, list[float]] = defaultdict(list)
    squares: dict[str, list[float]] = defaultdict(list)
    texts = []
    for row in np.flatnonzero(evidence.types == type_):
        for text, first, second in evidence.guidelines[row]:
            texts.append(text)
            if not np.isnan(first):
                products[text].append(first * second)
                squares[text].append((first**2 + second**2) / 2)
    if not texts:
        return None
    known = [text for text, values in products.items() if len(values) >= REPEATED]
    if not known:
        return _middle(list(dict.fromkeys(texts)))
    usual = float(np.mean([value for values in squares.values() for value in values]))

    def agreement(text: str) -> float:
        return sum(products[text]) / max(sum(squares[text]) + SHRUNK * usual, 1e-9)

    return max(known, key=agreement)


def _middle(texts: Sequence[str]) -> str:
    """Return the text that shares most words with the others."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(token_pattern=r"\w+|[^\w\s]").fit_transform(texts)
    likeness = np.asarray((words @ words.T).sum(axis=1)).ravel()
    return texts[int(np.argmax(likeness))]


def rubric_for(evidence: Evidence, figures: KindFigures) -> Rubric:
    """Return the rubric of figures."""
    criteria = []
    for one in figures.criteria:
        name = one.name if one.name != one.text else ""
        guideline = guideline_for(evidence, one.type)
        # Three digits: more would look like knowledge.
        weight = max(round(one.weight, 3), 0.001)
        criteria.append(Criterion(text=one.text, name=name, weight=weight, guideline=guideline))
    return Rubric(tuple(criteria))


def rubric_by_kind(
    overall: Rubric, names: Sequence[str], queries: Sequence[Sequence[str]], rubrics: Sequence[Rubric]
) -> Rubric:
    """Return the rubric of all kinds; of one kind alone it is that for every query."""
    if len(rubrics) == 1:
        return overall
    by_kind = []
    for name, typical, rubric in zip(names, queries, rubrics, strict=True):
        by_kind.append(RubricKind(name, tuple(typical), rubric))
    return RubricByKind(overall.criteria, tuple(by_kind))


def rightly_chosen(rubric: Rubric, evidence: Evidence, kinds: Kinds, names: Sequence[str]) -> tuple[int, int]:
    """Return for how many queries that are not typical ones their kind is chosen, and how many they are."""
    if not isinstance(rubric, RubricByKind):
        return 0, 0
    typical = {query for kind in rubric.kinds for query in kind.queries}
    right = 0
    asked = 0
    for query, kind in dict(zip(evidence.judgments.queries, kinds.of_tree.tolist(), strict=True)).items():
        if query not in typical:
            chosen = rubric.kind_of(query)
            asked += 1
            right += chosen is not None and chosen.name == names[kind]
    return right, asked
