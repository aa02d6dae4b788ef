"""A judge is asked with strings and messages."""

from __future__ import annotations

import pytest

from judgetrain.errors import DataError
from judgetrain.judges import LongerJudge, Message
from judgetrain.schema import Comparison

judge = LongerJudge()


def test_one_comparison_is_given_as_strings() -> None:
    found = judge("Why?", "Because.", "No.")
    assert (found.verdict, found.comparison_id) == ("A", Comparison.of("Why?", "Because.", "No.").id)


def test_messages_and_strings_are_the_same_prompt() -> None:
    as_messages = [{"role": "user", "content": "Why?"}]
    assert Comparison.of("Why?", "a", "b") == Comparison.of(as_messages, "a", "b")
    assert Comparison.of([Message("user", "Why?")], "a", "b") == Comparison.of("Why?", "a", "b")
    assert Comparison.of("Why?", "a", "b").id != Comparison.of("Why?", "b", "a").id


def test_earlier_turns_are_the_dialogue_s_context() -> None:
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "Why?"},
    ]
    dialogue = Comparison.of(turns, "a", "b").dialogue
    assert (dialogue.query, dialogue.context) == ("Why?", "User: Hi\nAssistant: Yes?")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("p", ["a"], ["b"]), "expected a prompt and one or two responses, which are texts; found str, list, list"),
        (([], "a", "b"), "the last message to be the user's, found none at all"),
        (([{"role": "assistant", "content": "x"}], "a", "b"), "the last message to be the user's, found assistant"),
        (([{"role": "user"}], "a", "b"), "message 0: expected a role and a content"),
        ((None, "b", "c"), "found NoneType"),
        ((5, "b", "c"), "found int"),
        (([5], "b", "c"), "message 0: .* found int"),
        (("q", None, "c"), "found str, NoneType, str"),
    ],
)
def test_what_is_no_comparison_is_refused(given: tuple, message: str) -> None:
    with pytest.raises(DataError, match=message):
        judge(*given)
