"""Early stop: the same verdicts from fewer tokens, nothing judged that could have been spared, nothing left open."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.data.world.engine import WorldEngine
from judgetrain.engines.base import Request, Sampling
from judgetrain.engines.config import TransformersEngineConfig
from judgetrain.judges import BranchingJudge, Prediction
from judgetrain.judges.config import Aggregation, JudgeOptions, Rule, TreeConfig
from judgetrain.judges.kinds.aggregation import most, needed
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.schema import EvaluationTree
from tests.builders.engines import tiny_llama, word_tokenizer
from tests.builders.judges import failing
from tests.builders.scripted import ScriptedEngine, by_length, comparison

PROMPTS = load_prompt_set("compact")
COMPARISONS = [comparison(i) for i in range(24)]
LENGTHS = [comparison(i % 9, "x" * (i % 4), "y" * (i % 3)) for i in range(12)]
WORLD = eval_comparisons(WorldConfig(eval_comparisons=24), 0)
K = 9
How = tuple[Aggregation, float]
"""What makes branches a verdict, and how wide a tie is."""
RULES: list[How] = [("vote", 0.0), ("mean", 0.0), ("mean", 0.125)]


def sign(steps: Iterable[float]) -> int:
    total = sum(steps)
    return (total > 0) - (total < 0)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(-4, 4), max_size=4), st.integers(0, 3), st.sampled_from([0.0, 0.1, 0.3]))
def test_what_is_settled_holds_whatever_comes(steps: list[int], left: int, tie: float) -> None:
    """Of branches that each may say anything from -4 to 4, or not be readable."""

    def outcome(said: list[int | None]) -> int:
        read = [step for step in said if step is not None]
        return sign(read) if abs(sum(read)) > tie * 4 * len(read) else 0

    continued = itertools.product((-4, -1, 0, 1, 4, None), repeat=left)
    outcomes = {outcome([*steps, *more]) for more in continued}
    if needed(steps, [4] * left, [4] * len(steps), tie) == 0:
        assert len(outcomes) == 1
    elif not left:
        pytest.fail("nothing is left that could be needed")
    elif tie == 0 and steps:
        assert len(outcomes) > 1


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(-4, 4), max_size=4), st.integers(0, 3), st.sampled_from([1, 4]))
def test_needed_against_every_way_it_can_go_on(steps: list[int], left: int, most: int) -> None:
    """0 exactly when every continuation has one outcome; else the least number after which some lead is safe."""
    steps = [max(-most, min(most, step)) for step in steps]
    further = (-most, 0, most)

    def settled(judged: list[int], remaining: int) -> bool:
        return len({sign([*judged, *rest]) for rest in itertools.product(further, repeat=remaining)}) == 1

    fewest = next(
        n
        for n in range(left + 1)
        if any(settled([*steps, *more], left - n) for more in itertools.product(further, repeat=n))
    )
    assert needed(steps, [most] * left) == fewest


def judge(engine: object, early_stop: bool, rule: How = ("vote", 0.0), branches: int = K) -> BranchingJudge:
    how = {"aggregation": rule[0], "tie": rule[1], "early_stop": early_stop}
    options = JudgeOptions(branches=branches, steps=TreeConfig(criteria=K), **how)  # type: ignore[arg-type]
    return BranchingJudge(engine, PROMPTS, options, "test")  # type: ignore[arg-type]


def engines() -> dict[str, tuple[object, list]]:
    """Scripted with failures of every kind; content alone; and the world's annotator, which draws random numbers."""
    return {
        "failing": (ScriptedEngine(failing), COMPARISONS),
        "content": (ScriptedEngine(by_length), LENGTHS),
        "world": (WorldEngine(WorldEngineConfig(error_rate=0.3)), WORLD),
    }


def verdicts(predictions: list[Prediction]) -> list[tuple]:
    return [(p.comparison_id, p.verdict_ab, p.verdict_ba) for p in predictions]


@pytest.mark.parametrize("name", ["failing", "content", "world"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("branches", [1, 4, K])
def test_the_same_verdicts_from_fewer_tokens(name: str, rule: How, branches: int) -> None:
    engine, comparisons = engines()[name]
    whole = judge(engine, False, rule, branches).compare_all(comparisons, 5)
    early = judge(engine, True, rule, branches).compare_all(comparisons, 5)
    assert verdicts(early) == verdicts(whole)
    for one, other in zip(early, whole, strict=True):
        assert one.cost.generated_tokens <= other.cost.generated_tokens
        assert one.cost.calls <= other.cost.calls
        assert one.judgments <= other.judgments
    saved = 1 - sum(p.cost.calls for p in early) / sum(p.cost.calls for p in whole)
    if (name, rule[0]) != ("failing", "mean"):  # sums of few readable scores are settled late
        assert (saved > 0) == (branches > 1)


def branches_of(tree: EvaluationTree) -> dict[str, object]:
    return {j.id: j for _, _, j in tree.judgments()}


# Not the mean with failures: a guideline that fails counts for the order that has stopped, too, at another's place.
@pytest.mark.parametrize(("name", "aggregation"), [("failing", "vote"), ("world", "vote"), ("world", "mean")])
def test_what_is_grown_is_part_of_the_whole_tree_and_no_branch_could_be_spared(
    name: str, aggregation: Aggregation
) -> None:
    engine, comparisons = engines()[name]
    whole = judge(engine, False, (aggregation, 0.0)).sample(comparisons, 5)
    early = judge(engine, True, (aggregation, 0.0)).sample(comparisons, 5)
    stopped_somewhere = 0
    for full, part in zip(whole, early, strict=True):
        assert part.criteria_text == full.criteria_text
        assert branches_of(part).items() <= branches_of(full).items()
        for order in ("AB", "BA"):
            everything, judged = (steps_of(t, order, aggregation) for t in (full, part))
            assert judged == everything[: len(judged)]
            # Settled after these, and not before the last of them.
            assert sign(judged) == sign(everything)
            weights = [most(criterion, Rule(aggregation == "mean", 0.0)) for criterion in full.criteria]
            assert needed(judged, weights[len(judged) :]) == 0
            if name == "world":  # where a guideline fails, it fails for the order that has stopped, too
                assert needed(judged[:-1], weights[len(judged) - 1 :]) > 0
            stopped_somewhere += len(judged) < len(everything)
    assert stopped_somewhere > 0


def steps_of(tree: EvaluationTree, order: str, aggregation: Aggregation) -> list[float]:
    found: list[float] = []
    for place, guideline in enumerate(g for c in tree.criteria for g in c.guidelines):
        if guideline.failure:
            found.append(0)
        margins = [j.margin or 0 for j in guideline.judgments if j.order == order]
        found += [m / 3**place for m in margins] if aggregation == "mean" else [sign([m]) for m in margins]
    return found


@pytest.mark.parametrize("name", ["content", "world"])
@pytest.mark.parametrize("rule", RULES)
def test_smaller_numbers_of_branches_are_read_off_a_stopped_run(name: str, rule: How) -> None:
    engine, comparisons = engines()[name]
    large = judge(engine, True, rule)
    trees = large.sample(comparisons, 5)
    whole = judge(engine, False, rule).sample(comparisons, 5)
    for k in range(1, K):
        if name == "content":  # an engine whose texts do not depend on their place among the requests
            assert_same(large.predictions(trees, k), judge(engine, True, rule, k).compare_all(comparisons, 5))
        assert large.predictions(trees, k) == large.predictions(whole, k)


def assert_same(read: list[Prediction], alone: list[Prediction]) -> None:
    for one, other in zip(read, alone, strict=True):
        tokens = abs(one.cost.generated_tokens - other.cost.generated_tokens)
        assert tokens <= 1, "a list's tokens are shared out"
        assert one == replace(other, cost=one.cost)


def test_a_unanimous_vote_takes_just_over_half_of_the_branches_in_three_batches() -> None:
    calls: list[int] = []

    class Engine(ScriptedEngine):
        def generate(self, requests, seed):  # type: ignore[no-untyped-def]
            calls.append(len(requests))
            return super().generate(requests, seed)

    one = replace(COMPARISONS[0], response_a="longer by far", response_b="no")
    prediction = judge(Engine(by_length), True).compare(one)
    assert calls == [1, 5, 10], "a list, five guidelines, five judgments in each order"
    assert (prediction.verdict_ab, prediction.verdict_ba, prediction.judgments) == ("A", "A", 10)
    assert prediction.cost.calls == (1 + 5 + 10) / 2


def test_a_request_that_keeps_its_place_is_sampled_alike_whatever_else_is_asked() -> None:
    from judgetrain.engines.local.transformers_engine import TransformersEngine

    tokenizer = word_tokenizer()
    model = TransformersEngine(TransformersEngineConfig(), tiny_llama(len(tokenizer)), tokenizer)
    limits = Sampling(max_new_tokens=8)
    requests = [
        Request(messages=({"role": "user", "content": f"list {i % 3}"},), sampling=limits, place=i) for i in range(9)
    ]
    together = model.generate(requests, 3)
    assert [c.text for c in together] == [c.text for c in model.generate([replace(r, place=None) for r in requests], 3)]
    assert len({c.text for c in together}) > 3
    order = random.Random(0).sample(range(9), 5)
    assert [c.text for c in model.generate([requests[i] for i in order], 3)] == [together[i].text for i in order]
