"""Several annotators' rows on one pair or one response: the rubric is found in one judgment with the label of all."""

import json
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from judgetrain.data.votes import as_shown
from judgetrain.extras.rubric.reading import read_judged

Row = dict[str, Any]


def reason(name: str, source: str = "given", **scores: float | None) -> Row:
    """Return a reason of stage judge by one criterion."""
    said = {"name": name, "criterion": f"{name}: is it so", "weight": 1.0, "source": source, "guideline": "g"}
    return {**said, "text": "j", "failure": None, "scale": None, **scores}


def verdict(label: str | None, number: int = 0, swapped: bool = False, **others: Any) -> Row:
    """Return a row of verdicts.jsonl on the texts x and y, x of which scores 5; label: in the row's own order."""
    texts = {"response_a": "y", "response_b": "x"} if swapped else {"response_a": "x", "response_b": "y"}
    scores = {"score_a": 1, "score_b": 5} if swapped else {"score_a": 5, "score_b": 1}
    name = f"r{number}"
    asked = {"id": name, "dialogue_id": name, "messages": [{"role": "user", "content": "q"}]}
    judged = {"model_a": "", "model_b": "", "label": label, "group": None, "judge": "j", "not_judged": []}
    return {**asked, **texts, **judged, "reasons": [{**reason("L", **scores), "order": "AB"}], **others}


def scored(text: str, label: float | None, score: float = 3, query: str = "q", **others: Any) -> Row:
    """Return a row of scores.jsonl."""
    asked = {"id": f"{text} {label}", "dialogue_id": "d", "messages": [{"role": "user", "content": query}]}
    return {**asked, "place": 0, "response": text, "label": label, "reasons": [reason("L", score=score)], **others}


def written(directory: Path, *files: Sequence[Row]) -> list[str]:
    """Return the paths of files with these rows."""
    paths = []
    for number, rows in enumerate(files):
        path = directory / f"judged{number}.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        paths.append(str(path))
    return paths


def labels_in(directory: Path, *files: Sequence[Row]) -> list[str | None]:
    """Return the labels of the trees that are read, in their order."""
    return [tree.comparison.label for tree in read_judged(written(directory, *files))]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [("AAB", "A"), ("BAB", "B"), ("AB", None), ("A", "A"), (["tie", "A", "tie"], "tie"), ("AA", "A")],
)
def test_rows_on_a_pair_are_one_tree_with_their_majority(
    labels: Sequence[str], expected: str | None, tmp_path: Path
) -> None:
    rows = [verdict(label, number) for number, label in enumerate(labels)]
    assert labels_in(tmp_path, rows) == [expected]


def test_the_order_and_the_spelling_of_responses_make_no_other_pair(tmp_path: Path) -> None:
    composed = {"messages": [{"role": "user", "content": "Où?\nEt quand?"}]}
    decomposed = {"messages": [{"role": "user", "content": unicodedata.normalize("NFD", "Où?\r\nEt quand?")}]}
    # Of three votes two are for x.
    rows = [verdict("B", 0, **composed), verdict("B", 1, swapped=True, **decomposed), verdict("A", 2, **composed)]
    rows[2]["response_b"] = " y\n"
    assert labels_in(tmp_path, rows) == ["A"]


def test_a_row_that_was_not_judged_votes_and_another_stands(tmp_path: Path) -> None:
    # The first row's majority is x, and the row that was judged has x as B.
    rows = [verdict("A", 0, reasons=[]), verdict("B", 1, swapped=True), verdict("A", 2, swapped=True)]
    (tree,) = read_judged(written(tmp_path, rows))
    assert (tree.comparison.id, tree.comparison.response_a, tree.comparison.label) == ("r1", "y", "B")
    # Of three votes on x two are for 1, of which one was not scored.
    (pair,) = read_judged(
        written(tmp_path, [scored("x", 1.0, reasons=[]), scored("x", 0.0), scored("x", 1.0), scored("y", 0.0)])
    )
    assert {"A": pair.comparison.response_a, "B": pair.comparison.response_b}[str(pair.comparison.label)] == "x"


def test_each_judges_judgment_of_a_pair_stands_with_the_label_of_all(tmp_path: Path) -> None:
    mine = [verdict("A", 0), verdict("A", 1), verdict("B", 2)]
    other = [verdict("A", 3, judge="k"), verdict("B", 4, judge="k")]
    trees = list(read_judged(written(tmp_path, mine, other)))
    assert [(tree.comparison.id, tree.comparison.label) for tree in trees] == [("r0", "A"), ("r3", "A")]


def test_evaluations_of_one_file_are_one_writers(tmp_path: Path) -> None:
    def evaluation(label: str) -> Row:
        judgments = [{"order": "AB", "text": "Response A Score: 5\nResponse B Score: 1"}]
        criterion = {"criterion": "L: is it so", "guidelines": [{"guideline": "g", "judgments": judgments}]}
        return {"query": "q", "response_a": "x", "response_b": "y", "label": label, "criteria": [criterion]}

    one = [evaluation("B"), evaluation("A"), evaluation("B")]
    assert labels_in(tmp_path, one, [evaluation("B")]) == ["B", "B"]


@pytest.mark.parametrize(
    "other",
    [
        {"group": "style"},
        {"messages": [{"role": "user", "content": "another"}]},
        {"reasons": [{**reason("Other", score_a=5, score_b=1), "order": "AB"}]},
    ],
    ids=["group", "prompt", "criteria"],
)
def test_labels_of_another_question_stay_apart(other: Row, tmp_path: Path) -> None:
    assert labels_in(tmp_path, [verdict("A", 0), verdict("B", 1, **other)]) == ["A", "B"]


def test_criteria_that_stopping_early_left_out_were_given_all_the_same(tmp_path: Path) -> None:
    both = [{**reason(name, score_a=5, score_b=1), "order": "AB"} for name in ("L", "M")]
    rows = [verdict("A", 0, not_judged=["M: is it so"]), verdict("B", 1, reasons=both), verdict("B", 2, reasons=both)]
    assert labels_in(tmp_path, rows) == ["B"]


def test_criteria_that_a_judge_named_itself_make_no_other_pair(tmp_path: Path) -> None:
    rows = []
    for number, label in enumerate("ABB"):
        named = {**reason(f"Named {number}", source="judge", score_a=5, score_b=1), "order": "AB"}
        rows.append(verdict(label, number, reasons=[named], not_judged=[f"Left {number}"]))
    assert labels_in(tmp_path, rows) == ["B"]


def test_what_is_united_is_said(tmp_path: Path) -> None:
    said: list[object] = []
    list(read_judged(written(tmp_path, [verdict("A", 0), verdict("B", 1)]), said.append))
    assert len(said) == 1
    assert "1 pair of responses stands in several rows with different labels, such as r0 (A, B)" in str(said[0])
    said.clear()
    list(read_judged(written(tmp_path, [scored("x", 1.0), scored("x", 0.0), scored("y", 0.0)]), said.append))
    assert len(said) == 1
    assert "1 response stands in several rows with labels, 2 in all, such as x 1.0/0; of 1 the labels" in str(said[0])


def test_annotators_rows_on_a_response_are_one_response_and_no_slip_is_truth(tmp_path: Path) -> None:
    rows = []
    for number in range(6):
        is_good = number % 2 == 1
        # Of three annotators the third slips; copies are spelled in three ways.
        for place, end in enumerate(("", "\n", " ")):
            says_good = is_good != (place == 2)
            score = 5 if is_good else 1
            rows.append(scored(f"text {number}{end}", float(says_good), score, f"question {number}"))
    trees = list(read_judged(written(tmp_path, rows)))
    assert len(trees) == 3
    texts = []
    for tree in trees:
        comparison = tree.comparison
        texts += [as_shown(comparison.response_a), as_shown(comparison.response_b)]
        (judgment,) = tree.criteria[0].judgments
        assert judgment.verdict == comparison.label
    assert sorted(texts) == [f"text {number}" for number in range(6)]


def test_ratings_of_a_response_count_as_their_mean(tmp_path: Path) -> None:
    # By their means 0.5 and 0.625 the second is better, and by the first row of each the first.
    rows = [scored("x", 1.0), scored("x", 0.0), scored("y", 0.75), scored("y", 0.5), scored("y", None)]
    (tree,) = read_judged(written(tmp_path, rows))
    better = {"A": tree.comparison.response_a, "B": tree.comparison.response_b}[str(tree.comparison.label)]
    assert better == "y"


def test_a_slip_makes_no_response_worse_than_another_that_passes(tmp_path: Path) -> None:
    labels = {"x": (1.0, 1.0, 0.0), "y": (1.0, 1.0, 1.0), "z": (0.0, 0.0, 1.0), "u": (0.0, 0.0, 0.0)}
    rows = [scored(text, label) for text, of_text in labels.items() for label in of_text]
    pairs = set()
    for tree in read_judged(written(tmp_path, rows)):
        texts = (tree.comparison.response_a, tree.comparison.response_b)
        pairs.add(texts if tree.comparison.label == "A" else texts[::-1])
    # x would else be paired with y, and z with u.
    assert pairs == {("x", "z"), ("y", "u")}


def test_a_response_that_as_many_say_passes_as_fails_has_no_label(tmp_path: Path) -> None:
    rows = [scored("x", 1.0), scored("x", 0.0), scored("y", 1.0), scored("z", 1.0), scored("u", None)]
    (tree,) = read_judged(written(tmp_path, rows))
    assert tree.comparison.label is None
    assert {tree.comparison.response_a, tree.comparison.response_b} == {"x", "u"}


@pytest.mark.parametrize("labels", [(1.0, 0.0), (None, None)])
def test_two_responses_that_read_the_same_are_no_pair(
    labels: tuple[float | None, float | None], tmp_path: Path
) -> None:
    """To two prompts, so that both stand: nothing in one text could make it better than itself."""
    rows = [scored("Café", labels[0]), scored(unicodedata.normalize("NFD", "Café\n"), labels[1], query="another")]
    assert labels_in(tmp_path, rows) == []
    assert len(labels_in(tmp_path, [*rows, scored("Tee", labels[1])])) == 1
