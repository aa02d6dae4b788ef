"""A preference for a position: measured without labels, and taken off a judge's margins."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgetrain.engines.base import Request
from judgetrain.errors import ConfigError
from judgetrain.judges import BranchingJudge
from judgetrain.judges.config import JudgeConfig, JudgeOptions
from judgetrain.judges.position import position_offset
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.schema import Verdict
from tests.builders.scripted import ScriptedEngine, comparison, judged, noisy, number

PROMPTS = load_prompt_set("compact")


def test_the_median_over_both_orders_of_what_stands_first() -> None:
    # First shown is ahead by 2, 1 and 3 in order AB, and in order BA by 1, 2 and -1.
    assert position_offset([2, 1, 3], [-1, -2, 1]) == 1.5
    assert position_offset([1, -1], [1, -1]) == 0, "each response is ahead by as much wherever it stands"
    assert position_offset([3, None, 1], [-1, -4, None]) == 2, "only comparisons with both orders"
    assert position_offset([None], [1]) is None
    assert position_offset([], []) is None
    with pytest.raises(ValueError, match="shorter"):
        position_offset([1], [])


@given(st.lists(st.tuples(*[st.integers(-40, 40)] * 2), min_size=1), st.integers(-40, 40))
def test_what_is_given_to_the_first_position_is_what_is_measured(pairs: list[tuple[int, int]], given_: int) -> None:
    margins = [a for a, _ in pairs], [b for _, b in pairs]
    before = position_offset(*margins)
    after = position_offset([m + given_ for m in margins[0]], [m - given_ for m in margins[1]])
    assert before is not None and after == before + given_
    exchanged = position_offset([-m for m in margins[1]], [-m for m in margins[0]])
    assert exchanged == before, "which response is called A is of no concern"


def leaning(request: Request, occurrence: int) -> str:
    """A judge that knows the better response, and gives the one that it is shown first 2 points more."""
    if request.step != "judgment":
        return noisy(request, occurrence)
    slots = request.slots
    worth = {text: 1 + number(text) % 2 for text in (slots["response_a"], slots["response_b"])}
    return judged(worth[slots["response_a"]] + 2, worth[slots["response_b"]])


def judge(branches: int = 1, early_stop: bool = False, **asked: object) -> BranchingJudge:
    settings = JudgeConfig().changed(**asked)
    return BranchingJudge(
        ScriptedEngine(leaning),
        PROMPTS,
        JudgeOptions.of(settings, 5, branches=branches, aggregation="margin", early_stop=early_stop),
        "test",
    )


COMPARISONS = [comparison(i, f"one {i}", f"other {i}") for i in range(40)]


def truth(i: int) -> Verdict:
    a, b = (number(text) % 2 for text in (COMPARISONS[i].response_a, COMPARISONS[i].response_b))
    return "tie" if a == b else "A" if a > b else "B"


@pytest.mark.parametrize("branches", [1, 3])
@pytest.mark.parametrize("early_stop", [False, True])
def test_a_judge_without_its_preference_is_right_in_both_orders(branches: int, early_stop: bool) -> None:
    assert {truth(i) for i in range(40)} == {"A", "B", "tie"}
    leans = judge(branches, early_stop).compare_all(COMPARISONS)
    assert {(p.verdict_ab, p.verdict_ba) for p in leans} == {("A", "B")}
    assert position_offset([p.margin_ab for p in leans], [p.margin_ba for p in leans]) == 2
    upright = judge(branches, early_stop, position_offset=2).compare_all(COMPARISONS)
    assert [p.verdict for p in upright] == [truth(i) for i in range(40)]
    assert position_offset([p.margin_ab for p in upright], [p.margin_ba for p in upright]) == 0
    assert {p.asked for p in upright} == {"greedy, offset 2"}
    if not early_stop:  # which judges as many branches as each order needs
        assert [p.margin for p in leans] == [p.margin for p in upright], "over both orders it cancels"
    assert [r.score_a for p in leans for r in p.reasons][:1] == [r.score_a for p in upright for r in p.reasons][:1]


def test_trees_keep_it() -> None:
    (tree,) = judge(position_offset=2).sample(COMPARISONS[:1], 0)
    again = EvaluationTree.from_row(tree.to_row())
    assert again == tree and {j.offset for _, _, j in again.judgments()} == {2}


@pytest.mark.parametrize("offset", [1.0, -3.0])
def test_stopping_early_stays_safe_where_an_offset_lets_margins_go_further_than_the_scale(offset: float) -> None:
    def drawn(request: Request, occurrence: int) -> str:
        if request.step != "judgment":
            return leaning(request, occurrence)
        draw = number(tuple(request.slots.values()))
        return judged(1 + draw % 5, 1 + draw // 5 % 5)

    options = JudgeOptions(branches=9, steps=JudgeConfig().asking(9), aggregation="margin", position_offset=offset)
    whole, early = (
        BranchingJudge(ScriptedEngine(drawn), PROMPTS, replace(options, early_stop=stop)).compare_all(COMPARISONS)
        for stop in (False, True)
    )
    assert [(p.verdict_ab, p.verdict_ba) for p in early] == [(p.verdict_ab, p.verdict_ba) for p in whole]
    assert sum(p.judgments for p in early) < sum(p.judgments for p in whole)


def test_an_offset_off_the_scale_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"judge\.position_offset"):
        JudgeConfig().changed(position_offset=5)
