"""What criteria are worth for queries of a kind, learned from all trees together.

A tree has a handful of judgments on a criterion, and one that does not matter gives the label by chance half of the
time. What trees have in common is which criteria give the label for which queries: a ridge regression foresees how far
a criterion's judgments stand on the label's side, from products of the query's kind and the criterion's words (latent
semantic analysis). Kinds are clusters of what queries say and of the criteria that a judge proposes for them, at three
grains. It is fitted without the query that it speaks about, so that no tree's own judgments say what its criteria are
worth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from judgetrain.judges.base import verdict_of
from judgetrain.judges.kinds.aggregation import margin_of
from judgetrain.judges.trees.schema import DISCOUNT, CriterionNode, EvaluationTree
from judgetrain.label.labels import Label
from judgetrain.rubrics import HIGHEST, LOWEST
from judgetrain.schema import Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Texts = Sequence[str]

FEWEST = 50
"""Trees below which nothing is learned."""
FOLDS = 10
RIDGES = (1.0, 3.0, 10.0, 30.0, 100.0)
"""Among which the error about queries that were left out chooses."""
QUERY_SIZE, CRITERION_SIZE = 24, 16
"""Dimensions of the words of a query, or of a list of criteria, and of a criterion."""
KINDS = 8, 16, 32
"""How many kinds of query there are, at three grains; of those with at least 5 trees a kind."""
LEAST = 0.01
"""The share that must be foreseen: of noise it is near 0, on either side."""
GAIN = 1.1
"""How much more must be foreseen from the labels that weighed criteria give, for these to be taken."""
TIE = 1 / 16
"""A weighed mean of margins up to this share of the scale is a tie: a quarter of a level."""
ALIKE = 0.5, 0.8
"""Cosines of two criteria's words: up to the first they say two things, from the second on one."""
SPREAD = 1 / 6
"""The least that margins of a criterion are taken to spread, as a share of the scale."""
CHUNK = 4096
"""Criteria whose products stand in memory together."""


@dataclass(frozen=True)
class Worth:
    """What criteria are worth, by their ids; 1 gives the label by the whole scale, 0 says nothing about it.

    What another criterion of the list says already does not count twice.
    ``sides``: by comparison, how far the criteria speak for A and for B, each weighed by its worth (0 to 1).
    ``explained``: the share of the judgments' agreement with the labels that was foreseen (R²).
    """

    criteria: Mapping[str, float]
    sides: Mapping[str, tuple[float, float]]
    explained: float

    def ranked(self, tree: EvaluationTree) -> list[CriterionNode]:
        """The tree's criteria, what is worth most first."""
        return sorted(tree.criteria, key=lambda criterion: -self.criteria[criterion.id])

    def of_list(self, criteria: Sequence[CriterionNode]) -> float:
        """What a list is worth: a criterion counts a third of the one before, as in a verdict."""
        return float(sum(self.criteria[c.id] * DISCOUNT**place for place, c in enumerate(criteria)))

    def label(self, tree: EvaluationTree, ensemble: Label) -> Label:
        """The side for which the weighed criteria speak, in place of the vote in which all branches count alike."""
        for_a, for_b = self.sides[tree.comparison.id]
        if ensemble.verdict is None or not for_a + for_b:
            return ensemble
        verdict = verdict_of(for_a - for_b, TIE)
        return replace(
            ensemble, verdict=verdict, share=0.5 if verdict == "tie" else max(for_a, for_b) / (for_a + for_b)
        )


def learn(
    trees: Iterable[EvaluationTree], label_of: Callable[[EvaluationTree], Verdict | None], relabel: bool
) -> Worth | None:
    """What the criteria of trees are worth; None of fewer than :data:`FEWEST`, or where nothing is foreseen.

    With ``relabel`` it is learned again from the labels that weighed criteria give, as long as more is foreseen.
    """
    names, queries, labels = [], [], []
    ids, texts, places, said = [], [], [], []
    for place, tree in enumerate(trees):
        names.append(tree.comparison.id)
        queries.append(tree.comparison.dialogue.query)
        labels.append({"A": 1.0, "B": -1.0}.get(label_of(tree) or "", 0.0))
        for criterion in tree.criteria:
            margins = [m for j in criterion.judgments if (m := margin_of(criterion, j)) is not None]
            ids.append(criterion.id)
            texts.append(criterion.text)
            places.append(place)
            said.append(fmean(margins) / (HIGHEST - LOWEST) if margins else np.nan)
    if len(names) < FEWEST or len({*texts}) <= CRITERION_SIZE:
        return None
    of, known, margin = np.array(places), ~np.isnan(said), np.nan_to_num(np.array(said))
    bounds = np.searchsorted(of, np.arange(len(names) + 1))
    lists = [" ".join(texts[start:end]) for start, end in pairwise(bounds)]
    products, sides = _Products(queries, lists, texts, of, known), np.array(labels)

    spread = np.sqrt(np.maximum(products.foresee(margin**2)[0], SPREAD**2))

    def weighed(worth: Floats) -> tuple[Floats, Floats]:
        weights = np.maximum(worth, 0.0) * known
        total = np.maximum(np.bincount(of, weights, len(names)), 1e-9)
        for_a, for_b = (np.bincount(of, weights * np.maximum(m, 0.0), len(names)) for m in (margin, -margin))
        return for_a / total, for_b / total

    def foreseen() -> tuple[Floats, float]:
        worth, explained = products.foresee(sides[of] * margin)
        for start, end in pairwise(bounds):
            order = start + np.argsort(-worth[start:end], kind="stable")
            words = products.criteria[order]
            before = np.tril(np.interp(words @ words.T, ALIKE, (0.0, 1.0)), -1).max(axis=1, initial=0.0)
            worth[order] -= np.maximum(worth[order], 0.0) * before
            # What responses seldom differ in agrees seldom with the label, and may decide where they do differ: of
            # the two that are worth most, that one stands first which agrees more often where it says anything.
            two = start + np.argsort(-worth[start:end], kind="stable")[:2]
            worth[two[np.argsort(-(worth[two] / spread[two]), kind="stable")]] = worth[two]
        return worth, explained

    worth, explained = foreseen()
    while relabel and explained >= LEAST:
        ahead = np.subtract(*weighed(worth))
        sides = np.where(np.abs(ahead) > TIE, np.sign(ahead), 0.0)
        again = foreseen()
        if again[1] < GAIN * explained:
            break
        worth, explained = again
    if explained < LEAST:
        return None
    for_a, for_b = weighed(worth)
    both = {name: (float(a), float(b)) for name, a, b in zip(names, for_a, for_b, strict=True)}
    return Worth(dict(zip(ids, worth.tolist(), strict=True)), both, explained)


def _words(texts: Texts, size: int) -> Floats:
    """Texts as directions in the latent space of their words and pairs of words."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
    from sklearn.preprocessing import normalize

    counts = HashingVectorizer(n_features=2**16, ngram_range=(1, 2), alternate_sign=False, norm=None).transform(texts)
    words = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    return np.asarray(normalize(TruncatedSVD(size, random_state=0).fit_transform(words)))


def _kinds(queries: Texts, lists: Texts) -> Floats:
    """Of what kind each query is, by its words and those of its criteria: 1 for all, and for its kind at each grain."""
    from sklearn.cluster import KMeans

    both = []
    for texts in (queries, lists):
        words = _words(texts, QUERY_SIZE)
        words -= words.mean(axis=0)
        both.append(words / np.maximum(np.linalg.norm(words, axis=1, keepdims=True), 1e-9))
    points, found = np.hstack(both), [np.ones((len(queries), 1))]
    for kinds in KINDS:
        if 5 * kinds <= len(queries):
            of = KMeans(kinds, n_init=4, random_state=0).fit_predict(points)
            found.append(np.eye(kinds)[of] / len(KINDS) ** 0.5)
    return np.asarray(np.hstack(found))


class _Products:
    """The products of queries' kinds and criteria's words, a row a criterion, and regressions on them."""

    def __init__(
        self, queries: Texts, lists: Texts, texts: Texts, of: NDArray[np.int64], known: NDArray[np.bool_]
    ) -> None:
        self.queries, self.criteria = _kinds(queries, lists), _words(texts, CRITERION_SIZE)
        self.of, self.known = of, known
        numbers = {query: number for number, query in enumerate(dict.fromkeys(queries))}
        self.fold = np.array([numbers[query] % FOLDS for query in queries])[of]
        self.gram = self._summed(lambda x, rows: x.T @ x)

    def _chunks(self) -> Iterator[tuple[slice, Floats]]:
        for start in range(0, len(self.of), CHUNK):
            rows = slice(start, start + CHUNK)
            both = self.criteria[rows][:, :, None] * self.queries[self.of[rows]][:, None, :]
            yield rows, both.reshape(len(both), -1)

    def _summed(self, term: Callable[[Floats, NDArray[np.int64]], Floats]) -> Floats:
        found: list[Floats] = [np.zeros(1)] * FOLDS
        for rows, x in self._chunks():
            for fold in range(FOLDS):
                inside = np.flatnonzero((self.fold[rows] == fold) & self.known[rows])
                found[fold] = found[fold] + term(x[inside], inside + rows.start)
        return np.stack(found)

    def foresee(self, target: Floats) -> tuple[Floats, float]:
        """Each row's target as the other folds foresee it, and R² over the known ones, at the best ridge."""
        moments, unit = self._summed(lambda x, rows: x.T @ target[rows]), np.eye(self.gram.shape[-1])
        others = [(self.gram.sum(0) - self.gram[f], moments.sum(0) - moments[f]) for f in range(FOLDS)]
        best: tuple[float, Floats] = (np.inf, target)
        for ridge in RIDGES:
            weights = np.stack([np.linalg.solve(gram + ridge * unit, moment) for gram, moment in others])
            found = np.concatenate([np.einsum("nd,nd->n", x, weights[self.fold[rows]]) for rows, x in self._chunks()])
            best = min(best, (float(np.mean((found - target)[self.known] ** 2)), found), key=lambda each: each[0])
        return best[1], 1 - best[0] / max(float(np.mean(target[self.known] ** 2)), 1e-12)
