"""The teacher's stage with the world's annotator: what it teaches, and that a kill changes nothing."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from judgetrain.artifacts.shards import read_rows
from judgetrain.data.world.engine import WorldEngine
from judgetrain.errors import DataError
from judgetrain.judges.prompting.parsing import parse_judgment, render_criteria
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.grow import Shape, grow
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label import teacher_stage
from judgetrain.label.examples import Prompter
from tests.builders.judges import SAMPLING
from tests.builders.label import TAUGHT, run_teacher, teacher_config
from tests.builders.scripted import Ending, ScriptedEngine, comparison, judged, noisy
from tests.builders.watched import contents, interrupted

PROMPTS = load_prompt_set("compact")


@pytest.mark.parametrize("orders", [1, 2])
def test_every_taught_comparison_gets_its_branches_and_the_others_remain(orders: int, tmp_path: Path) -> None:
    out = run_teacher(tmp_path / "teacher", teacher_config(both_orders=orders == 2))
    trees = [EvaluationTree.from_row(r) for r in read_rows(out.directory, "evaluations")]
    remaining = [r["id"] for r in read_rows(out.directory, "remaining")]
    assert len(trees) == 14
    assert sorted([t.comparison.id for t in trees] + remaining) == sorted(c.id for c in TAUGHT)
    assert all(len(list(t.judgments())) == 2 * orders for t in trees)
    examples = list(read_rows(out.directory, "examples"))
    assert Counter(r["level"] for r in examples) == {"criteria": 14, "guideline": 28, "judgment": 28 * orders}
    assert {r["comparison_id"] for r in examples}.isdisjoint(remaining)
    totals = out.totals()
    assert totals["counts"] == {"in": 14, "out": 14, "dropped": {}}
    nodes = [node for t in trees for _, g in t.guidelines() for node in (g, *g.judgments)]
    by_hand = sum(t.criteria_generated_tokens for t in trees) + sum(node.generated_tokens for node in nodes)
    assert totals["tokens"]["generated"] == by_hand


def test_judgment_examples_show_the_responses_as_the_teacher_saw_them(tmp_path: Path) -> None:
    out = run_teacher(tmp_path / "teacher", teacher_config())
    nodes = {
        j.id: (t.comparison, j)
        for t in (EvaluationTree.from_row(r) for r in read_rows(out.directory, "evaluations"))
        for _, _, j in t.judgments()
    }
    for row in (r for r in read_rows(out.directory, "examples") if r["level"] == "judgment"):
        of, node = nodes[row["nodes"][0]]
        shown = (of.response_a, of.response_b) if node.order == "AB" else (of.response_b, of.response_a)
        assert f"Response A: {shown[0]}\nResponse B: {shown[1]}\n" in row["prompt"][-1]["content"]
        read = parse_judgment(row["completion"][0]["content"])
        expected = (read.first, read.second) if node.order == "AB" else (read.second, read.first)
        assert (node.score_a, node.score_b) == expected


@pytest.mark.parametrize(("asked", "listed", "expected"), [(6, 6, 6), (4, 6, 4), (6, 3, 3)])
def test_a_prompt_asks_for_as_many_criteria_as_its_list_has(
    asked: int, listed: int, expected: int, tmp_path: Path
) -> None:
    """Otherwise "List 4 criteria." would be answered with six, and the judge would learn to ignore the number."""
    out = run_teacher(tmp_path / "teacher", teacher_config(asked=asked, listed=listed))
    trees = {r["comparison"]["id"]: r for r in read_rows(out.directory, "evaluations")}
    for row in (r for r in read_rows(out.directory, "examples") if r["level"] == "criteria"):
        lines = row["completion"][0]["content"].splitlines()
        assert len(lines) == expected
        assert row["prompt"][-1]["content"].startswith(f"List {expected} criteria.")
        assert lines == trees[row["comparison_id"]]["criteria_text"].splitlines()[:expected]


def test_nothing_that_ran_out_of_tokens_is_taught() -> None:
    trees = grow([comparison(0)], ScriptedEngine(noisy_but_readable), PROMPTS, Shape(count=2, criteria=2), SAMPLING, 0)
    row = json.loads(json.dumps(trees[0].to_row()))
    for judgment in (j for c in row["criteria"] for g in c["guidelines"] for j in g["judgments"]):
        judgment["finish_reason"] = "length"
    for tree, judgments in ((trees[0], {"judgment": 4}), (EvaluationTree.from_row(row), {})):
        levels = Counter(r["level"] for r in teacher_stage.teaching_examples(tree, Prompter(PROMPTS, 2)))
        assert levels == {"criteria": 1, "guideline": 2, **judgments}


@pytest.mark.parametrize(
    ("text", "reason", "taught"),
    [
        ("1. tone: kind\n2. depth: says mo", "length", ["tone: kind"]),
        ("1. tone: kind\n2. depth: says more\n", "length", ["tone: kind", "depth: says more"]),
        ("1. tone: kind\n2. depth: says more", "stop", ["tone: kind", "depth: says more"]),
        ("1. tone: ki", "length", []),
    ],
)
def test_of_a_list_that_ran_out_of_tokens_whole_lines_are_taught(text: str, reason: str, taught: list[str]) -> None:
    engine = Ending(lambda r, i: text if r.step == "criteria" else noisy_but_readable(r, i), {"criteria": reason})
    tree = grow([comparison(0)], engine, PROMPTS, Shape(count=3, criteria=3), SAMPLING, 0)[0]
    for read in (tree, EvaluationTree.from_row(json.loads(json.dumps(tree.to_row())))):
        rows = [r for r in teacher_stage.teaching_examples(read, Prompter(PROMPTS, 3)) if r["level"] == "criteria"]
        assert [r["completion"][0]["content"] for r in rows] == ([render_criteria(taught)] if taught else [])
        assert all(r["prompt"][-1]["content"].startswith(f"List {len(taught)} criteria.") for r in rows)
        assert all(r["nodes"] == [f"d0/c{i}" for i in range(len(taught))] for r in rows)


def noisy_but_readable(request, occurrence):  # type: ignore[no-untyped-def]
    return judged(4, 2) if request.step == "judgment" else noisy(request, occurrence)


@pytest.mark.parametrize("fatal", [2, 12])
def test_a_kill_within_any_shard_leaves_the_same_files_after_a_rerun(
    fatal: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run_teacher(tmp_path / "whole" / "teacher", teacher_config())
    with monkeypatch.context() as patch:
        interrupted(patch, WorldEngine, "generate", fatal)
        with pytest.raises(KeyboardInterrupt):
            run_teacher(tmp_path / "killed" / "teacher", teacher_config())
    before = contents(tmp_path / "killed" / "teacher")
    finished = [n for n in before if n.startswith("evaluations-")]
    assert len(finished) == (fatal - 1) // 3, "three calls a shard: criteria, guidelines, judgments"
    assert "examples.jsonl" not in before
    resumed = run_teacher(tmp_path / "killed" / "teacher", teacher_config())
    assert contents(resumed.directory) == contents(whole.directory)
    assert resumed.totals() == whole.totals()


def test_when_nothing_remains_the_trees_are_grown_over_all(tmp_path: Path) -> None:
    out = run_teacher(tmp_path / "teacher", teacher_config(taught=100))
    assert {r["id"] for r in read_rows(out.directory, "remaining")} == {c.id for c in TAUGHT}
    assert out.notes["comparisons"] == {"teacher": 20, "remaining": 0}


def test_a_teacher_that_cannot_be_read_stops_the_run_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        teacher_stage, "make_engine", lambda config, **options: ScriptedEngine(lambda r, i: "I would rather not.")
    )
    with pytest.raises(DataError, match=r"nothing that can be read: 14 criteria:none; .*choose a teacher\.engine"):
        run_teacher(tmp_path / "teacher", teacher_config())


def test_where_few_are_judged_the_others_teach_their_lists_alone(tmp_path: Path) -> None:
    whole = run_teacher(tmp_path / "whole", teacher_config())
    out = run_teacher(tmp_path / "few", teacher_config(judged=5))
    rows = {"whole": list(read_rows(whole.directory, "examples")), "few": list(read_rows(out.directory, "examples"))}
    lists = {
        name: [(r["prompt"], r["completion"]) for r in found if r["level"] == "criteria"]
        for name, found in rows.items()
    }
    assert lists["few"] == lists["whole"]
    assert Counter(r["level"] for r in rows["few"]) == {"criteria": 14, "guideline": 10, "judgment": 20}
    assert len({r["comparison_id"] for r in rows["few"] if r["level"] != "criteria"}) == 5
    assert list(read_rows(out.directory, "remaining")) == list(read_rows(whole.directory, "remaining"))
