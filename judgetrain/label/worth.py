"""The worth of criteria for queries of a kind, learned from all trees together.

One tree has a handful of judgments on a criterion, and a criterion that does not matter gives the label by chance half
of the time. Over many trees, criteria that matter go together: a response that is better by one of them tends to be
better by the others, because its writer took care. So worth is learned from agreement.

- *Criteria* that have the same name, or nearly, are one type. *Queries* are put into kinds at three grains by their
  words and by those of the criteria that a judge proposes for them.
- A tree with a known label takes that as the better side. A tree without one takes, for each type, the side for which
  its *other* criteria speak, weighed by what they are worth. A criterion never vouches for itself.
- A type's worth for a kind is how far its judgments stand on that side, on average. What few trees of a kind say is
  drawn towards what the coarser kind says.

The last two steps are repeated until they agree. Without labels the result is the leading eigenvector of the types'
covariances without their diagonal: a model with one factor, the writer's care. Each tree's worth is learned from the
trees of other queries alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from judgetrain.judges.kinds.aggregation import margin_of, margins_of
from judgetrain.judges.predictions import verdict_of
from judgetrain.judges.trees.schema import DISCOUNT, CriterionNode, EvaluationTree
from judgetrain.label.labels import Label
from judgetrain.rubrics import HIGHEST, LOWEST
from judgetrain.schema import Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Texts = Sequence[str]

FEWEST = 50
"""Trees below which nothing is learned."""
FOLDS = 10
"""Parts that the queries are put into; each part's worth is learned from the other parts."""
QUERY_SIZE = 24
"""Dimensions of the words of a query, and of those of a list of criteria."""
CRITERION_SIZE = 16
"""Dimensions of the words of a criterion."""
MOST_TYPES = 48
"""Types of criteria at most."""
SAME_TYPE = 0.8
"""Cosine of two criteria's words from which on they are one type."""
KINDS = (8, 16, 32)
"""Numbers of kinds of query, at three grains; a grain is left out where it has fewer than 5 trees a kind."""
TOWARDS_COARSER = 30.0
"""Trees as many of which the coarser kind counts, beside a kind's own trees."""
LABELLED = 2.0
"""Trees without a label as many of which one with a label counts."""
CHANCE = 1.0
"""Standard errors of a mean product that are taken for chance, and taken off."""
ROUNDS = 20
"""Times that sides and worth are computed in turn."""
LEAST = 0.01
"""The share of the judgments that must be foreseen: of noise it is near 0, on either side."""
TIE = 1 / 16
"""A weighed mean of margins up to this share of the scale is a tie: a quarter of a level."""
SPREAD = 1 / 6
"""The least that margins of a type are taken to spread, as a share of the scale."""


@dataclass(frozen=True)
class Worth:
    """The worth of criteria, by their ids: the more, the better they go with the better side.

    Args:
        criteria: worth by a criterion's id. A second criterion of a type in one list is worth nothing more.
        sides: by a comparison's id, how far its criteria speak for A and for B (0 to 1). As in a verdict, each counts a
            third of the one that is worth more.
        explained: share of the judgments' variance that is foreseen from the trees of other queries (R²).
        labelled: how many trees with a label it was learned from.
    """

    criteria: Mapping[str, float]
    sides: Mapping[str, tuple[float, float]]
    explained: float
    labelled: int = 0

    def ranked(self, tree: EvaluationTree) -> list[CriterionNode]:
        """Return the tree's criteria, what is worth most first."""
        return sorted(tree.criteria, key=lambda criterion: -self.criteria[criterion.id])

    def of_list(self, criteria: Sequence[CriterionNode]) -> float:
        """Return what a list is worth: a criterion counts a third of the one before, as in a verdict."""
        total = 0.0
        for place, criterion in enumerate(criteria):
            total += self.criteria[criterion.id] * DISCOUNT**place
        return total

    def label(self, tree: EvaluationTree, ensemble: Label) -> Label:
        """Return the side for which the weighed criteria speak, in place of a vote in which all count alike."""
        for_a, for_b = self.sides[tree.comparison.id]
        return _label_of(for_a, for_b, ensemble)

    @property
    def by_labels(self) -> bool:
        """Return whether labels enough are behind it to go before the weights that people gave their criteria."""
        return self.labelled >= FEWEST


def label_by_weights(tree: EvaluationTree, ensemble: Label) -> Label:
    """Return the side for which the criteria of a rubric speak by their weights, as in a verdict by it."""
    margins = margins_of(tree.criteria).values()
    for_a = math.fsum(max(margin, 0.0) for margin in margins)
    for_b = math.fsum(max(-margin, 0.0) for margin in margins)
    return _label_of(for_a, for_b, ensemble)


def _label_of(for_a: float, for_b: float, ensemble: Label) -> Label:
    """Return the label for which criteria speak so far for A and for B; that of the vote where they say nothing."""
    total = for_a + for_b
    if ensemble.verdict is None or not total:
        return ensemble
    verdict = verdict_of(for_a - for_b, TIE)
    share = 0.5
    if verdict != "tie":
        share = max(for_a, for_b) / total
    return replace(ensemble, verdict=verdict, share=share)


@dataclass(frozen=True)
class Judgments:
    """The judgments of all trees, a row a criterion.

    Args:
        trees: ids of the comparisons.
        queries: what each comparison asks.
        labels: 1 for A, -1 for B, 0 for a tie, nan where no label is known.
        ids: of the criteria.
        texts: of the criteria.
        tree: of which tree each criterion is.
        margin: how far A is ahead by it, as a share of the scale; nan where no judgment could be read.
    """

    trees: list[str]
    queries: list[str]
    labels: Floats
    ids: list[str]
    texts: list[str]
    tree: Integers
    margin: Floats


def learn(
    trees: Iterable[EvaluationTree], label_of: Callable[[EvaluationTree], Verdict | None] = lambda tree: None
) -> Worth | None:
    """Return what the criteria of trees are worth; None of fewer than :data:`FEWEST`, or where nothing is foreseen.

    Args:
        trees: with their judgments.
        label_of: the label of a tree that is known from elsewhere than its own judgments, or None.
    """
    judgments = collect(trees, label_of)
    if len(judgments.trees) < FEWEST:
        return None

    # From here on, a tree is a row, and a type of criteria is a column.
    types = types_of(judgments.texts)
    margins = margins_by_type(judgments, types)
    seen = ~np.isnan(margins)
    columns = np.nan_to_num(np.column_stack([margins, judgments.labels]))
    seen_columns = np.column_stack([seen, ~np.isnan(judgments.labels)])
    kinds = kinds_of(judgments.queries, lists_of(judgments))
    folds = folds_of(judgments.queries)
    worth = np.zeros(margins.shape)
    # Each tree's worth comes from other queries: its own judgments would vouch for themselves.
    for fold in range(FOLDS):
        held_out = folds == fold
        if held_out.any():
            of_kinds = worth_by_kind(columns, seen_columns, kinds, ~held_out)
            worth[held_out] = of_kinds[kinds[-1][held_out]]

    # Worth that foresees nothing of other queries is noise, by which labels would be worse than by a vote.
    explained = _explained(columns[:, :-1], seen, judgments.labels, worth)
    if explained < LEAST:
        return None
    return _as_worth(judgments, types, worth, explained)


def collect(trees: Iterable[EvaluationTree], label_of: Callable[[EvaluationTree], Verdict | None]) -> Judgments:
    """Return the judgments of trees as arrays; trees are read one by one and not kept."""
    signs = {"A": 1.0, "B": -1.0, "tie": 0.0}
    names: list[str] = []
    queries: list[str] = []
    labels: list[float] = []
    ids: list[str] = []
    texts: list[str] = []
    places: list[int] = []
    margins: list[float] = []
    for place, tree in enumerate(trees):
        label = label_of(tree)
        names.append(tree.comparison.id)
        queries.append(tree.comparison.dialogue.query)
        sign = np.nan
        if label is not None:
            sign = signs[label]
        labels.append(sign)
        for criterion in tree.criteria:
            readable = []
            for judgment in criterion.judgments:
                margin = margin_of(criterion, judgment)
                if margin is not None:
                    readable.append(margin)
            mean_margin = np.nan
            if readable:
                mean_margin = fmean(readable) / (HIGHEST - LOWEST)
            ids.append(criterion.id)
            texts.append(criterion.text)
            places.append(place)
            margins.append(mean_margin)
    return Judgments(names, queries, np.array(labels), ids, texts, np.array(places), np.array(margins))


def types_of(texts: Texts) -> Integers:
    """Return the type of each criterion: those whose names have nearly the same words are one type.

    A criterion's name is what stands before its colon, where there is one.
    """
    from sklearn.cluster import AgglomerativeClustering, KMeans

    # As in "Accuracy: is it right".
    names = [text.partition(":")[0].strip().casefold() or text for text in texts]
    different = list(dict.fromkeys(names))
    if len(different) <= CRITERION_SIZE:
        # Fewer names than dimensions: there is nothing to find a latent space in.
        types = np.arange(len(different))
    elif len(different) <= MOST_TYPES:
        # The distance of unit vectors with this cosine. A name without a known word is a zero vector, which has no
        # cosine, so that the clustering goes by distance.
        distance = (2 * (1 - SAME_TYPE)) ** 0.5
        clustering = AgglomerativeClustering(None, linkage="average", distance_threshold=distance)
        types = clustering.fit_predict(_words(different, CRITERION_SIZE))
    else:
        # Of very many names, those that are alike would still be many types: their number is set instead.
        types = KMeans(MOST_TYPES, n_init=4, random_state=0).fit_predict(_words(different, CRITERION_SIZE))
    type_of = dict(zip(different, types, strict=True))
    return np.array([type_of[name] for name in names])


def margins_by_type(judgments: Judgments, types: Integers) -> Floats:
    """Return the mean margin of each tree by each type [tree, type]; nan where it has none that could be read."""
    shape = (len(judgments.trees), int(types.max()) + 1)
    total = np.zeros(shape)
    count = np.zeros(shape)
    readable = ~np.isnan(judgments.margin)
    cells = (judgments.tree[readable], types[readable])

    # ``total[cells] += ...`` would count a cell once, however many criteria are in it.
    np.add.at(total, cells, judgments.margin[readable])
    np.add.at(count, cells, 1.0)
    return np.where(count > 0, total / np.maximum(count, 1.0), np.nan)


def lists_of(judgments: Judgments) -> list[str]:
    """Return the words of each tree's criteria."""
    lists: list[list[str]] = [[] for _ in judgments.trees]
    for text, tree in zip(judgments.texts, judgments.tree, strict=True):
        lists[tree].append(text)
    # Sorted, since words are counted in pairs and triples, too: two orders of one list are one text.
    return [" ".join(sorted(criteria)) for criteria in lists]


def folds_of(queries: Texts) -> Integers:
    """Return the part that each query is in; equal queries are in one."""
    # A query that is in two parts would be learned from where it is held out.
    numbers = {query: number for number, query in enumerate(dict.fromkeys(queries))}
    return np.array([numbers[query] % FOLDS for query in queries])


def worth_by_kind(
    columns: Floats, seen: NDArray[np.bool_], kinds: Sequence[Integers], rest: NDArray[np.bool_]
) -> Floats:
    """Return what each type is worth for each of the finest kinds [kind, type]; below 0 it goes against the side.

    Args:
        columns: a tree's margins by type and last its label, so that products with the label are computed as those of
            margins are; 0 where there is none [tree, type + 1].
        seen: where there is one.
        kinds: the kind of each tree at each grain, the coarsest first.
        rest: the trees that it is learned from [tree].
    """
    # A type whose margins are large on the whole is not worth more for it.
    spread = np.sqrt(np.sum(columns[rest] ** 2, axis=0) / np.maximum(seen[rest].sum(axis=0), 1.0))

    # Types that hardly ever differ would be blown up to the size of the others.
    spread[:-1] = np.maximum(spread[:-1], SPREAD)
    # Labels are 1, 0 and -1 already.
    spread[-1] = 1.0

    # A tree with a label counts as several without: its side is known, not inferred from other criteria.
    products = _mean_products(columns / spread, seen, kinds, rest)
    labelled = LABELLED * seen[rest, -1].sum()
    unlabelled = (~seen[rest, -1]).sum()
    share = labelled / max(labelled + unlabelled, 1.0)

    # The last column is the label's: its products with a type's margins say how far the type goes with labels.
    worth = []
    for of_kind in products:
        agreement = of_kind[:-1, :-1]
        by_labels = of_kind[:-1, -1]
        worth.append(_settle(agreement, by_labels, share))
    return np.stack(worth)


def _mean_products(
    columns: Floats, seen: NDArray[np.bool_], kinds: Sequence[Integers], rest: NDArray[np.bool_]
) -> Floats:
    """Return the mean products of any two columns, by the finest kind [kind, column, column].

    Each kind's are drawn towards those of the coarser kinds that its trees are in.
    """
    # Before any kind nothing is expected: products are drawn towards 0.
    coarser = np.zeros((1, columns.shape[1], columns.shape[1]))
    coarser_kind = np.zeros(len(columns), dtype=np.int64)
    for kind in kinds:
        finer = np.zeros((int(kind.max()) + 1, *coarser.shape[1:]))
        chance = np.zeros(finer.shape)
        for number in range(len(finer)):
            inside = np.flatnonzero((kind == number) & rest)
            # A kind's trees may lie in several coarser kinds, each of which counts by how many lie in it.
            of_coarser = coarser_kind[kind == number]
            expected = np.zeros(coarser.shape[1:])
            # A resample of trees may have none of a kind, of which nothing is then known.
            if len(of_coarser):
                expected = coarser[of_coarser].mean(axis=0)
            total = columns[inside].T @ columns[inside]
            count = seen[inside].T.astype(float) @ seen[inside]
            # As if so many more trees had said what the coarser kind says.
            mean = (total + TOWARDS_COARSER * expected) / (count + TOWARDS_COARSER)
            finer[number] = mean
            chance[number] = CHANCE / np.sqrt(count + TOWARDS_COARSER)
        coarser = finer
        coarser_kind = kind
    # Soft thresholding: what chance alone may make counts as nothing, on either side.
    return np.sign(coarser) * np.maximum(np.abs(coarser) - chance, 0.0)


def _settle(agreement: Floats, by_labels: Floats, share: float) -> Floats:
    """Return what each type is worth: how far it goes with the labels and with the other types, weighed by worth.

    Args:
        agreement: mean products of two types' margins [type, type].
        by_labels: mean products of a type's margins with labels [type].
        share: how much the labels count, 0 to 1.
    """
    between = agreement.copy()
    # A criterion never vouches for itself.
    np.fill_diagonal(between, 0.0)
    # Power iteration, which begins with all types worth the same.
    worth = np.full(len(between), len(between) ** -0.5)
    for _ in range(ROUNDS):
        # What goes against the side is worth less than nothing, and is no witness for others.
        worth = share * by_labels + (1 - share) * (between @ np.maximum(worth, 0.0))
        length = np.linalg.norm(np.maximum(worth, 0.0))
        if length == 0:
            return worth
        worth = worth / length
    return worth


def _explained(margins: Floats, seen: NDArray[np.bool_], labels: Floats, worth: Floats) -> float:
    """Return the share of the margins' variance that is foreseen (R²): worth times the side, scaled to fit best.

    The side is a tree's label or, where it has none, what its other margins say, weighed by worth.
    """
    # Types that go against the side speak for nothing here, as in a verdict.
    weights = np.maximum(worth, 0.0)
    total = (weights * margins).sum(axis=1, keepdims=True)
    # Without the type itself, which would foresee its own judgments.
    others = total - weights * margins
    labelled = ~np.isnan(labels)
    unexplained = 0.0
    for group, side in ((labelled, np.nan_to_num(labels)[:, None]), (~labelled, others)):
        inside = seen & group[:, None]
        judged = margins[inside]
        expected = (weights * side)[inside]

        # A scale below 0 would count it as foreseen that judgments stand on the other side.
        scale = max(float(judged @ expected), 0.0) / max(float(expected @ expected), 1e-12)
        unexplained += float(np.sum((judged - scale * expected) ** 2))
    return 1 - unexplained / max(float(np.sum(margins[seen] ** 2)), 1e-12)


def _as_worth(judgments: Judgments, types: Integers, by_type: Floats, explained: float) -> Worth:
    """Return the worth of each criterion of each tree, and for which side the criteria of each tree speak."""
    criteria: dict[str, float] = {}
    sides: dict[str, tuple[float, float]] = {}

    # Criteria were collected tree by tree, so that those of a tree stand together.
    bounds = np.searchsorted(judgments.tree, np.arange(len(judgments.trees) + 1))
    for place, name in enumerate(judgments.trees):
        rows = np.arange(bounds[place], bounds[place + 1])
        worth = by_type[place, types[rows]]
        first_of_type = np.zeros(len(rows), dtype=bool)
        _, first_places = np.unique(types[rows], return_index=True)
        first_of_type[first_places] = True

        # A further criterion of a type adds nothing to the first; one that speaks against the side still does.
        worth = np.where(first_of_type, worth, np.minimum(worth, 0.0))
        criteria.update(zip((judgments.ids[row] for row in rows), worth.tolist(), strict=True))
        sides[name] = _sides(judgments.margin[rows], worth)
    labelled = int((~np.isnan(judgments.labels)).sum())
    return Worth(criteria, sides, explained, labelled)


def _sides(margin: Floats, worth: Floats) -> tuple[float, float]:
    """Return how far criteria speak for A and for B: each that is worth something counts a third of the one before."""
    # As a verdict is made: the criteria that are worth something, in the order of their worth.
    useful = np.flatnonzero((worth > 0) & ~np.isnan(margin))
    order = useful[np.argsort(-worth[useful], kind="stable")]
    weights = DISCOUNT ** np.arange(len(order))
    total = max(float(weights.sum()), 1e-9)
    for_a = float(weights @ np.maximum(margin[order], 0.0)) / total
    for_b = float(weights @ np.maximum(-margin[order], 0.0)) / total
    return for_a, for_b


def _words(texts: Texts, size: int) -> Floats:
    """Return texts as directions in the latent space of their words, pairs and triples of words [text, size]."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
    from sklearn.preprocessing import normalize

    # Hashed into 65,536 places, so that no vocabulary of words, pairs and triples is held.
    counts = HashingVectorizer(n_features=2**16, ngram_range=(1, 3), alternate_sign=False, norm=None).transform(texts)
    words = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    return np.asarray(normalize(TruncatedSVD(size, random_state=0).fit_transform(words)))


def kinds_of(queries: Texts, lists: Texts) -> list[Integers]:
    """Return the kind of each query at each grain, by its words and, where they differ, those of its criteria."""
    from sklearn.cluster import KMeans

    blocks = []
    for texts in (queries, lists):
        # Lists are the same everywhere where criteria are given, and say nothing of a query's kind.
        if len(set(texts)) <= QUERY_SIZE:
            continue
        words = _words(texts, QUERY_SIZE)
        # What all queries have in common tells none apart.
        words = words - words.mean(axis=0)
        blocks.append(words / np.maximum(np.linalg.norm(words, axis=1, keepdims=True), 1e-9))
    kinds = [np.zeros(len(queries), dtype=np.int64)]
    if not blocks:
        return kinds
    points = np.hstack(blocks)
    for number in KINDS:
        # Kinds of fewer trees would be told apart by chance.
        if 5 * number <= len(queries):
            kinds.append(KMeans(number, n_init=10, random_state=0).fit_predict(points))
    return kinds
