"""How many pairs are right by the world's truth, by its vocabulary as written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label.config import LabelConfig
from judgetrain.label.labels import Label
from judgetrain.label.pair_precision import in_words
from judgetrain.label.significance import LevelTest
from judgetrain.label.training_data import TrainingData
from judgetrain.schema import Comparison
from tests.builders.data import RAW, independent_grade
from tests.builders.label import ANY_EVIDENCE, PROMPTER, tree_of

LABEL_A = Label(verdict="A", share=1.0, votes={"A": 4, "B": 0, "tie": 0, "unreadable": 0}, readable=1.0)


def made(tree: EvaluationTree, **changes: Any) -> TrainingData:
    """What a tree gives that is labelled A, whatever the truth is."""
    settings = ANY_EVIDENCE | {"balance": [], "max_pairs_per_level": 100} | changes
    data = TrainingData(PROMPTER, LabelConfig(**settings), seed=5)
    data.add(tree, LABEL_A)
    data.select_pairs()
    return data


def on_the_world(comparison: Comparison, names: list[str], *words: tuple[str, ...]) -> EvaluationTree:
    """A tree with criteria of these properties; the first guideline of each is sound, the others are not."""
    criteria = []
    for criterion, name in zip(tree_of(*words).criteria, names, strict=True):
        absent, weak, strong = RAW["properties"][name]["grades"]
        sound = f"5 if it {strong}, 3 if it {weak}, 1 if it {absent}."
        guidelines = [replace(g, text=g.text if i else sound) for i, g in enumerate(criterion.guidelines)]
        text = f"{name}: {RAW['properties'][name]['descriptions'][0]}"
        criteria.append(replace(criterion, text=text, guidelines=tuple(guidelines)))
    return replace(tree_of(*words), comparison=comparison, criteria=tuple(criteria))


def test_on_the_world_a_reader_without_error_says_which_pairs_are_right() -> None:
    found = {"right": 0, "of": 0}
    for comparison in eval_comparisons(WorldConfig(eval_comparisons=40), 1):
        name = RAW["kinds"][comparison.group]["primary"]
        a, b = (independent_grade(r, name) for r in (comparison.response_a, comparison.response_b))
        truth = "t" if a == b else "A" if a > b else "B"
        # Three judgments in four agree, in both orders: the consensus is A, or a tie; one each is the rejected side.
        for agreed, other in (("A", "t"), ("t", "A")):
            tree = on_the_world(comparison, [name], (f"{agreed * 3}{other}{agreed * 3}{other}",))
            row = made(tree, levels=["judgment"]).table()["levels"]["judgment"]
            assert row["of"] == 6 and row["right"] == (6 if agreed == truth else 0)
            found = {key: found[key] + row[key] for key in found}
    assert 0 < found["right"] < found["of"]


def test_on_the_world_a_list_is_right_where_what_decides_stands_earlier_and_a_guideline_where_it_is_sound() -> None:
    comparison = eval_comparisons(WorldConfig(eval_comparisons=1), 1)[0]
    rule = RAW["kinds"][comparison.group]
    other = next(n for n in RAW["properties"] if n not in (rule["primary"], rule["secondary"]))
    words = ("AAAA", "tttt")  # the second guideline of a criterion, and each second criterion, do not give the label
    for names, right in (([rule["primary"], other], True), ([other, rule["primary"]], False)):
        tree = on_the_world(comparison, names, ("AAAA",), ("BBBB",))
        row = made(tree, levels=["criteria"]).table()["levels"]["criteria"]
        assert row["of"] > 0 and row["right"] == (row["of"] if right else 0)
    tree = on_the_world(comparison, [rule["primary"]], words[:1] * 2 + ("AttA",))
    row = made(tree, levels=["guideline"]).table()["levels"]["guideline"]
    assert row["of"] == 2 and row["right"] == 1, "of two guidelines above the third, one is sound"


def test_of_other_data_nothing_is_said_and_a_level_that_was_not_tested_says_so() -> None:
    tree = tree_of(("AAAt",), ("AAAA",), ("BBBB",))
    tree = replace(tree, comparison=replace(tree.comparison, label="A"))
    table = made(tree, levels=["criteria", "judgment"], max_pairs_per_level=1).table()
    assert all("of" not in row for row in table["levels"].values())
    assert [*in_words({"judgment": {"right": 1, "of": 1}}, {"judgment": 1})] == [
        "1 judgment pairs, 100.0% of 1 right by the truth; untested: an independent signal was found for 0 such "
        "differences, of 20 that a test needs"
    ]


def test_a_level_with_enough_tests_has_a_p_value() -> None:
    tested = LevelTest()
    for _ in range(LevelTest.FEWEST - 1):
        tested.add("judgment", 1.0, 1.0)
    assert tested.table()["judgment"]["chance"] is None and tested.p_value("judgment") == 0.0
    tested.add("judgment", 1.0, 1.0)
    assert tested.table()["judgment"]["chance"] == round(0.5**20, 4)
    table = tested.table() | {"judgment": {**tested.table()["judgment"], "right": 3, "of": 4}}
    assert [*in_words(table, {"judgment": 5})] == ["5 judgment pairs, 75.0% of 4 right by the truth"]
