"""Evaluations that are already written in the teacher's place: read, counted, and taught as they are."""

from __future__ import annotations

import functools
import json
import operator
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.config import BenchmarkConfig, DialoguesConfig, SourceConfig
from judgetrain.engines.config import OpenAIEngineConfig
from judgetrain.errors import ConfigError, DataError
from judgetrain.judges.config import TreeConfig
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label import teacher_stage
from judgetrain.label.config import TeacherConfig
from judgetrain.label.stages import TeacherSettings
from judgetrain.label.teacher_stage import read_evaluations
from judgetrain.pipeline.config import Config
from tests.builders.label import TAUGHT, run_teacher, teacher_config
from tests.builders.scripted import comparison, judged

JUDGED = [{"text": judged(5, 1)}, {"order": "BA", "text": judged(2, 4)}, {"text": "I like the first one."}]
GUIDELINES = [{"guideline": "5 when right, else 1.", "judgments": JUDGED}, {"guideline": "Never judged by."}]
BRIEF = {"guideline": "5 for a number alone.", "judgments": [{"text": judged(4, 4.5)}]}
PLAIN: dict[str, Any] = {
    "query": "What is 2 + 2?",
    "response_a": "4",
    "response_b": "5",
    "criteria": [
        {"criterion": "Correctness: is the\n sum right?", "guidelines": GUIDELINES},
        {"criterion": "Brevity: no more than the number", "guidelines": [BRIEF]},
        "Tone: friendly",
    ],
}


SECOND = ["criteria", 1, "guidelines", 0]


def write(path: Path, *rows: Any) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def changed(place: list[Any], value: Any) -> dict[str, Any]:
    """The plain row with one value changed, or removed where the value is ``None``."""
    row: dict[str, Any] = json.loads(json.dumps(PLAIN))
    item: Any = functools.reduce(operator.getitem, place[:-1], row)
    item[place[-1]] = value
    if value is None:
        del item[place[-1]]
    return row


def test_a_plain_row_becomes_a_tree_in_its_own_order(tmp_path: Path) -> None:
    (tree,) = read_evaluations(write(tmp_path / "e.jsonl", PLAIN))
    assert tree.criteria_text == (
        "1. Correctness: is the sum right?\n2. Brevity: no more than the number\n3. Tone: friendly"
    )
    nodes = [(j.order, j.score_a, j.score_b, j.verdict) for _, _, j in tree.judgments()]
    assert nodes == [
        ("AB", 5, 1, "A"), ("BA", 4, 2, "A"), ("AB", None, None, None), ("AB", 4, 4.5, "B"),
    ]  # fmt: skip
    assert tree.failures == {"judgment:no_scores": 1}
    ids = [j.id for _, _, j in tree.judgments()]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (["criteria"], None, "expected the list criteria"),
        (["criteria"], [], "criteria is empty"),
        (["criteria", 2], 7, r"criteria\[2\]: expected an object with the text criterion, found None"),
        (["criteria", 0, "guidelines"], "one", r"criteria\[0\]: expected the list guidelines, found str"),
        ([*SECOND, "guideline"], " ", r"criteria\[1\]\.guidelines\[0\]: expected .* the text guideline"),
        ([*SECOND, "judgments", 0, "text"], 3, r"judgments\[0\]: expected .* the text text, found 3"),
        (["criteria", 0, "guidelines", 0, "judgments", 1, "order"], "ba", "order='ba': expected AB or BA"),
        (["criteria", 0, "guidelines", 0, "judgments", 1], "A", r"guidelines\[0\]\.judgments\[1\]: expected an object"),
        (["response_b"], None, "expected text in field response_b, found nothing"),
        (["criteria_text"], "1. x", "not an evaluation tree as stage teacher writes them"),
    ],
)
def test_a_malformed_row_is_named_with_file_line_and_place(
    place: list[Any], value: Any, message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "e.jsonl", PLAIN | {"id": "1"}, changed(place, value))
    with pytest.raises(DataError, match=rf"e\.jsonl:2: .*{message}"):
        list(read_evaluations(path))


def test_the_documented_row_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "dialogues.md").read_text(encoding="utf-8")
    block = next(b for b in page.split("```json\n") if "2 + 2" in b).split("```")[0]
    (tree,) = read_evaluations(write(tmp_path / "e.jsonl", json.loads(block)))
    assert [j.verdict for _, _, j in tree.judgments()] == ["A", "A"]
    assert not tree.failures


def test_a_comparison_stands_once_and_files_must_be_there(tmp_path: Path) -> None:
    path = write(tmp_path / "e.jsonl", PLAIN | {"id": "1"}, PLAIN | {"id": "1"})
    with pytest.raises(DataError, match=r"e\.jsonl:2: the comparison 'evaluations:1' stands twice"):
        list(read_evaluations(path))
    config = Config(output_dir=str(tmp_path / "outputs"), teacher=TeacherConfig(evaluations=str(tmp_path / "none")))
    with pytest.raises(ConfigError, match=r"teacher\.evaluations.*no such file"):
        list(read_evaluations(config.teacher.evaluations))


def test_what_a_teacher_wrote_teaches_the_same_when_it_is_read_back(tmp_path: Path) -> None:
    first = run_teacher(tmp_path / "first" / "teacher", teacher_config())
    config = teacher_config()
    config.teacher = TeacherConfig(
        engine=OpenAIEngineConfig(), evaluations=str(first.directory / "evaluations-*.jsonl")
    )
    again = run_teacher(tmp_path / "again" / "teacher", config)
    for name in ("evaluations", "examples"):
        assert list(read_rows(again.directory, name)) == list(read_rows(first.directory, name))
    remaining = [{r["id"] for r in read_rows(out.directory, "remaining")} for out in (first, again)]
    assert remaining[0] == remaining[1]
    assert len(remaining[1]) == len(TAUGHT) - 14
    assert again.totals()["tokens"] == {"prompt": 0, "generated": 0}, "nobody was asked"


def taught(directory: Path, *rows: Any, **dialogues: Any) -> StageRun:
    """The stage over the first two comparisons, with these evaluations already written."""
    responses = StageRun(directory / "responses", "responses", 0, Console())
    responses.write_rows("comparisons", (c.to_row() for c in (comparison(0), comparison(1))))
    config = Config(
        prompts="compact",
        teacher=TeacherConfig(engine=OpenAIEngineConfig(), evaluations=write(directory / "e.jsonl", *rows)),
        dialogues=DialoguesConfig(**dialogues),
        tree=TreeConfig(criteria=3),
    )
    out = StageRun(directory / "teacher", "teacher", 7, Console())
    teacher_stage.run(TeacherSettings.of(config), {"responses": responses.directory}, out)
    return out


def test_the_stage_teaches_what_plain_files_hold_and_leaves_the_rest(tmp_path: Path) -> None:
    known = comparison(0)
    row = PLAIN | {"query": known.dialogue.query, "response_a": known.response_a, "response_b": known.response_b}
    out = taught(tmp_path, row)
    assert [r["id"] for r in read_rows(out.directory, "remaining")] == [comparison(1).id]
    assert out.totals()["counts"] == {"in": 1, "out": 1, "dropped": {"judgment:no_scores": 1}}
    examples = list(read_rows(out.directory, "examples"))
    assert Counter(e["level"] for e in examples) == {"criteria": 1, "guideline": 3, "judgment": 3}
    judgments = {e["nodes"][0]: e for e in examples if e["level"] == "judgment"}
    (tree,) = (EvaluationTree.from_row(r) for r in read_rows(out.directory, "evaluations"))
    swapped = next(j for _, _, j in tree.judgments() if j.order == "BA")
    shown = f"Response A: {known.response_b}\nResponse B: {known.response_a}"
    assert shown in judgments[swapped.id]["prompt"][-1]["content"]


def test_written_evaluations_of_a_benchmarks_queries_teach_nothing(tmp_path: Path) -> None:
    benchmark = {"query": PLAIN["query"], "response_a": "x", "response_b": "y", "label": "A"}
    source = SourceConfig(name="b", path=write(tmp_path / "b.jsonl", benchmark), format="comparison")
    held = {"decontaminate": [BenchmarkConfig("b", source)]}
    out = taught(tmp_path, PLAIN, PLAIN | {"query": "What is the capital of France?", "id": "2"}, **held)
    (tree,) = (EvaluationTree.from_row(r) for r in read_rows(out.directory, "evaluations"))
    assert tree.comparison.dialogue.query == "What is the capital of France?"
    assert out.totals()["counts"]["dropped"]["contaminated"] == 1
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="every one of the 1 evaluations is of a dialogue that holds a benchmark's"):
        taught(tmp_path / "none", PLAIN, **held)
