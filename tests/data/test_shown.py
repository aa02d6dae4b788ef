"""An answer is what its reader sees: no thoughts, but calls of tools and what they answered, at every door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from judgetrain.data.benchmarks.benchmark import load_benchmark
from judgetrain.data.cells import RowError
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.data.rows.reader import RowReader
from judgetrain.errors import DataError
from judgetrain.extras.judge_reward import JudgeReward, compute_scores
from judgetrain.extras.server.openrlhf import shown_response
from judgetrain.extras.server.schema import CompareIn, FieldError
from judgetrain.judges import Judge, Prediction
from judgetrain.judging.items import pairs_of
from judgetrain.messages import replied, shown_text
from judgetrain.schema import Candidates, Comparison, messages_of
from judgetrain.scorers.rewards import text_of
from judgetrain.thoughts import shown
from tests.builders.data import write_lines

Turns = list[dict[str, Any]]
THOUGHT = "Let me think about fruit.\n\nA pear, or an apple?"
ANSWER = "A pear."

THOUGHTS = {
    "think": f"<think>{THOUGHT}</think>\n\n{ANSWER}",
    "upper case": f"<THINK>{THOUGHT}</THINK>{ANSWER}",
    "opened by the template": f"{THOUGHT}\n</think>\n\n{ANSWER}",
    "ends its line": f"{THOUGHT}</think>\n{ANSWER}",
    "twice": f"<think>{THOUGHT}</think><think>Or not.</think>{ANSWER}",
    "thinking": f"\n<thinking>\n{THOUGHT}\n</thinking>\n{ANSWER}",
    "Mistral": f"[THINK]{THOUGHT}[/THINK]{ANSWER}",
    "Seed": f"<seed:think>{THOUGHT}</seed:think>{ANSWER}",
    "Kimi": f"◁think▷{THOUGHT}◁/think▷{ANSWER}",
    "Gemma": f"<|channel>thought\n{THOUGHT}<channel|>{ANSWER}",
    "LongCat": f"<longcat_think>\n{THOUGHT}\n</longcat_think>\n{ANSWER}",
    "MedGemma": f"<unused94>thought\n{THOUGHT}<unused95>{ANSWER}",
    "Cohere": f"<|START_THINKING|>{THOUGHT}<|END_THINKING|>{ANSWER}",
    "Cohere, framed": f"<|START_THINKING|>{THOUGHT}<|END_THINKING|><|START_RESPONSE|>{ANSWER}<|END_RESPONSE|>",
    "Cohere, framed without a thought": f"<|START_RESPONSE|>{ANSWER}<|END_RESPONSE|>",
    "Cohere, framed and cut": f"<|START_THINKING|>{THOUGHT}<|END_THINKING|><|START_RESPONSE|>{ANSWER}",
    "Hunyuan": f"<think>\n{THOUGHT}\n</think>\n<answer>\n{ANSWER}\n</answer>",
    "R1-Zero, in one line": f"{THOUGHT}</think> <answer>{ANSWER}</answer>",
    "TRL's example": f"<reasoning>\n{THOUGHT}\n</reasoning>\n<answer>\n{ANSWER}\n</answer>",
    "Marco-o1": f"<Thought>\n{THOUGHT}\n</Thought>\n<Output>\n{ANSWER}\n</Output>",
    "Granite": f"<think>{THOUGHT}</think><response>{ANSWER}</response>",
    "OpenThoughts": (
        f"<|begin_of_thought|>\n{THOUGHT}\n<|end_of_thought|>\n\n<|begin_of_solution|>\n{ANSWER}\n<|end_of_solution|>"
    ),
    "harmony": (
        f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>{ANSWER}<|return|>"
    ),
    "harmony, cut behind the answer": (
        f"<|start|>assistant<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>final"
        f"<|message|>{ANSWER}"
    ),
    "harmony, special tokens skipped": f"analysis{THOUGHT}assistantfinal{ANSWER}",
    "behind a byte order mark": f"\ufeff<think>{THOUGHT}</think>{ANSWER}",
}
CUT = {
    "think": f"<think>{THOUGHT}",
    "again": f"<think>{THOUGHT}</think><think>{THOUGHT}",
    "TRL's example": f"<reasoning>\n{THOUGHT}",
    "harmony": f"<|channel|>analysis<|message|>{THOUGHT}",
    "harmony, special tokens skipped": f"analysis{THOUGHT}",
    "harmony, before the answer": f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>fin",
}
PLAIN = [
    "The tag <think> opens what a model thinks, and </think> ends it.",
    "Take `text.split('</think>')[-1]`, and you have the answer.",
    "In the template:\n<think>\nwhat it thinks\n</think>\nwhat it says",
    "analysis is what it wants; the assistant has the final word.",
    "I think so.",
    # A form that the user asked for, and one around a part of the answer.
    "<answer>7</answer>",
    "The form is `<reasoning>why</reasoning>` and `<answer>what</answer>`.",
    "<output>7</output>",
    "<|START_RESPONSE|>is the mark that opens it, <|END_RESPONSE|> the one that ends it.",
    " A pear. ",
    "",
]


@pytest.mark.parametrize("text", THOUGHTS.values(), ids=THOUGHTS)
def test_thoughts_before_an_answer_are_not_shown(text: str) -> None:
    assert shown(text) == ANSWER
    assert shown(shown(text)) == ANSWER


@pytest.mark.parametrize("text", CUT.values(), ids=CUT)
def test_a_thought_that_was_cut_is_an_empty_answer(text: str) -> None:
    assert shown(text) == ""


@pytest.mark.parametrize("text", ["\u200b" * 9, "\ufeff\n", "\u3164 \u2060", "<think>Why?</think>\u200b", "\u0301"])
def test_an_answer_of_which_nothing_can_be_seen_is_empty(text: str) -> None:
    assert shown(text) == ""
    assert shown(f"{text}7").endswith("7")
    pair = RowReader(SourceConfig(name="s")).comparison(
        {"query": "q", "response_a": text, "response_b": "7"}, 1, labelled=False
    )
    assert (pair.response_a, pair.response_b) == ("", "7")


@pytest.mark.parametrize("text", PLAIN)
def test_what_an_answer_says_of_thoughts_stays(text: str) -> None:
    assert shown(text) == text


def test_calls_in_harmony_are_text() -> None:
    text = (
        "<|channel|>analysis<|message|>I should search.<|end|>"
        "<|start|>assistant<|channel|>commentary<|message|>Let me see.<|end|>"
        '<|start|>assistant<|channel|>commentary to=functions.search <|constrain|>json<|message|>{"q": 1}<|call|>'
        "<|start|>functions.search to=assistant<|channel|>commentary<|message|>7<|end|>"
        "<|start|>assistant<|channel|>final<|message|>It is 7.<|return|>"
    )
    assert shown(text) == 'Let me see.\n\nCall of search: {"q": 1}\n\nResult of search: 7\n\nIt is 7.'


@pytest.mark.parametrize("start", ["<|start|>assistant to=functions.search", " to=functions.search"])
def test_a_response_in_harmony_may_begin_with_a_call(start: str) -> None:
    """The tool may be named before the channel, and what is thought behind it is no more shown than elsewhere."""
    text = (
        f'{start}<|channel|>commentary json<|message|>{{"q": 1}}<|call|>'
        f"<|start|>assistant<|channel|>analysis<|message|>{THOUGHT}<|end|>"
        f"<|start|>assistant<|channel|>final<|message|>{ANSWER}<|return|>"
    )
    assert shown(text) == f'Call of search: {{"q": 1}}\n\n{ANSWER}'


USER = {"role": "user", "content": "Name a prime."}
CALL_AND_RESULT = 'Call of search: {"q": "primes"}\n\nResult of search: 7 is one'
OPENAI: Turns = [
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": THOUGHT,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "primes"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "7 is one"},
    {"role": "assistant", "content": f"<think>{THOUGHT}</think>It is 7."},
]
TRL: Turns = [
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": "search", "arguments": {"q": "primes"}}}],
    },
    {"role": "tool", "name": "search", "content": "7 is one"},
    {"role": "assistant", "content": [{"type": "text", "text": "It is 7."}]},
]
RESPONSES_API: Turns = [
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": THOUGHT}]},
    {"type": "function_call", "id": "f1", "call_id": "c1", "name": "search", "arguments": '{"q": "primes"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "7 is one"},
    {"type": "reasoning", "summary": []},
    {
        "role": "assistant",
        "content": [{"type": "output_text", "text": "It is"}, {"type": "output_text", "text": " 7."}],
    },
]
ANTHROPIC: Turns = [
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": THOUGHT, "signature": "x"},
            {"type": "tool_use", "id": "c1", "name": "search", "input": {"q": "primes"}},
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "7 is one"}]},
    {
        "role": "assistant",
        "content": [{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "It is 7."}],
    },
]
GPT_OSS: Turns = [
    {"role": "assistant", "channel": "analysis", "content": THOUGHT},
    {"role": "assistant", "channel": "commentary", "recipient": "functions.search", "content": '{"q": "primes"}'},
    {"role": "tool", "name": "search", "content": "7 is one"},
    {"role": "assistant", "channel": "analysis", "content": THOUGHT},
    {"role": "assistant", "channel": "final", "content": "It is 7."},
]
AGENTS = {"OpenAI": OPENAI, "TRL": TRL, "Responses": RESPONSES_API, "Anthropic": ANTHROPIC, "gpt-oss": GPT_OSS}


@pytest.mark.parametrize("turns", AGENTS.values(), ids=AGENTS)
def test_an_agents_messages_are_its_texts_calls_and_results(turns: Turns) -> None:
    expected = f"{CALL_AND_RESULT}\n\nIt is 7."
    for read in (replied, text_of, shown_text):
        assert read(turns) == expected
        assert read([USER, *turns]) == expected
    # Cut before the last word, and before the result.
    assert shown_text(turns[:-1]) == CALL_AND_RESULT
    *_, last = messages_of([USER, *turns, USER])[1:-1]
    assert (last.role, last.content) == ("assistant", expected)


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "one\ntwo"),
        ([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "one"}], "one"),
        ([{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "one"}], "one"),
        ([{"type": "thinking", "thinking": "hm"}], ""),
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "<think>hm</think>\n\ntwo"}], "one\ntwo"),
        ([{"type": "text", "text": "<think>hm"}, {"type": "text", "text": "hm</think>one"}], "one"),
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "<think>h"}, {"type": "text", "text": "m"}], "one"),
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "<think> is a tag"}], "one"),
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "a <think> in it"}], "one\na <think> in it"),
        ([{"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "custom", "custom": {"name": "run", "input": "print(7)"}}]},
          {"role": "tool", "tool_call_id": "c", "content": "7"}], "Call of run: print(7)\n\nResult of run: 7"),
        ([{"type": "refusal", "refusal": "No."}], "No."),
        ([{"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}], "No."),
        ([{"role": "assistant", "content": None, "refusal": "No."}], "No."),
        ([{"type": "reasoning", "summary": []}], ""),
        # Some servers name the role of every item.
        ([{"type": "reasoning", "role": "assistant", "summary": []}, {"role": "assistant", "content": "one"}], "one"),
        ([{"type": "reasoning", "role": "assistant", "content": "hm"}, {"role": "assistant", "content": "one"}], "one"),
        ([{"role": "assistant", "content": None, "reasoning": "hm"}], ""),
        ([{"type": "message", "role": "assistant", "content": "one"}], "one"),
        ([{"role": "assistant", "content": "one"}, {"role": "assistant", "content": "two"}], "one\n\ntwo"),
        ([{"type": "web_search_call", "id": "w", "status": "completed", "action": {"query": "q"}}],
         'Call of web_search: {"action": {"query": "q"}}'),
        ([], ""),
        ([USER], ""),
    ],
)  # fmt: skip
def test_parts_and_items_are_read_wherever_they_stand(response: Turns, expected: str) -> None:
    assert shown_text(response) == expected


def test_a_user_may_write_of_thoughts_in_any_part() -> None:
    parts = [{"type": "text", "text": "What is this?"}, {"type": "text", "text": "<think>hm</think>7"}]
    (message,) = messages_of([{"role": "user", "content": parts}])
    assert message.content == "What is this?\n<think>hm</think>7"


@pytest.mark.parametrize(
    "response",
    [[{"type": "image_url", "image_url": {"url": "x"}}], [{"type": "message", "content": []}], ["a", "b"], 7],
)
def test_what_is_no_text_is_refused(response: Any) -> None:
    with pytest.raises(DataError, match="expected a"):
        shown_text(response)


class Recording(Judge):
    """Takes the longer response, and keeps what it was shown."""

    name = "recording"

    def __init__(self) -> None:
        self.responses: set[str] = set()

    def compare_batch(self, comparisons: Any, seed: int = 0) -> list[Prediction]:
        predictions = []
        for comparison in comparisons:
            self.responses |= {comparison.response_a, comparison.response_b}
            verdict = comparison.longer
            predictions.append(
                Prediction(comparison_id=comparison.id, method="recording", verdict_ab=verdict, verdict_ba=verdict)
            )
        return predictions


LONGER = "An apple, or a plum."
WITH_THOUGHTS = {
    "text": THOUGHTS["think"],
    "messages": [{"role": "assistant", "content": THOUGHTS["think"]}],
    "parts": [{"type": "thinking", "thinking": THOUGHT}, {"type": "text", "text": ANSWER}],
}


@pytest.mark.parametrize("response", WITH_THOUGHTS.values(), ids=WITH_THOUGHTS)
def test_rows_hold_the_answer_alone(response: Any) -> None:
    reader = RowReader(SourceConfig(name="s"))
    row = {"query": "q", "response_a": response, "response_b": LONGER}
    comparison = reader.comparison(row, 1, labelled=False)
    assert (comparison.response_a, comparison.response_b) == (ANSWER, LONGER)
    assert reader.candidates({"query": "q", "responses": [response, LONGER]}, 1).responses == (ANSWER, LONGER)


def test_dialogues_and_references_hold_no_thoughts() -> None:
    reader = RowReader(SourceConfig(name="s"))
    turns = [USER, {"role": "assistant", "content": THOUGHTS["think"]}, USER]
    dialogue = reader.dialogue({"messages": turns, "reference": THOUGHTS["harmony"]}, 1)
    assert [message.content for message in dialogue.messages] == ["Name a prime.", ANSWER, "Name a prime."]
    assert dialogue.reference == ANSWER
    assert reader.dialogue({"messages": turns[:2]}, 1).reference == ANSWER
    in_turn = RowReader(SourceConfig(name="s", format="turns"))
    assert in_turn.dialogue({"messages": ["q", THOUGHTS["think"]]}, 1).reference == ANSWER


def test_what_is_left_out_is_said() -> None:
    reader = RowReader(SourceConfig(name="s"))
    for text in (THOUGHTS["think"], CUT["think"], LONGER):
        reader.comparison({"query": "q", "response_a": text, "response_b": LONGER}, 1, labelled=False)
    lines: list[str] = []
    reader.tell(lines.append)
    (line,) = [line for line in lines if "thought" in line]
    assert line.startswith("s: 2 responses hold what their model thought") and "1 of them hold nothing else" in line


@pytest.mark.parametrize("answer", WITH_THOUGHTS.values(), ids=WITH_THOUGHTS)
@pytest.mark.parametrize("wrap", [False, True], ids=["output", "messages"])
def test_systems_answers_hold_no_thoughts(answer: Any, wrap: bool, tmp_path: Path) -> None:
    def row(text: Any, name: str) -> dict[str, Any]:
        if not wrap:
            return {"instruction": "q", "output": text, "generator": name}
        turns = text if isinstance(text, list) and "role" in text[0] else [{"role": "assistant", "content": text}]
        return {"uid": 1, "model": name, "messages": [USER, *turns]}

    paths = [tmp_path / "one.json", tmp_path / "two.json"]
    for path, text in zip(paths, (answer, LONGER), strict=True):
        path.write_text(json.dumps([row(text, path.stem)]))
    lines: list[str] = []
    (item,) = pairs_of([str(path) for path in paths], None, lines.append)
    assert (item.failure, item.comparison.response_a, item.comparison.response_b) == (None, ANSWER, LONGER)
    assert any("what their model thought" in line for line in lines) == (isinstance(answer, str) and not wrap)


def test_a_system_whose_thoughts_were_cut_loses(tmp_path: Path) -> None:
    paths = [tmp_path / "one.json", tmp_path / "two.json"]
    for path, text in zip(paths, (CUT["think"], ANSWER), strict=True):
        path.write_text(json.dumps([{"instruction": "q", "output": text}]))
    lines: list[str] = []
    (item,) = pairs_of([str(path) for path in paths], None, lines.append)
    assert item.comparison.forfeit == "B" and "1 of them hold nothing else" in lines[-1]


def test_benchmarks_hold_no_thoughts(tmp_path: Path) -> None:
    chosen = {"id": 1, "prompt": "q", "chosen": [THOUGHTS["think"]], "rejected": [LONGER, CUT["think"]]}
    path = write_lines(tmp_path / "rb2.jsonl", [chosen])
    source = SourceConfig(name="rb2", path=path, adapter="rewardbench2")
    comparisons = load_benchmark(BenchmarkConfig("rb2", source), 0, 1, None).comparisons
    assert {text for c in comparisons for text in (c.response_a, c.response_b)} == {ANSWER, LONGER, ""}

    turns = [USER, {"role": "assistant", "content": [{"type": "text", "text": THOUGHTS["think"]}]}]
    vote = {"question_id": 1, "turn": 1, "model_a": "m", "model_b": "n", "winner": "model_a", "judge": "j"}
    vote |= {"conversation_a": turns, "conversation_b": turns}
    path = write_lines(tmp_path / "votes.jsonl", [vote])
    source = SourceConfig(name="mt", path=path, adapter="mt_bench_human")
    (comparison,) = load_benchmark(BenchmarkConfig("mt", source), 0, 1, None).comparisons
    assert (comparison.response_a, comparison.response_b) == (ANSWER, ANSWER)


def test_python_and_its_criteria_are_shown_the_answer_alone() -> None:
    comparison = Comparison.of("q", THOUGHTS["think"], LONGER)
    assert (comparison.response_a, comparison.content) == (ANSWER, Comparison.of("q", ANSWER, LONGER).content)
    assert Candidates.of("q", [THOUGHTS["think"]]).responses == (ANSWER,)
    judge = Recording()
    assert judge("q", THOUGHTS["think"], LONGER).verdict == "B"
    assert judge.responses == {ANSWER, LONGER}


COMPLETIONS: dict[str, tuple[Any, Any]] = {
    "text": ("q", THOUGHTS["think"]),
    "messages": ([USER], [{"role": "assistant", "content": THOUGHTS["think"]}]),
    "opened by a text": ("q<think>\n", f"{THOUGHT}</think> {ANSWER}"),
    "opened by a message": ([USER, {"role": "assistant", "content": "<think>"}], f"{THOUGHT}</think> {ANSWER}"),
    "begun by a message": ([USER, {"role": "assistant", "content": "A "}], [{"role": "assistant", "content": "pear."}]),
}


@pytest.mark.parametrize(("prompt", "completion"), COMPLETIONS.values(), ids=COMPLETIONS)
def test_rewards_are_of_what_a_reader_sees(prompt: Any, completion: Any) -> None:
    judge = Recording()
    assert JudgeReward(judge)([prompt] * 2, [completion, f"</think>\n{LONGER}"])[0] == 0.0
    assert ANSWER in judge.responses


@pytest.mark.parametrize("prompt", ["q<think>\n", [USER, {"role": "assistant", "content": "<think>\n"}]])
def test_a_completion_that_was_cut_in_its_thoughts_is_empty(prompt: Any) -> None:
    assert JudgeReward(Recording())([prompt] * 2, [THOUGHT * 9, f"</think>\n{ANSWER}"]) == [0.0, 1.0]


@pytest.mark.parametrize("turns", [OPENAI, TRL, ANTHROPIC, GPT_OSS], ids=["OpenAI", "TRL", "Anthropic", "gpt-oss"])
def test_rewards_of_agents_are_of_texts_calls_and_results(turns: Turns) -> None:
    judge = Recording()
    expected = f"{CALL_AND_RESULT}\n\nIt is 7."
    assert JudgeReward(judge)([[USER]] * 2, [turns, [{"role": "assistant", "content": "7"}]]) == [1.0, 0.0]
    assert judge.responses == {expected, "7"}
    # A call alone is an answer, which is asked about.
    judge.responses.clear()
    JudgeReward(judge)([[USER]] * 2, [turns[:1], [{"role": "assistant", "content": "7"}]])
    assert len(judge.responses) == (2 if turns is not GPT_OSS else 0)
    # The prompt may hold the agent's first steps.
    judge.responses.clear()
    JudgeReward(judge)([[USER, *turns[:-1]]] * 2, [turns[-1:], [{"role": "assistant", "content": "7"}]])
    assert judge.responses == {expected, f"{CALL_AND_RESULT}\n\n7"}


def test_verl_is_rewarded_for_the_answer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Recording()
    reward = JudgeReward(judge, "anchor", reference="reference")
    monkeypatch.setattr("judgetrain.extras.judge_reward.verl.reward_of", lambda name, options: reward)
    extra = {"prompt": "q"}
    (score,) = compute_scores(["d"], [THOUGHTS["think"]], [f"<think>{THOUGHT}</think>{LONGER}"], [extra], judge="j")
    assert score["score"] == 0.0 and judge.responses == {ANSWER, LONGER}


QWEN = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("prompt", "response", "expected"),
    [
        (QWEN, THOUGHTS["think"], ANSWER),
        (f"{QWEN}<think>\n", f"{THOUGHT}\n</think>\n\n{ANSWER}", ANSWER),
        (f"{QWEN}<think>\n", THOUGHT, ""),
        (QWEN, f"<think>\n{THOUGHT}", ""),
        ("Q:", ANSWER, ANSWER),
        (
            QWEN,
            '<think>\nhm\n</think>\n\n<tool_call>\n{"name": "f"}\n</tool_call><|im_end|>\n<|im_start|>user\n'
            "<tool_response>\n7\n</tool_response><|im_end|>\n<|im_start|>assistant\n<think>\nso\n</think>\n\nIt is 7.",
            '<tool_call>\n{"name": "f"}\n</tool_call>\n\nResult of a tool: <tool_response>\n7\n</tool_response>'
            "\n\nIt is 7.",
        ),
        (
            "<|start_header_id|>user<|end_header_id|>\n\nq<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
            "f(1)<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n7<|eot_id|><|start_header_id|>assistant"
            "<|end_header_id|>\n\nIt is 7.",
            "f(1)\n\nResult of a tool: 7\n\nIt is 7.",
        ),
    ],
)
def test_openrlhf_is_rewarded_for_what_a_reader_sees(prompt: str, response: str, expected: str) -> None:
    assert shown_response(response, prompt) == expected


@pytest.mark.parametrize("turns", AGENTS.values(), ids=AGENTS)
def test_nemo_gym_is_rewarded_for_what_a_reader_sees(turns: Turns) -> None:
    request = CompareIn.model_validate(
        {"conversation_history": [{"role": "user", "content": "q"}], "response_objs": [{"output": turns}]}
    )
    assert request.response_objs[0].shown("output") == f"{CALL_AND_RESULT}\n\nIt is 7."


@pytest.mark.parametrize(
    "output", [[7], [{"type": "item_reference", "id": "x"}], [{"role": "assistant", "content": "\ud800"}]]
)
def test_items_that_nobody_knows_are_refused_with_their_place(output: Any) -> None:
    request = CompareIn.model_validate(
        {"conversation_history": [{"role": "user", "content": "q"}], "response_objs": [{"output": output}]}
    )
    with pytest.raises(FieldError, match=r"response_objs\[0\]\.output: "):
        request.response_objs[0].shown("response_objs[0].output")


def test_a_conversation_that_ends_with_the_user_is_no_row() -> None:
    with pytest.raises(RowError, match="expected text in field response_a"):
        RowReader(SourceConfig(name="s")).comparison({"query": "q", "response_a": [USER], "response_b": "b"}, 1, False)


@pytest.mark.parametrize(
    "part",
    [
        {"text": THOUGHT, "thought": True},
        {"type": "reasoning_content", "text": THOUGHT},
        {"type": "thinking_delta", "text": THOUGHT},
        {"type": "thought_summary", "text": THOUGHT},
    ],
)
def test_a_part_that_says_it_is_a_thought_is_not_shown(part: dict[str, Any]) -> None:
    """As Gemini's, and those of libraries that give parts types of their own."""
    answer = {"type": "text", "text": ANSWER}
    assert shown_text([{"role": "assistant", "content": [part, answer]}]) == ANSWER
    assert shown_text([{"role": "assistant", "content": [part]}]) == ""
    said = {"text": ANSWER, "thought": False}
    assert shown_text([{"role": "assistant", "content": [said]}]) == ANSWER


def test_what_a_tool_of_the_servers_own_answered_is_shown() -> None:
    """Its call and its result are one item, as of a tool of MCP."""
    call = {"type": "mcp_call", "id": "m", "name": "search", "arguments": '{"q": "primes"}', "output": "7 is one"}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "7."}]}
    expected = 'Call of search: {"q": "primes"}\n\nResult of search: 7 is one\n\n7.'
    assert shown_text([call, said]) == expected
    failed = {**call, "output": None, "error": "no network"}
    assert shown_text([failed, said]) == expected.replace("7 is one", "no network")


def test_a_text_that_begins_with_the_word_analysis_is_an_answer() -> None:
    for text in ("analysis of the data", "analysis: A pear.", "Analysis"):
        assert shown(text) == text
