"""teacher.engine.type=given: evaluations by rule from labels that are known."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from judgetrain.artifacts.shards import read_rows
from judgetrain.errors import ConfigError, DataError
from judgetrain.judges.config import LEVELS
from judgetrain.judges.prompting.parsing import parse_criteria, parse_judgment
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label.config import GivenEngineConfig, TeacherConfig
from judgetrain.label.known import ASPECTS, judgment, suited
from judgetrain.label.labelling import FUNCTIONS
from judgetrain.label.teach import divided
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.graph import STAGES
from judgetrain.schema import ORDERS, Verdict, mirror
from tests.builders import label as builders
from tests.builders.label import TAUGHT, run_teacher, teacher_config
from tests.builders.pipeline import configured
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


def test_without_reasons_a_judgment_leaves_nothing_open_but_its_verdict(tmp_path: Path) -> None:
    config = given()
    engine = GivenEngineConfig(reasons=False)
    out = run_teacher(tmp_path / "teacher", replace(config, teacher=replace(config.teacher, engine=engine)))
    rows = [row for row in read_rows(out.directory, "examples") if row["level"] == "judgment"]
    texts = {row["completion"][-1]["content"] for row in rows}
    assert 2 <= len(texts) <= 3, "one text a verdict"
    for text in texts:
        scores = parse_judgment(text)
        assert (scores.first, scores.second) in ((4, 2), (2, 4), (3, 3))


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


@pytest.mark.parametrize("label", ["A", "B", "tie"])
def test_a_judgment_reads_back_as_its_label_and_gives_a_reason_that_can_be_seen(label: Verdict) -> None:
    short, long = "No.", "Boil water, for example 2 litres, since rice needs it. Then add the rice and wait."
    first, second = (long, short) if label == "A" else (short, long)
    text = judgment("How do I cook rice?", first, second, label, "Completeness: is all there that was asked for")
    parsed = parse_judgment(text, (first, second))
    assert (parsed.first, parsed.second) == {"A": (4, 2), "B": (2, 4), "tie": (3, 3)}[label]
    assert text.startswith(f"Comparison: {'both are equal' if label == 'tie' else f'{label} is better'}.\n")
    assert ("Reason: " in text) == (label != "tie")
    assert label == "tie" or text.endswith(f", {mirror(label)} less so.")
    same = judgment("How do I cook rice?", short, short, "A", "Completeness: is all there that was asked for")
    assert "Reason" not in same, "of equal texts nothing is said that cannot be seen"


def test_a_reason_speaks_of_its_criterion() -> None:
    good, bad = "Rice: boil 2 litres, for example in a pot. It is done in 12 minutes.", "boil it boil it boil it"
    said = {a.name: judgment("How is rice boiled?", good, bad, "A", a.line).partition("Reason: A ")[2] for a in ASPECTS}
    looks_for = {c.name: c.looks_for for c in FUNCTIONS}
    for aspect in ASPECTS:
        assert set(aspect.seen_in) <= set(looks_for)
        reason = said[aspect.name].removesuffix(", B less so.")
        assert reason in {looks_for[name] for name in aspect.seen_in} | {""}
    assert said["Accuracy"] == "", "whether it is right cannot be seen"
    assert len({reason for reason in said.values() if reason}) >= 3
    assert "Reason" not in judgment("How?", good, bad, "A"), "none where none is asked for"


def test_criteria_suit_the_query() -> None:
    assert suited("Write a poem on rain.")[0].name == "Writing"
    assert suited("What is 7 times 8?")[0].name == "Accuracy"
    assert [a.name for a in suited("Rain!")[:2]] == ["Helpfulness", "Clarity"]
    assert len(parse_criteria("\n".join(f"{i}. {a.line}" for i, a in enumerate(suited("x"), 1)), 9)) == len(suited("x"))


def test_it_stands_in_the_teacher_s_place_alone() -> None:
    with pytest.raises(ConfigError, match=r"evaluate\.external\.type=given.*teacher\.engine alone"):
        GivenEngineConfig().check("evaluate.external")
    with pytest.raises(ConfigError, match="teacher: knows the labels of training data"):
        GivenEngineConfig(name="teacher").make()


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
            STAGES[config.stage].check(config)


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
