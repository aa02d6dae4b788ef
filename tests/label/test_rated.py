"""Responses that people rated one by one: judged alone, right as they are near the rating, and trained from."""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data import config as data
from judgetrain.engines.base import Request
from judgetrain.engines.lazy_model import make_engine
from judgetrain.errors import ConfigError, DataError
from judgetrain.judges.prompting.parsing import parse_criteria
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.config import LEVELS, StepsConfig, TreeConfig
from judgetrain.judges.trees.grow import Shape, TreeModel, grow
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.judges.views.tree_page import DIRECTORY
from judgetrain.label import stage as label_stage
from judgetrain.label import teacher_stage
from judgetrain.label.config import GivenEngineConfig, LabelConfig, TeacherConfig
from judgetrain.label.labels import by_rating, each_in, suited
from judgetrain.label.stages import LABEL, LabelSettings, TeacherSettings
from judgetrain.label.teacher_stage import divided
from judgetrain.pipeline.config import Config
from judgetrain.rubrics import Criterion, Rubric
from judgetrain.schema import ORDERS, RESPONSES, Comparison, Rating, Reads
from tests.builders import label as builders
from tests.builders.data import run_dialogues, run_responses, write_lines
from tests.builders.label import ANY_EVIDENCE, TAUGHT, run_teacher, teacher_config, tree_of
from tests.builders.pipeline import check_stage, configured
from tests.builders.scripted import ScriptedEngine, comparison, judged

PROMPTS = load_prompt_set("compact")
PAIR = Comparison.of("Which river?", "the Rhine", "a lake", label="A")


def alone(score: float, index: int = 0, reason: str | None = None) -> Comparison:
    return replace(Comparison.of(f"query {index}", f"response {index}", ""), rating_a=Rating(score, reason))


def tree(item: Comparison, *scores: int, weight: float = 1.0) -> EvaluationTree:
    """Return the tree of a given criterion whose judgments give these scores; pairs have 4 and 2."""

    def answer(request: Request, occurrence: int) -> str:
        if request.step == "judgment":
            return judged(4, 2)
        return f"Score: {scores[occurrence]}\nAnalysis: {'abcdefgh'[occurrence]} it is."

    shape = Shape(count=1, criteria=1, judgments=len(scores), orders=(*ORDERS, *RESPONSES))
    rubric = Rubric((Criterion(text="it is kind", weight=weight, guideline="as it is"),))
    with_rubric = replace(item, rubric=rubric)
    return grow(
        [with_rubric],
        TreeModel(ScriptedEngine(answer), PROMPTS, StepsConfig()),
        replace(shape, steer=each_in(shape.orders)),
        0,
    )[0]


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
    judged_tree = by_rating(tree(alone(rating), 1, 2, 3, 4, 5, weight=weight))
    assert [j.order for _, _, j in judged_tree.judgments()] == ["A"] * 5
    assert [j.verdict for _, _, j in judged_tree.judgments()] == verdicts.split()


def test_pairs_grow_as_before_and_are_left_as_they_are() -> None:
    grown = tree(PAIR, 4, 4)
    assert Counter(j.order for _, _, j in grown.judgments()) == dict.fromkeys(("AB", "BA", "A", "B"), 2)
    assert by_rating(grown) is grown


def labelled(directory: Path, trees: list[EvaluationTree], source: str = "given", **changes: Any) -> StageRun:
    StageRun(directory / "tree", "tree", 0, Console()).write_rows("trees", (grown.to_row() for grown in trees))
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
    label_rows = {row["comparison_id"]: row for row in read_rows(out.directory, "labels")}
    assert [label_rows[t.comparison.id]["rating"] for t in trees] == [0.75, 0.0, 1.0]
    assert {row["verdict"] for row in label_rows.values()} == {None}, "for those who read verdicts on two responses"
    assert out.notes["yield"]["ensemble_vs_given"] == {"right": 2, "wrong": 1}


@pytest.mark.parametrize("source", ["ensemble", "external"])
def test_without_given_labels_a_rating_is_not_read(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    external_judge = ScriptedEngine(
        lambda request, occurrence: "[[A]]" if request.slots["response_a"] == "the Rhine" else "[[B]]"
    )
    monkeypatch.setattr("judgetrain.label.external.make_engine", lambda config, **options: external_judge)
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
    judgment_rows = [
        row for row in read_rows(taught(tmp_path, items).directory, "examples") if row["level"] == "judgment"
    ]
    texts = {(row["comparison_id"], row["completion"][0]["content"]) for row in judgment_rows}
    assert texts == {
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


WORDS = {"1": "A", "2": "B", "0": "tie"}
ROWS = [
    {"id": f"r{i}", "query": f"query {i}", "response_a": f"one {i}", "response_b": f"two {i}", "label": label}
    for i, label in enumerate([1, 2, 0, None, 1, "?"])
]


def source(tmp_path: Path, rows: list[dict[str, Any]] | None = None, **changes: Any) -> data.DialogueSourceConfig:
    path = write_lines(tmp_path / "votes.jsonl", ROWS if rows is None else rows)
    return data.DialogueSourceConfig(name="mine", path=path, format="comparison", **changes)


def compared(tmp_path: Path, source: data.DialogueSourceConfig) -> list[Comparison]:
    """Return what the stages dialogues and responses make of a source; every dialogue is sampled."""
    read = run_dialogues(tmp_path, data.DialoguesConfig([source]))
    cluster = StageRun(tmp_path / "cluster", "cluster", 0, Console())
    cluster.write_rows("sample", read_rows(read.directory, "dialogues"))
    inputs = {"cluster": cluster.directory, "dialogues": read.directory}
    out = run_responses(tmp_path / "responses", data.ResponsesConfig(), inputs)
    return [Comparison.from_row(row) for row in read_rows(out.directory, "comparisons")]


def labelling(directory: Path, comparisons: list[Comparison], config: LabelConfig) -> StageRun:
    """Stage label over trees whose first criterion says A, whose second says B, and whose third sees a tie."""
    trees = StageRun(directory / "tree", "tree", 0, Console())
    shape = tree_of(("AAAA", "AAAB"), ("BBBB", "BBAB"), ("tttt", "ttAt"))
    trees.write_rows("trees", (replace(shape, comparison=c).to_row() for c in comparisons))
    out = StageRun(directory / "label", "label", 3, Console())
    settings = LABEL.settings.of(Config(label=config, prompts="compact", tree=TreeConfig(criteria=3)))
    LABEL.run(settings, {"tree": trees.directory}, out)
    return out


def test_labels_of_the_data_are_what_is_learned_from_and_rows_without_are_counted(tmp_path: Path) -> None:
    comparisons = compared(tmp_path, source(tmp_path, labels=WORDS))
    assert [c.label for c in comparisons] == ["A", "B", "tie", None, "A", None]
    every = LabelConfig(source="given", min_evidence=0.5, balance=[])
    out = labelling(tmp_path, comparisons, every)
    labels = {row["comparison_id"]: row for row in read_rows(out.directory, "labels")}
    assert [row["verdict"] for row in labels.values()] == ["A", "B", "tie", None, "A", None]
    assert [row["reason"] for row in labels.values()] == [None, None, None, "no_given_label", None, "no_given_label"]
    assert {row["source"] for row in labels.values()} == {"given"}
    assert out.totals()["counts"]["dropped"] == {"no_given_label": 2} and out.notes["yield"]["trees"] == {
        "label_A": 2, "label_B": 1, "label_tie": 1, "no_given_label": 2,
    }  # fmt: skip
    pairs = rows(out, "pairs")
    assert {p["comparison_id"] for p in pairs} == {"mine:r0", "mine:r1", "mine:r2", "mine:r4"}
    assert all(p["reward"]["given"] == (0.5 if p["comparison_id"] == "mine:r2" else 1.0) for p in pairs)
    # The same tree under the label A and under B: the criteria lists are led by opposite criteria.
    firsts = {p["comparison_id"]: p["chosen"][0]["content"].split("\n")[0] for p in pairs if p["level"] == "criteria"}
    assert firsts["mine:r0"] != firsts["mine:r1"] and firsts["mine:r0"] == firsts["mine:r4"]
    taught = {row["comparison_id"] for row in rows(out, "sft")}
    assert taught == {"mine:r0", "mine:r1", "mine:r2", "mine:r4"}
    assert out.notes["yield"]["ensemble_vs_given"] and "label_vs_truth" not in out.notes["yield"]


def test_no_label_at_all_is_said_with_the_remedy(tmp_path: Path) -> None:
    comparisons = [replace(c, label=None) for c in compared(tmp_path, source(tmp_path))]
    with pytest.raises(DataError, match=r"6 no_given_label; the comparisons bring none.*sources\[\]\.labels"):
        labelling(tmp_path, comparisons, LabelConfig(source="given"))


def test_how_a_pair_was_made_reaches_labels_pairs_and_pages(tmp_path: Path) -> None:
    comparisons = compared(tmp_path, source(tmp_path, labels=WORDS))
    constructed = replace(comparisons[0], made="nearby: an answer to mine:r4")
    out = labelling(tmp_path, [constructed, comparisons[1]], LabelConfig(source="given"))
    for rows_of_kind in (list(read_rows(out.directory, "labels")), rows(out, "pairs")):
        assert {(row["comparison_id"], row["made"]) for row in rows_of_kind} == {
            ("mine:r0", constructed.made),
            ("mine:r1", ""),
        }
    pages = [(out.directory / DIRECTORY / f"0000{n}.html").read_text() for n in (1, 2)]
    assert "constructed" in pages[0] and "nearby: an answer to mine:r4" in pages[0]
    assert "constructed" not in pages[1]


def settings(sources: list[data.DialogueSourceConfig], responses: data.ResponsesConfig | None = None) -> Config:
    config = Config(label=LabelConfig(source="given"), dialogues=data.DialoguesConfig(sources))
    return replace(config, responses=responses or data.ResponsesConfig())


WRITER = data.ResponseModelConfig(name="w", engine=data.WorldEngineConfig())


def test_without_a_label_nothing_begins(tmp_path: Path) -> None:
    bare = [{k: v for k, v in row.items() if k != "label"} for row in ROWS]
    for dialogue_source, message in (
        (source(tmp_path, bare), r"votes\.jsonl: no column for label: looked for label, winner; found id, query"),
        (source(tmp_path), r"holds '1', '2', '0', '\?'; say what they mean with 'dialogues\.sources\[0\]\.labels"),
        (
            source(tmp_path, bare, fields={"label": "winner"}),
            r"no column for label: looked for winner; found id, query",
        ),
    ):
        write_lines(Path(dialogue_source.path), ROWS if "holds" in message else bare)
        with pytest.raises(ConfigError, match=message):
            check_stage("label", settings([dialogue_source]))
    with pytest.raises(ConfigError, match=r"responses\.models answer the dialogues anew.*set responses\.models=\[\]"):
        check_stage("label", settings([source(tmp_path, labels=WORDS)], data.ResponsesConfig([WRITER])))


def given(**changes: int) -> Config:
    config = teacher_config(asked=2, listed=2, **changes)
    return replace(config, teacher=replace(config.teacher, engine=GivenEngineConfig(), branches=1))


def test_every_judgment_says_the_label_in_both_orders(tmp_path: Path) -> None:
    out = run_teacher(tmp_path / "teacher", given())
    trees = [EvaluationTree.from_row(row) for row in read_rows(out.directory, "evaluations")]
    assert len(trees) == 14
    for tree in trees:
        assert len(tree.criteria) == 1 and not tree.failures
        verdict_of = {j.order: j.verdict for _, _, j in tree.judgments()}
        assert verdict_of == dict.fromkeys(ORDERS, tree.comparison.label)
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


def test_criteria_suit_the_query() -> None:
    assert suited("Write a poem on rain.")[0].name == "Writing"
    assert suited("What is 7 times 8?")[0].name == "Accuracy"
    assert [a.name for a in suited("Rain!")[:2]] == ["Helpfulness", "Clarity"]
    lines = "\n".join(f"{i}. {a.name}: {a.asks}" for i, a in enumerate(suited("x"), 1))
    assert len(parse_criteria(lines, 9)) == len(suited("x"))


def test_it_stands_in_the_teacher_s_place_alone() -> None:
    with pytest.raises(ConfigError, match=r"evaluate\.external\.type=given.*teacher\.engine alone"):
        GivenEngineConfig().check("evaluate.external")
    with pytest.raises(ConfigError, match="teacher: knows training labels alone"):
        make_engine(GivenEngineConfig(name="teacher"))


def test_as_a_method_it_is_refused_before_anything_is_trained() -> None:
    for key, overrides in {
        "evaluate.methods": ["stage=evaluate", "evaluate.methods=[sft,teacher]"],
        "verdicts.judge": ["stage=judge", "verdicts.judge=teacher"],
    }.items():
        overrides += [f"judge.{step}_tokens=128" for step in LEVELS]  # of the 512 that the world's base reads
        config = configured("recipe=pairs", "data_dir=DIR", "train.base.path=world", "teacher=given", *overrides)
        with pytest.raises(ConfigError, match=rf"{key}='teacher': teacher\.engine\.type=given knows training labels"):
            check_stage(config.stage, config)


def test_a_query_that_is_taught_is_in_no_tree() -> None:
    # One query may have several comparisons: who has learned one of them has seen the others' responses.
    rows = [comparison(i // 3, a=f"first {i}", b=f"second {i}", label="A") for i in range(60)]
    least = (600, 0.001, 60)  # no query has so few comparisons: nobody can be taught without all
    several = ((10, 1.0, 9), (30, 1.0, 30), (59, 1.0, 57), (60, 1.0, 60), (600, 1.0, 60))
    for number, share, expected in (*several, (600, 0.5, 30), (600, 0.51, 30), (10, 0.5, 9), least):
        taught, remaining = divided(rows, TeacherConfig(comparisons=number, share=share), seed=3)
        sides = [{c.dialogue.query for c in part} for part in (taught, remaining)]
        assert not sides[0] & sides[1] and len(taught) + len(remaining) == 60
        assert len(taught) == expected, (number, share)
    one_each = [comparison(i, label="A") for i in range(20)]
    shuffled = list(one_each)
    random.Random(3).shuffle(shuffled)
    assert divided(one_each, TeacherConfig(comparisons=7), 3) == (shuffled[:7], shuffled[7:])
    assert divided(one_each[:1], TeacherConfig(share=0.5), 3) == (one_each[:1], [])
