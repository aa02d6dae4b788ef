"""What is paid for is kept, and no more is paid: accounts, answers that hold nothing, clocks, keys, two processes."""

import gzip
import json
import logging
import time
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.shards import markers_of, read_rows
from judgetrain.engines.answers import AnswerStore, Budget
from judgetrain.engines.config import OpenAIEngineConfig
from judgetrain.engines.openai import engine as openai_engine
from judgetrain.engines.openai import gate
from judgetrain.engines.openai.engine import BROKEN, OpenAIEngine
from judgetrain.engines.openai.reading import (
    LONGEST_MESSAGE,
    is_empty_account,
    is_other_model,
    read_completion,
    redact,
    words_of,
)
from judgetrain.errors import ConfigError, EngineError
from tests.builders.engines import PausesOnly
from tests.builders.engines import ask as any_ask
from tests.builders.faulty_server import KEY, Fault, FaultyServer
from tests.builders.paid import stage


@pytest.fixture(autouse=True)
def one_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    monkeypatch.setattr(openai_engine, "RETRIES", 1)


def address(server: FaultyServer, query: str = "") -> str:
    return f"http://127.0.0.1:{server.server_port}/v1{query}"


def paid(server: FaultyServer, home: Path, name: str = "a", number: int = 16, **options: Any) -> Any:
    defaults = {"base_url": address(server), "concurrency": 2, "retries": 1, "speed": 500.0}
    return stage(home, name, number, **(defaults | options))


def engine_of(server: FaultyServer, answers: AnswerStore | None = None, budget: Budget | None = None, **options: Any):
    defaults = {"model": "m", "base_url": address(server), "api_key_env": "TEST_KEY", "concurrency": 2}
    openai_engine.RETRIES = options.pop("retries", openai_engine.RETRIES)
    engine = OpenAIEngine(OpenAIEngineConfig(**(defaults | options)), answers, budget)
    engine._clock = PausesOnly()
    return engine


ask = partial(any_ask, max_new_tokens=40)


def reply(**message: Any) -> str:
    finish = message.pop("finish_reason", "stop")
    usage = message.pop("usage", {"prompt_tokens": 7, "completion_tokens": 3})
    return json.dumps({"choices": [{"message": message, "finish_reason": finish}], "usage": usage})


EMPTY = {
    "402 without a word": (402, {}),
    "OpenAI": (429, {"error": {"code": "insufficient_quota", "message": "You exceeded your current quota"}}),
    "in an answer": (200, {"error": {"code": 402, "message": "Insufficient credits"}}),
}


@pytest.mark.parametrize("what", EMPTY)
def test_an_empty_account_stops_the_stage_in_mid_run_and_a_filled_one_goes_on(
    what: str, server: FaultyServer, tmp_path: Path
) -> None:
    status, body = EMPTY[what]
    server.faults |= {f"question {i}": [(status, {}, json.dumps(body))] * 99 for i in range(10, 16)}
    code = 402 if status == 200 else status
    with pytest.raises(EngineError, match=f"answered {code}.*the account has nothing left") as caught:
        paid(server, tmp_path)
    assert "\n" not in str(caught.value) and "same command goes on where it stopped" in str(caught.value)
    kept = len(server.billed)
    assert 8 <= kept <= 11, "what was answered before"
    assert len(list((tmp_path / "answers").rglob("*.json"))) == kept
    server.faults = {}
    out = paid(server, tmp_path)
    assert len(server.billed) == 16
    assert {row["finish_reason"] for row in read_rows(out.directory, "rows")} == {"stop"}


ACCOUNT = {
    429: ('{"error": {"type": "insufficient_quota"}}',),
    403: ("Your account balance is insufficient, please recharge", "You have exceeded your monthly quota."),
    400: ('{"code": "Arrearage"}', "Your credit balance is too low to access the API.", "billing_hard_limit_reached"),
    402: ("Payment Required",),
}
OTHER = {
    429: ("You exceeded your current quota, please retry in 32 s", "Rate limit reached: requests per minute"),
    400: ("max_tokens too large",),
    500: ("insufficient_quota",),
}


def test_which_refusals_say_that_an_account_is_empty() -> None:
    for table, empty in ((ACCOUNT, True), (OTHER, False)):
        assert {is_empty_account(status, text, "") for status, texts in table.items() for text in texts} == {empty}
    prompt = "why is my credit balance is too low?"
    assert not is_empty_account(400, "bad request: 'my credit balance is too low'", prompt), "a prompt that is repeated"


NOTHING = {
    "null": ({"content": None}, "no content"),
    "reasoning": ({"content": None, "reasoning_content": "hm " * 9, "finish_reason": "length"}, "raise max_new_tokens"),
    "refusal": ({"content": None, "refusal": "I can't help."}, "the model refused: I can't help."),
    "tools": ({"tool_calls": []}, "no content"),
    "parts": ({"content": [{"type": "image"}]}, "no content"),
}


@pytest.mark.parametrize("what", NOTHING)
def test_an_answer_without_content_is_paid_once_kept_counted_and_finishes(
    what: str, server: FaultyServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    message, why = NOTHING[what]
    reason = "reasoning_alone" if what == "reasoning" else "no_content"
    server.faults["question 3"] = [reply(**message)] * 99
    out = paid(server, tmp_path, number=8)
    rows = list(read_rows(out.directory, "rows"))
    assert [row["finish_reason"] for row in rows] == ["stop"] * 3 + [reason] + ["stop"] * 4
    assert why in rows[3]["error"]
    assert f"1 of 8 requests have no answer: {rows[3]['error']}" in caplog.text
    assert server.tries["question 3"] == 1
    assert markers_of(out.directory, "rows")[0]["counts"]["dropped"] == {reason: 1}
    assert out.notes["spent"]["generated_tokens"] == 3 * 8
    paid(server, tmp_path, "b", 8)
    assert server.tries["question 3"] == 1, "it is kept"


USAGE = [
    None, {}, [], "many", {"prompt_tokens": -5, "completion_tokens": -5}, {"prompt_tokens": 0, "completion_tokens": 0},
    {"prompt_tokens": "9", "completion_tokens": "3"}, {"prompt_tokens": 1e12, "completion_tokens": 10**12},
    {"prompt_tokens": True, "completion_tokens": float("nan")},
    {"prompt_tokens": None, "completion_tokens": float("inf")},
]  # fmt: skip


@pytest.mark.parametrize("usage", USAGE)
def test_tokens_that_nobody_reports_are_estimated_so_that_the_budget_holds(
    usage: Any, server: FaultyServer, tmp_path: Path
) -> None:
    text = "word " * 30
    server.faults |= {f"question {i}": [reply(content=text, usage=usage)] * 9 for i in range(64)}
    with pytest.raises(EngineError, match=r"stage\.max_tokens=500: \d+ are spent \(\d+ of them by estimate"):
        paid(server, tmp_path, number=64, max_tokens=500)
    assert 3 <= sum(server.tries.values()) <= 500 // (30 + 3), "thirty words and a few of the prompt each, at least"
    kept = [json.loads(p.read_text())["completion"] for p in (tmp_path / "answers").rglob("*.json")]
    assert {c["estimated"] for c in kept} == {True}
    assert all(30 <= c["generated_tokens"] <= 90 and 3 <= c["prompt_tokens"] <= 20 for c in kept)


def test_tokens_of_tries_that_may_be_charged_count(server: FaultyServer, tmp_path: Path) -> None:
    budget = Budget(tmp_path / "spent", max_tokens=10_000)
    server.faults |= {"broken": ["{}"] * 9, "gone": ["drop"] * 9, "refused": [503] * 9}
    engine_of(server, budget=budget, retries=0).generate([ask(t) for t in ("broken", "gone", "refused")], 1)
    held = 2 + 3 + 4 + 40
    assert budget.spent["unknown_tokens"] == pytest.approx((BROKEN + 1) * held, abs=20), "all tries of the first two"
    assert budget.spent["requests"] == BROKEN + 2


def test_a_killed_runs_requests_under_way_count(tmp_path: Path) -> None:
    budget = Budget(tmp_path / "spent", max_tokens=100)
    held = budget.send(ask("x"))
    again = Budget(tmp_path / "spent", max_tokens=100)
    assert again.spent == {"requests": 1, "prompt_tokens": 0, "generated_tokens": 0, "unknown_tokens": held}
    again.send(ask("x"))
    with pytest.raises(EngineError, match=rf"{held} are spent \({held} of them by estimate"):
        again.send(ask("x"))


def test_a_server_that_drips_does_not_hold_the_run(server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    dripping = Fault("drip", body=reply(content="x" * 400).encode(), drip=0.05, charged=True)  # 20 s, never idle
    server.faults["q"] = [dripping] * 9
    started_at = time.monotonic()
    done = engine_of(server, retries=0, timeout=0.5).generate([ask("q")], 1)[0]
    assert time.monotonic() - started_at < 20, "the answer takes as long at least, however idle the machine is"
    assert (done.finish_reason, done.error) == ("error", "no answer within 0.5 s")
    assert server.tries["q"] == 1


@pytest.mark.parametrize(
    ("usage", "generated"),
    [
        ({"completion_tokens": 9, "total_tokens": 109}, 9),
        ({"completion_tokens": 9, "total_tokens": 1109, "completion_tokens_details": {"reasoning_tokens": 1000}}, 1009),
        ({"completion_tokens": 1009, "total_tokens": 1109, "completion_tokens_details": {"reasoning_tokens": 9}}, 1009),
        ({"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 1000}}, 1000),
        ({"total_tokens": 1109}, 1009),
        ({"completion_tokens": 9, "total_tokens": 5}, 9),
        ({"completion_tokens": 9, "total_tokens": True, "completion_tokens_details": "x"}, 9),
    ],
)
def test_what_a_server_charges_is_the_most_that_its_fields_imply(usage: dict[str, Any], generated: int) -> None:
    completion = read_completion(json.loads(reply(content="A", usage={"prompt_tokens": 100, **usage})), ask("q"))
    assert (completion.prompt_tokens, completion.generated_tokens, completion.estimated) == (100, generated, False)


def test_an_answer_without_end_is_not_read_to_its_end(server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some kilobytes that unpack to 64 MiB, and an answer that is merely long."""
    monkeypatch.setattr(gate, "LARGEST", 1 << 20)
    bomb = gzip.compress(b"a" * (64 << 20))
    headers = {"Content-Encoding": "gzip"}
    server.faults |= {
        "bomb": [Fault("bomb", body=bomb, headers=headers)] * 9,
        "long": [reply(content="a" * (2 << 20))] * 9,
    }
    tracemalloc.start()
    done = engine_of(server).generate([ask("bomb"), ask("long"), ask("fine")], 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [(c.error or "").split(",")[0] for c in done] == ["the answer is not a chat completion"] * 2 + [""]
    assert peak < 48 << 20


def test_a_limit_waits_for_what_is_under_way(server: FaultyServer, tmp_path: Path) -> None:
    # Each request may take 40 tokens and more, and takes 10: eight at once hold more than the limit.
    with pytest.raises(EngineError, match=r"stage\.max_tokens=400"):
        paid(server, tmp_path, number=64, max_tokens=400, concurrency=8)
    assert 400 - 110 < 10 * len(server.billed) <= 400


@pytest.mark.parametrize(
    ("requested", "answering", "is_other"),
    [
        ("gpt-5", "gpt-5-2025-08-07", False),
        ("gpt-5", "openai/gpt-5", False),
        ("gpt-5", "gpt-5-mini-2025-08-07", True),
        ("gpt-4", "gpt-4o", True),
        ("gpt-4", "gpt-4.1", True),
        ("qwen3-1", "qwen3-14b", True),
        ("org/qwen3-14b-mini", "qwen3-14b", True),
        ("llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct-FP8", False),
        ("llama-3.1-8b", "/models/llama-3.1-8b.Q4_K_M.gguf", False),
        ("gemini-3-flash", "gemini-3-flash-lite", True),
        ("claude-opus-4", "claude-opus-4@20250514", False),
        ("claude-opus-4", "claude-opus-4-1-20250805", True),
        ("claude-sonnet-4", "anthropic/claude-sonnet-4-5", True),
        ("claude-sonnet-4", "anthropic.claude-sonnet-4-20250514-v1:0", False),
        ("gpt-4", "gpt-4-0613", False),
        ("gemini-2.5-pro", "gemini-2.5-pro-002", False),
        ("llama-3", "llama-3-8b", False),
        ("qwen3-32b", "qwen3-32b-coder", True),
        ("gpt-4o", "gpt-4o-audio-preview-2025-06-03", True),
    ],
)
def test_a_family_s_other_version_or_size_is_another_model(requested: str, answering: str, is_other: bool) -> None:
    assert is_other_model(answering, requested) is is_other
    assert is_other_model(requested, answering) is is_other


def test_a_short_key_is_taken_out_as_a_word_alone() -> None:
    assert redact("the context of x, num_ctx, key=x", "x") == "the context of [key], num_ctx, key=[key]"
    assert redact("Bearer sk-0123456789ab!", "sk-0123456789ab") == "Bearer [key]!"
    assert redact("nosk-0123456789abyes", "sk-0123456789ab") == "no[key]yes"
    assert redact("nothing", "") == "nothing"


def test_a_limit_holds_of_models_that_think_beyond_what_they_are_allowed(server: FaultyServer, tmp_path: Path) -> None:
    thinking = reply(content="A", usage={"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 507})
    server.faults |= {f"question {i}": [thinking] for i in range(64)}
    with pytest.raises(EngineError, match=r"stage\.max_tokens=10000"):
        paid(server, tmp_path, number=64, max_tokens=10_000, concurrency=8)
    assert sum(server.tries.values()) in (18, 19), "19 take 9,633"


@pytest.mark.parametrize(
    ("model", "taken"),
    [("m", True), ("org/M", True), ("m-2026-03-05", True), ("", True), (None, True), ("other", False), ("lla", False)],
)
def test_answers_of_another_model_are_refused(server: FaultyServer, model: str | None, taken: bool) -> None:
    server.faults["q"] = [json.dumps(json.loads(reply(content="fine")) | {"model": model})] * 3
    engine = engine_of(server)
    if taken:
        assert engine.generate([ask("q")], 1)[0].model == (model or "")
    else:
        with pytest.raises(EngineError, match=f"asked for model m, and {model} answered"):
            engine.generate([ask("q")], 1)


def test_the_key_of_a_kept_answer_holds_the_server_but_no_secret(server: FaultyServer, tmp_path: Path) -> None:
    paid(server, tmp_path, "a", 8)
    same = address(server).replace("http", "HTTP").replace("/v1", "/v1/")
    paid(server, tmp_path, "b", 8, base_url=same)
    assert len(server.billed) == 8, "the same server, however it is written"
    paid(server, tmp_path, "c", 8, base_url=address(server).replace("127.0.0.1", "localhost"))
    assert len(server.billed) == 16, "another server of a model of this name"
    stored = [json.loads(p.read_text())["request"]["server"] for p in (tmp_path / "answers").rglob("*.json")]
    assert {*stored} == {address(server), address(server).replace("127.0.0.1", "localhost")}


WORDS = [
    ('{"error": {"message": "max_tokens is too large: 99999"}}', "max_tokens is too large: 99999"),
    ('{"object": "error", "message": "max_tokens too large"}', "max_tokens too large"),
    ('{"detail": "max_tokens too large"}', "max_tokens too large"),
    ("max_tokens\n too large", "max_tokens too large"),
    ('{"error": {"message": "no \\ud83d"}}', "no ?"),
    ("x" * 5000, "x" * LONGEST_MESSAGE + "…"),
]


def test_a_servers_own_words_reach_the_message(
    server: FaultyServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # OpenAI, vLLM and FastAPI each have a form of their own for errors, and others answer with text.
    for body, words in WORDS:
        assert words_of(body) == words
    assert words_of("x" * (LONGEST_MESSAGE - 9) + KEY, KEY) == "x" * (LONGEST_MESSAGE - 9) + "[key]", (
        "no part of a key is left by the cut"
    )
    body, words = WORDS[0]
    server.faults["question 3"] = [(422, {}, body)] * 99
    out = paid(server, tmp_path, number=8)
    assert [row["error"] for row in read_rows(out.directory, "rows")][3] == f"HTTP 422: {words}"
    assert f"1 of 8 requests have no answer: HTTP 422: {words}" in caplog.text
    for status in (401, 500):
        server.faults["question 3"] = [(status, {}, body)] * 99
        with pytest.raises(EngineError, match=words):
            paid(server, tmp_path / str(status), number=8)


@pytest.mark.parametrize("fault", [None, 400, 401, 402, 429, 500, "drop", "slow", "not json"])
def test_the_key_is_never_shown(
    fault: Any,
    server: FaultyServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(gate, "MAX_WAIT", 5.0)
    if isinstance(fault, int):
        fault = (fault, {}, f"no: {KEY}")
    server.faults["question 2"] = [fault] * 99 if fault else []
    server.reply = lambda text: f"you said {text} {KEY}"
    shown_text = ""
    try:
        paid(server, tmp_path, number=8, base_url=address(server, "?n=1"), timeout=1.0)
    except EngineError as error:
        shown_text = str(error)
    assert set(server.paths) == {"/v1/chat/completions?n=1"}, "the query is sent"
    printed = capsys.readouterr()
    everything = [shown_text, printed.out, printed.err, caplog.text]
    everything += [p.read_text(errors="replace") for p in tmp_path.rglob("*") if p.is_file()]
    assert not [text for text in everything if KEY in text]
    assert "POST" in caplog.text


@pytest.mark.parametrize(
    ("url", "message"),
    [
        *(
            (url, "is no server's address")
            for url in ("", "localhost:8000/v1", "ftp://host/v1", "http://", "http://host:x/v1")
        ),
        ("http://u:hunter2@host/v1", "holds a password or a key"),
        ("http://host/v1?api_key=hunter2", "holds a password or a key"),
    ],
)
def test_what_is_no_address_or_holds_a_password_is_refused_without_repeating_it(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^teacher\.engine\.base_url.* {message}") as caught:
        OpenAIEngineConfig(model="m", base_url=url).check("teacher.engine")
    assert "hunter2" not in str(caught.value)
