"""What a list of criteria costs, and lists that never came."""

from __future__ import annotations

import pytest

from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.grow import Shape, grow
from tests.builders.judges import SAMPLING
from tests.builders.scripted import ScriptedEngine, comparison, noisy

PROMPTS = load_prompt_set("compact")


def listing(text: str):  # type: ignore[no-untyped-def]
    return lambda request, occurrence: text if request.step == "criteria" else noisy(request, occurrence)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_first_k_criteria_cost_what_stands_before_the_next_line(k: int) -> None:
    """Words of equal length, so that shares of characters are shares of tokens; a token is a word."""
    text = "here goes list\n1. aa: bb cc\n1. aa: bb dd\n2. ee: ff gg hh ii jj\n3. kk: ll\nthat is all"
    tree = grow([comparison(0)], ScriptedEngine(listing(text)), PROMPTS, Shape(count=3, criteria=3), SAMPLING, 0)[0]
    upto = {1: "1. aa: bb cc", 2: "hh ii jj", 3: "that is all"}[k]
    written = text[: text.index(upto) + len(upto)]
    assert abs(sum(c.generated_tokens for c in tree.criteria[:k]) - len(written.split())) <= 1
    assert sum(c.generated_tokens for c in tree.criteria) == tree.criteria_generated_tokens == len(text.split())


@pytest.mark.parametrize(("reason", "calls"), [("too_long", 1), ("error", 2)])
def test_a_list_that_never_came_is_one_failure_by_its_reason(reason: str, calls: int) -> None:
    engine = ScriptedEngine(listing(f"!{reason}"))
    tree = grow([comparison(0)], engine, PROMPTS, Shape(count=3, criteria=3, top_up=True), SAMPLING, 0)[0]
    assert tree.failures == {f"criteria:{reason}": calls}
    assert len(engine.requests) == calls, "a prompt that is too long stays too long; an error may pass"
