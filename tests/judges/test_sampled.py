"""What every node keeps of how it was sampled, what is counted, and what is asked again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.data.world.engine import WorldEngine
from judgetrain.engines.base import Completion, Request
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.grow import Shape, grow
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label.examples import Prompter
from tests.builders.judges import SAMPLING
from tests.builders.scripted import Ending, ScriptedEngine, comparison, judged, noisy

PROMPTS = load_prompt_set("compact")
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
    trees = grow(comparisons, engine, PROMPTS, Shape(count=3, criteria=3, guidelines=2, judgments=2), SAMPLING, 7)
    asked = {(r.step, json.dumps(r.messages)): r for r in engine.asked}
    nodes = [("criteria", PROMPTER.criteria(t.comparison), each) for t in trees for each in t.lists]
    nodes += [
        ("guideline", PROMPTER.guideline(t.comparison, c.text), g)
        for t in trees for c in t.criteria for g in c.guidelines
    ]  # fmt: skip
    nodes += [
        ("judgment", PROMPTER.judgment(t.comparison, c.text, g.text, j), j) for t in trees for c, g, j in t.judgments()
    ]
    assert len(nodes) == 3 * (1 + 6 + 24)
    for step, messages, node in nodes:
        (again,) = engine.generate([replace(asked[step, json.dumps(messages)], place=node.place)], node.seed)
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
    tree = grow([comparison(0)], engine, PROMPTS, Shape(count=4, criteria=4, top_up=True), SAMPLING, 0)[0]
    assert [(c.text, c.listed_in) for c in tree.criteria] == [("a: x", 0), ("b: z", 0), ("c: y", 1)]
    assert [(each.text, each.finish_reason) for each in tree.lists] == list(
        zip(answers, ("stop", "length"), strict=True)
    )
    assert [(each.seed, each.place) for each in tree.lists] == [(engine.seeds[0], 0), (engine.seeds[1], 0)]
    attempts = [request.attempt for request in engine.requests if request.step == "criteria"]
    assert attempts == [0, 1], "asked for again, it is another question to paid answers"
    assert sum(each.prompt_tokens for each in tree.lists) == tree.criteria_prompt_tokens
    assert sum(each.generated_tokens for each in tree.lists) == tree.criteria_generated_tokens
    for number, each in enumerate(tree.lists):
        assert sum(c.generated_tokens for c in tree.criteria if c.listed_in == number) == each.generated_tokens
    wanted = {"criteria:repeated": 2, "criteria:cut_off": 1, "criteria:short": 1}
    assert {k: n for k, n in tree.failures.items() if k.startswith("criteria")} == wanted
    assert EvaluationTree.from_row(json.loads(json.dumps(tree.to_row()))) == tree


@pytest.mark.parametrize(
    ("text", "repeated"),
    [
        ("1. Depth: a\n2. depth: b\n3. Tone: c\n4. **Tone** - d", 2),
        ("1. Depth: a\n   - Depth: a remark\n   - Depth: another\n2. Tone: b", 0),
        ("- Depth: a\n- Tone: b\n- Depth: c", 1),
        ("I would say:\n1. Depth: a\n2. Tone: b\n\n3. Care: c", 0),
    ],
)
def test_repeated_criteria_are_counted(text: str, repeated: int) -> None:
    engine = ScriptedEngine(lambda r, i: text if r.step == "criteria" else judged(4, 2))
    tree = grow([comparison(0)], engine, PROMPTS, Shape(count=2, criteria=2), SAMPLING, 0)[0]
    assert len(tree.criteria) == 2
    assert tree.failures == ({"criteria:repeated": repeated} if repeated else {})


def test_guidelines_cut_off_are_counted_and_still_judged_by() -> None:
    engine = Ending(noisy, {"guideline": "length"})
    tree = grow([comparison(0)], engine, PROMPTS, Shape(count=3, criteria=3, guidelines=2, judgments=1), SAMPLING, 0)[0]
    assert tree.failures["guideline:cut_off"] == 6
    assert len(list(tree.judgments())) == 12
