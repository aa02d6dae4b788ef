"""Readings that would be guesses are failures; what a list costs; lists that never came."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgetrain.judges.prompting.parsing import ParsedJudgment, parse_criteria, parse_judgment
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.grow import Shape, grow
from tests.builders.judges import SAMPLING
from tests.builders.scripted import ScriptedEngine, comparison, noisy
from tests.builders.timing import growth

PROMPTS = load_prompt_set("compact")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Response A Score: 3/10\nResponse B Score: 4/10", "out_of_range"),
        ("Response A Score: 3\nResponse B Score: 2 out of 10", "out_of_range"),
        ("Response A Score: 4-5\nResponse B Score: 3", "ambiguous"),
        ("Response A Score: 1-5\nResponse B Score: 1-5", "ambiguous"),
        ("Response A Score: 3 or 4\nResponse B Score: 3", "ambiguous"),
        ("Response A Score:\n1. The answer is thin\nResponse B Score:\n2. It is fine", "no_scores"),
        ("Response A Score:\nResponse B Score: 4", "no_score_a"),
    ],
)
def test_what_would_be_a_guess_is_a_failure(text: str, reason: str) -> None:
    assert parse_judgment(text) == ParsedJudgment(None, None, reason)


@pytest.mark.parametrize(
    "text",
    [
        "Response A Score:\n3\nResponse B Score:\n4/5",
        "**Response A Score:**\n\n**3**\nwhy\n**Response B Score:**\n\n**4**",
        "Response A Score\uff1a 3\nResponse B Score\uff1a 4",
        "Response A Score: 3 out of 5\nResponse B Score: 4, since it is short",
    ],
)
def test_scores_in_other_dress(text: str) -> None:
    assert parse_judgment(text) == ParsedJudgment(3, 4)


@pytest.mark.parametrize(
    "tail",
    [
        *("3. No wait: 4", "3 (revised: 4)", "2; on reflection 4", "4, no, 2", "4: corrected 3", "4, changed to 3"),
        *("4. Wait, I think that it should be 3", "3, no I mean 4", "4; instead 3", "4. Now it is 2 for its style"),
        *("4 (revised to 3.5)", "4, no, two", "2. Changed: 3/5", "4, corrected: 3 because it is short"),
    ],
)
def test_a_score_that_is_taken_back_on_its_line_is_not_read(tail: str) -> None:
    assert parse_judgment(f"Response A Score: {tail}\nResponse B Score: 2").failure == "ambiguous"
    assert parse_judgment(f"Response A Score: 2\nResponse B Score: {tail}").failure == "ambiguous"


@pytest.mark.parametrize(
    "tail",
    [
        *("4 \u2013 it meets 3 out of 4 criteria", "4, since 1/2 of it is right", "4 (it has 2/3 of the facts)"),
        *("4: it corrected 3 mistakes", "4. It has no dates before 1990", "4, no sources for 2 claims"),
        *("4 - now cites 3 sources", "4. There is no mention of step 3"),
    ],
)
def test_numbers_that_explain_a_score_leave_it_readable(tail: str) -> None:
    assert parse_judgment(f"Response A Score: {tail}\nResponse B Score: 2") == ParsedJudgment(4, 2)


@pytest.mark.parametrize("tail", ["4, out of 10", "4 \u2013 that is out of 10 points", "4, on a scale of 10"])
def test_another_scale_after_punctuation_is_one(tail: str) -> None:
    assert parse_judgment(f"Response A Score: {tail}\nResponse B Score: 2").failure == "out_of_range"


@given(st.sampled_from("ab"), st.floats(-20, 20).map(lambda x: round(x, 1)), st.sampled_from(["", "/5", "/10", "-5"]))
def test_a_score_is_read_only_within_its_scale(side: str, score: float, tail: str) -> None:
    other = "b" if side == "a" else "a"
    parsed = parse_judgment(f"Response {side} Score: {score}{tail}\nResponse {other} Score: 3")
    readable = 1 <= score <= 5 and tail in ("", "/5")
    assert (parsed.failure is None) == readable
    if readable:
        assert (parsed.first if side == "a" else parsed.second) == score


@pytest.mark.parametrize(
    ("before", "unit", "after", "failure"),
    [
        ("", "\n", "", "no_scores"),
        ("", "* ", "", "no_scores"),
        ("", "Response A Score:\n", "", "no_scores"),
        ("", "1. \n", "", "no_scores"),
        ("Response A Score: 4, ", "no wait, 3 out of 4 now ", "\nResponse B Score: 2", "ambiguous"),
    ],
)
def test_long_degenerate_text_is_read_in_linear_time(before: str, unit: str, after: str, failure: str) -> None:
    def read(text: str) -> None:
        assert parse_judgment(before + text + after).failure == failure
        assert parse_criteria(before + text + after, 10) == []

    assert growth(read, unit, 25_000) < 10


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1. Depth: a\n   - one remark\n   - another\n2. Tone: b", ["Depth: a", "Tone: b"]),
        ("(1) Depth: a\n(2) Tone: b", ["Depth: a", "Tone: b"]),
        ("### 1. Depth: a\n### 2. Tone: b", ["Depth: a", "Tone: b"]),
        ("- 1. Depth: a\n- 2. Tone: b", ["Depth: a", "Tone: b"]),
        ("1. Criterion: Depth\n2. Criterion: Tone", ["Depth", "Tone"]),
        ("3.5 stars at most.\n1. Depth: a", ["Depth: a"]),
        ("1. Depth \u2013 a\n2. Depth \u2013 b", ["Depth \u2013 a"]),
    ],
)
def test_lists_in_other_dress(text: str, expected: list[str]) -> None:
    assert parse_criteria(text, 10) == expected


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
