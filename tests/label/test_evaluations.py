"""Evaluations that are already written in the teacher's place: read, counted, and taught as they are."""

from __future__ import annotations

import json
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
from judgetrain.label.evaluations import read_evaluations
from judgetrain.label.stages import TeacherSettings
from judgetrain.pipeline.config import Config
from tests.builders.label import TAUGHT, run_teacher, teacher_config, tree_of
from tests.builders.scripted import comparison

ROW: dict[str, Any] = tree_of(("AA?",), ("B",), index=0).to_row()


def write(path: Path, *rows: Any) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("gone", [["criteria"], ["lists"], ["comparison"], ["criteria", 0, "guidelines"]])
def test_a_malformed_row_is_named_with_file_and_line(gone: list[Any], tmp_path: Path) -> None:
    item = row = json.loads(json.dumps(tree_of(("A",), index=1).to_row()))
    for step in gone[:-1]:
        item = item[step]
    del item[gone[-1]]
    with pytest.raises(DataError, match=r"e\.jsonl:2: .*not an evaluation tree as stage teacher writes them"):
        list(read_evaluations(write(tmp_path / "e.jsonl", ROW, row)))


def test_a_comparison_stands_once_and_files_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"e\.jsonl:2: the comparison 'd0' stands twice"):
        list(read_evaluations(write(tmp_path / "e.jsonl", ROW, ROW)))
    with pytest.raises(ConfigError, match=r"teacher\.evaluations.*no such file"):
        list(read_evaluations(str(tmp_path / "none")))


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


def written(query: str, **more: str) -> dict[str, Any]:
    """A row about another query."""
    said = ROW["comparison"]
    return ROW | {
        "comparison": said | {"dialogue": said["dialogue"] | {"messages": [{"role": "user", "content": query}]}} | more
    }


def test_the_stage_teaches_what_files_hold_and_leaves_the_rest(tmp_path: Path) -> None:
    out = taught(tmp_path, ROW | {"comparison": comparison(0).to_row()})
    assert [r["id"] for r in read_rows(out.directory, "remaining")] == [comparison(1).id]
    counts = out.totals()["counts"]
    assert (counts["in"], counts["out"]) == (1, 1)
    levels = Counter(e["level"] for e in read_rows(out.directory, "examples"))
    assert levels == {"criteria": 1, "guideline": 2, "judgment": 3}, "the judgment that cannot be read teaches nothing"


def test_written_evaluations_of_a_benchmarks_queries_teach_nothing(tmp_path: Path) -> None:
    benchmark = {"query": "What is 2 + 2?", "response_a": "x", "response_b": "y", "label": "A"}
    source = SourceConfig(name="b", path=write(tmp_path / "b.jsonl", benchmark), format="comparison")
    held = {"decontaminate": [BenchmarkConfig("b", source)]}
    out = taught(tmp_path, written("What is 2 + 2?"), written("What is the capital of France?", id="2"), **held)
    (tree,) = (EvaluationTree.from_row(r) for r in read_rows(out.directory, "evaluations"))
    assert tree.comparison.dialogue.query == "What is the capital of France?"
    assert out.totals()["counts"]["dropped"]["contaminated"] == 1
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="every one of the 1 evaluations is of a dialogue that holds a benchmark's"):
        taught(tmp_path / "none", written("What is 2 + 2?"), **held)
