"""Auxiliary rewards on hand-made trees: percentiles, ties, margins, and what is left out."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label.config import LabelConfig
from judgetrain.label.labels import ensemble_label
from judgetrain.label.pairs import PairBuilder
from judgetrain.label.rewards import Rewards, percentiles
from judgetrain.label.stage import TrainingData
from tests.builders.label import ANY_EVIDENCE, PROMPTER, tree_of


def scored(tree: EvaluationTree, **raised: float) -> Rewards:
    """Rewards in which every node has 0.5 but those named, as in ``c0_g0_1=0.9``."""
    scores = {j.id: 0.5 for _, _, j in tree.judgments()} | {g.id: 0.5 for c in tree.criteria for g in c.guidelines}
    named = {f"d0/{name.replace('_', '/')}": value for name, value in raised.items()}
    assert set(named) <= set(scores)
    return Rewards({"softmax_var": scores | named})


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=3), st.floats(-5, 5), max_size=12))
def test_percentiles_count_what_is_below(scores: dict[str, float]) -> None:
    found = percentiles(scores)
    for node, value in scores.items():
        below = sum(v < value for v in scores.values()) + 0.5 * sum(v == value for v in scores.values())
        assert found[node] == pytest.approx(below / len(scores))


@pytest.mark.parametrize(
    ("words", "raised", "verdict", "source"),
    [
        (("AABB", "tttt"), {"c0_g0_2": 0.9}, "B", "reward"),
        (("AABB", "tttt"), {"c0_g0_0": 0.9}, "A", "reward"),
        (("AABB", "tttt"), {}, "tie", "ensemble"),  # equal scores decide nothing
        (("tttt",), {"c0_g0_2": 0.9}, "tie", "ensemble"),  # there are no sides
    ],
)
def test_a_tied_vote_goes_to_the_side_with_the_better_scores(
    words: tuple[str, ...], raised: dict[str, float], verdict: str, source: str
) -> None:
    tree = tree_of(words)
    label = ensemble_label(tree, LabelConfig())
    broken = scored(tree, **raised).break_tie(tree, label)
    assert (broken.verdict, broken.source) == (verdict, source)
    assert Rewards().break_tie(tree, label) is label, "no scores"
    data = TrainingData(PROMPTER, LabelConfig(), scored(tree, **raised))
    data.add(tree)
    assert data.table()["trees"] == {f"label_{verdict}": 1} and data.labels[0]["ensemble_verdict"] == "tie"


def pairs_of(tree: EvaluationTree, rewards: Rewards, skipped: Counter[str]) -> list:  # type: ignore[type-arg]
    builder = PairBuilder(PROMPTER, LabelConfig(**ANY_EVIDENCE), rewards, skipped)
    return builder.pairs(tree, ensemble_label(tree, LabelConfig()), random.Random(0))


def test_a_pair_keeps_every_part_and_its_margin_is_their_mean() -> None:
    tree = tree_of(("AAAB", "ABAB"), ("BBBB", "ABBB"), ("AAAA", "AAAA"))
    rewards = scored(tree, c0_g0_2=0.9, c0_g0_3=0.1, c0_g0=0.8, c0_g1=0.6)
    plain = {(p.chosen_nodes, p.rejected_nodes): p for p in pairs_of(tree, Rewards(), Counter())}
    found = pairs_of(tree, rewards, Counter())
    assert {p.level for p in found} == {"judgment", "guideline", "criteria"}
    scores = rewards.scores["softmax_var"]
    criteria = {c.id: [scores[j.id] for g in c.guidelines for j in g.judgments] for c in tree.criteria}
    for pair in found:
        sides = []
        for node in (pair.chosen_nodes[0], pair.rejected_nodes[0]):
            sides.append(sum(criteria[node]) / len(criteria[node]) if node in criteria else scores[node])
        share, branches = ensemble_label(tree, LabelConfig()).share, pair.reward["branches"]
        difference = pytest.approx(sides[0] - sides[1])
        assert pair.reward == {"ensemble": share, "branches": branches, "softmax_var": difference}
        assert pair.margin == pytest.approx((branches + sides[0] - sides[1]) / 2)
        assert pair.margin >= 0
        assert branches == plain[pair.chosen_nodes, pair.rejected_nodes].margin


def test_pairs_that_the_scores_speak_against_are_left_out_and_counted() -> None:
    """The margin of the branches is 1/4: half of the difference of their net success, 1 and 1/2."""
    tree, skipped = tree_of(("AAAB", "AAAA")), Counter[str]()
    levels = {p.level: p.margin for p in pairs_of(tree, scored(tree, c0_g0=0.9, c0_g1=0.5), skipped)}
    assert "guideline" not in levels and skipped["guideline:low_margin"] == 1
    levels = {p.level: p.margin for p in pairs_of(tree, scored(tree, c0_g0=0.6, c0_g1=0.5), skipped)}
    assert levels["guideline"] == pytest.approx((0.25 - 0.1) / 2)
