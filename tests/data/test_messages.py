"""Messages as texts: calls of tools and their results stand in the assistant's, and what is no message is refused."""

from typing import Any

import pytest

from judgetrain.errors import DataError
from judgetrain.messages import role_texts
from judgetrain.schema import messages_of

ASKED = {"role": "user", "content": "Is it warm in Oslo?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
TRACE: list[dict[str, Any]] = [
    {"role": "assistant", "content": "I look it up.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "-3 degrees"},
    {"role": "assistant", "content": "No, it is cold."},
]
TOLD = 'I look it up.\n\nCall of weather: {"city": "Oslo"}\n\nResult of weather: -3 degrees\n\nNo, it is cold.'


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ([ASKED, *TRACE], [("user", ASKED["content"]), ("assistant", TOLD)]),
        (  # nothing said beside the call, arguments as an object, as Parquet fills what others have
            [{"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "now", "arguments": {}}}]},
             {"role": "tool", "name": "now", "content": [{"type": "text", "text": "noon"}], "tool_calls": None}, ASKED],
            [("assistant", "Call of now: {}\n\nResult of now: noon"), ("user", ASKED["content"])],
        ),
        (  # two calls at once, then a call of the older form
            [{"role": "assistant", "tool_calls": [CALL, {**CALL, "id": "c2", "function": {"name": "b"}}]},
             {"role": "tool", "tool_call_id": "c2", "content": {"n": 1}},
             {"role": "assistant", "content": "", "function_call": {"name": "c", "arguments": "x"}}],
            [("assistant",
              'Call of weather: {"city": "Oslo"}\n\nCall of b: null\n\nResult of b: {"n": 1}\n\nCall of c: x')],
        ),
        (
            [{"from": "function_call", "value": "f()"}, {"from": "observation", "value": "7"},
             {"from": "gpt", "value": "7."}],
            [("assistant", "f()\n\nResult of a tool: 7\n\n7.")],
        ),
        (  # without tools, messages stay apart
            [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}],
            [("assistant", "a"), ("assistant", "b")],
        ),
    ],
)  # fmt: skip
def test_calls_and_results_are_told_in_the_assistant_s_message(
    turns: list[Any], expected: list[tuple[str, str]]
) -> None:
    assert role_texts(turns) == expected


@pytest.mark.parametrize(
    ("turn", "message"),
    [
        ("hello", "expected a role and a content, found str"),
        ({"role": "robot", "content": "x"}, "one of user, assistant, system, tool"),
        ({"role": "assistant", "content": None}, "found 'assistant', None"),
        ({"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}, "a call of a tool with its name"),
        ({"role": "user", "content": [{"type": "input_audio"}]}, "parts of type input_audio"),
    ],
)
def test_what_is_no_message_is_refused_by_its_number(turn: Any, message: str) -> None:
    for read in (role_texts, lambda turns: messages_of(turns)):
        with pytest.raises(DataError, match=f"message 1: .*{message}"):
            read([ASKED, turn])
