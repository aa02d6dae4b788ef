"""Equal is equal: weighted sums that are equal in decimals tie, whatever the unit and the order of their weights."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from judgetrain.judges.kinds.aggregation import Fitted, Rule, needed, steps, verdict
from judgetrain.judges.kinds.tree_predictions import predict
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.predictions import Score
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree
from judgetrain.judging.rows import score_rows
from judgetrain.rubrics import Criterion, weighted
from judgetrain.schema import Candidates
from tests.builders.label import tree_of

# Decimal weights of rubrics, and one of them in three other units.
WEIGHTS = [
    ("0.5", "0.3", "0.2"),
    ("0.4", "0.3", "0.2", "0.1"),
    ("0.1", "0.3"),
    ("0.7", "2.1"),
    ("1e-9", "3e-9"),
    ("1e9", "3e9"),
    ("0.3", "-0.2", "0.1"),
]


def rubric_tree(weights: Sequence[str], scores: Sequence[tuple[int, int]]) -> EvaluationTree:
    """Return a tree by a given rubric, with the same scores (of A, of B) in both orders."""
    tree = tree_of(*[("tt",)] * len(weights))
    nodes = []
    for node, weight, (score_a, score_b) in zip(tree.criteria, weights, scores, strict=True):
        criterion = Criterion(text=node.text, weight=float(weight))
        guideline = node.guidelines[0]
        judgments = []
        for judgment in guideline.judgments:
            judgments.append(
                replace(judgment, score_a=float(score_a), score_b=float(score_b), inverted=criterion.weight < 0)
            )
        guidelines = (replace(guideline, judgments=tuple(judgments)),)
        nodes.append(replace(node, given=criterion, guidelines=guidelines))
    return replace(tree, criteria=tuple(nodes))


def exact_lead(weights: Sequence[str], scores: Sequence[tuple[int, int]]) -> Fraction:
    """Return how far A is ahead, without rounding."""
    lead = Fraction(0)
    for weight, (score_a, score_b) in zip(weights, scores, strict=True):
        lead += Fraction(weight) * (score_a - score_b)
    return lead


@pytest.mark.parametrize("weights", WEIGHTS)
def test_decimal_weights_tie_exactly_where_fractions_do(weights: tuple[str, ...]) -> None:
    ties = 0
    for differences in itertools.product(range(-3, 5), repeat=len(weights)):
        scores = [(1 + max(d, 0), 1 - min(d, 0)) for d in differences]
        lead = exact_lead(weights, scores)
        expected = "A" if lead > 0 else "B" if lead < 0 else "tie"
        ties += expected == "tie"
        tree = rubric_tree(weights, scores)
        for order in ("AB", "BA"):
            assert verdict(tree.criteria, order, Rule(True, 0.0)) == expected, (differences, order)  # type: ignore[arg-type]
        settled = steps(tree.criteria, "AB", Rule(True, 0.0))
        assert needed(settled, [], [1.0] * len(settled)) == 0
    assert ties > 1, "more than all criteria even"


def test_a_tie_has_a_margin_of_nought_and_two_equal_scores() -> None:
    for weights in (("1", "3"), ("0.1", "0.3"), ("0.7", "2.1")):
        tree = rubric_tree(weights, [(5, 2), (3, 4)])
        prediction = predict(tree, 1, JudgeOptions(), "judge")
        assert (prediction.verdict, prediction.margin) == ("tie", 0.0)
        assert prediction.score_a == prediction.score_b == 0.625


def test_what_rounding_cannot_make_still_decides() -> None:
    # A ten-thousandth of the weight, by one of five levels.
    tree = rubric_tree(("0.9999", "0.0001"), [(3, 3), (3, 2)])
    assert verdict(tree.criteria, "AB", Rule(True, 0.0)) == "A"
    # A band of ties ends where it says: half a level on the whole rubric is a tie, and more is none.
    edge = rubric_tree(("0.3", "0.3"), [(3, 2), (2, 2)])
    assert verdict(edge.criteria, "AB", Rule(True, 0.125)) == "tie"
    beyond = rubric_tree(("0.3", "0.31"), [(2, 2), (3, 2)])
    assert verdict(beyond.criteria, "AB", Rule(True, 0.125)) == "A"


def test_equal_weighted_scores_share_a_rank() -> None:
    shares = [[(0.1, 1.0), (0.3, 0.25)], [(0.3, 0.5), (0.1, 0.25)], [(0.1, 0.0), (0.3, 0.5)]]
    exact = [sum(Fraction(str(w)) * Fraction(s) for w, s in pairs) / Fraction("0.4") for pairs in shares]
    assert exact == [Fraction(7, 16), Fraction(7, 16), Fraction(3, 8)]
    values = [weighted(pairs) for pairs in shares]
    assert values == [0.4375, 0.4375, 0.375]
    # Means that come from elsewhere may still differ in their last bit.
    scores = [Score(value=0.1 + 0.2), Score(value=0.3), Score(value=0.2)]
    rows = list(score_rows(Candidates.of("q", ["a", "b", "c"]), scores, "judge"))
    assert [row["rank"] for row in rows] == [1, 1, 3]


def test_fitted_weights_that_cancel_out_are_a_tie() -> None:
    fitted = Fitted(weights={"a": 0.1, "b": 0.2, "c": 0.3}, tie=0.0, n=1, ridge=1.0, before={}, after={})
    assert fitted.verdict(0.1 + 0.2 - 0.3) == "tie"
    assert fitted.verdict(fitted.logit({"a": 1.0, "b": 1.0, "c": -1.0})) == "tie"
    assert fitted.verdict(1e-6) == "A"


def test_nodes_without_weights_keep_their_own() -> None:
    # A judge's own criteria weigh 1, 1/3, 1/9: three levels of the second are one of the first.
    nodes: list[CriterionNode] = []
    tree = rubric_tree(("1", "1"), [(3, 2), (1, 4)])
    for node in tree.criteria:
        nodes.append(replace(node, given=None))
    assert verdict(nodes, "AB", Rule(True, 0.0)) == "tie"
