"""The client against a local server that fails in the ways real ones do."""

from __future__ import annotations

import json

import pytest

from judgetrain.engines.answers import AnswerStore
from judgetrain.engines.base import Choice, Request, Sampling
from judgetrain.engines.config import OpenAIEngineConfig
from judgetrain.engines.openai import engine as openai_engine
from judgetrain.engines.openai import gate
from judgetrain.engines.openai.engine import OUTAGE, OpenAIEngine, chat_body, with_parameters
from judgetrain.errors import EngineError
from tests.builders.engines import PausesOnly, ask
from tests.builders.faulty_server import KEY


@pytest.fixture
def config(server, monkeypatch):
    monkeypatch.setenv("TEST_KEY", KEY)
    monkeypatch.setattr(openai_engine, "RETRIES", 3)
    monkeypatch.setattr(gate, "TIMEOUT", 1.0)
    address = f"http://127.0.0.1:{server.server_port}/v1"
    return OpenAIEngineConfig(model="judge-model", base_url=address, api_key_env="TEST_KEY", concurrency=4)


@pytest.fixture
def engine(config):
    engine = OpenAIEngine(config)
    engine._clock = PausesOnly()
    return engine


def test_answers_in_order_with_usage_and_parameters(server, engine):
    assert chat_body("m", ask("half \ud83d"), 1, "max_tokens")["messages"][0]["content"] == "half ?"
    out = engine.generate(
        [ask(f"q{i}", temperature=0.5, top_p=0.9, max_new_tokens=9, stop=("END",)) for i in range(20)], seed=3
    )
    assert [c.text for c in out] == [f"you said q{i}" for i in range(20)]
    assert {(c.prompt_tokens, c.generated_tokens, c.finish_reason) for c in out} == {(7, 3, "stop")}
    assert server.most <= 4
    body = next(b for b in server.bodies if b["messages"][0]["content"] == "q2")
    assert (body["model"], body["temperature"], body["top_p"], body["max_tokens"], body["stop"], body["seed"]) == (
        "judge-model", 0.5, 0.9, 9, ["END"], 5,
    )  # fmt: skip
    assert set(server.headers) == {f"Bearer {KEY}"}
    assert engine.generate([], seed=1) == []


@pytest.mark.parametrize("fault", [500, "slow", "drop", "not json", '{"choices": []}', "[1]"])
def test_passing_faults_are_tried_again(server, engine, fault):
    server.faults["q"] = [fault, fault]
    good, other = engine.generate([ask("q"), ask("other")], seed=1)
    assert (good.text, other.text) == ("you said q", "you said other")
    assert server.tries == {"q": 3, "other": 1}


@pytest.mark.parametrize("fault", [500, "slow", "not json"])
def test_lasting_fault_is_one_error_completion(server, engine, fault):
    server.faults["q"] = [fault] * 99
    bad, good = engine.generate([ask("q"), ask("fine")], seed=1)
    assert bad.finish_reason == "error" and bad.text == "" and bad.error
    assert KEY not in bad.error
    assert good.text == "you said fine"
    assert server.tries["q"] == (3 if fault == "not json" else 4), "fewer of answers that may be charged"


def test_a_server_that_refuses_everything_is_said_with_its_reason(server, engine):
    asked = [f"q{i}" for i in range(OUTAGE)]
    for text in asked:
        server.faults[text] = [422]
    with pytest.raises(EngineError, match=r"refuses each of the first 8 requests \(HTTP 422: .*\[key\].*judge-model"):
        engine.generate([ask(t) for t in asked], seed=1)
    server.faults = {t: [422] for t in asked}
    assert engine.generate([ask("fine")], seed=1)[0].finish_reason == "stop"
    done = engine.generate([ask(t) for t in asked], seed=1)
    assert [c.finish_reason for c in done] == ["error"] * OUTAGE, "where it answers others, each is an error"


@pytest.mark.parametrize("status", [401, 403, 404])
def test_refused_key_or_model_ends_the_run(server, engine, status):
    server.faults["q"] = [status] * 9
    with pytest.raises(EngineError, match=f"{status} for model judge-model.*TEST_KEY") as caught:
        engine.generate([ask("q"), ask("other")], seed=1)
    assert KEY not in str(caught.value)


def test_server_that_went_away_ends_the_run_so_that_no_unfinished_shard_is_written(server, engine, config):
    engine.generate([ask("q")], seed=1)
    config.base_url = "http://127.0.0.1:9/v1"
    with pytest.raises(
        EngineError, match="cannot reach http://127.0.0.1:9/v1.*4 times.*base_url is its address.*same command"
    ):
        engine.generate([ask("q")], seed=1)


def test_server_that_only_fails_ends_the_run_and_a_few_failures_do_not(server, engine):
    asked = [ask(f"q{i}") for i in range(OUTAGE)]
    server.faults |= {f"q{i}": [(503, {})] * 8 for i in range(OUTAGE)}
    with pytest.raises(EngineError, match="HTTP 503, 4 times"):
        engine.generate(asked, seed=1)
    out = engine.generate(asked[1:], seed=1)
    assert [(c.finish_reason, c.error) for c in out] == [("error", "HTTP 503")] * (OUTAGE - 1)


def test_newer_name_of_the_length_limit(server, engine):
    server.faults["q"] = [(400, {}, "Unsupported parameter: use 'max_completion_tokens'")]
    assert engine.generate([ask("q", max_new_tokens=5)], seed=1)[0].text == "you said q"
    assert "max_tokens" not in server.bodies[-1] and server.bodies[-1]["max_completion_tokens"] == 5


def test_further_parameters_are_sent_and_what_is_none_is_left_out():
    body = chat_body("m", ask("q", top_k=5), 1, "max_tokens")
    found = with_parameters(body, {"reasoning_effort": "low", "temperature": None, "top_p": 0.5})
    assert found["extra_body"] == {"top_k": 5, "reasoning_effort": "low", "top_p": 0.5}
    assert set(body) - set(found) == {"temperature", "top_p"} and with_parameters(body, {}) == body


def test_unusable_key_is_not_shown(engine, monkeypatch):
    monkeypatch.setenv("TEST_KEY", f"{KEY}\u2019")
    with pytest.raises(EngineError, match="TEST_KEY") as caught:
        engine.generate([ask("q")], seed=1)
    assert KEY not in str(caught.value)


def test_what_the_client_would_take_from_the_environment_is_not_sent(server, engine, monkeypatch):
    for name in ("API_KEY", "ADMIN_KEY", "ORG_ID", "PROJECT_ID", "BASE_URL"):
        monkeypatch.setenv(f"OPENAI_{name}", KEY if "KEY" in name else "http://127.0.0.1:9/v1")
    monkeypatch.delenv("TEST_KEY")
    assert engine.generate([ask("q")], seed=1)[0].text == "you said q"
    assert server.headers == [None], "a server without a key gets none, and not one for another"
    assert not {"openai-organization", "openai-project"} & server.header_names


def saying(text, **parts):
    answer = {"choices": [{"message": {"content": text}, **parts}]}
    return json.dumps(answer, ensure_ascii=False).encode()


CAFE, TOO_LONG = saying("caf\u00e9"), "This model's maximum context length is 4096 tokens"
PARTS = [{"type": "text", "text": "caf"}, {"type": "text", "text": "\u00e9"}]
HALF = json.dumps({"choices": [{"message": {"content": "a\ud83d"}}]})
TYPES = {"Content-Type": "application/json"}, {"Content-Type": "text/plain; charset=utf-16"}
ANSWERS = {
    "a bad request": (400, "", "error", "HTTP 400: bad key [key]", 1),
    "a context that is too short": ((400, {}, TOO_LONG), "", "too_long", f"HTTP 400: {TOO_LONG}", 1),
    "a redirect": ((307, {"Location": "/v1/chat/completions"}, "{}"), "", "error", "HTTP 307: {}", 1),
    **{f"status {n}": ((n, {}, CAFE), "", "error", f"HTTP {n}", 1) for n in (201, 202, 206)},
    **{f"UTF-8 as {n}": ((200, header, CAFE), "caf\u00e9", "stop", None, 1) for n, header in enumerate(TYPES)},
    "UTF-8 with a mark": ((200, TYPES[1], b"\xef\xbb\xbf" + CAFE), "caf\u00e9", "stop", None, 1),
    "no UTF-8": ((200, {}, CAFE.replace(b"caf", b"\xff")), "", "error", "the answer is not a chat completion", 3),
    "half of a surrogate pair": (HALF, "a?", "stop", None, 1),
    "a stop string that is left": ((200, {}, saying("a END b", finish_reason="length")), "a ", "stop", None, 1),
    "text in parts": ((200, {}, saying(PARTS)), "caf\u00e9", "stop", None, 1),
    "logprobs that are none": ((200, {}, saying("b", logprobs={"content": [{"token": 1}]})), "b", "stop", None, 1),
    "an odd finish": ((200, {}, saying("b", finish_reason=["odd"])), "b", "length", None, 1),
}


@pytest.mark.parametrize("what", ANSWERS)
def test_what_becomes_of_an_answer(server, engine, what):
    fault, text, finish, error, tries = ANSWERS[what]
    server.faults["q"] = [fault] * 9
    done = engine.generate([ask("q", stop=("END",))], seed=1)[0]
    assert (done.text, done.finish_reason, done.error, server.tries["q"]) == (text, finish, error, tries)


def test_an_unforeseen_error_waits_for_answers_under_way_and_keeps_them(server, config, tmp_path, monkeypatch):
    answers = AnswerStore(tmp_path, 0)
    engine = OpenAIEngine(config, answers)
    engine._clock = PausesOnly()
    for text in ("q1", "q2", "q3"):
        server.faults[text] = ["slow"]
    server.slow = 0.4
    asked = [ask("q0"), ask("q1"), ask("q2"), ask("q3"), ask("unforeseen"), ask("never sent")]

    def unforeseen(headers):
        raise RecursionError

    server.faults["unforeseen"] = [(429, {})]
    monkeypatch.setattr("judgetrain.engines.openai.gate.retry_after", unforeseen)
    with pytest.raises(RecursionError):
        engine.generate(asked, seed=1)
    kept = [answers.get(content) for content in answers.contents("judge-model", asked, config.base_url)]
    assert [c.text if c else None for c in kept] == [*(f"you said q{i}" for i in range(4)), None, None]
    assert sum(server.tries.values()) == 5 and "never sent" not in server.tries


def test_probabilities_of_candidates_and_patterns_are_asked_for_and_read(server, engine):
    logprobs = {
        "content": [
            {"token": "Score:", "logprob": 0.0, "top_logprobs": []},
            {"token": " 2", "logprob": -1.0, "top_logprobs": [{"token": " 2", "logprob": -1.0}]},
        ]
    }
    answer = {"choices": [{"message": {"content": "Score: 2"}, "finish_reason": "stop", "logprobs": logprobs}]}
    server.faults["q"] = [(200, {}, json.dumps(answer))]
    limits = Sampling(candidates=("1", "2"), pattern="Score: [12]")
    done = engine.generate([Request(messages=ask("q").messages, sampling=limits)], seed=1)[0]
    assert done.choices == (Choice(7, (0.0, 1.0)),)
    body = server.bodies[-1]
    assert (body["logprobs"], body["top_logprobs"]) == (True, 20)
    assert body["structured_outputs"] == {"regex": "Score: [12]"}
    assert not {"logprobs", "structured_outputs"} & set(chat_body("m", ask("q"), 1, "max_tokens"))
