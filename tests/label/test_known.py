"""teacher.engine.type=given: evaluations by rule from labels that are known."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from judgetrain.artifacts.shards import read_rows
from judgetrain.engines.lazy_model import make_engine
from judgetrain.errors import ConfigError, DataError
from judgetrain.judges.config import LEVELS
from judgetrain.judges.prompting.parsing import parse_criteria, parse_judgment
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label.config import GivenEngineConfig, TeacherConfig
from judgetrain.label.labels import judgment, suited
from judgetrain.label.teacher_stage import divided
from judgetrain.pipeline.config import Config
from judgetrain.schema import ORDERS, Verdict
from tests.builders import label as builders
from tests.builders.label import TAUGHT, run_teacher, teacher_config
from tests.builders.pipeline import check_stage, configured
from tests.builders.scripted import comparison


def given(**changes: int) -> Config:
    config = teacher_config(asked=2, listed=2, **changes)
    return replace(config, teacher=replace(config.teacher, engine=GivenEngineConfig(), branches=1))


def test_every_judgment_says_the_label_in_both_orders(tmp_path: Path) -> None:
    out = run_teacher(tmp_path / "teacher", given())
    trees = [EvaluationTree.from_row(row) for row in read_rows(out.directory, "evaluations")]
    assert len(trees) == 14
    for tree in trees:
        assert len(tree.criteria) == 1 and not tree.failures
        found = {j.order: j.verdict for _, _, j in tree.judgments()}
        assert found == dict.fromkeys(ORDERS, tree.comparison.label)
    assert {t.comparison.label for t in trees} >= {"A", "B"}
    examples = Counter(row["level"] for row in read_rows(out.directory, "examples"))
    assert examples == {"criteria": 14, "guideline": 14, "judgment": 28}


def test_rows_without_a_label_are_left_for_the_trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [replace(c, label=None) if i % 2 else c for i, c in enumerate(TAUGHT)]
    monkeypatch.setattr(builders, "TAUGHT", rows)
    out = run_teacher(tmp_path / "teacher", given(taught=20))
    taught = {EvaluationTree.from_row(row).comparison.id for row in read_rows(out.directory, "evaluations")}
    assert taught == {c.id for c in rows if c.label}
    remaining = [row["id"] for row in read_rows(out.directory, "remaining")]
    assert sorted(remaining) == sorted(c.id for c in rows), "of labelled ones none is left: the taught ones serve again"
    out = run_teacher(tmp_path / "some" / "teacher", given(taught=6))
    taught = {EvaluationTree.from_row(row).comparison.id for row in read_rows(out.directory, "evaluations")}
    remaining = [row["id"] for row in read_rows(out.directory, "remaining")]
    assert len(taught) == 6 and sorted(remaining) == sorted(c.id for c in rows if c.id not in taught)
    monkeypatch.setattr(builders, "TAUGHT", [replace(c, label=None) for c in TAUGHT])
    with pytest.raises(DataError, match=r"none of the comparisons has a label.*fields.*contrast"):
        run_teacher(tmp_path / "none" / "teacher", given())


@pytest.mark.parametrize(
    ("label", "scores", "said"),
    [("A", (4, 2), "A is better"), ("B", (2, 4), "B is better"), ("tie", (3, 3), "both are equal")],
)
def test_a_judgment_reads_back_as_its_label(label: Verdict, scores: tuple[int, int], said: str) -> None:
    parsed = parse_judgment(judgment(label))
    assert (parsed.first, parsed.second) == scores
    assert judgment(label).startswith(f"Comparison: {said}.\n")


def test_criteria_suit_the_query() -> None:
    assert suited("Write a poem on rain.")[0].name == "Writing"
    assert suited("What is 7 times 8?")[0].name == "Accuracy"
    assert [a.name for a in suited("Rain!")[:2]] == ["Helpfulness", "Clarity"]
    lines = "\n".join(f"{i}. {a.name}: {a.asks}" for i, a in enumerate(suited("x"), 1))
    assert len(parse_criteria(lines, 9)) == len(suited("x"))


def test_it_stands_in_the_teacher_s_place_alone() -> None:
    with pytest.raises(ConfigError, match=r"evaluate\.external\.type=given.*teacher\.engine alone"):
        GivenEngineConfig().check("evaluate.external")
    with pytest.raises(ConfigError, match="teacher: knows the labels of training data"):
        make_engine(GivenEngineConfig(name="teacher"))


def test_as_a_method_it_is_refused_before_anything_is_trained() -> None:
    for key, overrides in {
        "evaluate.methods": ["stage=evaluate", "evaluate.methods=[sft,teacher]"],
        "verdicts.judge": ["stage=judge", "verdicts.judge=teacher"],
    }.items():
        overrides += [f"judge.{step}_tokens=128" for step in LEVELS]  # of the 512 that the world's base reads
        config = configured("recipe=pairs", "data_dir=DIR", "train.base.path=world", "teacher=given", *overrides)
        with pytest.raises(
            ConfigError, match=rf"{key}='teacher': teacher\.engine\.type=given knows labels of training"
        ):
            check_stage(config.stage, config)


def test_a_query_that_is_taught_is_in_no_tree() -> None:
    """Of one query there may be several comparisons: who has learned one of them has seen the others' responses."""
    rows = [comparison(i // 3, a=f"first {i}", b=f"second {i}", label="A") for i in range(60)]
    least = (600, 0.001, 60)  # no query has so few comparisons: nobody can be taught without all
    several = ((10, 1.0, 9), (30, 1.0, 30), (59, 1.0, 57), (60, 1.0, 60), (600, 1.0, 60))
    for number, share, wanted in (*several, (600, 0.5, 30), (600, 0.51, 30), (10, 0.5, 9), least):
        taught, remaining = divided(rows, TeacherConfig(comparisons=number, share=share), seed=3)
        sides = [{c.dialogue.query for c in part} for part in (taught, remaining)]
        assert not sides[0] & sides[1] and len(taught) + len(remaining) == 60
        assert len(taught) == wanted, (number, share)
    one_each = [comparison(i, label="A") for i in range(20)]
    shuffled = list(one_each)
    random.Random(3).shuffle(shuffled)
    assert divided(one_each, TeacherConfig(comparisons=7), 3) == (shuffled[:7], shuffled[7:])
    assert divided(one_each[:1], TeacherConfig(share=0.5), 3) == (one_each[:1], [])


def test_of_own_rows_half_are_left_for_the_trees() -> None:
    config = configured("recipe=pairs", "data_dir=DIR", "train.base.path=world", "teacher=given")
    rows = [comparison(i, label="A") for i in range(60)]
    assert [len(part) for part in divided(rows, config.teacher, 3)] == [30, 30]
