"""Stage judge on rows with one response, a list of them, criteria and references of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from judgetrain.artifacts.shards import read_rows
from judgetrain.engines import lazy_model
from judgetrain.engines.base import Request
from judgetrain.errors import ConfigError, DataError
from tests.builders.judging import judge_stage, lines
from tests.builders.scripted import ScriptedEngine, criteria, judged


def answer(request: Request, occurrence: int) -> str:
    """Scores a response by its number of words, and one that says "right" with 5."""
    if request.step == "criteria":
        return criteria(10)
    if request.step == "guideline":
        return "by the words"

    def score(text: str) -> int:
        return 5 if "right" in text else min(5, len(text.split()))

    if request.step == "score":
        return f"Score: {score(request.slots['response'])}\nAnalysis: x"
    return judged(score(request.slots["response_a"]), score(request.slots["response_b"]))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> ScriptedEngine:
    found = ScriptedEngine(answer)
    monkeypatch.setattr(lazy_model, "make_engine", lambda *args, **kwargs: found)
    return found


def run(directory: Path, rows: list[dict[str, object]], *overrides: str) -> Path:
    source = f"verdicts.source.path={lines(directory / 'mine.jsonl', rows)}"
    return judge_stage(directory / "out", source, "judge.score=parsed", *overrides, judge="base")


GROUP = {"id": "g", "query": "q", "responses": ["one", "one two three", " "]}
ALONE = {"id": "s", "query": "q2", "response": "is right"}


def test_responses_are_scored_and_ranked_each_by_itself(
    tmp_path: Path, engine: ScriptedEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = {"id": "e", "query": "q", "responses": ["", " "]}
    directory = run(tmp_path, [GROUP, ALONE, bad], "judge.reads=one", "verdicts.shard_size=1")
    rows = list(read_rows(directory, "scores"))
    assert [(row["id"], row["place"], row["score"], row["rank"]) for row in rows] == [
        ("mine:g", 0, 0.0, 2), ("mine:g", 1, 0.5, 1), ("mine:g", 2, 0.0, 2), ("mine:s", 0, 1.0, 1),
        ("mine:e", 0, None, None),
    ]  # fmt: skip
    assert rows[4]["failure"].startswith("empty_response") and "no response holds a text" in rows[4]["failure"]
    assert [r.step for r in engine.requests].count("score") == 3, (
        "one criterion, a judgment a response; what is empty loses unasked"
    )
    manifest = json.loads((directory / "manifest.json").read_text())
    assert manifest["counts"] == {"in": 3, "out": 4, "dropped": {"empty_response": 1}}
    assert not (directory / "verdicts.jsonl").exists() and str(directory / "scores.jsonl") in capsys.readouterr().out


def test_a_rows_own_criteria_come_before_the_files(tmp_path: Path, engine: ScriptedEngine) -> None:
    (tmp_path / "r.yaml").write_text("- {name: Length, text: it is long, weight: 2, guideline: g}\n")
    own = [{"criterion": "Says hello", "points": 3}, {"criterion": "Is rude", "points": -1}]
    rows = [{**ALONE, "criteria": own}, GROUP, {**ALONE, "id": "j", "criteria": json.dumps(own)}]
    found = list(read_rows(run(tmp_path, rows, "judge.reads=one", f"criteria={tmp_path / 'r.yaml'}"), "scores"))
    told = {
        row["id"]: [(r["name"] or r["criterion"], r["weight"]) for r in row["reasons"]]
        for row in found
        if row["response"] != " "
    }
    assert told["mine:s"] == told["mine:j"] == [("Says hello", 3.0), ("Is rude", -1.0)]
    assert told["mine:g"] == [("Length", 2.0)]
    assert {r.step for r in engine.requests} == {"score"}, "nothing else has to be written"


def test_pairs_go_by_criteria_too_and_a_column_that_nothing_reads_is_named(
    tmp_path: Path, engine: ScriptedEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = {"query": "q", "response_a": "one", "response_b": "is right", "reference": "yes", "note": 1}
    rows = [{**pair, "criteria": ["Is right.", "Is kind."]}, pair]
    found = list(read_rows(run(tmp_path, rows), "verdicts"))
    assert [row["verdict"] for row in found] == ["B", "B"]
    assert [[r["source"] for r in row["reasons"]] for row in found] == [["given"] * 4, ["judge"] * 2]
    assert (found[0]["score_a"], found[0]["score_b"]) == (0.0, 1.0)
    assert all("yes" in request.messages[-1]["content"] for request in engine.requests), "the reference"
    assert "columns that are not used (rows): note (2)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("rows", "overrides", "told"),
    [
        ([GROUP, ALONE], [], "2 of 2 rows hold one response.*judge.reads=one"),
        ([GROUP, {"query": "q", "response_a": "x", "response_b": "y"}], ["judge.reads=one"], "a file|its own file"),
        ([{**ALONE, "criteria": []}], ["judge.reads=one"], "mine.jsonl:1.*criteria: a rubric needs a criterion"),
        ([{**ALONE, "criteria": [{"text": "a", "weight": "x"}]}], ["judge.reads=one"], "criterion 1: weight"),
        ([{**ALONE, "responses": "[1"}], ["judge.reads=one"], "expected a list of texts in field responses"),
        ([ALONE], ["judge.reads=one", "criteria=none.yaml"], "criteria=none.yaml: there is no such file"),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_so_is_refused_with_the_remedy(
    rows: list[dict[str, object]], overrides: list[str], told: str, tmp_path: Path, engine: ScriptedEngine
) -> None:
    with pytest.raises((ConfigError, DataError), match=f"(?s){told}"):
        run(tmp_path, rows, *overrides)


def test_criteria_are_nothing_to_a_judge_without_branches(tmp_path: Path) -> None:
    rows = [{"query": "q", "response_a": "x", "response_b": "y", "criteria": ["c"]}]
    with pytest.raises(ConfigError, match="1 of 1 rows bring criteria"):
        judge_stage(tmp_path / "out", f"verdicts.source.path={lines(tmp_path / 'mine.jsonl', rows)}", judge="longer")
