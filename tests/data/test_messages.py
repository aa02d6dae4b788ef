"""Messages in their published shapes; what assistants ask of tools, and what tools give back, is read as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.data.dialogues import adapted
from judgetrain.data.rows import RowReader
from judgetrain.data.sources import Rejects, read_comparisons
from judgetrain.errors import DataError
from judgetrain.messages import said
from judgetrain.schema import Comparison, messages_of
from tests.builders.data import write_lines

ASKED = {"role": "user", "content": "Is it warm in Oslo?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
TRACE: list[dict[str, Any]] = [
    {"role": "assistant", "content": "I look it up.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "-3 degrees"},
    {"role": "assistant", "content": "No, it is cold."},
]
TOLD = 'I look it up.\n\nCall of weather: {"city": "Oslo"}\n\nResult of weather: -3 degrees\n\nNo, it is cold.'


@pytest.mark.parametrize(
    ("turns", "told"),
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
def test_calls_and_results_are_told_in_the_assistant_s_message(turns: list[Any], told: list[tuple[str, str]]) -> None:
    assert said(turns) == told


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
    for read in (said, lambda turns: messages_of(turns)):
        with pytest.raises(DataError, match=f"message 1: .*{message}"):
            read([ASKED, turn])


def test_calls_before_the_query_are_its_context_and_python_reads_them_alike(tmp_path: Path) -> None:
    turns = [ASKED, *TRACE, {"role": "user", "content": "And in Rome?"}]
    path = write_lines(tmp_path / "in.jsonl", [{"messages": turns, "response_a": "x", "response_b": "y"}])
    (found,) = read_comparisons(SourceConfig(name="s", path=path), "key", labelled=None)
    assert (found.dialogue.query, found.dialogue.context) == (
        "And in Rome?",
        f"User: {ASKED['content']}\nAssistant: {TOLD}",
    )
    assert Comparison.of(turns, "x", "y").dialogue.messages == found.dialogue.messages
    reader = RowReader(SourceConfig(name="s"))
    assert reader.dialogue({"messages": [ASKED, *TRACE]}, 1).reference == TOLD


@pytest.mark.parametrize(("judged", "text"), [("full_trace", TOLD), ("last_reply", "No, it is cold.")])
def test_of_a_response_that_is_a_trace_all_is_judged_or_its_last_reply(judged: str, text: str, tmp_path: Path) -> None:
    source = SourceConfig(name="s", judged=judged)
    reader = RowReader(source)
    row = {"prompt": [ASKED], "response_a": TRACE, "response_b": {"role": "assistant", "content": "Yes."}}
    pair = reader.comparison(row, 1, labelled=False)
    assert (pair.response_a, pair.response_b, pair.dialogue.query) == (text, "Yes.", ASKED["content"])
    scored = reader.candidates({"prompt": [ASKED], "responses": [TRACE, "Yes.", [ASKED, *TRACE]]}, 1)
    assert scored.responses == (text, "Yes.", text)
    assert reader.candidates({"query": "q", "response": TRACE}, 1).responses == (text,)
    rows = [{"prompt_id": "p", "prompt": "Is it warm?", "chosen": [ASKED, *TRACE], "rejected": [ASKED, TRACE[-1]]}]
    source.path, source.adapter = write_lines(tmp_path / "in.jsonl", rows), "ultrafeedback"
    ((found,),) = adapted(source, "key", Rejects(strict=True))
    assert (found.response_a if found.label == "A" else found.response_b) == text
    plain = SourceConfig(name="s", path=source.path, judged=judged)
    (preferred,) = read_comparisons(plain, "key")
    assert (preferred.response_a if preferred.label == "A" else preferred.response_b) == text
    assert BenchmarkConfig(source=source).source.judged == judged


@pytest.mark.parametrize(
    "text", ['[{"name": "oak"}]', '[{"role": "user", "content": "hi"}]', "[1] is a footnote", "[]"]
)
def test_a_response_whose_text_is_json_is_that_text(text: str) -> None:
    reader = RowReader(SourceConfig(name="s"))
    pair = reader.comparison({"query": "As JSON.", "response_a": text, "response_b": "no"}, 1, labelled=False)
    assert pair.response_a == text
    assert reader.candidates({"query": '[{"tree": "oak"}]', "responses": [text, "no"]}, 1).responses == (text, "no")
