"""Preference pairs by hand-made trees: who leads, what is skipped, what may not be chosen."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from judgetrain.judges.prompting.parsing import parse_criteria
from judgetrain.judges.trees.schema import EvaluationTree, JudgmentNode
from judgetrain.label.config import LabelConfig
from judgetrain.label.labels import ensemble_label
from judgetrain.label.pairs import LabelPairBuilder, PairBuilder
from judgetrain.label.stage import TrainingData
from tests.builders.label import ANY_EVIDENCE, PROMPTER, tree_of

LENIENT = LabelConfig(**ANY_EVIDENCE)


def with_leaves(tree: EvaluationTree, leaves: list[JudgmentNode]) -> EvaluationTree:
    """The tree with other judgments by the only guideline of its only criterion."""
    (guideline,) = tree.criteria[0].guidelines
    criterion = replace(tree.criteria[0], guidelines=(replace(guideline, judgments=tuple(leaves)),))
    return replace(tree, criteria=(criterion,))


@pytest.mark.parametrize("seed", range(20))
def test_each_criteria_pair_is_headed_by_another_criterion(seed: int) -> None:
    tree = tree_of(("AAAA",), ("AAAA",), ("AAAB",), ("BBBB",), ("BBBB",), ("AABB",))
    pairs = list(PairBuilder(PROMPTER, LENIENT).criteria_pairs(tree, "A", random.Random(seed), 5))
    assert len(pairs) == 3
    assert {p.chosen_nodes[0] for p in pairs} == {"d0/c0", "d0/c1", "d0/c2"}
    assert {p.rejected_nodes[0] for p in pairs} == {"d0/c3", "d0/c4", "d0/c5"}
    for pair in pairs:
        assert set(pair.chosen_nodes[:3]) == {"d0/c0", "d0/c1", "d0/c2"}, "all that lead to the label stand first"
        assert set(pair.rejected_nodes[:3]) == {"d0/c3", "d0/c4", "d0/c5"}, "all that do not, ties among them"
        assert pair.chosen_nodes == tuple(reversed(pair.rejected_nodes))
        net = {"d0/c0": 1, "d0/c1": 1, "d0/c2": 0.5, "d0/c3": -1, "d0/c4": -1, "d0/c5": 0}
        assert pair.margin == (net[pair.chosen_nodes[0]] - net[pair.rejected_nodes[0]]) / 2
        assert sorted(parse_criteria(pair.chosen, 9)) == sorted(parse_criteria(pair.rejected, 9))


@pytest.mark.parametrize(
    "criteria", [[("AAAA",), ("AAAA",)], [("BBBB",), ("AABB",)], [("AAAA",), ("BBBB",), ("????",)], []]
)
def test_no_ordering_without_a_contrast_or_with_unread_criteria(criteria: list[tuple[str, ...]]) -> None:
    builder = PairBuilder(PROMPTER, LENIENT)
    assert not list(builder.criteria_pairs(tree_of(*criteria), "A", random.Random(0), 5))
    assert +builder.skipped == {"criteria:no_contrast": 1}


def test_guidelines_need_a_difference_in_text_and_in_success() -> None:
    builder = PairBuilder(PROMPTER, LENIENT)
    (pair,) = builder.guideline_pairs(tree_of(("AAAB", "AAAA"), ("AAAA", "AAAA"), ("A??B", "??AB")), "A")
    assert (pair.chosen, pair.rejected, pair.margin) == ("guideline b", "guideline a", 0.25)
    tree = tree_of(("AAAB", "AAAA"))
    same = tuple(replace(g, text="one text") for g in tree.criteria[0].guidelines)
    tree = replace(tree, criteria=(replace(tree.criteria[0], guidelines=same),))
    assert not list(builder.guideline_pairs(tree, "A"))
    skipped = {"guideline:near_identical": 1, "guideline:no_evidence": 1, "guideline:no_consensus": 1}
    assert builder.skipped == skipped


def test_guidelines_that_were_cut_off_make_no_pair_and_are_counted() -> None:
    tree = tree_of(("AAAA", "AAAB", "BBBB"), ("AAAA", "AAAB"))
    first, second = tree.criteria
    cut = replace(first, guidelines=(replace(first.guidelines[0], finish_reason="length"), *first.guidelines[1:]))
    builder = PairBuilder(PROMPTER, LENIENT)
    pairs = list(builder.guideline_pairs(replace(tree, criteria=(cut, second)), "A"))
    assert [p.chosen_nodes + p.rejected_nodes for p in pairs] == [("d0/c0/g1", "d0/c0/g2"), ("d0/c1/g0", "d0/c1/g1")]
    assert builder.skipped == {"guideline:cut_off": 1}


def test_a_judgment_that_was_cut_off_is_never_chosen_but_may_be_rejected() -> None:
    tree = tree_of(("AABAA" + "A",))
    (guideline,) = tree.criteria[0].guidelines

    def cut(*which: int) -> EvaluationTree:
        ends = ["length" if i in which else "stop" for i in range(len(guideline.judgments))]
        return with_leaves(tree, [replace(j, finish_reason=e) for j, e in zip(guideline.judgments, ends, strict=True)])

    assert len(list(PairBuilder(PROMPTER, LENIENT).judgment_pairs(tree, "A"))) == 2
    builder = PairBuilder(PROMPTER, LENIENT)
    (left,) = builder.judgment_pairs(cut(0), "A")
    assert left.chosen_nodes == ("d0/c0/g0/1",)
    assert builder.skipped["judgment:chosen_cut_off"] == 1
    assert len(list(PairBuilder(PROMPTER, LENIENT).judgment_pairs(cut(2), "A"))) == 2
    data = TrainingData(PROMPTER)
    data.add(cut(0))
    assert "d0/c0/g0/0" not in {n for row in data.sft for n in row["nodes"]}


@pytest.mark.parametrize("cap", [0, 1, 3])
def test_caps_hold_at_every_level_and_prompts_are_shared(cap: int) -> None:
    tree = tree_of(("AAAA", "AABA"), ("AAAB", "AAAA"), ("BBBB", "BBAB"), ("AAAB", "AAAB"))
    config = LabelConfig(max_pairs_per_level=cap, **ANY_EVIDENCE)
    pairs = PairBuilder(PROMPTER, config).pairs(tree, ensemble_label(tree, config), random.Random(0))
    counts = Counter(p.level for p in pairs)
    assert all(n <= cap for n in counts.values())
    if cap:
        assert set(counts) == {"judgment", "guideline", "criteria"}
    for row in (p.to_row() for p in pairs):
        assert row["chosen"] != row["rejected"]
        assert [m["role"] for m in row["prompt"]] == ["user"]
        assert row["reward"] == {"ensemble": 21 / 32}  # As of all votes, counted above


def test_a_tie_label_orders_no_criteria_or_guidelines() -> None:
    tree = tree_of(("tttA",), ("AAAA",), ("BBBB",), ("Bttt",))
    label = ensemble_label(tree, LabelConfig())
    assert label.verdict == "tie"
    pairs = PairBuilder(PROMPTER, LENIENT).pairs(tree, label, random.Random(0))
    assert {p.level for p in pairs} == {"judgment"}


@pytest.mark.parametrize(("builder", "kept"), [(PairBuilder, 0), (LabelPairBuilder, 4)])
def test_pairs_that_differ_in_digits_alone_are_left_out_and_counted(builder: type[PairBuilder], kept: int) -> None:
    """But by the paper's letter, which knows no such rule."""
    tree = tree_of(("AABAAB",))
    (guideline,) = tree.criteria[0].guidelines
    said = [f"Response A Score: {j.score_a}\nResponse B Score: {j.score_b}" for j in guideline.judgments]
    flat = with_leaves(tree, [replace(j, text=t) for j, t in zip(guideline.judgments, said, strict=True)])
    made = builder(PROMPTER, LENIENT)
    assert len(list(made.judgment_pairs(flat, "A"))) == kept
    assert made.skipped["judgment:score_digits_only"] == 4 - kept


def test_a_leaning_to_the_first_response_is_not_rewarded() -> None:
    """A judge that sees no difference but once in each order favours what it sees first: no pair chooses the slip."""
    tree = tree_of(("AttBtt",), ("AttBtt",))
    pairs = list(PairBuilder(PROMPTER, LENIENT).judgment_pairs(tree, "A"))
    assert {(p.chosen_verdict, p.rejected_verdict) for p in pairs} == {("tie", "A"), ("tie", "B")}
