"""Whoever loses more than a fifth of the rows to a filter is told, with an example and what to change."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.losses import Losses
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.config import BenchmarkConfig, DialoguesConfig, DialogueSourceConfig, ResponsesConfig, SourceConfig
from judgetrain.data.responses import run as run_responses
from judgetrain.data.stages import ResponsesSettings
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.pipeline.config import Config
from tests.builders import train as builders
from tests.builders.data import run_dialogues, write_lines
from tests.builders.evaluate import run as run_stage
from tests.builders.judging import judge_stage


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    """Return what was printed, in one line."""
    captured = capsys.readouterr()
    return " ".join((captured.out + captured.err).split())


def test_more_than_a_fifth_is_told_and_a_fifth_is_not() -> None:
    losses = Losses()
    losses.lose_all("too_long", ["a", "b"])
    losses.lose("level:too_long", "c")
    told = "2 of 9 rows are left out as too_long, such as a: raise it"
    assert [*losses.sentences(9, {"too_long": "raise it"}, "rows")] == [told]
    assert [*losses.sentences(10, {}, "rows")] == []
    assert [*losses.sentences(4, {}, "rows")] == [
        "2 of 4 rows are left out as too_long, such as a",
        "1 of 4 rows are left out as level:too_long, such as c",
    ]
    # Workers send them to each other.
    assert pickle.loads(pickle.dumps(losses)).examples == losses.examples


def test_dialogues_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_lines(tmp_path / "in.jsonl", [{"query": f"question {i}"} if i % 3 else {"query": 7} for i in range(9)])
    run_dialogues(tmp_path, DialoguesConfig([DialogueSourceConfig(name="src", path=path)], strict=False))
    words = printed(capsys)
    assert "3 of 9 are left out as rejected:wrong_type, such as " in words
    assert "in.jsonl:1 (expected text in field query, found int): look at rejects.jsonl" in words


def test_comparisons_without_two_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"query": f"question {i}", "response_a": "x", "response_b": "x" if i % 2 else "y"} for i in range(8)]
    path = write_lines(tmp_path / "in.jsonl", rows)
    sources = [DialogueSourceConfig(name="src", path=path)]
    dialogues = run_dialogues(tmp_path, DialoguesConfig(sources)).directory
    sample = tmp_path / "cluster"
    sample.mkdir()
    (sample / "sample.jsonl").write_text((dialogues / "dialogues.jsonl").read_text())
    settings = ResponsesSettings(seed=1, responses=ResponsesConfig(), sources=sources)
    out = StageRun(tmp_path / "a" / "b" / "responses", "responses", 1, Console())
    run_responses(settings, {"dialogues": dialogues, "cluster": sample}, out)
    assert "4 of 8 are left out as identical_responses, such as src:" in printed(capsys)


def test_examples_that_are_longer_than_training_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = builders.sft_rows(8)
    for row in rows[:2]:
        row["prompt"][0]["content"] += " for my sister" * 300
    builders.run_initial(tmp_path, builders.config(max_steps=1), rows)
    message = "initial: 2 of 8 supervised examples are left out as too_long, such as d0: raise train.*.max_length"
    assert message in printed(capsys)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"max_chars": 30}, "mine: 4 of 8 rows are left out as too_long, such as mine:4: raise evaluate.benchmarks[]"),
        ({}, "mine: 3 of 11 rows are left out as repeated, such as mine:8"),
        ({"limit": 3}, ""),
    ],
)
def test_rows_of_benchmarks(
    source: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = []
    for i in range(8):
        long = "y" * (40 if i > 3 else 2)
        rows.append({"id": i, "query": f"question {i}", "response_a": "x", "response_b": long, "label": "A"})
    if not source:
        rows += [row | {"id": 8 + place} for place, row in enumerate(rows[:3])]
    path = write_lines(tmp_path / "rows.jsonl", rows)
    benchmark = BenchmarkConfig("mine", SourceConfig(name="mine", path=path), **source)
    evaluate = EvaluateConfig([benchmark], ["longer"], bootstrap=20)
    run_stage("evaluate", Config(evaluate=evaluate), {}, tmp_path / "out")
    words = printed(capsys)
    assert message in words and bool(message) == ("are left out as" in words)


def test_rows_that_stage_judge_cannot_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = {"query": "q", "response_a": "x", "response_b": "yy"}
    rows = [good | {"query": f"question {i}"} for i in range(4)] + [good | {"query": 5}, good | {"response_a": 5}]
    path = write_lines(tmp_path / "rows.jsonl", rows)
    directory = judge_stage(tmp_path / "out", f"verdicts.source.path={path}")
    assert json.loads((directory / "summary.json").read_text())["failures"] == {"wrong_type": 2}
    message = "2 of 6 rows are left out as wrong_type, such as wrong_type: rows.jsonl:5: expected text in field query"
    assert message in printed(capsys)
