"""Stage leaderboard as a user runs it: what it reads, what it writes, its page, and what it refuses."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.data.cells import RowError
from judgetrain.data.world import queries
from judgetrain.data.world.rule import load_world
from judgetrain.errors import ConfigError, DataError
from judgetrain.extras.leaderboard.ratings import Battles, battle_of, read_battles
from judgetrain.pipeline.run import Pipeline
from tests.builders.judging import lines
from tests.builders.pages import parse
from tests.builders.pipeline import configured

SKILLS = (0.2, 0.5, 0.9)
RULE = 3
"""Of what the writers follow and the referee goes by."""


def ranked(home: Path, *overrides: str) -> Path:
    """Return the directory of a finished stage leaderboard."""
    words = ("recipe=debug", f"output_dir={home}", "track.tracker=none", *overrides)
    return Pipeline(configured(*words), Console()).run("leaderboard")


def board(directory: Path) -> dict[str, Any]:
    """Return what leaderboard.json holds; NaN would be an error."""
    text = (directory / "leaderboard.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in leaderboard.json"))
    return content


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three writers' answers to 15 queries, as alpaca_eval's outputs."""
    place = tmp_path_factory.mktemp("answers")
    rng = random.Random(0)
    world = load_world(RULE)
    questions = rng.sample(queries("heldout"), 15)
    for skill in SKILLS:
        rows = [
            {"instruction": q, "output": world.respond(q, skill, rng), "generator": f"writer {skill}"}
            for q in questions
        ]
        (place / f"{skill}.json").write_text(json.dumps(rows), encoding="utf-8")
    return f"verdicts.systems=[{place}/*.json]"


def test_plain_battles_make_a_leaderboard_in_all_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"model_a": "x", "model_b": "<b>y</b>", "winner": winner, "question_id": n}
        for n, winner in enumerate(["model_a", "model_b", "tie (bothbad)", "x", None, "A", "model_a"])
    ]
    directory = ranked(tmp_path, f"leaderboard.files=[{lines(tmp_path / 'b.jsonl', rows)}]")
    content = board(directory)
    assert content["outcomes"] == {"A": 4, "B": 1, "missing": 1, "tie": 1} and content["counted"] == 6
    first, second = content["systems"]
    assert (first["system"], second["system"]) == ("x", "<b>y</b>")
    assert (first["wins"], first["losses"], first["missing"]) == (4, 1, 1)
    page = parse((directory / "leaderboard.html").read_text(encoding="utf-8"))
    assert page.all("tbody")[0].all("td")[0].text() == "x"
    assert "<b>y</b>" in page.text() and "6 of 7 comparisons" in page.text()
    printed = capsys.readouterr().out
    assert "6 of 7 comparisons on 6 prompts count (4 A, 1 B, 1 missing, 1 tie)." in printed
    manifest = json.loads((directory / "manifest.json").read_text())
    assert manifest["counts"] == {"in": 7, "out": 6, "dropped": {"missing": 1}}


def test_systems_answers_are_judged_and_ranked(tmp_path: Path, answers: str) -> None:
    referee = f"evaluate.external={{type: world, error_rate: 0.0, rule: {RULE}}}"
    judge = ("verdicts.judge=pairwise:external", referee)
    directory = ranked(tmp_path, answers, *judge)
    content = board(directory)
    assert [s["system"] for s in content["systems"]] == [f"writer {skill}" for skill in SKILLS[::-1]]
    assert content["comparisons"] == 45 and content["prompts"] == 15
    # The same verdicts, from the directory of stage judge.
    [place] = (tmp_path / "artifacts" / "judge").iterdir()
    assert board(ranked(tmp_path, f"leaderboard.files=[{place}]"))["pairs"] == content["pairs"]


def test_a_place_without_verdicts_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"leaderboard.files.*no such file"):
        ranked(tmp_path, "leaderboard.files=[nowhere.jsonl]")
    with pytest.raises(DataError, match=r"holds no verdicts.jsonl"):
        list(read_battles([tmp_path]))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"model_a": "x", "winner": "A"}, "two systems' names in model_a and model_b, found 'x' and ''"),
        ({"model_a": "x", "model_b": "x", "winner": "A"}, "both 'x'; expected two systems"),
        ({"model_a": "x", "model_b": "y", "winner": "maybe"}, "winner='maybe': expected A, B, tie"),
        ({"model_a": "x", "model_b": "y"}, "expected a verdict or winner"),
        ({"model_a": "B", "model_b": "A", "winner": "A"}, "is the name of a system, and means A by itself"),
        ({"model_a": "b", "model_b": "a", "winner": "b"}, "is the name of a system, and means B by itself"),
        ({"model_a": "x", "model_b": "tie", "winner": "tie"}, "is the name of a system, and means tie by itself"),
        ({"model_a": "x", "model_b": "y", "verdict": "B", "winner": "A"}, "verdict='B' and winner='A' say two things"),
        ({"model_a": "x", "model_b": "y", "verdict": "tie", "winner": "x"}, "say two things; leave one of the columns"),
        (["x", "y"], "expected an object with model_a, model_b and a verdict"),
    ],
)
def test_a_row_that_is_no_comparison_is_named_with_its_line(tmp_path: Path, row: Any, message: str) -> None:
    with pytest.raises(RowError, match=re.escape(message)):
        battle_of(row)
    place = lines(tmp_path / "b.jsonl", [{"model_a": "x", "model_b": "y", "winner": "A"}, row])
    with pytest.raises(DataError, match=rf"{re.escape(str(place))}:2: .*{re.escape(message)}"):
        list(read_battles([place]))


@pytest.mark.parametrize(
    ("row", "outcome"),
    [
        ({"model_a": "A", "model_b": "B", "winner": "A"}, "A"),
        ({"model_a": "B", "model_b": "A", "winner": "model_a"}, "A"),
        ({"model_a": "B", "model_b": "A", "winner": "draw"}, "tie"),
        ({"model_a": "x", "model_b": "A", "winner": "x"}, "A"),
        # Two columns that say the same, or of which one holds nothing, as in files that were put together.
        ({"model_a": "x", "model_b": "y", "verdict": "A", "winner": "x"}, "A"),
        ({"model_a": "x", "model_b": "y", "verdict": "", "winner": "y"}, "B"),
        ({"model_a": "x", "model_b": "y", "verdict": "tie", "winner": None}, "tie"),
        ({"model_a": "x", "model_b": "y", "verdict": None}, "missing"),
        # Stage judge's verdicts are of the place.
        ({"model_a": "B", "model_b": "A", "verdict": "A"}, "A"),
    ],
)
def test_systems_may_be_called_as_outcomes_where_that_means_one_thing(row: dict[str, Any], outcome: str) -> None:
    assert battle_of(row).outcome == outcome


SAID = {"role": "user", "content": "Why?"}
MORE = [SAID, {"role": "assistant", "content": "So."}, {"role": "user", "content": "And?"}]


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({"messages": [SAID], "dialogue_id": "d1"}, {"messages": [SAID], "dialogue_id": "d2"}, True),
        ({"messages": [SAID]}, {"messages": [{**SAID, "content": "How?"}]}, False),
        ({"messages": [SAID]}, {"messages": json.dumps([SAID])}, True),
        ({"messages": [SAID]}, {"messages": MORE}, True),
        ({"messages": MORE}, {"messages": [{**SAID, "content": "How?"}, *MORE[1:]]}, False),
        ({"messages": [SAID]}, {"query": "Why?"}, True),
        *(
            ({name: "u1"}, {name: "u1"}, True)
            for name in ("uid", "question_id", "prompt_id", "instruction", "question")
        ),
        ({"uid": "u1", "messages": [SAID]}, {"uid": "u2", "messages": [SAID]}, False),
        ({"question_id": 0, "messages": [SAID]}, {"question_id": 0, "messages": MORE[2:]}, True),
        ({"question_id": 0}, {"question_id": 1}, False),
        ({"question_id": None, "query": "Why?"}, {"question_id": float("nan"), "query": "Why?"}, True),
        ({"uid": "1"}, {"uid": "12"}, False),
        ({}, {}, False),
    ],
)
def test_what_a_row_is_about(first: dict[str, Any], second: dict[str, Any], same: bool, tmp_path: Path) -> None:
    base = {"model_a": "x", "model_b": "y", "verdict": "A"}
    read = Battles(read_battles([lines(tmp_path / "b.jsonl", [base | first, base | second])]))
    assert (read.games.prompts == 1) is same
    assert read.unnamed == (0 if first else 2)


def test_a_column_of_prompts_may_be_named_and_none_is_told(tmp_path: Path) -> None:
    base = {"model_a": "x", "model_b": "y"}
    rows = [{**base, "winner": "A" if n % 20 < 13 else "B", "item": n % 20} for n in range(600)]
    files = f"leaderboard.files=[{lines(tmp_path / 'b.jsonl', rows)}]"
    without_column, named = (board(ranked(tmp_path, files, *more)) for more in ((), ("leaderboard.prompt=item",)))
    assert (without_column["prompts"], without_column["unnamed"], named["prompts"], named["unnamed"]) == (
        600,
        600,
        20,
        0,
    )
    widths = [f["pairs"][0]["interval"][1] - f["pairs"][0]["interval"][0] for f in (without_column, named)]
    assert widths[1] > 2 * widths[0]


def test_an_empty_answer_loses_and_stands_in_its_own_system_s_record(tmp_path: Path) -> None:
    # quitter wins what it answers, 2 of 10, as the longer one. It is the last only if an empty answer is a loss.
    texts = {"steady": ["middling"] * 10, "quitter": ["the very longest"] * 2 + [" "] * 8, "brief": ["short"] * 10}
    for name, answers in texts.items():
        rows = [{"uid": n, "prompt": f"q{n}", "output": text, "model": name} for n, text in enumerate(answers)]
        lines(tmp_path / f"{name}.jsonl", rows)
    content = board(ranked(tmp_path, f"verdicts.systems=[{tmp_path}/*.jsonl]", "verdicts.judge=longer"))
    assert {s["system"]: (s["wins"], s["losses"], s["missing"]) for s in content["systems"]} == {
        "steady": (18, 2, 0), "brief": (8, 12, 0), "quitter": (4, 16, 0),
    }  # fmt: skip
    assert [s["system"] for s in content["systems"]] == ["steady", "brief", "quitter"]


def test_a_row_that_stage_judge_could_not_read_is_counted_and_no_system_without_a_name_is_ranked(
    tmp_path: Path,
) -> None:
    unread: list[dict[str, Any]] = [
        {"model_a": "", "model_b": "", "verdict": None},
        {"model_a": "", "model_b": "", "winner": None},
        {"winner": "A"},
        {"model_a": "x", "verdict": "B"},
        {"model_a": "x", "winner": ""},
    ]
    rows = [{"model_a": "x", "model_b": "y", "verdict": "A"}, {"verdict": "unreadable", "failure": "no_text"}]
    rows += [row | {"failure": "not_json: line 3"} for row in unread]
    content = board(ranked(tmp_path, f"leaderboard.files=[{lines(tmp_path / 'v.jsonl', rows)}]"))
    assert content["comparisons"] == 7 and content["outcomes"] == {"A": 1, "missing": 5, "unreadable": 1}
    systems = [(s["system"], s["wins"], s["losses"], s["missing"]) for s in content["systems"]]
    assert systems == [("x", 1, 0, 2), ("y", 0, 1, 0)]
