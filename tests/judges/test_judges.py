"""Judges: k branches from one run, both orders, costs by hand, baselines."""

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from judgetrain.engines import lazy_model
from judgetrain.engines.base import Request
from judgetrain.engines.config import SamplingConfig
from judgetrain.judges import BASELINES, BranchingJudge
from judgetrain.judges.config import Aggregation, JudgeConfig
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.predictions import EXCHANGED, Cost, Plan, Prediction, Reason, in_own_order
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.saved import save_settings
from judgetrain.judges.trees.config import StepsConfig
from judgetrain.judges.trees.schema import EvaluationTree, cost_of, shard_of
from tests.builders.scripted import Answer, Ending, ScriptedEngine, by_length, comparison, judged, noisy

PROMPTS = load_prompt_set("compact")
SETTINGS = StepsConfig(criteria=6)
COMPARISONS = [comparison(i) for i in range(40)]


def judge(answer=noisy, branches: int = 1, aggregation: Aggregation = "vote") -> BranchingJudge:  # type: ignore[no-untyped-def]
    return BranchingJudge(
        ScriptedEngine(answer),
        PROMPTS,
        JudgeOptions(branches=branches, steps=SETTINGS, aggregation=aggregation),
        "test",
    )


def second_tries(request: Request, occurrence: int) -> str:
    """Answer so that the first comparison's list and the second's judgment in order AB are read at the second try."""
    query = request.slots["query"]
    shown = request.slots.get("response_a")
    if request.step == "guideline":
        return "a guideline"
    if request.step == "criteria":
        lost = query == COMPARISONS[0].dialogue.query and not request.attempt
        return "no list" if lost else "1. Depth: how deep\n2. Tone: how kind"
    first = request.slots["criterion"].startswith("Depth")
    lost = query == COMPARISONS[1].dialogue.query and shown == COMPARISONS[1].response_a and not request.attempt
    return "no scores" if first and lost else judged(4, 2)


def retrying(retries: int, branches: int, early_stop: bool = False, plan: Plan = "shared") -> BranchingJudge:
    settings = StepsConfig(criteria=2, criteria_sampling=SamplingConfig(temperature=0.0, max_new_tokens=7))
    how = {"early_stop": early_stop, "plan": plan, "retries": retries}
    return BranchingJudge(
        ScriptedEngine(second_tries), PROMPTS, JudgeOptions(branches=branches, steps=settings, **how), "test"
    )  # type: ignore[arg-type]


def test_what_cannot_be_read_is_asked_again_and_counted_and_charged() -> None:
    once, again = (retrying(n, 1).compare_batch(COMPARISONS[:4]) for n in (0, 1))
    assert [(p.verdict_ab, p.verdict_ba) for p in once] == [(None, None), (None, "B"), ("A", "B"), ("A", "B")]
    assert [(p.verdict_ab, p.verdict_ba) for p in again] == [("A", "B")] * 4
    assert ([p.asked_again for p in once], [p.asked_again for p in again]) == ([0] * 4, [1, 1, 0, 0])
    assert [p.failures for p in again] == [{}] * 4
    assert [p.cost.calls for p in once] == [1 / 2, 2, 2, 2]
    assert [p.cost.calls for p in again] == [1 / 2 + 2, 2 + 2, 2, 2]
    lost = once[0].cost
    whole = again[2].cost
    assert again[0].cost.generated_tokens == lost.generated_tokens + whole.generated_tokens
    assert again[0].cost.prompt_tokens == lost.prompt_tokens + whole.prompt_tokens


@pytest.mark.parametrize("plan", ["shared", "independent"])
@pytest.mark.parametrize("early_stop", [False, True])
def test_the_first_branch_alone_decides_what_is_asked_again(early_stop: bool, plan: Plan) -> None:
    """So that one branch read off two says, and is asked again, as a judge with one branch is."""
    large = retrying(1, 2, early_stop, plan)
    small = retrying(1, 1, early_stop, plan)
    trees, others = large.ask(COMPARISONS[:4], 0)
    read = large.predictions(trees, 1, others)
    small_predictions = small.compare_batch(COMPARISONS[:4])
    assert [(p.verdict_ab, p.verdict_ba, p.asked_again) for p in read] == [
        (p.verdict_ab, p.verdict_ba, p.asked_again) for p in small_predictions
    ]
    assert [p.asked_again for p in small_predictions] == ([1, 1, 0, 0] if plan == "shared" else [2, 1, 0, 0])


def test_what_was_greedy_is_sampled_when_it_is_asked_again_and_its_tree_is_kept() -> None:
    tested = retrying(3, 2)
    [tree, *_] = tested.sample(COMPARISONS[:2], 5)
    assert isinstance(tested.engine, ScriptedEngine)
    lists = [r for r in tested.engine.requests if r.step == "criteria"]
    assert [(r.attempt, r.sampling.temperature, r.sampling.max_new_tokens) for r in lists] == [
        (0, 0.0, 7), (0, 0.0, 7), (2, 1.0, 7), (2, 1.0, 7),
    ]  # fmt: skip
    assert [r.place for r in lists] == [0, 1, 0, 1]
    assert [earlier_tree.criteria_text for earlier_tree in tree.earlier] == ["no list"] and not tree.earlier[0].criteria
    assert EvaluationTree.from_row(json.loads(json.dumps(tree.to_row()))) == tree
    without = cost_of(replace(tree, earlier=()))
    assert cost_of(tree).generated_tokens == without.generated_tokens + 2, "the words of 'no list'"
    assert shard_of([tree]).dropped == {"asked_again": 1}


@pytest.mark.parametrize("step", ["criteria", "guideline", "judgment"])
@pytest.mark.parametrize("reason", ["too_long", "error"])
def test_what_gave_no_answer_is_not_asked_again(step: str, reason: str) -> None:
    silent = Ending(lambda r, i: f"!{reason}" if r.step == step else second_tries(r, i))
    BranchingJudge(silent, PROMPTS, JudgeOptions(steps=StepsConfig(criteria=2), retries=3)).compare_batch(
        COMPARISONS[2:4]
    )
    assert not any(r.attempt for r in silent.requests)


def by_plan(plan: Plan, answer: Answer, **more: bool) -> tuple[BranchingJudge, ScriptedEngine]:
    engine = ScriptedEngine(answer)
    return BranchingJudge(engine, PROMPTS, JudgeOptions(branches=3, steps=SETTINGS, plan=plan, **more), "test"), engine


@pytest.mark.parametrize("early_stop", [False, True])
def test_a_plan_is_asked_once_and_charged_half_to_each_order_or_once_for_each(early_stop: bool) -> None:
    for plan, lists in (("shared", 1), ("independent", 2)):
        tested, engine = by_plan(plan, noisy, early_stop=early_stop)  # type: ignore[arg-type]
        [prediction] = tested.compare_batch(COMPARISONS[:1], 0)
        steps = Counter(r.step for r in engine.requests)
        assert steps["criteria"] == lists
        assert prediction.cost.calls == steps.total() / 2, "each is charged what it costs"
        assert (prediction.plan, prediction.asked) == (plan, "T=1")
        if not early_stop:
            assert steps == {"criteria": lists, "guideline": 3 * lists, "judgment": 6}
            assert prediction.cost.calls == {"shared": 5, "independent": 7}[plan]


def test_orders_with_plans_of_their_own_are_judged_by_different_criteria() -> None:
    lists = iter(range(100))

    def answer(request: Request, occurrence: int) -> str:
        if request.step == "criteria":
            return "\n".join(f"{i}. list {next(lists)}: x" for i in (1, 2, 3))
        return judged(4, 2) if request.step == "judgment" and "list 0" in request.slots["criterion"] else judged(2, 4)

    tested, _ = by_plan("independent", lambda r, i: answer(r, i) if r.step != "guideline" else "by it")
    prediction = tested.compare(COMPARISONS[0])
    assert {r.order: {s.criterion for s in prediction.reasons if s.order == r.order} for r in prediction.reasons} == {
        "AB": {"list 0: x", "list 1: x", "list 2: x"},
        "BA": {"list 3: x", "list 4: x", "list 5: x"},
    }
    trees, others = tested.ask(COMPARISONS[:1], 0)
    [one] = tested.predictions(trees, 1, others)
    assert one.judgments == 2, "one branch in each order, each by the first criterion of its own list"


def test_a_prediction_gives_its_reasons_in_the_comparisons_own_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy_model, "make_engine", lambda *a, **k: ScriptedEngine(by_length))
    PROMPTS.save(tmp_path)
    save_settings(JudgeConfig(), tmp_path, 6)
    prediction = BranchingJudge.from_pretrained(tmp_path, branches=2).compare(comparison(0, "x", "much longer"))
    assert prediction.verdict == "B"
    assert [(r.order, r.criterion) for r in prediction.reasons] == [
        (order, f"c{i}: looks at {i}") for order in ("AB", "BA") for i in (1, 2)
    ]
    for reason in prediction.reasons:
        assert reason.guideline.startswith("guideline") and "Response A Score" in reason.text
        assert reason.score_a is not None and reason.score_b is not None and reason.score_a < reason.score_b
        assert (reason.verdict, reason.failure) == ("B", None)
        for side, score in (("A", reason.score_a), ("B", reason.score_b)):
            assert f"Response {side} Score: {score:g}" in reason.text, "whatever was shown first"
    silent = judge(lambda r, i: "?" if r.step == "judgment" else noisy(r, i)).compare(COMPARISONS[0])
    assert silent.verdict == "unreadable"
    assert [(r.text, r.score_a, r.failure) for r in silent.reasons] == [("?", None, "no_scores")] * 2


def test_a_prediction_is_read_as_text_and_as_data() -> None:
    prediction = judge(by_length, 1).compare(comparison(0, "x", "much longer"))
    lines = str(prediction).splitlines()
    assert lines[0].startswith("B (margin -") and lines[1] == "- c1: looks at 1"
    assert [line for line in lines if "shown first" in line] == [
        f"  {side} shown first: A {r.score_a:g}, B {r.score_b:g}"
        for side, r in zip("AB", prediction.reasons, strict=True)
    ]
    data = prediction.to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert (data["verdict"], data["consistent"], data["reasons"][1]["order"]) == ("B", True, "BA")
    unknown = Prediction(comparison_id="0", method="m", verdict_ab="A", verdict_ba="B", cost=Cost(calls=math.nan))
    assert str(unknown) == "inconsistent: A (A shown first), B (B shown first)"
    assert unknown.to_dict()["cost"]["calls"] is None


def test_each_response_that_was_read_by_itself_is_shown_with_its_own_score() -> None:
    both: dict[str, Any] = {
        "criterion": "steps",
        "guideline": "5 if it has steps.",
        "score_a": 2.687867,
        "score_b": 4.0,
    }
    of_a = Reason(order="A", text="Score: 2", verdict="B", failure=None, **both)
    of_b = Reason(order="B", text="Score: 4\nAnalysis: it has steps.", verdict="B", failure=None, **both)
    prediction = Prediction(
        comparison_id="0",
        method="m",
        verdict_ab="B",
        verdict_ba="B",
        margin=-1.312133,
        cost=Cost(),
        reasons=(of_a, of_b),
    )
    # The most likely score, which stands alone in A's text, is not A's mean of all scores.
    assert str(prediction).splitlines() == [
        "B (margin -1.31)",
        "- steps",
        "  5 if it has steps.",
        "  A by itself: 2.69",
        "  B by itself: 4",
        "    Score: 4",
        "    Analysis: it has steps.",
    ]


@pytest.mark.parametrize(
    ("written", "exchanged"),
    [
        ("Response A Score: 5\nComparison: A is better.", "Response B Score: 5\nComparison: B is better."),
        ("It is short. [[A]]", "It is short. [[B]]"),
        ("B", "A"),
        ("Response A is worse than B.", "Response B is worse than A."),
        ("A's answer is better than B's; A and B are long", "B's answer is better than A's; B and A are long"),
        ("**A** is clearer than B", EXCHANGED + "**A** is clearer than B"),
        ("Response B has vitamin A.", EXCHANGED + "Response B has vitamin A."),
    ],
)  # fmt: skip
def test_letters_that_name_a_response_are_exchanged_all_of_them_or_none(written: str, exchanged: str) -> None:
    assert in_own_order(written, "BA") == exchanged and in_own_order(exchanged, "BA") == written
    assert in_own_order(written, "AB") == written


def test_a_judge_is_asked_greedily_at_every_step_unless_one_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy_model, "make_engine", lambda *a, **k: ScriptedEngine(noisy))
    PROMPTS.save(tmp_path)
    for saved, options, temperature in (
        (JudgeConfig(), {}, 0.0),
        (JudgeConfig(), {"temperature": 1.0}, 1.0),
        (JudgeConfig(temperature=0.4, aggregation="mean"), {}, 0.4),
        (JudgeConfig(temperature=0.4, aggregation="mean"), {"temperature": 0.0, "retries": 0}, 0.0),
    ):
        save_settings(saved, tmp_path, 6)
        tested = BranchingJudge.from_pretrained(tmp_path, branches=2, **options)
        tested.compare_batch(COMPARISONS[:3], 0)
        requests = tested.engine.requests  # type: ignore[attr-defined]
        assert {r.step for r in requests} == {"criteria", "guideline", "judgment"}
        assert {r.sampling.temperature for r in requests} == {temperature}
        assert tested.options.aggregation == saved.aggregation
    assert BranchingJudge(ScriptedEngine(noisy), PROMPTS).options.steps == JudgeConfig().asking(10)


def test_baselines() -> None:
    longer = comparison(0, "aa", "bbbb")
    assert [(p.verdict_ab, p.verdict_ba) for p in BASELINES["first"]().compare_batch([longer], 0)] == [("A", "B")]
    assert BASELINES["longer"]().compare(longer).verdict_ab == "B"
    assert BASELINES["longer"]().compare(longer.swapped()).verdict_ba == "A"
    drawn = BASELINES["random"]().compare_batch([comparison(i) for i in range(400)], 1)
    assert drawn == BASELINES["random"]().compare_batch([comparison(i) for i in range(400)], 1)
    assert 150 < sum(p.verdict_ab == "A" for p in drawn) < 250
    assert 150 < sum(p.verdict_ab == p.verdict_ba for p in drawn) < 250
