"""Responses that people rated one by one: judged alone, right as they are near the rating, and trained from."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.base import Request
from judgetrain.errors import DataError
from judgetrain.judges.config import StepsConfig, TreeConfig
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.grow import Shape, grow
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label import stage as label_stage
from judgetrain.label import teacher_stage
from judgetrain.label.config import GivenEngineConfig, LabelConfig, TeacherConfig
from judgetrain.label.labels import by_rating, each_in
from judgetrain.label.stages import LabelSettings, TeacherSettings
from judgetrain.pipeline.config import Config
from judgetrain.rubrics import Criterion, Rubric
from judgetrain.schema import ORDERS, RESPONSES, Comparison, Rating, Reads
from judgetrain.train import stage as train_stage
from judgetrain.train.stages import DpoSettings, SftSettings
from tests.builders.label import ANY_EVIDENCE
from tests.builders.scripted import ScriptedEngine, judged
from tests.builders.train import config as train_config
from tests.builders.train import run_initial, same, sft_rows, weights

PROMPTS = load_prompt_set("compact")
PAIR = Comparison.of("Which river?", "the Rhine", "a lake", label="A")


def alone(score: float, index: int = 0, reason: str | None = None) -> Comparison:
    return replace(Comparison.of(f"query {index}", f"response {index}", ""), rating_a=Rating(score, reason))


def tree(item: Comparison, *scores: int, weight: float = 1.0) -> EvaluationTree:
    """The tree of a given criterion whose judgments give these scores; pairs have 4 and 2."""

    def answer(request: Request, occurrence: int) -> str:
        if request.step == "judgment":
            return judged(4, 2)
        return f"Score: {scores[occurrence]}\nAnalysis: {'abcdefgh'[occurrence]} it is."

    shape = Shape(count=1, criteria=1, judgments=len(scores), orders=(*ORDERS, *RESPONSES))
    rubric = Rubric((Criterion(text="it is kind", weight=weight, guideline="as it is"),))
    asked = replace(item, rubric=rubric)
    return grow([asked], ScriptedEngine(answer), PROMPTS, shape, StepsConfig(), 0, steer=each_in(shape.orders))[0]


@pytest.mark.parametrize(
    ("rating", "weight", "verdicts"),
    [
        (1.0, 1.0, "B B tie A A"),  # passed: above the middle
        (0.0, 1.0, "A A tie B B"),  # failed: below it
        (0.75, 1.0, "B B tie A tie"),  # 4 of 5
        (0.5, 1.0, "B tie A tie B"),
        (1.0, -1.0, "A A tie B B"),  # a criterion that speaks against it
    ],
)
def test_a_judgment_is_right_as_it_is_near_the_rating(rating: float, weight: float, verdicts: str) -> None:
    found = by_rating(tree(alone(rating), 1, 2, 3, 4, 5, weight=weight))
    assert [j.order for _, _, j in found.judgments()] == ["A"] * 5
    assert [j.verdict for _, _, j in found.judgments()] == verdicts.split()


def test_pairs_grow_as_before_and_are_left_as_they_are() -> None:
    grown = tree(PAIR, 4, 4)
    assert Counter(j.order for _, _, j in grown.judgments()) == dict.fromkeys(("AB", "BA", "A", "B"), 2)
    assert by_rating(grown) is grown


def labelled(directory: Path, trees: list[EvaluationTree], source: str = "given", **changes: Any) -> StageRun:
    StageRun(directory / "tree", "tree", 0, Console()).write_rows("trees", (each.to_row() for each in trees))
    label = LabelConfig(source=source, levels=["judgment"], **ANY_EVIDENCE, **changes)
    config = Config(prompts="compact", tree=TreeConfig(criteria=1, reads="one"), label=label)
    out = StageRun(directory / "label", "label", 0, Console())
    label_stage.run(LabelSettings.of(config), {"tree": directory / "tree"}, out)
    return out


def rows(out: StageRun, kind: str) -> list[dict[str, Any]]:
    return [row for split in ("train", "heldout") for row in read_rows(out.directory, f"{kind}-{split}")]


def test_the_nearer_of_two_judgments_is_chosen_and_what_is_steady_is_taught(tmp_path: Path) -> None:
    trees = [tree(alone(0.75, 0), 4, 4, 4, 5, 2), tree(alone(0.0, 1), 1, 1), tree(alone(1.0, 2), 1, 2)]
    out = labelled(tmp_path, trees)
    sides = {(row["chosen"][0]["content"][:8], row["rejected"][0]["content"][:8]) for row in rows(out, "pairs")}
    assert sides == {("Score: 4", "Score: 5"), ("Score: 4", "Score: 2")}
    taught = {row["comparison_id"]: row["completion"][0]["content"][:8] for row in rows(out, "sft")}
    assert taught == {trees[1].comparison.id: "Score: 1"}, "of the third both are against what people say"
    found = {row["comparison_id"]: row for row in read_rows(out.directory, "labels")}
    assert [found[t.comparison.id]["rating"] for t in trees] == [0.75, 0.0, 1.0]
    assert {row["verdict"] for row in found.values()} == {None}, "for those who read verdicts on two responses"
    assert out.notes["yield"]["ensemble_vs_given"] == {"right": 2, "wrong": 1}


@pytest.mark.parametrize("source", ["ensemble", "external"])
def test_without_given_labels_a_rating_is_not_read(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ScriptedEngine(
        lambda request, occurrence: "[[A]]" if request.slots["response_a"] == "the Rhine" else "[[B]]"
    )
    monkeypatch.setattr("judgetrain.label.external.make_engine", lambda config, **options: asked)
    out = labelled(tmp_path, [tree(PAIR, 4, 4), tree(alone(1.0), 5, 5)], source)
    assert {row["comparison_id"] for row in rows(out, "sft")} == {PAIR.id}
    assert out.totals()["counts"]["dropped"] == {"rated_alone": 1}


def taught(directory: Path, items: list[Comparison], reads: Reads = "one") -> StageRun:
    responses = StageRun(directory / "responses", "responses", 0, Console())
    responses.write_rows("comparisons", (item.to_row() for item in items))
    teacher = TeacherConfig(engine=GivenEngineConfig(), criteria=1, branches=1)
    config = Config(prompts="compact", teacher=teacher, tree=TreeConfig(criteria=1, reads=reads))
    out = StageRun(directory / "teacher", "teacher", 0, Console())
    teacher_stage.run(TeacherSettings.of(config), {"responses": responses.directory}, out)
    return out


def test_ratings_stand_in_the_teachers_place_and_a_rationale_is_the_analysis(tmp_path: Path) -> None:
    items = [alone(0.75, 0, "It names\nthe river."), alone(0.0, 1), PAIR]
    found = [row for row in read_rows(taught(tmp_path, items).directory, "examples") if row["level"] == "judgment"]
    said = {(row["comparison_id"], row["completion"][0]["content"]) for row in found}
    assert said == {
        (items[0].id, "Score: 4\nAnalysis: It names the river."),
        (items[1].id, "Score: 1"),
        (PAIR.id, "Score: 4"),
        (PAIR.id, "Score: 2"),
    }
    both = replace(PAIR, rating_a=Rating(1.0), rating_b=Rating(0.25))
    rated = [
        row for row in read_rows(taught(tmp_path / "b", [both]).directory, "examples") if row["level"] == "judgment"
    ]
    assert sorted(row["completion"][0]["content"] for row in rated) == ["Score: 2", "Score: 5"]


def test_judgments_of_two_are_of_no_response_alone(tmp_path: Path) -> None:
    out = taught(tmp_path, [alone(1.0), PAIR], "two")
    assert {row["comparison_id"] for row in read_rows(out.directory, "examples")} == {PAIR.id}
    assert out.totals()["counts"]["dropped"] == {"rated_alone": 1}
    with pytest.raises(DataError, match="2 of 2 are responses that stand alone, .*set tree.reads=one"):
        taught(tmp_path / "b", [alone(1.0), alone(0.0, 1)], "two")


def test_the_stages_train_from_ratings(tmp_path: Path) -> None:
    items = [alone(float(i % 2), i) for i in range(12)]
    label = labelled(
        tmp_path, [tree(c, 5, 5) if c.rating_a == Rating(1.0) else tree(c, 1, 1, 5) for c in items], holdout=0
    )
    settings = train_config(max_steps=2, learning_rate=1e-3)
    start = run_initial(tmp_path, settings, sft_rows(8))
    sft, dpo = (StageRun(tmp_path / name, name, 0, Console()) for name in ("sft", "dpo"))
    train_stage.run_sft(SftSettings.of(settings), {"initial": start.directory, "label": label.directory}, sft)
    train_stage.run_dpo(DpoSettings.of(settings), {"sft": sft.directory, "label": label.directory}, dpo)
    assert not same(weights(start.directory), weights(sft.directory))
    assert not same(weights(sft.directory), weights(dpo.directory))
