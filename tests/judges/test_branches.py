"""Branches: how they become a verdict, and that the first k of a larger run stand for a run of k."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.errors import ConfigError
from judgetrain.judges import BranchingJudge
from judgetrain.judges.config import JudgeOptions, Rule, TreeConfig
from judgetrain.judges.kinds.aggregation import steps, verdict
from judgetrain.judges.kinds.branching import predict
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.schema import Order, mirror
from tests.builders.judges import failing
from tests.builders.label import SCORES, tree_of
from tests.builders.scripted import ScriptedEngine, comparison, noisy

ORDERS: tuple[Order, ...] = ("AB", "BA")


WORDS = st.sampled_from([a + b for a in "ABt?" for b in "ABt?"])


@settings(max_examples=60)
@given(words=st.lists(WORDS, min_size=1, max_size=6), tie=st.sampled_from([0, Fraction(1, 8), Fraction(1, 2)]))
def test_a_criterion_of_the_judge_s_own_weighs_a_third_of_the_one_before(words: list[str], tie: Fraction) -> None:
    tree = tree_of(*[(word,) for word in words])
    for half, order in enumerate(ORDERS):
        margins = [
            None if None in SCORES[w[half]] else Fraction(SCORES[w[half]][0] - SCORES[w[half]][1]) for w in words
        ]
        weighed = [(margin or 0) * Fraction(1, 3) ** place for place, margin in enumerate(margins)]
        assert steps(tree.criteria, order, Rule(True, 0.0)) == pytest.approx([float(step) for step in weighed])
        assert steps(tree.criteria, order, Rule(False, 0.0)) == [(step > 0) - (step < 0) for step in weighed]
        read = 4 * sum(Fraction(1, 3) ** place for place, margin in enumerate(margins) if margin is not None)
        even = abs(sum(weighed)) <= tie * read
        expected = None if not read else "tie" if even else "A" if sum(weighed) > 0 else "B"
        assert verdict(tree.criteria, order, Rule(True, float(tie))) == expected
        assert steps(tree.criteria[:0], order, Rule(True, 0.0)) == []


PROMPTS = load_prompt_set("compact")
SETTINGS = TreeConfig(criteria=6)
COMPARISONS = [comparison(i) for i in range(30)]


def judge(branches: int, answer=failing) -> BranchingJudge:  # type: ignore[no-untyped-def]
    return BranchingJudge(ScriptedEngine(answer), PROMPTS, JudgeOptions(branches=branches, steps=SETTINGS), "test")


@pytest.mark.parametrize("k", range(1, 7))
def test_a_larger_run_read_at_k_equals_a_run_of_k_with_all_kinds_of_failures(k: int) -> None:
    large = judge(6)
    read = large.predictions(large.sample(COMPARISONS, 3), k)
    alone = judge(k).compare_all(COMPARISONS, 3)
    for one, other in zip(read, alone, strict=True):
        assert one.failures == other.failures
        assert (one.verdict_ab, one.verdict_ba, one.margin, one.judgments) == (
            other.verdict_ab,
            other.verdict_ba,
            other.margin,
            other.judgments,
        )
        assert (one.cost.prompt_tokens, one.cost.calls) == (other.cost.prompt_tokens, other.cost.calls)
        assert abs(one.cost.generated_tokens - other.cost.generated_tokens) <= 1, "a list's tokens are shared out"
    assert {f for p in read for f in p.failures} >= {"guideline:too_long", "guideline:empty", "too_long", "no_scores"}


def test_cost_is_half_of_the_requests_that_both_orders_make() -> None:
    tested = judge(3, noisy)
    for item in COMPARISONS[:5]:
        engine = ScriptedEngine(noisy)
        tested.engine = engine
        cost = tested.compare(item).cost
        completions = engine.generate(engine.requests.copy(), 0)
        spent = dict.fromkeys(("criteria", "guideline", "judgment"), (0, 0, 0))
        for request, completion in zip(engine.requests[: len(completions)], completions, strict=True):
            calls, prompt, generated = spent[request.step]
            spent[request.step] = (
                calls + 1,
                prompt + completion.prompt_tokens,
                generated + completion.generated_tokens,
            )
        assert [n for n, _, _ in spent.values()] == [1, 3, 6]
        assert cost.calls == sum(n for n, _, _ in spent.values()) / 2
        assert cost.prompt_tokens == sum(prompt for _, prompt, _ in spent.values()) / 2
        assert cost.generated_tokens == sum(generated for _, _, generated in spent.values()) / 2


@settings(max_examples=30, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from(["vote", "mean"]))
def test_the_order_of_branches_changes_no_prediction(rng: random.Random, aggregation) -> None:  # type: ignore[no-untyped-def]
    for tree in TREES:
        criteria = list(tree.criteria)
        rng.shuffle(criteria)
        shuffled = replace(tree, criteria=tuple(criteria))
        one, other = (predict(t, 6, JudgeOptions(aggregation=aggregation), "x") for t in (tree, shuffled))
        margins = {name: getattr(one, name) for name in ("margin", "margin_ab", "margin_ba", "score_a", "score_b")}
        assert one == replace(other, **margins)  # type: ignore[arg-type]
        assert margins == {name: pytest.approx(getattr(other, name)) for name in margins}


TREES = judge(6).sample(COMPARISONS[:10], 3)


def test_exchanging_the_responses_exchanges_the_two_orders_and_mirrors_them() -> None:
    """For an engine that is a function of what it is shown, the exchanged comparison's AB is this one's BA."""
    straight = judge(5, noisy).compare_all(COMPARISONS, 0)
    swapped = judge(5, noisy).compare_all([c.swapped() for c in COMPARISONS], 0)
    for one, other in zip(straight, swapped, strict=True):
        assert other.verdict_ab == (None if one.verdict_ba is None else mirror(one.verdict_ba))
        assert other.verdict_ba == (None if one.verdict_ab is None else mirror(one.verdict_ab))
        assert other.cost == one.cost
        if one.margin is not None:
            assert other.margin == pytest.approx(-one.margin)


@pytest.mark.parametrize("branches", [0, -1, 7])
def test_a_judge_has_as_many_branches_as_criteria(branches: int) -> None:
    with pytest.raises(ConfigError, match=rf"branches={branches}: .*6 criteria"):
        judge(branches).compare(COMPARISONS[0])
