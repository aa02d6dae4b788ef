"""What must hold of every tree: exchanged responses mirror everything, the order of branches is nothing, text is read
back as it was written, a dialogue's earlier turns stay apart from its query, and unreadable trees train nothing."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.base import Choice, Completion
from judgetrain.judges.config import StepsConfig
from judgetrain.judges.prompting.parsing import parse_judgment, read_judgment
from judgetrain.judges.prompting.prompts import (
    DIALECTS,
    Dialect,
    judgment_slots,
    load_prompt_set,
    packaged_sets,
    slots_of,
)
from judgetrain.judges.trees.schema import EvaluationTree, GuidelineNode, JudgmentNode, prune
from judgetrain.label import stage as label_stage
from judgetrain.label.config import LabelConfig
from judgetrain.label.examples import Prompter
from judgetrain.label.labels import ensemble_label
from judgetrain.label.rewards import Rewards, percentiles
from judgetrain.label.stage import TrainingData
from judgetrain.label.stages import LabelSettings
from judgetrain.pipeline.config import Config
from judgetrain.schema import Comparison, Dialogue, Message, mirror
from tests.builders.label import tree_of
from tests.builders.scripted import render_judgment

CONFIG = LabelConfig(max_sft_per_tree=99, max_pairs_per_level=99)
GUIDELINES = st.lists(st.text("AABt?", min_size=4, max_size=4), min_size=1, max_size=2).map(tuple)
TREES = st.lists(GUIDELINES, min_size=1, max_size=4).map(lambda criteria: tree_of(*criteria))
ORDERS = {"AB": "BA", "BA": "AB"}


def map_guidelines(tree: EvaluationTree, change: Any) -> EvaluationTree:
    criteria = (replace(c, guidelines=tuple(map(change, c.guidelines))) for c in tree.criteria)
    return replace(tree, criteria=tuple(criteria))


def exchanged(tree: EvaluationTree) -> EvaluationTree:
    """The tree of the swapped comparison in which every judge saw, and wrote, the very same."""

    def leaf(j: JudgmentNode) -> JudgmentNode:
        return replace(j, order=ORDERS[j.order], score_a=j.score_b, score_b=j.score_a)  # type: ignore[arg-type]

    def guideline(g: GuidelineNode) -> GuidelineNode:
        return replace(g, judgments=tuple(map(leaf, g.judgments)))

    return replace(map_guidelines(tree, guideline), comparison=tree.comparison.swapped())


def shuffled(tree: EvaluationTree, rng: random.Random) -> EvaluationTree:
    """The same tree with its criteria, guidelines and judgments in another order."""

    def mixed(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(rng.sample(items, len(items)))

    tree = map_guidelines(tree, lambda g: replace(g, judgments=mixed(g.judgments)))
    return replace(tree, criteria=tuple(replace(c, guidelines=mixed(c.guidelines)) for c in mixed(tree.criteria)))


def rewards(tree: EvaluationTree, rng: random.Random) -> Rewards:
    nodes = sorted([j.id for _, _, j in tree.judgments()] + [g.id for c in tree.criteria for g in c.guidelines])
    return Rewards({"softmax_var": percentiles({node: rng.random() for node in nodes})})


def learned(tree: EvaluationTree, given: Rewards) -> TrainingData:
    data = TrainingData(Prompter(load_prompt_set("compact"), len(tree.criteria)), CONFIG, given)
    data.add(tree)
    return data


def lessons(data: TrainingData) -> Counter[str]:
    """Judgment and guideline pairs, and SFT rows, in no order. Criteria lists follow the order of the branches."""
    pairs = [{**p.to_row(), "margin": round(p.margin, 9)} for p in data.pairs if p.level != "criteria"]
    return Counter(map(repr, [*pairs, *(r for r in data.sft if r["level"] != "criteria")]))


@settings(max_examples=40, deadline=None)
@given(TREES, st.integers(0, 99))
def test_exchanging_the_responses_mirrors_labels_and_leaves_what_is_learned_as_it_is(
    tree: EvaluationTree, seed: int
) -> None:
    other, scores = exchanged(tree), rewards(tree, random.Random(seed))
    assert {j.id: j.verdict and mirror(j.verdict) for _, _, j in tree.judgments()} == {
        j.id: j.verdict for _, _, j in other.judgments()
    }
    first, second = prune(tree), prune(other)
    assert {k: b.reason for k, b in first.items()} == {k: b.reason for k, b in second.items()}
    here, there = learned(tree, scores), learned(other, scores)
    verdict = here.labels[0]["verdict"]
    assert there.labels[0]["verdict"] == (verdict and mirror(verdict))
    assert here.labels[0]["share"] == there.labels[0]["share"]
    assert lessons(here) == lessons(there)
    assert {p.margin for p in here.pairs if p.level == "criteria"} == {
        p.margin for p in there.pairs if p.level == "criteria"
    }
    assert here.branches == there.branches


@settings(max_examples=40, deadline=None)
@given(TREES, st.randoms(use_true_random=False))
def test_the_order_of_branches_changes_nothing(tree: EvaluationTree, rng: random.Random) -> None:
    other, scores = shuffled(tree, rng), rewards(tree, rng)
    assert ensemble_label(other, CONFIG) == ensemble_label(tree, CONFIG)
    assert {k: b.reason for k, b in prune(other).items()} == {k: b.reason for k, b in prune(tree).items()}
    here, there = learned(tree, scores), learned(other, scores)
    assert here.labels == there.labels
    assert lessons(here) == lessons(there)


PROSE = st.text("abc, .", max_size=12)
SCORE = st.integers(1, 5)


@given(SCORE, SCORE, PROSE, PROSE)
def test_a_rendered_judgment_is_read_back_in_every_way(a: int, b: int, why: str, which: str) -> None:
    text = render_judgment(a, b, why, why, which)
    parsed = parse_judgment(text)
    assert parsed.places is not None
    sure = tuple(
        Choice(place, tuple(float(s == score) for s in range(1, 6)))
        for place, score in zip(parsed.places, (a, b), strict=True)
    )
    completion = Completion(text=text, prompt_tokens=1, generated_tokens=1, finish_reason="stop", choices=sure)
    for score, constrained in product(("parsed", "expected"), (False, True)):
        read = read_judgment(completion, StepsConfig(score=score, constrained=constrained))
        assert (read.first, read.second, read.failure) == (a, b, None)


@given(TREES)
def test_a_tree_is_read_back_as_it_was_written(tree: EvaluationTree) -> None:
    assert EvaluationTree.from_row(tree.to_row()) == tree


TURNS = (Message("user", "how old is it?"), Message("assistant", "nine years"), Message("user", "what is due?"))
MULTI = Comparison("m", Dialogue("m", "test", TURNS), "one", "two")


@pytest.mark.parametrize(("name", "dialect"), [(n, d) for d in DIALECTS for n in packaged_sets(d)])
def test_earlier_turns_stand_before_the_query_and_apart_from_it(name: str, dialect: Dialect) -> None:
    prompts = load_prompt_set(name, dialect)
    others = {"count": "3", "response": "one", "judgment": "good", "judgment_x": "x", "judgment_y": "y"}
    others |= {"lowest": "1", "highest": "5"}
    slots = others | judgment_slots(MULTI, "AB", "c: d", "5 if")
    assert (slots["query"], slots["context"]) == ("what is due?", "User: how old is it?\nAssistant: nine years")
    single = replace(MULTI, dialogue=replace(MULTI.dialogue, messages=TURNS[-1:]))
    steps = [s for s in DIALECTS[dialect] if "{context_block}" in prompts.steps[s]["user"]]
    assert steps == [s for s in DIALECTS[dialect] if name != "paper" or s == "judgment"], (
        "the paper's have the query alone"
    )
    for step in steps:
        text = prompts.render(step, slots)[-1]["content"]
        assert text.count(slots["context"]) == text.count("what is due?") == 1
        after = text.split(slots["context"])[1]
        assert "what is due?" in after
        without = prompts.render(step, slots | slots_of(single))[-1]["content"]
        assert "how old" not in without and "nine years" not in without
        block = text.replace(prompts.context.replace("{context}", slots["context"]), "")
        assert block == without, "a single turn's prompt is the same without the block of earlier turns"


def test_a_tree_with_too_few_readable_branches_is_kept_and_marked_and_trains_nothing(tmp_path: Path) -> None:
    good = tree_of(("AAAA",), ("AAAB",), index=0)
    bad = tree_of(("A???",), ("A???",), index=1)
    bare = replace(tree_of(index=2), criteria_text="")
    assert [sum(j.verdict is None for _, _, j in t.judgments()) for t in (good, bad, bare)] == [0, 6, 0]
    StageRun(tmp_path / "tree", "tree", 0, Console()).write_rows("trees", (t.to_row() for t in (good, bad, bare)))
    out = StageRun(tmp_path / "label", "label", 0, Console())
    config = Config(prompts="compact")
    config.tree.criteria = 2
    label_stage.run(LabelSettings.of(config), {"tree": tmp_path / "tree"}, out)
    labels = {row["comparison_id"]: (row["verdict"], row["reason"]) for row in read_rows(out.directory, "labels")}
    assert labels == {"d0": ("A", None), "d1": (None, "too_few_readable"), "d2": (None, "too_few_readable")}
    assert out.notes["yield"]["trees"] == {"label_A": 1, "too_few_readable": 2}
    assert out.totals()["counts"]["dropped"] == {"too_few_readable": 2}
    for name in ("sft-train", "sft-heldout", "pairs-train", "pairs-heldout"):
        assert {row["comparison_id"] for row in read_rows(out.directory, name)} <= {"d0"}
    pages = "".join(page.read_text() for page in (out.directory / "view").glob("*.html"))
    assert "query 1" in pages and "none (too_few_readable)" in pages
