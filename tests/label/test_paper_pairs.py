"""The paper's letter: pairs by the label alone, labels by plurality, one switch, disjoint dialogues."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import replace
from typing import Any

import pytest
import yaml

from judgetrain.errors import ConfigError
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label.config import LabelConfig
from judgetrain.label.labels import ensemble_label
from judgetrain.label.pairs import LabelPairBuilder, PairBuilder, PreferredPairBuilder, pair_builder
from judgetrain.label.rewards import Rewards
from judgetrain.label.stage import TrainingData
from judgetrain.pipeline import CONF
from tests.builders.label import ANY_EVIDENCE, PROMPTER, tree_of
from tests.builders.pipeline import check_stage, configured

LETTER = LabelConfig(rule="paper")


def judgment_pairs(builder: PairBuilder, word: str) -> int:
    """How many judgment pairs one guideline makes whose judgments say ``word``, where the label is A."""
    return len(list(builder.judgment_pairs(tree_of((word,)), "A")))


def expected_yield(builder: PairBuilder, p: float) -> float:
    """Pairs a node of 2 judgments in each of 2 orders, each right with probability ``p``, over all 16 outcomes."""
    return sum(
        p ** word.count("A") * (1 - p) ** word.count("B") * judgment_pairs(builder, word)
        for word in map("".join, itertools.product("AB", repeat=4))
    )


def test_the_consensus_halves_the_yield() -> None:
    """Two orders of two judgments: 2 · 2pq pairs by the label, 4p³q with a consensus of the node (0.84 and 0.41)."""
    p = 0.7
    letter, ours = LabelPairBuilder(PROMPTER, LETTER), PairBuilder(PROMPTER, LabelConfig(**ANY_EVIDENCE))
    assert expected_yield(letter, p) == pytest.approx(4 * p * (1 - p)) == pytest.approx(0.84)
    assert expected_yield(ours, p) == pytest.approx(4 * p**3 * (1 - p)) == pytest.approx(0.4116)


def test_evidence_of_a_whole_criterion_leaves_few() -> None:
    """Of a criterion's eight judgments seven must agree to be sure by 0.95: 8p⁷q, one pair of two guidelines (0.10)."""
    p, builder, made = 0.7, PairBuilder(PROMPTER, LabelConfig(min_evidence=0.95)), 0.0
    for word in map("".join, itertools.product("AB", repeat=8)):
        pairs = len(list(builder.judgment_pairs(tree_of((word[:4], word[4:])), "A")))
        made += p ** word.count("A") * (1 - p) ** word.count("B") * pairs / 2
    assert made == pytest.approx(4 * p**7 * (1 - p))


def test_chosen_agrees_with_the_label_and_rejected_does_not() -> None:
    tree = tree_of(("ABtA", "BBBB"))
    builder = LabelPairBuilder(PROMPTER, LETTER)
    sides = {(p.chosen_nodes[0], p.rejected_nodes[0]) for p in builder.judgment_pairs(tree, "A")}
    assert sides == {("d0/c0/g0/0", "d0/c0/g0/1"), ("d0/c0/g0/3", "d0/c0/g0/2")}, "within an order, ties are wrong"
    assert all(p.chosen_verdict == "A" for p in builder.judgment_pairs(tree, "A"))
    assert not list(builder.judgment_pairs(tree_of(("A??A",)), "A")), "what cannot be read is neither"


def test_guidelines_of_the_highest_success_are_chosen() -> None:
    tree = tree_of(("AAAB", "AAAA", "ABBB"))
    pairs = list(LabelPairBuilder(PROMPTER, LETTER).guideline_pairs(tree, "A"))
    assert [(p.chosen, p.rejected, p.margin) for p in pairs] == [
        ("guideline b", "guideline a", 0.25),
        ("guideline b", "guideline c", 0.75),
    ], "and none of the second against the third"


def test_criteria_lead_from_three_quarters_and_trail_to_a_quarter() -> None:
    """Shares of judgments that give the label: 1, 0.75, 0.5 and 0."""
    tree = tree_of(("AAAA",), ("AAAB",), ("AABB",), ("BBBB",))
    pairs = list(LabelPairBuilder(PROMPTER, LETTER).criteria_pairs(tree, "A", random.Random(0), 4))
    assert {p.chosen_nodes[0] for p in pairs} == {"d0/c0", "d0/c1"}
    assert {p.rejected_nodes[0] for p in pairs} == {"d0/c3"}


def test_tie_labels_order_criteria_too() -> None:
    tree = tree_of(("tttt",), ("AAAA",), ("BBBB",))
    label = ensemble_label(tree, LETTER)
    assert label.verdict == "tie"
    pairs = LabelPairBuilder(PROMPTER, LETTER).pairs(tree, label, random.Random(0))
    assert {p.level for p in pairs} == {"criteria"}
    assert {p.chosen_nodes[0] for p in pairs} == {"d0/c0"}


def test_pairs_of_judgments_take_two_in_an_order() -> None:
    """The quickstart's trees have one: by the letter there would be no pair of judgments, and nothing would say so."""
    assert configured("recipe=quickstart").tree.judgments == 1
    preference = ("label.source=external", "label.external.prompts=preference")
    for changes in (("label=paper",), preference):
        with pytest.raises(ConfigError, match=r"set tree\.judgments=2"):
            check_stage("label", configured("recipe=quickstart", *changes))
        check_stage("label", configured("recipe=quickstart", *changes, "tree.judgments=2"))
    check_stage("label", configured("recipe=quickstart", "label=paper", "label.levels=[criteria]"))


@pytest.mark.parametrize(
    ("word", "deciding", "plurality"),
    [
        ("t" * 79 + "A", ("A", 1.0), ("tie", 79 / 80)),
        ("AAB", ("A", 2 / 3), ("A", 2 / 3)),
        ("AABtt", ("A", 2 / 3), ("tie", 2 / 5)),  # A and ties lead alike
        ("AABB", ("tie", 0.5), ("tie", 0.0)),
        ("ABBt?", ("B", 2 / 3), ("B", 2 / 4)),
        ("??", (None, 0.0), (None, 0.0)),
    ],
)
def test_how_branches_become_a_label(word: str, deciding: object, plurality: object) -> None:
    shape = tree_of(("tA",), ("BB",), ("??",))
    known = [j for _, _, j in shape.judgments()]
    leaves = {"t": known[0], "A": known[1], "B": known[2], "?": known[4]}
    (guideline,) = shape.criteria[0].guidelines
    guideline = replace(guideline, judgments=tuple(leaves[letter] for letter in word))
    tree = replace(shape, criteria=(replace(shape.criteria[0], guidelines=(guideline,)),))
    for config, expected in ((LabelConfig(), deciding), (LETTER, plurality)):
        label = ensemble_label(tree, config)
        assert (label.verdict, label.share) == expected


def trees(number: int) -> list[EvaluationTree]:
    return [tree_of(("AAAA", "ABAA"), ("BBBB",), ("AAAA",), index=i) for i in range(number)]


def test_sft_and_pairs_come_from_disjoint_comparisons() -> None:
    def data(**changes: Any) -> TrainingData:
        made = TrainingData(PROMPTER, replace(LETTER, balance=[], **changes), seed=5)
        for tree in trees(40):
            made.add(tree)
        made.select_pairs()
        return made

    both, halves = data(), data(sft_share=0.5)
    every = {f"d{i}" for i in range(40)}
    assert {r["comparison_id"] for r in both.sft} == {p.comparison_id for p in both.pairs} == every
    assert "comparisons_for" not in both.table()
    sft, dpo = {r["comparison_id"] for r in halves.sft}, {p.comparison_id for p in halves.pairs}
    assert (len(sft), len(dpo)) == (20, 20)
    assert sft | dpo == every
    assert halves.table()["comparisons_for"] == {"sft": 20, "pairs": 20}
    assert [r for r in both.sft if r["comparison_id"] in sft] == [*halves.sft], "what is kept is what it was"
    third = data(sft_share=0.25)
    assert {len({r["comparison_id"] for r in third.sft}), len({p.comparison_id for p in third.pairs})} == {10, 30}


def test_a_share_that_leaves_no_example_is_named() -> None:
    data = TrainingData(PROMPTER, LabelConfig(sft_share=0.01))
    for index in range(10):
        data.add(tree_of(("AB",), index=index))
    data.select_pairs()
    assert re.search(r"of 10 trees survived .*\(label.sft_share takes SFT examples of 1 of them\)", data.nothing_left())


def test_preferences_make_the_pairs_and_lead_guidelines_and_criteria() -> None:
    """Under the first guideline B is preferred to A, against the label; under the second criterion A is."""
    tree = tree_of(("ABAA", "BBAA"), ("AAAB",), ("tttt",))
    preferred = {tree.comparison.id: [("d0/c0/g0/1", "d0/c0/g0/0"), ("d0/c1/g0/2", "d0/c1/g0/3")]}
    builder = pair_builder(PROMPTER, LabelConfig(), Rewards(), preferred)
    assert isinstance(builder, PreferredPairBuilder)
    label = ensemble_label(tree, LabelConfig())
    assert label.verdict == "A"
    pairs = builder.pairs(tree, label, random.Random(0))
    sides = sorted((p.level, p.chosen_nodes, p.rejected_nodes) for p in pairs if p.level != "criteria")
    assert sides == [("judgment", ("d0/c0/g0/1",), ("d0/c0/g0/0",)), ("judgment", ("d0/c1/g0/2",), ("d0/c1/g0/3",))]
    (lists,) = [p for p in pairs if p.level == "criteria"]
    # Three of four judgments by the second criterion give the preferred A; one of four by the first gives the
    # preferred B; of the third nothing is known, so it stands in the middle.
    assert lists.chosen_nodes == ("d0/c1", "d0/c2", "d0/c0")
    assert lists.rejected_nodes == ("d0/c0", "d0/c2", "d0/c1")
    assert lists.margin == pytest.approx(0.75 - 0.25)
    assert not list(builder.judgment_pairs(tree_of(("AB",), index=1), "A")), "nobody was asked about it"


def test_preferred_guidelines_are_those_with_more_right_judgments() -> None:
    """A is preferred under both guidelines: three of four judgments by the first give it, two of four by the second."""
    tree = tree_of(("ABAA", "ABAB"))
    preferred = {tree.comparison.id: [("d0/c0/g0/0", "d0/c0/g0/1"), ("d0/c0/g1/0", "d0/c0/g1/1")]}
    builder = PreferredPairBuilder(PROMPTER, LabelConfig(), preferred=preferred)
    (pair,) = builder.guideline_pairs(tree, "A")
    assert (pair.chosen, pair.rejected, pair.margin) == ("guideline a", "guideline b", 0.25)
    even = {tree.comparison.id: [("d0/c0/g0/0", "d0/c0/g0/1"), ("d0/c0/g0/1", "d0/c0/g0/0")]}
    assert not list(PreferredPairBuilder(PROMPTER, LabelConfig(), preferred=even).guideline_pairs(tree, "A"))


@pytest.mark.parametrize("name", ["paper_ood", "paper_id", "paper_transfer"])
def test_the_papers_recipes_use_the_letter(name: str) -> None:
    label = configured(f"recipe={name}", "data_dir=DIR").label
    paper = yaml.safe_load((CONF / "label" / "paper.yaml").read_text())
    assert {key: getattr(label, key) for key in paper} == paper
    assert label.sft_share == (None if name == "paper_id" else 0.5), "table 6"


def test_one_switch_sets_the_letter_and_another_takes_it_back() -> None:
    ours, paper = configured("recipe=quickstart").label, configured("recipe=quickstart", "label=paper").label
    assert (paper.rule, paper.balance) == ("paper", [])
    assert paper.max_sft_per_tree == ours.max_sft_per_tree, "what the paper does not say stays the recipe's"
    groups = {name: yaml.safe_load((CONF / "label" / f"{name}.yaml").read_text()) for name in ("paper", "default")}
    assert set(groups["paper"]) == set(groups["default"])
    assert groups["default"] == {name: getattr(LabelConfig(), name) for name in groups["default"]}
    back = configured("recipe=paper_ood", "data_dir=DIR", "label=default").label
    assert {name: getattr(back, name) for name in groups["default"]} == groups["default"]


def test_the_letter_teaches_lists_as_sampled() -> None:
    """Ours: criteria with a kept branch that gives the label first."""
    tree = tree_of(("BBBB",), ("tttt",), ("AAAA",), ("AAAA",), ("BABA",), ("AAAA",))
    for config, order in ((LabelConfig(), [2, 3, 5, 0, 1, 4]), (LETTER, [0, 1, 2, 3, 4, 5])):
        data = TrainingData(PROMPTER, config)
        data.add(tree)
        (row,) = [row for row in data.sft if row["level"] == "criteria"]
        assert row["nodes"] == [f"d0/c{i}" for i in order]
