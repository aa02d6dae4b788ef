"""Growing trees: what is asked, what every node keeps of how it was sampled, what is counted and asked again."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.data.world.engine import WorldEngine
from judgetrain.engines.base import Completion, Request
from judgetrain.judges.prompting import prompts as wording
from judgetrain.judges.trees.grow import Shape, TreeModel, grow, sample_criteria
from judgetrain.judges.trees.schema import EvaluationTree, GuidelineNode, JudgmentNode, prune
from judgetrain.label.config import LabelConfig
from judgetrain.label.examples import Prompter
from judgetrain.label.pairs import Evidence
from judgetrain.label.rewards import Rewards, percentiles
from judgetrain.label.training_data import TrainingData
from judgetrain.schema import Comparison, Dialogue, Message, mirror
from tests.builders.judges import SAMPLING
from tests.builders.label import tree_of
from tests.builders.scripted import Ending, ScriptedEngine, comparison, criteria, judged, noisy

PROMPTS = wording.load_prompt_set("compact")


@pytest.mark.parametrize(("k", "guidelines", "judgments"), [(1, 1, 1), (3, 2, 2), (10, 2, 2), (4, 3, 1)])
def test_a_complete_tree_has_k_times_8_branches(k: int, guidelines: int, judgments: int) -> None:
    engine = ScriptedEngine(noisy)
    shape = Shape(count=k, criteria=k, guidelines=guidelines, judgments=judgments)
    trees = grow([comparison(i) for i in range(3)], TreeModel(engine, PROMPTS, SAMPLING), shape, 0)
    for tree in trees:
        leaves = [j for _, _, j in tree.judgments()]
        assert len(leaves) == k * guidelines * judgments * 2
        assert len({j.id for j in leaves}) == len(leaves)
        unreadable = sum(j.verdict is None for j in leaves)
        assert sum(tree.failures.values()) == unreadable
    steps = Counter(r.step for r in engine.requests)
    assert steps == {"criteria": 3, "guideline": 3 * k * guidelines, "judgment": 3 * k * guidelines * judgments * 2}
    assert EvaluationTree.from_row(trees[0].to_row()) == trees[0]


def test_responses_are_shown_exchanged_in_order_ba_and_their_scores_are_put_back() -> None:
    engine = ScriptedEngine(lambda r, i: judged(5, 1) if r.step == "judgment" else noisy(r, i))
    tree = grow([comparison(0, "left", "right")], TreeModel(engine, PROMPTS, SAMPLING), Shape(count=1, criteria=1), 0)[
        0
    ]
    verdicts = {j.order: (j.score_a, j.score_b, j.verdict) for _, _, j in tree.judgments()}
    assert verdicts == {"AB": (5, 1, "A"), "BA": (1, 5, "B")}
    shown = [(r.slots["response_a"], r.slots["response_b"]) for r in engine.requests if r.step == "judgment"]
    assert shown == [("left 0", "right 0"), ("right 0", "left 0")]


@pytest.mark.parametrize("reason", ["too_long", "error"])
@pytest.mark.parametrize(("step", "lost"), [("judgment", 4), ("guideline", 2), ("criteria", 1)])
def test_completions_that_never_came_are_counted_by_reason(step: str, lost: int, reason: str) -> None:
    engine = ScriptedEngine(lambda r, i: f"!{reason}" if r.step == step else noisy(r, i))
    [tree] = grow([comparison(0)], TreeModel(engine, PROMPTS, SAMPLING), Shape(count=2, criteria=2), 0)
    assert tree.failures == {f"{step}:{reason}": lost}
    assert step == "judgment" or not list(tree.judgments())


def test_fewer_branches_stop_the_list_where_it_is_no_longer_needed() -> None:
    engine = ScriptedEngine(noisy)
    tree = grow([comparison(0)], TreeModel(engine, PROMPTS, SAMPLING), Shape(count=10, criteria=2), 0)[0]
    assert engine.requests[0].sampling.stop == ("\n3.",)
    assert tree.criteria_text == criteria(2)
    assert len(tree.criteria) == 2


def test_a_chooser_expands_only_some_criteria_the_same_in_every_run() -> None:
    rows = [comparison(i) for i in range(5)]
    shape = Shape(count=6, criteria=6)
    choose = sample_criteria(3, 2)
    first, again = (
        grow(rows, TreeModel(ScriptedEngine(noisy), PROMPTS, SAMPLING), replace(shape, choose=choose), 0)
        for _ in range(2)
    )
    assert first == again
    assert all(len(t.criteria) == 2 and t.criteria_text == criteria(6) for t in first)
    assert len({tuple(c.rank for c in t.criteria) for t in first}) > 1


def listing(text: str):  # type: ignore[no-untyped-def]
    return lambda request, occurrence: text if request.step == "criteria" else noisy(request, occurrence)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_first_k_criteria_cost_what_stands_before_the_next_line(k: int) -> None:
    """Words of equal length, so that shares of characters are shares of tokens; a token is a word."""
    text = "here goes list\n1. aa: bb cc\n1. aa: bb dd\n2. ee: ff gg hh ii jj\n3. kk: ll\nthat is all"
    tree = grow(
        [comparison(0)], TreeModel(ScriptedEngine(listing(text)), PROMPTS, SAMPLING), Shape(count=3, criteria=3), 0
    )[0]
    upto = {1: "1. aa: bb cc", 2: "hh ii jj", 3: "that is all"}[k]
    written = text[: text.index(upto) + len(upto)]
    assert abs(sum(c.generated_tokens for c in tree.criteria[:k]) - len(written.split())) <= 1
    assert sum(c.generated_tokens for c in tree.criteria) == tree.criteria_generated_tokens == len(text.split())


@pytest.mark.parametrize(("reason", "calls"), [("too_long", 1), ("error", 2)])
def test_a_list_that_never_came_is_one_failure_by_its_reason(reason: str, calls: int) -> None:
    engine = ScriptedEngine(listing(f"!{reason}"))
    tree = grow([comparison(0)], TreeModel(engine, PROMPTS, SAMPLING), Shape(count=3, criteria=3, top_up=True), 0)[0]
    assert tree.failures == {f"criteria:{reason}": calls}
    assert len(engine.requests) == calls, "a prompt that is too long stays too long; an error may pass"


PROMPTER = Prompter(PROMPTS, 3)


class Recording(WorldEngine):
    """The world's annotator, which draws by seed, place and slots; keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(WorldEngineConfig(error_rate=0.4))
        self.asked: list[Request] = []

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        self.asked += requests
        return super().generate(requests, seed)


def test_seed_and_place_of_a_node_sample_its_text_again_by_itself() -> None:
    engine = Recording()
    comparisons = eval_comparisons(WorldConfig(eval_comparisons=3), seed=5)
    trees = grow(
        comparisons, TreeModel(engine, PROMPTS, SAMPLING), Shape(count=3, criteria=3, guidelines=2, judgments=2), 7
    )
    request_of = {(r.step, json.dumps(r.messages)): r for r in engine.asked}
    nodes = [("criteria", PROMPTER.criteria(t.comparison), criteria_list) for t in trees for criteria_list in t.lists]
    nodes += [
        ("guideline", PROMPTER.guideline(t.comparison, c.text), g)
        for t in trees for c in t.criteria for g in c.guidelines
    ]  # fmt: skip
    nodes += [
        ("judgment", PROMPTER.judgment(t.comparison, c.text, g.text, j), j) for t in trees for c, g, j in t.judgments()
    ]
    assert len(nodes) == 3 * (1 + 6 + 24)
    for step, messages, node in nodes:
        (again,) = engine.generate([replace(request_of[step, json.dumps(messages)], place=node.place)], node.seed)
        assert again.text.strip() == node.text.strip()
        assert again.finish_reason == node.finish_reason
    assert len({(node.seed, node.place) for _, _, node in nodes}) == len(nodes), "no two nodes share random numbers"


def test_each_list_keeps_its_own_text_and_end_and_criteria_say_which_they_stand_in() -> None:
    answers = ["1. a: x\n2. A: y\n3. b: z", "1. b: x\n2. c: y\n3. d: cu"]

    class Cut(Ending):
        def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
            self.reasons = {"criteria": "length"} if len(self.seeds) == 1 else {}
            return super().generate(requests, seed)

    def answer(request: Request, occurrence: int) -> str:
        return answers[len(engine.seeds) - 1] if request.step == "criteria" else noisy(request, occurrence)

    engine = Cut(answer)
    tree = grow([comparison(0)], TreeModel(engine, PROMPTS, SAMPLING), Shape(count=4, criteria=4, top_up=True), 0)[0]
    assert [(c.text, c.listed_in) for c in tree.criteria] == [("a: x", 0), ("b: z", 0), ("c: y", 1)]
    assert [(criteria_list.text, criteria_list.finish_reason) for criteria_list in tree.lists] == list(
        zip(answers, ("stop", "length"), strict=True)
    )
    assert [(criteria_list.seed, criteria_list.place) for criteria_list in tree.lists] == [
        (engine.seeds[0], 0),
        (engine.seeds[1], 0),
    ]
    attempts = [request.attempt for request in engine.requests if request.step == "criteria"]
    assert attempts == [0, 1], "asked for again, it is another question to paid answers"
    assert sum(criteria_list.prompt_tokens for criteria_list in tree.lists) == tree.criteria_prompt_tokens
    assert sum(criteria_list.generated_tokens for criteria_list in tree.lists) == tree.criteria_generated_tokens
    for number, criteria_list in enumerate(tree.lists):
        assert sum(c.generated_tokens for c in tree.criteria if c.listed_in == number) == criteria_list.generated_tokens
    expected_failures = {"criteria:repeated": 2, "criteria:cut_off": 1, "criteria:short": 1}
    assert {k: n for k, n in tree.failures.items() if k.startswith("criteria")} == expected_failures
    assert EvaluationTree.from_row(json.loads(json.dumps(tree.to_row()))) == tree


def test_guidelines_cut_off_are_counted_and_still_judged_by() -> None:
    engine = Ending(noisy, {"guideline": "length"})
    tree = grow(
        [comparison(0)], TreeModel(engine, PROMPTS, SAMPLING), Shape(count=3, criteria=3, guidelines=2, judgments=1), 0
    )[0]
    assert tree.failures["guideline:cut_off"] == 6
    assert len(list(tree.judgments())) == 12


CONFIG = LabelConfig(max_sft_per_tree=99, max_pairs_per_level=99)
GUIDELINES = st.lists(st.text("AABt?", min_size=4, max_size=4), min_size=1, max_size=2).map(tuple)
TREES = st.lists(GUIDELINES, min_size=1, max_size=4).map(lambda criteria: tree_of(*criteria))
ORDERS = {"AB": "BA", "BA": "AB"}


def map_guidelines(tree: EvaluationTree, change: Any) -> EvaluationTree:
    criteria = (replace(c, guidelines=tuple(map(change, c.guidelines))) for c in tree.criteria)
    return replace(tree, criteria=tuple(criteria))


def exchanged(tree: EvaluationTree) -> EvaluationTree:
    """Return the tree of the swapped comparison in which every judge saw, and wrote, the very same."""

    def leaf(j: JudgmentNode) -> JudgmentNode:
        return replace(j, order=ORDERS[j.order], score_a=j.score_b, score_b=j.score_a)  # type: ignore[arg-type]

    def guideline(g: GuidelineNode) -> GuidelineNode:
        return replace(g, judgments=tuple(map(leaf, g.judgments)))

    return replace(map_guidelines(tree, guideline), comparison=tree.comparison.swapped())


def rewards(tree: EvaluationTree, rng: random.Random) -> Rewards:
    nodes = sorted([j.id for _, _, j in tree.judgments()] + [g.id for c in tree.criteria for g in c.guidelines])
    return Rewards({"softmax_var": percentiles({node: rng.random() for node in nodes})})


def learned(tree: EvaluationTree, rewards: Rewards) -> TrainingData:
    prompter = Prompter(wording.load_prompt_set("compact"), len(tree.criteria))
    data = TrainingData(prompter, CONFIG, Evidence(rewards=rewards))
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
    other = exchanged(tree)
    scores = rewards(tree, random.Random(seed))
    assert {j.id: j.verdict and mirror(j.verdict) for _, _, j in tree.judgments()} == {
        j.id: j.verdict for _, _, j in other.judgments()
    }
    first = prune(tree)
    second = prune(other)
    assert {k: b.reason for k, b in first.items()} == {k: b.reason for k, b in second.items()}
    here = learned(tree, scores)
    mirrored = learned(other, scores)
    verdict = here.labels[0]["verdict"]
    assert mirrored.labels[0]["verdict"] == (verdict and mirror(verdict))
    assert here.labels[0]["share"] == mirrored.labels[0]["share"]
    assert lessons(here) == lessons(mirrored)
    assert {p.margin for p in here.pairs if p.level == "criteria"} == {
        p.margin for p in mirrored.pairs if p.level == "criteria"
    }
    assert here.branches == mirrored.branches


TURNS = (Message("user", "how old is it?"), Message("assistant", "nine years"), Message("user", "what is due?"))
MULTI = Comparison("m", Dialogue("m", "test", TURNS), "one", "two")


@pytest.mark.parametrize(("name", "dialect"), [(n, d) for d in wording.DIALECTS for n in wording.packaged_sets(d)])
def test_earlier_turns_stand_before_the_query_and_apart_from_it(name: str, dialect: wording.Dialect) -> None:
    prompts = wording.load_prompt_set(name, dialect)
    others = {"count": "3", "response": "one", "judgment": "good", "judgment_x": "x", "judgment_y": "y"}
    others |= {"lowest": "1", "highest": "5"}
    slots = others | wording.judgment_slots(MULTI, "AB", "c: d", "5 if")
    assert (slots["query"], slots["context"]) == ("what is due?", "User: how old is it?\nAssistant: nine years")
    single = replace(MULTI, dialogue=replace(MULTI.dialogue, messages=TURNS[-1:]))
    steps = [s for s in wording.DIALECTS[dialect] if "{context_block}" in prompts.steps[s]["user"]]
    bare = {"paper": {"criteria", "guideline"}, "rubric": {"rubric"}}.get(name, set())
    assert {*wording.DIALECTS[dialect]} - {*steps} == bare, "the query alone, or pairs alone"
    for step in steps:
        text = prompts.render(step, slots)[-1]["content"]
        assert text.count(slots["context"]) == text.count("what is due?") == 1
        after = text.split(slots["context"])[1]
        assert "what is due?" in after
        without = prompts.render(step, slots | wording.slots_of(single))[-1]["content"]
        assert "how old" not in without and "nine years" not in without
        block = text.replace(prompts.context.replace("{context}", slots["context"]), "")
        assert block == without, "a single turn's prompt is the same without the block of earlier turns"
