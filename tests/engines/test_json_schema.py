"""Judgments and verdicts that a server is asked for as JSON: what is sent, and what is read of what comes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from judgetrain.engines.config import OpenAIEngineConfig
from judgetrain.engines.openai.engine import OpenAIEngine
from judgetrain.judges import BranchingJudge
from judgetrain.judges.config import JudgeOptions
from judgetrain.judges.kinds.prompted import PairwiseJudge, PointwiseJudge
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.rubrics import Criterion, Rubric
from judgetrain.schema import Comparison
from tests.builders.faulty_server import FaultyServer
from tests.builders.judges import SAMPLING

RIVER = Criterion(name="River", text="River: it names a river.", guideline="5 if it does, else 1.")
ITEM = Comparison.of("Name a river.", "The Rhine.", "Blue.", rubric=Rubric((RIVER,)))


def json_engine(server: FaultyServer, **options: Any) -> OpenAIEngine:
    address = f"http://127.0.0.1:{server.server_port}/v1"
    return OpenAIEngine(OpenAIEngineConfig(model="m", base_url=address, api_key_env="", json_schema=True, **options))


def judgment(prompt: str, **changes: Any) -> dict[str, Any]:
    scores = (5, 1) if prompt.index("The Rhine.") < prompt.index("Blue.") else (1, 5)
    said = {f"Response {side} Score": score for side, score in zip("AB", scores, strict=True)}
    texts = {"Analysis of Response A": "-", "Analysis of Response B": "one\nResponse A Score: 1", "Comparison": "x"}
    return said | texts | changes


def test_a_judgment_is_asked_for_by_the_frame_s_lines_and_read_as_the_frame(server: FaultyServer) -> None:
    server.reply = lambda prompt: json.dumps(judgment(prompt))
    judge = BranchingJudge(json_engine(server), load_prompt_set("paper"), JudgeOptions(branches=1, steps=SAMPLING))
    (found,) = judge.compare_all([ITEM])
    assert (found.verdict, found.margin, found.failures) == ("A", 4, {})
    assert found.reasons[0].text.splitlines()[0] == "Response A Score: 5"
    sent = server.bodies[-1]["response_format"]["json_schema"]
    lines = ["Response A Score", "Analysis of Response A", "Response B Score", "Analysis of Response B", "Comparison"]
    assert (sent["name"], sent["strict"]) == ("judgment", True)
    assert [*sent["schema"]["properties"]] == sent["schema"]["required"] == lines
    assert sent["schema"]["properties"]["Response B Score"] == {"type": "integer", "enum": [1, 2, 3, 4, 5]}
    assert sent["schema"]["additionalProperties"] is False


def broken(change: Callable[[dict[str, Any]], Any]) -> Callable[[str], str]:
    return lambda prompt: json.dumps(change(judgment(prompt)))


BROKEN = {
    "another score": broken(lambda said: said | {"Response A Score": 7}),
    "a score in words": broken(lambda said: said | {"Response A Score": "5"}),
    "true": broken(lambda said: said | {"Response A Score": True}),
    "a part too few": broken(lambda said: {name: value for name, value in said.items() if name != "Comparison"}),
    "a part too many": broken(lambda said: said | {"Verdict": "B"}),
    "a part that is no text": broken(lambda said: said | {"Comparison": {"better": "A"}}),
    "pairs": broken(lambda said: [*said.items()]),
    "a score twice": lambda prompt: json.dumps(judgment(prompt)).replace("{", '{"Response A Score": 5, ', 1),
    "more after it": lambda prompt: f"{json.dumps(judgment(prompt))}\nResponse A Score: 5",
    "a list without end": lambda prompt: "[" * 100_000,
}


@pytest.mark.parametrize("what", BROKEN)
def test_an_answer_that_breaks_the_schema_is_unreadable_and_counted(what: str, server: FaultyServer) -> None:
    server.reply = BROKEN[what]
    options = JudgeOptions(branches=1, steps=SAMPLING, retries=0)
    (found,) = BranchingJudge(json_engine(server), load_prompt_set("paper"), options).compare_all([ITEM])
    assert found.verdict == "unreadable" and sum(found.failures.values()) == 2


def test_a_server_that_does_not_know_the_parameter_may_answer_in_the_frame(server: FaultyServer) -> None:
    def in_text(prompt: str) -> str:
        said = judgment(prompt) | {"Analysis of Response B": "-"}
        order = ("Response A Score", "Analysis of Response A", "Response B Score", "Analysis of Response B")
        return "\n".join(f"{name}: {said[name]}" for name in order)

    server.reply = in_text
    judge = BranchingJudge(json_engine(server), load_prompt_set("paper"), JudgeOptions(branches=1, steps=SAMPLING))
    assert judge.compare_all([ITEM])[0].verdict == "A"


def test_marks_are_asked_for_as_values(server: FaultyServer) -> None:
    def reply(prompt: str) -> str:
        if "assistant B" not in prompt:
            return json.dumps({"explanation": "It is.\n[[2]]", "rating": 9 if "The Rhine." in prompt else 2})
        first = prompt.index("The Rhine.") < prompt.index("Blue.")
        return json.dumps({"verdict": "A" if first else "B", "explanation": "Not [[B]]."})

    server.reply = reply
    pairwise = PairwiseJudge(json_engine(server), load_prompt_set("pairwise", "pairwise")).compare_all([ITEM])[0]
    assert (pairwise.verdict, pairwise.reasons[0].text) == ("A", "Not [[B]].\n[[A]]")
    pointwise = PointwiseJudge(json_engine(server), load_prompt_set("pointwise", "pointwise")).compare_all([ITEM])[0]
    assert (pointwise.verdict, pointwise.margin) == ("A", 7)
    enum = server.bodies[-1]["response_format"]["json_schema"]["schema"]["properties"]["rating"]["enum"]
    assert enum == [*range(1, 11)]
    own = PairwiseJudge(json_engine(server), load_prompt_set("auto_j", "pairwise"))
    own.compare_all([ITEM])
    assert "response_format" not in server.bodies[-1], "a model's own form stays its own"


def test_what_is_not_asked_for_stays_text(server: FaultyServer) -> None:
    """Lists and guidelines; where probabilities are wanted; and a form that is enforced is asked for once."""
    for change in ({}, {"score": "expected"}, {"constrained": True}):
        server.bodies.clear()
        steps = SAMPLING.__class__(**change, criteria=1)
        options = JudgeOptions(branches=1, steps=steps, retries=0)
        plain = Comparison.of("Name a river.", "The Rhine.", "Blue.")
        server.reply = lambda prompt: "1. River: a river" if "criteria]" in prompt else "5 if it does"
        BranchingJudge(json_engine(server), load_prompt_set("paper"), options).compare_all([plain])
        asked = ["response_format" in body for body in server.bodies]
        assert asked == [False, False, *([False] * 2 if "score" in change else [True] * 2)]
        assert not any("structured_outputs" in body for body in server.bodies)
