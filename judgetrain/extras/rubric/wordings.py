"""Wordings that say the same: by a sentence encoder, unless judgments or words speak against it.

A judge that names its own criteria says one thing in many ways, each too seldom for the agreement of judgments to be
known. What a cosine of an encoder says is learned from criteria whose sameness is known (``wordings.yaml``), so that it
holds for any encoder. Wordings are then clustered by average linkage, and each step of it is weighed: the odds by the
cosine, times those by all judgments of the two groups that it would join.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from judgetrain.extras.rubric.opposites import Opposites, opposed, stem, without_frame
from judgetrain.label.worth import Judgments, kinds_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]
    Integers = NDArray[np.int64]

Embed = Callable[[list[str]], "NDArray[Any]"]
"""Returns the unit-length embeddings of texts [text, dimension]."""
MOST_WORDINGS = 2000
"""Wordings that are compared, the commonest first."""
MOST_TYPES = 200
"""Types of criteria at most, the commonest first. Rarer ones are judged too seldom to be worth something."""
APART = 1e6
"""The distance of wordings that must not be one. No mean in which it stands is near any other distance."""
BETA = 0.5
"""Known wordings are put together with precision worth twice as much as recall: F0.5 is the best there."""
REPEATED = 0.25
"""How often one criterion stands twice in a list, in two wordings, as a share of how often two would by chance."""
ALIKE = 0.95
"""Agreement of judgments by two wordings of one criterion, as a share of that of repeated judgments."""
OTHERS = np.linspace(-0.9, 0.8, 18)
"""Agreements that two criteria may have which are not one, all held equally likely."""
UNSURE = 0.7
"""Agreement of repeated judgments where none was repeated."""
SPREAD = 0.3
"""Standard deviation, over criteria, of how far their judgments go with the better side."""
DRIFT = 0.1
"""The same over wordings of one criterion."""
MOST_FOR = 3.0
"""The most that judgments speak for one criterion, in logarithms of odds: without near embeddings nothing is joined."""
SURE = 2.5
"""Logarithm of odds, on either side, from which on the judgments of a single wording are believed."""
FEWEST = 3
"""Judgments that decide, of which an agreement is computed at least."""


@cache
def _data() -> Mapping[str, Any]:
    """Return the file of known wordings and opposites."""
    return dict(yaml.safe_load((Path(__file__).parent / "wordings.yaml").read_text(encoding="utf-8")))


def known_wordings() -> dict[str, list[str]]:
    """Return criteria in several wordings each, by a name of the criterion."""
    return dict(_data()["known"])


@cache
def _opposites() -> Opposites:
    """Return the stems of words that demand the opposite."""
    sides = []
    for first, second in _data()["opposites"]:
        sides.append((frozenset(map(stem, first)), frozenset(map(stem, second))))
    return tuple(sides)


@dataclass(frozen=True)
class Measure:
    """What cosines of an encoder say of wordings.

    Args:
        middle: what all criteria's embeddings have in common [dimension].
        cut: mean cosine of two groups from which on they are rather one criterion than two.
        slope: how fast the logarithm of the odds rises above it.
    """

    middle: Floats
    cut: float
    slope: float

    def cosines(self, vectors: Floats) -> Floats:
        """Return the cosines of embeddings without what all have in common [text, text]."""
        directions = vectors - self.middle
        directions = directions / np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-9)
        return np.asarray(directions @ directions.T)

    def log_odds(self, cosine: float) -> float:
        """Return the logarithm of the odds that two groups with this mean cosine are one criterion."""
        return self.slope * (cosine - self.cut)


def embedded(embed: Embed, texts: Sequence[str]) -> Floats:
    """Return the embeddings of criteria, without words that speak of any response [text, dimension]."""
    return np.asarray(embed([without_frame(text) for text in texts]), dtype=np.float64)


def measure_of(embed: Embed) -> Measure:
    """Return what cosines of an encoder say, learned from the known wordings."""
    from scipy.cluster.hierarchy import cut_tree
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import fbeta_score

    known = known_wordings()
    vectors = embedded(embed, [text for texts in known.values() for text in texts])
    criterion = np.repeat(np.arange(len(known)), [len(texts) for texts in known.values()])
    pairs = np.triu_indices(len(criterion), 1)
    is_same = criterion[pairs[0]] == criterion[pairs[1]]
    measure = Measure(vectors.mean(axis=0), 0.0, 0.0)
    cosines = measure.cosines(vectors)
    slope = LogisticRegression(C=np.inf).fit(cosines[pairs][:, None], is_same).coef_.item()
    steps = _steps(1 - cosines)
    heights = steps[:, 2]
    # A column for each number of groups, from all wordings apart to all in one.
    groups = cut_tree(steps)
    scores = []
    for column in groups.T:
        scores.append(fbeta_score(is_same, column[pairs[0]] == column[pairs[1]], beta=BETA, zero_division=0.0))
    best = int(np.argmax(scores))
    # Between the last step that is taken and the first that is not.
    cut = 1 - float(heights[max(best - 1, 0) : best + 1].mean())
    return Measure(measure.middle, cut, float(slope))


def _steps(distances: Floats) -> Floats:
    """Return the steps of average linkage, as scipy has them: two groups, their distance, their size."""
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import squareform

    # Rounding leaves tiny distances below 0, or of a text to itself.
    symmetric = np.maximum((distances + distances.T) / 2, 0.0)
    np.fill_diagonal(symmetric, 0.0)
    return np.asarray(linkage(squareform(symmetric, checks=False), "average"))


class Shared:
    """What the judgments of two wordings, or of two groups of them, say on whether they are one criterion.

    Three things are known. Who names two criteria in one list means two; wordings of one seldom stand side by side,
    though they might. Judgments by both agree as repeated ones do, or less. And they go equally far with the better
    side: with the label, else with the other criteria. What was not seen says nothing.

    Args:
        judgments: of criteria.
        wordings: the wording of each criterion [criterion].
        halves: margins of two halves of each criterion's judgments [criterion, 2].
    """

    def __init__(self, judgments: Judgments, wordings: Integers, halves: Floats) -> None:
        from scipy.sparse import coo_array

        # Sparse: a tree names a handful of thousands of wordings.
        shape = (len(judgments.trees), int(wordings.max()) + 1)
        is_named = coo_array((np.ones(len(wordings)), (judgments.tree, wordings)), shape=shape).tocsr()
        is_named.data[:] = 1.0
        readable = np.flatnonzero(~np.isnan(judgments.margin))
        cells = (judgments.tree[readable], wordings[readable])
        margins = coo_array((judgments.margin[readable], cells), shape=shape).tocsr()
        # Of a wording that stands twice in a list, the mean.
        margins.data /= coo_array((np.ones(len(readable)), cells), shape=shape).tocsr().data
        decides = (margins != 0).astype(np.float64)
        self._named = (is_named.T @ is_named).toarray()
        self._by_chance = _by_chance(is_named, judgments.queries)
        self._decide = (decides.T @ decides).toarray()
        self._products = (margins.T @ margins).toarray()
        # Of the row's wording, over trees in which the column's decides, too.
        self._squares = ((margins * margins).T @ decides).toarray()
        self._reliability = _reliability(halves)

        by_tree = margins.tocoo()
        sides = _sides(by_tree.row, by_tree.data, judgments.labels)
        sized = by_tree.data**2 * (sides != 0)
        self._with_side = np.bincount(by_tree.col, by_tree.data * sides, minlength=shape[1])
        self._lengths = np.bincount(by_tree.col, sized, minlength=shape[1])
        self._sided = np.bincount(by_tree.col, sized != 0, minlength=shape[1])

    def log_odds(self, first: Sequence[int], second: Sequence[int]) -> float:
        """Return how far judgments speak for one criterion, as a logarithm of odds: below 0 they speak against it."""
        block = np.ix_(first, second)
        named = float(self._named[block].sum())
        by_chance = float(self._by_chance[block].sum())
        # Two Poisson rates: that of one criterion, and that of chance.
        odds = named * np.log(REPEATED) + by_chance * (1 - REPEATED)
        odds += self._by_agreement(block)
        odds += self._by_side(first, second)
        return min(float(odds), MOST_FOR)

    def _by_agreement(self, block: tuple[Any, ...]) -> float:
        """Return the logarithm of the odds by the trees that both were judged in."""
        from scipy.special import logsumexp

        count = float(self._decide[block].sum())
        if count < FEWEST:
            return 0.0
        length = np.sqrt(self._squares[block].sum() * self._squares.T[block].sum())
        cosine = np.clip(self._products[block].sum() / max(length, 1e-12), -0.99, 0.99)
        # Fisher's transformation has this variance, whatever the agreement.
        deviation = 1 / np.sqrt(count - 1)
        same = _log_density(cosine, ALIKE * self._reliability, deviation)
        different = [_log_density(cosine, other * self._reliability, deviation) for other in OTHERS]
        return float(same - (logsumexp(different) - np.log(len(OTHERS))))

    def _by_side(self, first: Sequence[int], second: Sequence[int]) -> float:
        """Return the logarithm of the odds by how far either goes with the better side."""
        shares = []
        error = 0.0
        for group in (first, second):
            count = self._sided[group].sum()
            if count < FEWEST:
                return 0.0
            shares.append(self._with_side[group].sum() / np.sqrt(self._lengths[group].sum() * count))
            error += 1 / count
        difference = shares[0] - shares[1]
        same = error + 2 * DRIFT**2
        different = error + 2 * SPREAD**2
        return float(0.5 * (np.log(different / same) + difference**2 * (1 / different - 1 / same)))


def _log_density(cosine: float, expected: float, deviation: float) -> float:
    """Return the logarithm of how likely an agreement is where another is expected, up to what all have in common."""
    return float(-(((np.arctanh(cosine) - np.arctanh(expected)) / deviation) ** 2) / 2)


def _by_chance(is_named: Any, queries: Sequence[str]) -> Floats:
    """Return in how many trees two wordings would stand by chance, for queries of a kind [wording, wording].

    Args:
        is_named: 1 where a tree names a wording, a sparse array [tree, wording].
        queries: of the trees.
    """
    # What is named for other kinds of query never stands side by side, and is not one criterion for it.
    of_tree = kinds_of(queries, [""] * len(queries))[-1]
    expected = np.zeros((is_named.shape[1], is_named.shape[1]))
    for kind in np.unique(of_tree):
        inside = np.flatnonzero(of_tree == kind)
        times = np.asarray(is_named[inside].sum(axis=0)).ravel()
        expected += np.outer(times, times) / len(inside)
    # A list of one criterion has none beside it.
    length = max(float(is_named.sum()) / len(queries), 1.0)
    return expected * (1 - 1 / length)


def _reliability(halves: Floats) -> float:
    """Return how far repeated judgments of criteria agree, over all of them (Spearman and Brown)."""
    both = halves[~np.isnan(halves).any(axis=1)]
    length = np.sqrt(np.sum(both[:, 0] ** 2) * np.sum(both[:, 1] ** 2))
    if length == 0:
        return UNSURE
    between = max(float(np.sum(both[:, 0] * both[:, 1]) / length), 0.0)
    return min(max(2 * between / (1 + between), 0.1), 0.99)


def _sides(trees: Integers, margins: Floats, labels: Floats) -> Floats:
    """Return the better side for each wording of each tree: the label's, else the one for which its others are.

    1 for A, -1 for B, 0 where neither is known [wording of a tree].

    Args:
        trees: of which tree each is.
        margins: of each.
        labels: of the trees; nan where none is known.
    """
    others = np.bincount(trees, margins, minlength=len(labels))[trees] - margins
    # Rounding is no side.
    others = np.where(np.abs(others) < 1e-9, 0.0, others)
    of_tree = labels[trees]
    return np.asarray(np.where(np.isnan(of_tree), np.sign(others), np.nan_to_num(of_tree)))


def part_of(judgments: Judgments, rows: Integers) -> Judgments:
    """Return the judgments of some criteria alone.

    Args:
        judgments: of criteria.
        rows: which of them.
    """
    texts = [judgments.texts[row] for row in rows]
    ids = [judgments.ids[row] for row in rows]
    return replace(judgments, ids=ids, texts=texts, tree=judgments.tree[rows], margin=judgments.margin[rows])


def types_by(embed: Embed, judgments: Judgments, halves: Floats) -> tuple[Integers, list[str]]:
    """Return the type of each criterion, and the wording of each; types beyond the commonest are -1.

    Criteria with one name are one wording.

    Args:
        embed: the encoder.
        judgments: of criteria.
        halves: margins of two halves of each criterion's judgments [criterion, 2].
    """
    names = [_name(text) for text in judgments.texts]
    counts = Counter(names)
    kept = [name for name, _ in counts.most_common(MOST_WORDINGS)]
    place_of = {name: place for place, name in enumerate(kept)}
    wordings = np.array([place_of.get(name, -1) for name in names])
    rows = np.flatnonzero(wordings >= 0)
    texts = _texts(judgments.texts, names, kept)
    shared = Shared(part_of(judgments, rows), wordings[rows], halves[rows])
    groups = grouped(embedded(embed, texts), opposites_in(texts), measure_of(embed), shared)

    # The commonest group first.
    sizes = np.bincount(groups, weights=[counts[name] for name in kept])
    rank = np.argsort(np.argsort(-sizes, kind="stable"))
    type_of = rank[groups]
    types = np.where(wordings >= 0, type_of[wordings], -1)
    return np.where(types < MOST_TYPES, types, -1), [texts[place] if place >= 0 else "" for place in wordings]


def opposites_in(texts: Sequence[str]) -> Bools:
    """Return which criteria demand the opposite of each other, as far as their words tell [text, text]."""
    return opposed(texts, _opposites())


def grouped(vectors: Floats, apart: Bools, measure: Measure, shared: Shared | None) -> Integers:
    """Return the group of each wording, where those of one group are one criterion [text].

    A step of the clustering is taken where the odds by the cosine times those by the judgments are above one. Groups
    that judgments keep apart are set apart, and the rest is clustered again.

    Args:
        vectors: embeddings of the wordings [text, dimension].
        apart: which must not be one, since their words are opposites [text, text].
        measure: what their cosines say.
        shared: what their judgments say; None: nothing is known.
    """
    if len(vectors) < 2:
        return np.zeros(len(vectors), dtype=np.int64)
    distances = np.where(apart, APART, 1 - measure.cosines(vectors))
    while True:
        groups, refused = _walked(_steps(distances), measure, shared)
        if not refused:
            break
        for one, other in refused:
            distances[np.ix_(one, other)] = APART
            distances[np.ix_(other, one)] = APART
    numbers = np.zeros(len(vectors), dtype=np.int64)
    for number, group in enumerate(groups):
        numbers[group] = number
    return numbers


def _walked(
    steps: Floats, measure: Measure, shared: Shared | None
) -> tuple[list[list[int]], list[tuple[list[int], list[int]]]]:
    """Return the groups that the steps of a clustering make as far as they are taken, and the pairs that were refused.

    Args:
        steps: as :func:`_steps` has them.
        measure: what cosines say.
        shared: what judgments say.
    """
    size = len(steps) + 1
    # What judgments can make up for; where there are none, nothing.
    most = MOST_FOR if shared is not None else 0.0
    # By number: single wordings, then the groups that steps make; None where a step was not taken.
    groups: list[list[int] | None] = [[place] for place in range(size)]
    refused = []
    for first, second, distance, _ in steps:
        one = groups[int(first)]
        other = groups[int(second)]
        by_embeddings = measure.log_odds(1 - distance)
        if one is None or other is None or by_embeddings + most <= 0:
            groups.append(None)
            continue
        by_judgments = 0.0
        if shared is not None:
            by_judgments = shared.log_odds(one, other)
            at_odds = [*_at_odds(one, other, shared), *_at_odds(other, one, shared)]
            if at_odds:
                groups.append(None)
                refused.extend(at_odds)
                continue
        if by_embeddings + by_judgments > 0:
            groups.append([*one, *other])
            groups[int(first)] = None
            groups[int(second)] = None
        else:
            groups.append(None)
            refused.append((one, other))
    return [group for group in groups if group is not None], refused


def _at_odds(group: Sequence[int], other: Sequence[int], shared: Shared) -> list[tuple[list[int], list[int]]]:
    """Return the two parts of a group of which one is surely the same as another group, and one surely not; or none.

    Wordings are joined first where embeddings are nearest, when little is known of their judgments. A larger group then
    shows that they should not have been.
    """
    odds = {wording: shared.log_odds([wording], other) for wording in group}
    same = [wording for wording, value in odds.items() if value >= SURE]
    different = [wording for wording, value in odds.items() if value <= -SURE]
    if same and different:
        return [(same, different)]
    return []


def _name(text: str) -> str:
    """Return a criterion's name: the words before its colon, where there is one."""
    return text.partition(":")[0].strip().casefold() or text


def _texts(texts: Sequence[str], names: Sequence[str], kept: Sequence[str]) -> list[str]:
    """Return the text that each name most often stands with."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in kept}
    for text, name in zip(texts, names, strict=True):
        if name in counts:
            counts[name][" ".join(text.split())] += 1
    return [counts[name].most_common(1)[0][0] for name in kept]
