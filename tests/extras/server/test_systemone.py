"""Typed decisions: what is asked of the judge, the probabilities, and the two clients that others have, unmodified."""

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient

from judgetrain.extras.server.app import create_app
from judgetrain.extras.server.config import ServeConfig
from judgetrain.extras.server.service import Service
from judgetrain.extras.server.systemone import DecisionsIn, candidates_of, confidence_of, level_probabilities
from judgetrain.judges import Judge, LongerJudge, Prediction
from judgetrain.judges.predictions import Cost, Reason, Score
from judgetrain.schema import Candidates, Comparison

LEVELS = (0.1, 0.2, 0.4, 0.2, 0.1)


class Unsure(Judge):
    """Gives every response the same distribution over 1 to 5, but for one that says "right"; keeps what it reads."""

    name = "unsure"
    goes_by_criteria = True

    def __init__(self) -> None:
        self.read: list[Candidates] = []

    def compare_batch(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        raise NotImplementedError

    def score_batch(self, groups: Sequence[Candidates], seed: int = 0) -> list[list[Score]]:
        scores = []
        for group in groups:
            self.read.append(group)
            levels = (0.0, 0.0, 0.0, 0.2, 0.8) if group.responses[0].startswith("right") else LEVELS
            mean = sum(chance * (place + 1) for place, chance in enumerate(levels))
            reason = Reason(
                order="A", criterion="c", guideline="g", text="", score_a=mean, score_b=None, verdict=None,
                failure=None, levels=levels,
            )  # fmt: skip
            value = None if "mute" in group.responses[0] else (mean - 1) / 4
            scores.append([Score(value=value, reasons=(reason,), cost=Cost(20, 1, 1))])
        return scores


@pytest.fixture
def judge() -> Unsure:
    return Unsure()


@pytest.fixture
def client(judge: Unsure) -> Iterator[TestClient]:
    with TestClient(create_app(Service(judge, ServeConfig(), 0)), raise_server_exceptions=False) as made:
        yield made


def asked(client: TestClient, state: Any = "a state", **questions: Any) -> Any:
    return client.post("/v1/systemone", json={"model": "any", "state": state, "questions": questions})


QUESTIONS: dict[str, Any] = {
    "spam": {"type": "noul", "instructions": "Is it spam?"},
    "team": {"type": "choice", "instructions": "Which team?", "criteria": {"right": "this one", "left": None}},
    "urgency": {"type": "score", "instructions": "How urgent?", "criteria": ["can wait", "this week", "today"]},
}


def test_every_answer_has_probabilities_that_sum_to_1(client: TestClient, judge: Unsure) -> None:
    reply = asked(client, **QUESTIONS).json()
    spam, team, urgency = (reply["answers"][name] for name in QUESTIONS)
    assert spam == {"type": "noul", "noul": pytest.approx(0.5)}
    # Yes of "right" is 0.95 (0.2 at 4, three quarters of a yes), of "left" a half: odds of 19 to 1.
    assert team["choice"] == "right" and team["probabilities"] == pytest.approx({"right": 0.95, "left": 0.05})
    assert team["confidence"] == pytest.approx(0.9)
    # Of three levels 2 is halfway between the first two, and 4 between the others.
    assert urgency["probabilities"] == pytest.approx({"0": 0.2, "1": 0.6, "2": 0.2})
    assert urgency["score"] == pytest.approx(1.0) and urgency["confidence"] == pytest.approx((3 * 0.6 - 1) / 2)
    assert urgency["legend"] == {"0": "can wait", "1": "this week", "2": "today"}
    assert reply["model"] == "unsure" and reply["usage"] == {"input_tokens": 80, "output_tokens": 4}
    read = {group.rubric.criteria[0].name: group for group in judge.read if group.rubric}
    assert read["urgency"].rubric is not None
    assert read["urgency"].rubric.criteria[0].stated_guideline == "5: today\n3: this week\n1: can wait"
    assert [group.responses[0] for group in judge.read] == ["a state", "right: this one", "left", "a state"]


@pytest.mark.parametrize("levels", range(2, 11))
def test_the_expected_level_is_the_judges(levels: int) -> None:
    reason = Reason(
        order="A", criterion="c", guideline="g", text="", score_a=3.3, score_b=None, verdict=None, failure=None,
        levels=(0.1, 0.2, 0.2, 0.3, 0.2),
    )  # fmt: skip
    probabilities = level_probabilities(Score(value=0.5, reasons=(reason,)), levels)
    assert sum(probabilities) == pytest.approx(1) and min(probabilities) >= 0
    expected = sum(place * chance for place, chance in enumerate(probabilities))
    assert expected / (levels - 1) == pytest.approx((3.3 - 1) / 4)


def test_confidence_is_0_at_chance_and_1_when_certain() -> None:
    assert confidence_of([0.25] * 4) == 0.0
    assert confidence_of([0.0, 1.0, 0.0]) == 1.0


def test_a_state_with_a_query_and_a_response_is_judged_as_such(client: TestClient, judge: Unsure) -> None:
    asked(client, {"query": "Why?", "response": "Because."}, q={"type": "noul", "instructions": "Is it short?"})
    (group,) = judge.read
    assert (group.dialogue.user_texts, group.responses) == (("Why?",), ("Because.",))
    asked(client, {"a": [1, "ü"]}, q={"type": "noul", "criteria": {"true": "it is short", "false": "it is long"}})
    assert '"ü"' in judge.read[-1].responses[0]
    assert judge.read[-1].rubric is not None
    assert judge.read[-1].rubric.criteria[0].stated_guideline == "5: it is short\n1: it is long"


@pytest.mark.parametrize(
    ("state", "question", "field", "told"),
    [
        ("s", {"type": "score", "instructions": "i", "criteria": ["one"]}, "questions.q.score.criteria", "at least 2"),
        ("s", {"type": "score", "instructions": "i", "criteria": ["a", " "]}, "questions.q.criteria", "each level"),
        ("s", {"type": "rank", "instructions": "i"}, "questions.q", "rank"),
        ("s", {"type": "choice", "instructions": "i", "criteria": {"a": None}}, "questions.q.choice.criteria", "2"),
        ("s", {"type": "choice", "criteria": {"a": None, "b": None}}, "questions.q.instructions", "to be chosen"),
        ("s", {"type": "noul"}, "questions.q.instructions", "expected a question"),
        (" ", {"type": "noul", "instructions": "i"}, "state", "only white space"),
        ("s", {"type": "noul", "instructions": "i", "colour": 1}, "questions.q.noul.colour", "not permitted"),
    ],
)
def test_what_is_wrong_is_named_by_its_field(
    client: TestClient, state: str, question: dict[str, Any], field: str, told: str
) -> None:
    reply = asked(client, state, q=question)
    assert reply.status_code == 422, reply.text
    assert reply.json()["error"]["field"] == field and told in reply.json()["error"]["message"]


def test_a_long_state_is_looked_through_once_and_not_once_a_question() -> None:
    """One request would hold the server for minutes; the thread that reads it cannot be ended."""
    questions = {f"q{place}": {"type": "noul", "instructions": f"Is it {place}?"} for place in range(200)}
    request = DecisionsIn.model_validate({"state": "x " * 1_000_000, "questions": questions})
    started_at = time.process_time()
    candidates = candidates_of(request)
    assert time.process_time() - started_at < 4
    assert {group.responses for (group,) in candidates.values()} == {("x " * 1_000_000,)}
    assert len({group.id for (group,) in candidates.values()}) == 200


def test_thoughts_of_the_state_are_not_judged() -> None:
    state = {"query": "Name a prime.", "response": "<think>8, or 7?</think>7"}
    request = DecisionsIn.model_validate({"state": state, "questions": {"q": {"type": "noul", "criteria": "right"}}})
    [(candidates,)] = candidates_of(request).values()
    assert candidates.responses == ("7",)


def test_too_many_questions_are_refused_before_they_are_read(client: TestClient) -> None:
    options = {f"o{place}": None for place in range(255)}
    questions = {f"q{place}": {"type": "choice", "instructions": "Which?", "criteria": options} for place in range(40)}
    started_at = time.process_time()
    answer = client.post("/v1/systemone", json={"state": "x " * 1_000_000, "questions": questions})
    assert time.process_time() - started_at < 4
    assert answer.status_code == 422 and f"found {40 * 255}" in answer.json()["error"]["message"]


def test_what_cannot_be_answered_is_said(client: TestClient) -> None:
    reply = asked(client, "mute", q={"type": "noul", "instructions": "i"})
    assert (reply.status_code, reply.json()["error"]["field"]) == (502, "questions.q")
    assert asked(client).status_code == 422, "no question"
    with TestClient(create_app(Service(LongerJudge(), ServeConfig(), 0))) as by_none:
        assert "goes by no criteria" in asked(by_none, **QUESTIONS).json()["error"]["message"]


@pytest.fixture
def url(judge: Unsure) -> Iterator[str]:
    """Serve the judge at an address of its own."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(create_app(Service(judge, ServeConfig(), 0)), log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.02)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def test_systemone_client_runs_unmodified(url: str) -> None:
    systemone = pytest.importorskip("systemone", reason="systemone-client is not installed (pip install it)")
    with systemone.Client(url) as client:
        reply = client.system_one(
            state={"ticket": "I was charged twice."},
            questions={
                "billing": systemone.Noul("Is it about billing?"),
                "team": systemone.Choice("Which team?", {"right": "this one", "left": None}),
                "urgency": systemone.Score("How urgent?", ["can wait", "this week", "today"]),
            },
        )
        assert reply.nouls["billing"].noul == pytest.approx(0.5)
        assert reply.choices["team"].choice == "right"
        assert reply.scores["urgency"].score == pytest.approx(1.0)
        assert (reply.model, reply.usage.input_tokens) == ("unsure", 80)
        with pytest.raises(systemone.SystemOneError, match="422"):
            client.system_one(state=" ", questions={"q": systemone.Noul("i")})


def test_typesafe_sdk_runs_unmodified(url: str) -> None:
    sdk = pytest.importorskip("typesafe_sdk", reason="typesafe-sdk is not installed (pip install it)")
    with sdk.TypeSafeClient(api_key="none", base_url=url, compression=False) as client:
        reply = client.system_one(
            state="I was charged twice.",
            questions={
                "billing": sdk.Noul(instructions="Is it about billing?", criteria={"true": "money", "false": "other"}),
                "team": sdk.Choice(instructions="Which team?", criteria={"right": "this one", "left": None}),
                "urgency": sdk.Score(instructions="How urgent?", criteria=["can wait", "this week", "today"]),
            },
        )
        assert reply.nouls["billing"].noul == pytest.approx(0.5)
        assert reply.choices["team"].probabilities == pytest.approx({"right": 0.95, "left": 0.05})
        assert reply.scores["urgency"].legend == {0: "can wait", 1: "this week", 2: "today"}
        with pytest.raises(sdk.TypeSafeError, match="only white space"):
            client.system_one(state=" ", questions={"q": sdk.Noul(instructions="i")})
