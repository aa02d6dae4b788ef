"""Trees whose judgments read one response: what is right, what is evidence, and what is taught."""

from __future__ import annotations

import pytest

from judgetrain.engines.base import Request
from judgetrain.judges.config import StepsConfig
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.grow import Shape, grow
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label.config import LabelConfig, TeacherConfig
from judgetrain.label.examples import Prompter, against_label, consensus
from judgetrain.label.labels import KnownLabels
from judgetrain.label.stage import TrainingData
from judgetrain.label.teacher_stage import orders_of, teaching_examples
from judgetrain.schema import ORDERS, RESPONSES, Comparison
from tests.builders.scripted import ScriptedEngine, criteria, judged

PROMPTS = load_prompt_set("compact")
PROMPTER = Prompter(PROMPTS, 2, reference=True)
PAIR = Comparison.of("q", "good answer", "bad", reference="the gold one", label="A")


def answer(request: Request, occurrence: int) -> str:
    """By c1 good has 5 and bad 1, but for each second judgment of good, which slips to 1; by c2 both have 3."""
    if request.step == "criteria":
        return criteria(2)
    if request.step == "guideline":
        return f"by {request.slots['criterion']} {occurrence}"

    def score(text: str) -> int:
        if request.slots["criterion"].startswith("c2"):
            return 3
        return 1 if text.startswith("bad") or occurrence % 2 else 5

    if request.step == "score":
        return f"Score: {score(request.slots['response'])}\nAnalysis: seen {occurrence}."
    return judged(score(request.slots["response_a"]), score(request.slots["response_b"]), str(occurrence))


def tree(orders: tuple[str, ...] = RESPONSES, judgments: int = 2) -> EvaluationTree:
    shape = Shape(count=2, criteria=2, guidelines=2, judgments=judgments, orders=orders)  # type: ignore[arg-type]
    return grow([PAIR], ScriptedEngine(answer), PROMPTS, shape, StepsConfig(criteria=2), 0)[0]


def test_a_judgment_is_right_when_its_score_stands_on_the_right_side_of_its_siblings() -> None:
    first = tree().criteria[0].guidelines[0].judgments
    assert [(j.order, j.score_a, j.score_b, j.verdict) for j in first] == [
        ("A", 5, 1, "A"), ("A", 1, 1, "tie"), ("B", 5, 1, "A"), ("B", 1, 1, "tie"),
    ]  # fmt: skip


def test_two_siblings_are_one_piece_of_evidence() -> None:
    node = tree().criteria[0]
    assert against_label(node.judgments, "A") == (2, 0, 2), "two guidelines, two judgments of response A each"
    steady = [j for j in node.judgments if j.verdict == "A"]
    assert consensus(steady, 0.9) == "A" and consensus(steady[:2], 0.9) is None, "one sibling pair is not enough"


@pytest.mark.parametrize(("orders", "kinds"), [(RESPONSES, 1), (ORDERS, 1), ((*ORDERS, *RESPONSES), 2)])
def test_examples_and_pairs_are_made_for_both_ways_of_reading(orders: tuple[str, ...], kinds: int) -> None:
    config = LabelConfig(max_sft_per_tree=99, max_pairs_per_level=99, levels=["criteria", "guideline", "judgment"])
    data = TrainingData(PROMPTER, config)
    data.add(tree(orders, 6))
    prompts = {row["prompt"][0]["content"].split("\n")[0] for row in data.sft if row["level"] == "judgment"}
    told = {"Score the response.", "Score the responses."}
    assert prompts <= told and len(prompts) == kinds
    assert all("Reference: the gold one" in row["prompt"][0]["content"] for row in data.sft)
    judgments = [pair for pair in data.pairs if pair.level == "judgment"]
    for pair in judgments:
        assert pair.chosen.startswith("Score: 5" if pair.chosen.startswith("Score") else "Response A Score")
        assert pair.chosen.split()[0] == pair.rejected.split()[0], "one prompt, one form"
    assert any(pair.level == "criteria" for pair in data.pairs)


def test_a_teacher_writes_both_forms_and_labels_are_scores() -> None:
    assert orders_of(TeacherConfig(both_orders=False), "both") == ("AB", "A", "B")
    assert orders_of(TeacherConfig(both_orders=True), "one") == ("A", "B")
    shape = Shape(count=2, criteria=1, orders=(*ORDERS, *RESPONSES))
    (taught,) = grow([PAIR], KnownLabels([PAIR]), PROMPTS, shape, StepsConfig(criteria=2), 0)
    scores = {j.order: (j.score_a, j.score_b, j.verdict) for _, _, j in taught.judgments()}
    assert scores == dict.fromkeys(("AB", "BA", "A", "B"), (4, 2, "A"))
    rows = [row for row in teaching_examples(taught, PROMPTER) if row["level"] == "judgment"]
    assert sorted(row["completion"][0]["content"] for row in rows)[-2:] == ["Score: 2", "Score: 4"]
