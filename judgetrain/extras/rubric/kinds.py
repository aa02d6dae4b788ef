"""Kinds of query, and how many criteria each needs: both by how well judgments of other queries foresee a query's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from judgetrain.errors import DataError
from judgetrain.extras.rubric.evidence import Evidence
from judgetrain.label.worth import FEWEST, FOLDS, SPREAD, folds_of, kinds_of, worth_by_kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

NUMBERS = (1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 32)
"""Numbers of kinds that are tried."""
TOWARDS_ALL = 300.0
"""Trees as many of which all kinds together count, beside a kind's own, where it is asked how many criteria it needs.

A kind has some fifty trees, of which the error by two criteria or by three cannot be told apart.
"""


@dataclass(frozen=True)
class Kinds:
    """Kinds of query, and the criteria that decide for each.

    Args:
        of_tree: the kind of each tree [tree].
        grains: the finer kinds that these are made of, the coarsest first, each [tree].
        worth: of each type for each kind [kind, type].
        criteria: the types of each kind's rubric, what is worth most first.
        error: mean held-out error by number of kinds and of criteria, as a share of what there is to foresee.
        by_labels: labels are foreseen; False: the judgments of the other criteria.
    """

    of_tree: Integers
    grains: list[Integers]
    worth: Floats
    criteria: list[list[int]]
    error: dict[int, list[float]]
    by_labels: bool

    @property
    def number(self) -> int:
        """Return how many kinds there are."""
        return len(self.criteria)


def find_kinds(evidence: Evidence, number: int | None, most: int) -> Kinds:
    """Return the kinds of query and the criteria of each.

    Queries are put into many small kinds by their words. Those for which the same criteria are worth something are one
    kind. How many kinds there are, and the fewest criteria whose held-out error is within one standard error of the
    best, the trees of other queries say. Kinds that are then left with the same criteria are joined.

    Args:
        evidence: the judgments.
        number: of kinds; None: whichever number has the least held-out error, less those that are joined.
        most: criteria of a kind at most.

    Raises:
        DataError: there are fewer than 50 trees, or none of the criteria foresees anything.
    """
    trees = len(evidence.judgments.trees)
    if trees < FEWEST:
        raise DataError(
            f"a rubric is found in {FEWEST} judged comparisons or more, and there are {trees}: give more, or have more "
            "of them judged"
        )
    # By the words of queries alone: a new query's kind is found by nothing else.
    grains = kinds_of(evidence.judgments.queries, [""] * trees)
    tried = [count for count in NUMBERS if count <= grains[-1].max() + 1]
    if number is not None:
        tried = [min(number, int(grains[-1].max()) + 1)]
    most = min(most, len(evidence.names))
    by_labels = int(evidence.labelled.sum()) >= FEWEST

    # One kind is always tried: it is the rubric for every query.
    errors = _held_out_errors(evidence, grains, sorted({1, *tried}), most, by_labels)
    counted = ~np.isnan(errors[1][:, 0])
    whole = _to_foresee(evidence, by_labels)[counted]
    means = {count: errors[count][counted].mean(axis=0) for count in errors}
    chosen = min(tried, key=lambda count: (means[count].min(), count))
    if means[chosen].min() >= whole.mean():
        raise DataError(
            "no criterion says which response is better for queries that it was not learned from: give more "
            "comparisons or labels, or have them judged by other criteria"
        )
    all_trees = np.ones(trees, dtype=bool)
    profile = worth_by_kind(evidence.columns, evidence.seen, grains, all_trees)
    of_tree = _largest_first(_joined(profile, chosen)[grains[-1]])
    worth = worth_by_kind(evidence.columns, evidence.seen, with_all(of_tree), all_trees)
    criteria = []
    for kind in range(len(worth)):
        size = _fewest(errors[chosen][counted], of_tree[counted] == kind)
        criteria.append(_best(worth[kind], size))
    if number is None:
        # Labels of kinds that go by the same criteria say together which of these counts more; apart they are too few.
        of_tree, criteria = _joined_by_criteria(of_tree, criteria)
        worth = worth_by_kind(evidence.columns, evidence.seen, with_all(of_tree), all_trees)
        criteria = [_in_order(of_kind, worth[kind]) for kind, of_kind in enumerate(criteria)]
    return Kinds(
        of_tree=of_tree,
        grains=grains,
        worth=worth,
        criteria=criteria,
        error={count: (means[count] / whole.mean()).round(4).tolist() for count in tried},
        by_labels=by_labels,
    )


def _held_out_errors(
    evidence: Evidence, grains: Sequence[Integers], numbers: Sequence[int], most: int, by_labels: bool
) -> dict[int, Floats]:
    """Return the squared error on each tree by number of kinds, and by number of criteria [tree, most].

    Kinds, worth and the order of criteria come from the trees of other queries; nan where nothing is to be foreseen.
    """
    trees = len(evidence.judgments.trees)
    folds = folds_of(evidence.judgments.queries)
    counted = np.ones(trees, dtype=bool)
    if by_labels:
        counted = evidence.labelled
    errors = {number: np.full((trees, most), np.nan) for number in numbers}
    for fold in range(FOLDS):
        rest = folds != fold
        held_out = np.flatnonzero((folds == fold) & counted)
        learned = np.flatnonzero(rest & counted)
        profile = worth_by_kind(evidence.columns, evidence.seen, grains, rest)
        for number in numbers:
            of_tree = _joined(profile, number)[grains[-1]]
            worth = worth_by_kind(evidence.columns, evidence.seen, with_all(of_tree), rest)
            worth = np.maximum(worth, 0.0)
            for size in range(1, most + 1):
                weights = np.where(_ranks(worth) < size, worth, 0.0)
                expected, judged = _foreseen(evidence, weights[of_tree], worth[of_tree], by_labels, learned)
                # A scale below 0 would foresee the other side.
                scale = max(float(np.sum(expected * judged)), 0.0) / max(float(np.sum(expected**2)), 1e-12)
                expected, judged = _foreseen(evidence, weights[of_tree], worth[of_tree], by_labels, held_out)
                errors[number][held_out, size - 1] = np.sum((judged - scale * expected) ** 2, axis=1)
    return errors


def _foreseen(
    evidence: Evidence, weights: Floats, worth: Floats, by_labels: bool, rows: Integers
) -> tuple[Floats, Floats]:
    """Return what is expected of some trees, up to a scale, and what is there [row, 1 or type].

    By labels it is the label. Without, it is each criterion's margin: what the chosen *other* criteria say of the tree,
    times what the criterion is worth.

    Args:
        evidence: the judgments.
        weights: of the chosen criteria, 0 for the others [tree, type].
        worth: of all criteria [tree, type].
        by_labels: whether labels are foreseen.
        rows: the trees.
    """
    margins = standardised(evidence)[rows]
    spoken = weights[rows] * margins
    total = spoken.sum(axis=1, keepdims=True)
    if by_labels:
        return total, evidence.labels[rows, None]
    # A criterion never vouches for itself.
    return worth[rows] * (total - spoken), margins


def _to_foresee(evidence: Evidence, by_labels: bool) -> Floats:
    """Return the squares of what is to be foreseen of each tree [tree]: the error of who expects nothing."""
    if by_labels:
        return np.asarray(evidence.labels**2)
    return np.asarray(np.sum(standardised(evidence) ** 2, axis=1))


def standardised(evidence: Evidence) -> Floats:
    """Return margins as multiples of how far their type's spread [tree, type]."""
    seen = evidence.seen[:, :-1].sum(axis=0)
    spread = np.sqrt(np.sum(evidence.margins**2, axis=0) / np.maximum(seen, 1.0))
    return np.asarray(evidence.margins / np.maximum(spread, SPREAD))


def _joined(profile: Floats, number: int) -> Integers:
    """Return the kind of each small kind, where so many kinds are made of those that go by the same criteria.

    Args:
        profile: the worth of types for small kinds [small kind, type].
        number: of kinds.
    """
    from sklearn.cluster import AgglomerativeClustering

    if number >= len(profile):
        return np.arange(len(profile))
    directions = np.maximum(profile, 0.0)
    # A small kind for which nothing is known goes by all alike.
    directions[~directions.any(axis=1)] = 1.0
    clustering = AgglomerativeClustering(number, metric="cosine", linkage="average")
    return np.asarray(clustering.fit_predict(directions), dtype=np.int64)


def _joined_by_criteria(of_tree: Integers, criteria: Sequence[Sequence[int]]) -> tuple[Integers, list[list[int]]]:
    """Return kinds [tree] and their criteria, where those that go by the same criteria have become one kind.

    Args:
        of_tree: the kind of each tree [tree].
        criteria: of each kind.
    """
    sets = [frozenset(of_kind) for of_kind in criteria]
    different = list(dict.fromkeys(sets))
    joined = np.array([different.index(of_kind) for of_kind in sets])
    largest_first = _largest_first(joined[of_tree])
    of_joined = []
    for kind in range(len(different)):
        tree = int(np.flatnonzero(largest_first == kind)[0])
        of_joined.append(list(criteria[of_tree[tree]]))
    return largest_first, of_joined


def _in_order(criteria: Sequence[int], worth: Floats) -> list[int]:
    """Return types in the order of their worth, what is worth most first."""
    return sorted(criteria, key=lambda number: -worth[number])


def _largest_first(of_tree: Integers) -> Integers:
    """Return kinds numbered by how many trees they have, the most first [tree]."""
    sizes = np.bincount(of_tree)
    place = np.empty(len(sizes), dtype=np.int64)
    place[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    return place[of_tree]


def with_all(of_tree: Integers) -> list[Integers]:
    """Return all trees as one kind, and the kinds."""
    return [np.zeros(len(of_tree), dtype=np.int64), of_tree]


def _ranks(worth: Floats) -> Integers:
    """Return the rank of each type, 0 for what is worth most [kind, type]."""
    return np.asarray(np.argsort(np.argsort(-worth, axis=1, kind="stable"), axis=1))


def _best(worth: Floats, size: int) -> list[int]:
    """Return the types that are worth most and more than nothing, at most ``size``; at least one."""
    ranked = np.argsort(-worth, kind="stable")
    useful = [int(number) for number in ranked[:size] if worth[number] > 0]
    return useful or [int(ranked[0])]


def _fewest(errors: Floats, inside: NDArray[np.bool_]) -> int:
    """Return the fewest criteria whose error is within one standard error of the best (Breiman et al. 1984, 3.4.3).

    Args:
        errors: of each tree by number of criteria [tree, most].
        inside: which trees are of the kind [tree]; the others count as :data:`TOWARDS_ALL` trees together.
    """
    trees = inside.sum() + TOWARDS_ALL
    means = (errors[inside].sum(axis=0) + TOWARDS_ALL * errors.mean(axis=0)) / trees
    best = int(np.argmin(means))
    # All trees together are no more than there are, however few the kind has.
    trees = min(float(trees), float(len(errors)))
    standard_error = errors[:, best].std() / np.sqrt(trees)
    within = np.flatnonzero(means <= means[best] + standard_error)
    return int(within[0]) + 1
