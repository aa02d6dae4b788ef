"""Responses that people labelled by single criteria: each criterion's judgments learn from its own label."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data import config as data
from judgetrain.data.config import SourceConfig
from judgetrain.data.sources import row_reader
from judgetrain.errors import DataError
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.config import StepsConfig, TreeConfig
from judgetrain.judges.trees.grow import Shape, TreeModel, grow
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label import teacher_stage
from judgetrain.label.config import GivenEngineConfig, TeacherConfig
from judgetrain.label.labels import by_rating, each_in
from judgetrain.label.stages import TeacherSettings
from judgetrain.pipeline.config import Config
from judgetrain.rubrics import Criterion, Rubric, label_of_line
from judgetrain.schema import ORDERS, RESPONSES, Comparison, Rating
from tests.builders.data import run_dialogues, write_lines
from tests.builders.scripted import ScriptedEngine

SAFE = Criterion(text="does no harm", name="safe", weight=3.0, guideline="as it is")
CLEAR = Criterion(text="is clear", name="clear", guideline="as it is")
KIND = Criterion(text="is kind", name="kind", guideline="as it is")


def read_row(tmp_path: Path, row: dict[str, Any], **source: Any) -> Comparison:
    """Return the rated response of a row of a file."""
    path = write_lines(tmp_path / "rows.jsonl", [row])
    reader = row_reader(SourceConfig(name="mine", path=path, **source), "dialogues.sources[0]")
    return reader.rated(row, 1)


ROW = {"query": "q", "response": "r", "label": {"safe": "pass", "clear": "fail"}}


def test_labels_of_single_criteria_rate_the_response_by_their_mean(tmp_path: Path) -> None:
    rating = read_row(tmp_path, ROW).rating_a
    assert rating == Rating(0.5, None, {"safe": 1.0, "clear": 0.0}, whole=False)
    # Annotators of one criterion are a mean, too.
    several = read_row(tmp_path, {**ROW, "label": {"safe": ["pass", "fail"], "clear": "pass"}}).rating_a
    assert several is not None
    assert (several.score, several.by_criterion) == (0.75, {"safe": 0.5, "clear": 1.0})


def test_the_rows_own_criteria_weigh_them(tmp_path: Path) -> None:
    criteria = [{"name": "Safe", "text": "does no harm", "weight": 3}, {"name": "clear", "text": "is clear"}]
    rating = read_row(tmp_path, {**ROW, "criteria": criteria}).rating_a
    assert rating is not None
    # (3 * 1 + 1 * 0) / 4.
    assert rating.score == 0.75


def test_a_label_of_the_whole_goes_before_the_mean(tmp_path: Path) -> None:
    row = {**ROW, "label": [{"safe": "fail"}, "pass"]}
    rating = read_row(tmp_path, row).rating_a
    assert rating == Rating(1.0, None, {"safe": 0.0}, whole=True)


def test_a_rating_is_the_same_after_it_was_written(tmp_path: Path) -> None:
    comparison = read_row(tmp_path, ROW)
    assert Comparison.from_row(comparison.to_row()) == comparison
    # Without labels by criterion a row is what it was before there were any.
    plain = replace(comparison, rating_a=Rating(0.5))
    assert plain.to_row()["rating_a"] == {"score": 0.5, "reason": None}


NAMES = ["tone: calm", "time: 10:30", "a:b", "tone", "shares of 1:2:3:4:5:6:7:8:9:10"]


@pytest.mark.parametrize("name", NAMES)
def test_a_label_is_found_by_a_name_that_holds_colons(tmp_path: Path, name: str) -> None:
    criterion = Criterion(text="is it so: yes, or no?", name=name)
    rating = Rating(0.5, None, {name: 1.0, "is it so": 0.0}, whole=False)
    assert rating.of_criterion(criterion.line) == 1.0
    # That of a name that is a part of this one is another criterion's, where this one has its own.
    both = replace(rating, by_criterion={name.partition(":")[0]: 0.0, name: 1.0})
    assert both.of_criterion(criterion.line) == 1.0

    row = {**ROW, "label": {name: "pass", "safe": "fail"}}
    criteria = [{"name": name, "text": "is it so: yes, or no?", "weight": 3}, {"name": "safe", "text": "no harm"}]
    read = read_row(tmp_path, {**row, "criteria": criteria}).rating_a
    assert read is not None
    # (3 * 1 + 1 * 0) / 4.
    assert (read.score, read.of_criterion(criterion.line)) == (0.75, 1.0)


def test_a_line_of_many_colons_is_read_in_the_time_of_its_text() -> None:
    started = time.perf_counter()
    assert label_of_line("a:" * 200_000, {"a", "b", "a:a"}) == "a:a"
    assert time.perf_counter() - started < 1.0


def tree(rating: Rating, criterion: Criterion, scores: Sequence[int]) -> EvaluationTree:
    """Return the tree of one rated response, whose judgments by a criterion give these scores."""
    response = replace(Comparison.of("q", "r", ""), rating_a=rating, rubric=Rubric((criterion,)))
    engine = ScriptedEngine(lambda request, occurrence: f"Score: {scores[occurrence]}\nAnalysis: it is.")
    shape = Shape(count=1, criteria=1, judgments=len(scores), orders=(*ORDERS, *RESPONSES))
    model = TreeModel(engine, load_prompt_set("compact"), StepsConfig())
    return grow([response], model, replace(shape, steer=each_in(shape.orders)), 0)[0]


RATING = Rating(0.5, None, {"safe": 1.0, "clear": 0.25}, whole=False)


@pytest.mark.parametrize(
    ("criterion", "rating", "verdicts"),
    [
        (SAFE, RATING, "B B tie A A"),  # passed, 5 of 5: right above the middle
        (CLEAR, RATING, "tie A tie B B"),  # 2 of 5: right within a level
        (KIND, replace(RATING, whole=True), "B tie A tie B"),  # not labelled by itself: the whole response's 3 of 5
        (replace(SAFE, weight=-1.0), RATING, "B B tie A A"),  # its own label says the level, whatever it counts
    ],
)
def test_a_judgment_is_right_as_it_is_near_its_criterions_label(
    criterion: Criterion, rating: Rating, verdicts: str
) -> None:
    judged = by_rating(tree(rating, criterion, [1, 2, 3, 4, 5]))
    assert [judgment.verdict for _, _, judgment in judged.judgments()] == verdicts.split()


def test_a_criterion_that_nobody_labelled_teaches_nothing() -> None:
    judged = by_rating(tree(RATING, KIND, [1, 5]))
    assert [(j.verdict, j.failure) for _, _, j in judged.judgments()] == [(None, "no_label"), (None, "no_label")]


def taught(directory: Path, items: list[Comparison], reads: str, by_criteria: bool = False) -> StageRun:
    """Run stage teacher, which writes the labels themselves."""
    responses = StageRun(directory / "responses", "responses", 0, Console())
    responses.write_rows("comparisons", (item.to_row() for item in items))
    teacher = TeacherConfig(engine=GivenEngineConfig(by_criteria=by_criteria), criteria=3, branches=3)
    config = Config(prompts="compact", teacher=teacher, tree=TreeConfig(criteria=3, reads=reads))
    out = StageRun(directory / "teacher", "teacher", 0, Console())
    teacher_stage.run(TeacherSettings.of(config), {"responses": responses.directory}, out)
    return out


def lessons(out: StageRun) -> set[tuple[str, str]]:
    """Return the criterion that each judgment is asked by, and what it is to say."""
    said = set()
    for row in read_rows(out.directory, "examples"):
        if row["level"] == "judgment":
            prompt = row["prompt"][-1]["content"]
            (name,) = [one.name for one in (SAFE, CLEAR, KIND) if one.text in prompt]
            said.add((name, row["completion"][0]["content"]))
    return said


def test_the_teacher_writes_each_criterions_label(tmp_path: Path) -> None:
    response = replace(Comparison.of("q", "r", ""), rating_a=RATING, rubric=Rubric((SAFE, CLEAR, KIND)))
    out = taught(tmp_path, [response], "one")
    # Nobody said how kind it is.
    assert lessons(out) == {("safe", "Score: 5"), ("clear", "Score: 2")}
    assert not out.totals()["counts"]["dropped"]


def test_labels_of_other_criteria_are_refused_with_the_remedy(tmp_path: Path) -> None:
    response = replace(Comparison.of("q", "r", ""), rating_a=RATING, rubric=Rubric((KIND,)))
    with pytest.raises(DataError, match=r"labels are of single criteria \(clear, safe\).*criteria=FILE"):
        taught(tmp_path, [response], "one")


def test_a_label_of_the_whole_teaches_the_other_criteria_where_it_is_to(tmp_path: Path) -> None:
    rating = Rating(0.75, None, {"safe": 0.0})
    response = replace(Comparison.of("q", "r", ""), rating_a=rating, rubric=Rubric((SAFE, KIND)))
    assert lessons(taught(tmp_path / "own", [response], "one")) == {("safe", "Score: 1")}
    out = taught(tmp_path / "all", [response], "one", by_criteria=True)
    assert lessons(out) == {("safe", "Score: 1"), ("kind", "Score: 4")}


def test_of_two_responses_each_criterion_has_its_own_winner(tmp_path: Path) -> None:
    other = Rating(0.5, None, {"safe": 0.0, "clear": 1.0}, whole=False)
    pair = Comparison.of("q", "r", "s", label="tie", rubric=Rubric((SAFE, CLEAR)))
    out = taught(tmp_path, [replace(pair, rating_a=RATING, rating_b=other)], "two")
    winners = {(name, said.splitlines()[0]) for name, said in lessons(out)}
    # In both orders.
    assert winners == {
        ("safe", "Comparison: A is better."),
        ("safe", "Comparison: B is better."),
        ("clear", "Comparison: A is better."),
        ("clear", "Comparison: B is better."),
    }
    trees = [EvaluationTree.from_row(row) for row in read_rows(out.directory, "evaluations")]
    by_name = {node.given.name: {j.verdict for j in node.judgments} for node in trees[0].criteria if node.given}
    assert by_name == {"safe": {"A"}, "clear": {"B"}}


def test_rows_with_labels_by_criterion_are_read_by_stage_dialogues(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rows.jsonl", [ROW, {**ROW, "response": "s", "label": {"safe": "pass"}}])
    source = data.DialogueSourceConfig(name="mine", path=path)
    out = run_dialogues(tmp_path, data.DialoguesConfig([source]))
    (pair,) = [Comparison.from_row(row) for row in read_rows(out.directory, "comparisons")]
    assert pair.rating_a is not None
    assert pair.rating_b is not None
    assert (pair.label, pair.rating_a.by_criterion, pair.rating_b.by_criterion) == (
        "B",
        {"safe": 1.0, "clear": 0.0},
        {"safe": 1.0},
    )
