"""Responses without their layout: the same words as running text, and nothing else touched."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.extras.robustness.attacks.attack import load_attacks
from judgetrain.judges import BranchingJudge
from judgetrain.judges.config import JudgeConfig, JudgeOptions, StepsConfig
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.prompting.strip_markdown import strip_markdown
from tests.builders.scripted import ScriptedEngine, by_length, comparison

WORDS = st.lists(st.text("abcxyz", min_size=1, max_size=6), min_size=1, max_size=5).map(" ".join)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- one\n- two\n- three", "one two three"),
        ("1. one\n2. two", "one two"),
        ("* one\n\n* two\n\nThe end.", "one two\n\nThe end."),
        ("Steps:\n- one\n  goes on\n- two\n    - deeper\n- three", "Steps:\none goes on two deeper three"),
        ("# Answer\n\nYes.", "Answer\n\nYes."),
        ("Title\n=====\nYes.", "Title\nYes."),
        ("x\r\n- one\r\n- two\r\n", "x\none two"),
        ("- one\n- two\n\n\nThen.", "one two\n\n\nThen."),
    ],
)
def test_headings_and_lists_become_running_text(text: str, expected: str) -> None:
    assert strip_markdown(text) == expected
    assert strip_markdown(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "1986.",  # CommonMark: an ordered list that begins with 1986
        "42. is the answer",
        "- one",
        "a - b - c, 2*3*4 = 24, 2**3 and __init__",
        "**Yes**, `code` and _so_ on",
        "```\n- one\n- two\n# three\n```",
        "- one\n\n  ```\n  code\n  ```\n- two",
        "| a | b |\n| --- | --- |\n| 1 | 2 |",
        "> - one\n> - two",
        "    - indented\n    - code",
        "1.\n2.",
        "one\r\ntwo",
    ],
)
def test_what_is_no_list_or_heading_stays_to_the_letter(text: str) -> None:
    assert strip_markdown(text) == text


@given(st.lists(WORDS, min_size=2, max_size=6), st.sampled_from(["- ", "* ", "+ ", "1. ", "1) "]), WORDS, st.booleans())
def test_the_words_of_a_list_are_kept_in_order(items: list[str], bullet: str, before: str, loose: bool) -> None:
    text = f"{before}\n\n" + ("\n\n" if loose else "\n").join(bullet + item for item in items)
    assert strip_markdown(text) == f"{before}\n\n{' '.join(items)}"


@given(st.text("ab1.-*#`> \n\t|=", max_size=40))
def test_any_text_keeps_its_letters_and_is_plain_after_once(text: str) -> None:
    assert [c for c in strip_markdown(text) if c in "ab"] == [c for c in text if c in "ab"]
    assert bool(strip_markdown(text).strip()) == bool(text.strip())


def test_the_worlds_list_is_the_response_again() -> None:
    """So that a judge which is asked with ``strip_markdown`` cannot say anything else of it."""
    markdown = next(a for a in load_attacks("world") if a.name == "markdown")
    for each in eval_comparisons(WorldConfig(eval_comparisons=20), 3):
        attacked = markdown.into(each)
        assert attacked is not None and attacked.response_a != each.response_a
        assert strip_markdown(attacked.response_a) == each.response_a


def test_a_judge_is_shown_the_plain_response_and_its_tree_is_of_the_one_given() -> None:
    listed = replace(comparison(0), response_a="- one\n- two", response_b="three")
    for plain, shown in ((True, "one two"), (False, "- one\n- two")):
        engine = ScriptedEngine(by_length)
        judge = BranchingJudge(
            engine, load_prompt_set("compact"), JudgeOptions(steps=StepsConfig(criteria=3), strip_markdown=plain)
        )
        [tree] = judge.sample([listed], 0)
        assert {r.slots["response_a"] for r in engine.requests if r.step == "judgment"} == {shown, "three"}
        assert tree.comparison == listed
        [found] = judge.predictions([tree], 1)
        assert (found.asked or "").endswith("plain") == plain
    assert (
        JudgeOptions.of(JudgeConfig(reads="one"), 3, strip_markdown=True).shown
        == "greedy, expected, one response, plain"
    )
