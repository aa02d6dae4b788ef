"""What is found on the generated world, whose truth is known: kinds, their criteria, and what is worth nothing.

Rules 1 to 5 are those that settings may be chosen on.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pytest
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from judgetrain.data.world import queries
from judgetrain.data.world.engine import Annotator
from judgetrain.data.world.language import load_language
from judgetrain.data.world.rule import load_world
from judgetrain.errors import DataError
from judgetrain.extras.rubric.config import RubricConfig
from judgetrain.extras.rubric.described import guideline_for
from judgetrain.extras.rubric.evidence import evidence_of
from judgetrain.extras.rubric.kinds import _joined_by_criteria, find_kinds
from judgetrain.extras.rubric.measure import _Labelled, _order, _weights_by_place, resampled_worth, why_left_out
from judgetrain.extras.rubric.stage import Found, find
from judgetrain.extras.rubric.stages import RubricSettings
from judgetrain.judges.trees.schema import EvaluationTree
from tests.builders.rubrics import INJECTED, annotated, injected

RULE = 3


def found_in(trees: Sequence[EvaluationTree]) -> Found:
    return find(evidence_of(trees), RubricSettings(seed=0, rubric=RubricConfig(), judge=""), 0)


@cache
def labelled() -> Found:
    """Return what is found in 600 trees with labels."""
    return found_in(annotated(RULE, 600))


def right_kinds(found: Found, rule: int, alike: Callable[[Sequence[str]], object]) -> int:
    """Return for how many of the 12 kinds most held-out queries are judged by the true criteria, compared ``alike``."""
    world = load_world(rule)
    right: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    held_out = queries("heldout")
    for query in held_out[:: len(held_out) // 300]:
        kind = world.language.kind_of(query)
        names = [criterion.name for criterion in found.rubric.for_query(query).criteria]
        asked[kind] += 1
        right[kind] += alike(names) == alike(world.deciding[kind].crucial)
    assert len(asked) == 12
    return sum(2 * right[kind] > asked[kind] for kind in asked)


def test_with_labels_the_true_criteria_are_found_and_most_in_their_order() -> None:
    assert right_kinds(labelled(), RULE, frozenset) >= 11
    assert right_kinds(labelled(), RULE, tuple) >= 7


def test_no_two_kinds_go_by_the_same_criteria() -> None:
    found = labelled()
    sets = [frozenset(of_kind) for of_kind in found.kinds.criteria]
    assert len(set(sets)) == len(sets) > 1
    assert sorted(set(found.kinds.of_tree.tolist())) == list(range(len(sets)))
    for kind, of_kind in enumerate(found.kinds.criteria):
        worth = [found.kinds.worth[kind, number] for number in of_kind]
        assert worth == sorted(worth, reverse=True)


def test_joined_kinds_are_numbered_by_their_trees() -> None:
    of_tree, criteria = _joined_by_criteria(np.array([0, 0, 0, 1, 1, 2, 2]), [[5, 1], [4], [1, 5]])
    assert of_tree.tolist() == [0, 0, 0, 1, 1, 0, 0]
    assert [sorted(of_kind) for of_kind in criteria] == [[1, 5], [4]]


def test_without_labels_the_true_criteria_are_found_in_more_trees() -> None:
    found = found_in(annotated(RULE, 1400, labelled=0))
    assert not found.kinds.by_labels
    assert right_kinds(found, RULE, frozenset) >= 10


def test_weights_are_those_of_a_logistic_regression_with_calibrates_ridge() -> None:
    found = labelled()
    evidence = found.evidence
    for kind in range(3):
        fitted = found.figures[kind].fitted
        by_place = found.figures[kind].by_place
        assert fitted is not None
        assert by_place is not None
        criteria = [evidence.names.index(name) for name in fitted.weights]
        inside = found.kinds.of_tree == kind
        # Weights are held to those of their places: equal ones of scaled margins are these.
        x = evidence.margins[inside][:, criteria] / len(criteria) * by_place
        y = (evidence.labels[inside] + 1) / 2

        def loss(w: np.ndarray, x: np.ndarray = x, y: np.ndarray = y, ridge: float = fitted.ridge) -> float:
            logit = x @ w
            entropy = sum(np.log1p(np.exp(one)) - target * one for one, target in zip(logit, y, strict=True))
            return float(entropy + ridge / 2 * np.sum((w - w.mean()) ** 2) + 0.01 / 2 * w.mean() ** 2)

        best = minimize(loss, np.ones(len(criteria)), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9}).x
        best *= by_place
        weights = {one.name: one.weight for one in found.figures[kind].criteria}
        expected = dict(zip(fitted.weights, best / best.max(), strict=True))
        assert weights == pytest.approx(expected, abs=2e-3)
        for one in found.figures[kind].criteria:
            assert one.interval is not None
            assert one.interval[0] < one.weight < one.interval[1]


@pytest.mark.parametrize(("second", "low", "high"), [(1.0, 0.85, 1.0), (0.5, 0.35, 0.65)])
def test_what_places_count_is_learned_over_all_kinds_and_not_from_the_order_of_chance(
    second: float, low: float, high: float
) -> None:
    """In 40 labels one of two equal weights is the heavier by chance; over 30 kinds they stay equal."""
    rng = np.random.default_rng(0)
    kinds = []
    for kind in range(30):
        features = rng.normal(size=(40, 2))
        weights = 3 * np.array([1.0, second])
        targets = (rng.random(40) < 1 / (1 + np.exp(-features @ weights))).astype(float)
        order = _order(features, targets)
        prompts = [(f"{kind}/{row}",) for row in range(40)]
        kinds.append(_Labelled(criteria=order.tolist(), features=features[:, order], targets=targets, prompts=prompts))
    first_share, second_share = _weights_by_place(kinds)
    assert first_share == 1.0
    assert low <= second_share <= high


def test_a_kinds_criteria_lose_labels_when_they_are_left_out() -> None:
    losses = [one.loss for of_kind in labelled().figures for one in of_kind.criteria if of_kind.trees >= 40]
    assert np.mean(losses) > 0.05
    assert {of_kind.loss_of for of_kind in labelled().figures if of_kind.labelled >= 20} == {"labels"}


def test_the_chooser_finds_the_kind_of_queries_that_are_not_typical_ones() -> None:
    found = labelled()
    typical = {query for of_kind in found.queries for query in of_kind}
    right = []
    for query, kind in zip(found.evidence.judgments.queries, found.kinds.of_tree, strict=True):
        if query not in typical:
            chosen = found.rubric.kind_of(query)  # type: ignore[attr-defined]
            right.append(chosen.name == found.names[kind])
    assert len(right) > 100
    assert np.mean(right) > 0.85


@pytest.mark.parametrize(("rule", "number", "labels"), [(3, 800, 600), (5, 1400, 0)])
def test_what_is_worthless_redundant_reversed_or_never_differs_is_marked(rule: int, number: int, labels: int) -> None:
    trees = injected(rule, annotated(rule, number, labelled=labels))
    evidence = evidence_of(trees)
    with threadpool_limits(1):
        kinds = find_kinds(evidence, None, 6)
        rows = {row.name: row for row in why_left_out(evidence, kinds, resampled_worth(evidence, kinds, 0))}
    reasons = {name: rows[name].reason for name in INJECTED if name in rows}
    # One name stands for the two that say the same.
    assert evidence.merged == [("numbers", "amounts")] or evidence.merged == [("amounts", "numbers")]
    reasons.pop("amounts", None)
    assert reasons == {"luck": "nothing shows", "bluntness": "speaks against", "grammar": "never separates"}

    counting = {name for deciding in load_world(rule).deciding.values() for name in deciding.crucial}
    kept = {name for name, row in rows.items() if row.kinds}
    kept = {"numbers" if name == "amounts" else name for name in kept}
    assert counting <= kept


def test_judgments_that_say_nothing_make_no_rubric() -> None:
    trees = annotated(RULE, 120, labelled=0)
    only_luck = []
    for tree, with_luck in zip(trees, injected(RULE, trees), strict=True):
        luck = [criterion for criterion in with_luck.criteria if criterion.text.startswith("luck")]
        only_luck.append(type(tree)(**{**vars(tree), "criteria": tuple(luck)}))
    with pytest.raises(DataError, match="no criterion says which response is better"):
        find_kinds(evidence_of(only_luck), None, 6)


def test_of_few_judgments_the_share_that_decides_is_theirs() -> None:
    """Of two trees, so that one judgment more or less would show."""
    trees = annotated(RULE, 2)
    shares: dict[str, list[float]] = {}
    for tree in trees:
        for criterion in tree.criteria:
            decides = [judgment.score_a != judgment.score_b for judgment in criterion.judgments]
            shares.setdefault(criterion.text.partition(":")[0], []).append(sum(decides) / len(decides))
    evidence = evidence_of(trees)
    decides = dict(zip(evidence.names, evidence.decides.tolist(), strict=True))
    assert decides == pytest.approx({name: sum(values) / len(values) for name, values in shares.items()})
    assert 1.0 in decides.values()


def test_too_few_comparisons_are_refused() -> None:
    with pytest.raises(DataError, match="50 judged comparisons or more, and there are 20"):
        find_kinds(evidence_of(annotated(RULE, 20)), None, 6)


def test_of_guidelines_the_one_is_taken_by_which_judgments_agree() -> None:
    """The annotator errs twice as often by a sloppy guideline; 200 trees tell it from the sound one."""
    evidence = evidence_of(annotated(RULE, 200, labelled=0))
    annotator = Annotator(load_language(), error_rate=0.0)
    for number, name in enumerate(evidence.names):
        assert guideline_for(evidence, number) == annotator.sound_guideline(f"{name}: x")


def test_a_kind_with_few_labels_loses_variance_of_labels_without_a_criterion_that_counts() -> None:
    """Over 200 labelled trees of up to a dozen kinds hardly any kind has 20 labels for a fit."""
    found = found_in(annotated(RULE, 200))
    small = [of_kind for of_kind in found.figures if of_kind.labelled < 20]
    assert small
    for of_kind in small:
        assert of_kind.fitted is None
        assert of_kind.loss_of == "variance of labels"
        assert of_kind.criteria[0].weight == 1.0
    assert np.mean([of_kind.criteria[0].loss for of_kind in small]) > 0.05
