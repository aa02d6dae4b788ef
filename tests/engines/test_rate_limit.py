"""Under a server's rate limit requests wait together, and none is lost; what fails in other ways is asked again."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts import ShardResult, StageRun
from judgetrain.config import EngineConfig, ModelConfig
from judgetrain.engines.answers import AnswerStore
from judgetrain.engines.base import Request, Sampling
from judgetrain.engines.openai_engine import OpenAIEngine
from judgetrain.engines.rate_limit import Clock, retry_after
from judgetrain.errors import EngineError, UnansweredError
from judgetrain.shards import read_rows
from judgetrain.track import Console
from tests.faulty_server import FaultyServer, FixedWindow

SPEED = 60.0


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    server = FaultyServer()
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def shipped(server: FaultyServer, answers: AnswerStore | None = None, speed: float = SPEED, **options: Any) -> Any:
    """An engine with the settings as shipped; only time passes faster."""
    address = f"http://127.0.0.1:{server.server_port}/v1"
    config = EngineConfig(type="openai", model=ModelConfig(path="m"), base_url=address, **options)
    return OpenAIEngine(config, answers, clock=Clock(speed))


def asked(number: int) -> list[Request]:
    return [Request(({"role": "user", "content": f"q{i}"},), Sampling()) for i in range(number)]


@pytest.mark.parametrize("headers", [{}, {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "20s"}])
def test_a_fixed_window_loses_nothing_and_is_asked_little_more_often_than_it_answers(
    headers: dict[str, str], server: FaultyServer, tmp_path: Path
) -> None:
    limit = server.faults = FixedWindow(60, speed=SPEED, headers=headers)
    done = shipped(server, AnswerStore(tmp_path, 0)).generate(asked(200), 1)
    assert [c.text for c in done] == [f"you said q{i}" for i in range(200)]
    assert len(server.billed) == 200
    assert 0 < limit.refused <= 3 * (8 + 8), "in each of three windows those in flight, then one at a time"


def test_all_wait_for_as_long_as_the_server_says(server: FaultyServer) -> None:
    server.faults["q0"] = [(429, {"Retry-After": "0.6"})]
    engine = shipped(server, speed=1.0, concurrency=1)
    started, times = time.monotonic(), []

    def reply(text: str) -> str:
        times.append(time.monotonic() - started)
        return text

    server.reply = reply
    done = engine.generate(asked(3), 1)
    assert [c.text for c in done] == ["q0", "q1", "q2"]
    assert len(server.tries) == 3
    assert times[0] < 0.6, "the refusal"
    assert min(times[1:]) >= 0.6, "q1 and q2 were never refused, and wait all the same"


def test_a_rate_limit_takes_no_try(server: FaultyServer) -> None:
    server.faults["q0"] = [(429, {}), 500, (429, {}), (429, {}), (429, {})]
    assert shipped(server, speed=1000.0, max_retries=1).generate(asked(1), 1)[0].text == "you said q0"
    assert server.tries["q0"] == 6


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"Retry-After": "7200"}, r"left alone for 120.0 min, engine\.max_wait=1800 s are allowed.*HTTP 429: no more"),
        ({}, r"lets no request through, engine\.max_wait=1800 s.*every answer is kept: raise engine\.max_wait"),
    ],
)
def test_a_limit_that_outlasts_max_wait_ends_the_run(
    headers: dict[str, str], message: str, server: FaultyServer
) -> None:
    server.faults["q1"] = [(429, headers, "no more")] * 10_000
    with pytest.raises(EngineError, match=message):
        shipped(server, speed=20_000.0).generate(asked(2), 1)
    assert server.tries["q1"] < 200, "half an hour, with at most half a minute between tries"


def test_an_account_that_is_empty_is_not_waited_for(server: FaultyServer) -> None:
    refusal = json.dumps({"error": {"code": "insufficient_quota", "message": "check your plan"}})
    server.faults["q0"] = [(429, {}, refusal)] * 2
    with pytest.raises(EngineError, match="answered 429: .*check your plan.*every answer is kept"):
        shipped(server, speed=1.0).generate(asked(1), 1)
    assert server.tries["q0"] == 1


LATER = datetime.now(UTC) + timedelta(hours=3)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "3", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "-4"}, 0.0),
        ({"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-reset-tokens": "20ms"}, 0.02),
        (
            {
                "x-ratelimit-reset-requests": "1h2m3.5s",
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-tokens": "20ms",
                "x-ratelimit-remaining-tokens": "9",
            },
            3723.5,
        ),
        ({"retry-after": "2", "x-ratelimit-reset-requests": "6m0s"}, 2.0),
        ({"x-ratelimit-reset-requests": "12"}, 12.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf", "x-ratelimit-reset-requests": "later"}, None),
        ({}, None),
    ],
)
def test_what_a_server_asks_for(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    "headers",
    [{"retry-after": format_datetime(LATER, usegmt=True)}, {"x-ratelimit-reset": f"{LATER.timestamp():.0f}"}],
)
def test_a_time_of_day_is_waited_for(headers: dict[str, str]) -> None:
    expected = (LATER - datetime.now(UTC)).total_seconds()
    assert retry_after(headers) == pytest.approx(expected, abs=5)


def processed(engine: Any, out: StageRun, number: int = 12) -> None:
    """A stage of shards of 4 requests."""

    def process(index: int, items: Any) -> ShardResult:
        texts = [{"text": c.text, "why": c.finish_reason} for c in engine.generate(items, index)]
        return ShardResult(texts, len(texts))

    out.sharded("rows", asked(number), 4, process)


def stage(directory: Path) -> StageRun:
    return StageRun(directory / "stage", "teacher", 0, Console())


def test_requests_that_were_given_up_are_asked_again_alone(server: FaultyServer, tmp_path: Path) -> None:
    server.faults["q1"] = [500] * 14  # two passes of seven tries, as shipped
    server.faults["q9"] = ["{}"] * 14
    answers = AnswerStore(tmp_path / "answers", 0)
    with pytest.raises(UnansweredError, match=r"2 requests were given up.*not a chat completion.*same command again"):
        processed(shipped(server, answers, 5000.0), stage(tmp_path))
    assert len(server.billed) == 10, "what could be done is done, the shards after the failure too"
    assert len(list((tmp_path / "stage").glob("rows-*.jsonl"))) == 1, "and no shard with a failure is finished"
    processed(shipped(server, answers), stage(tmp_path))
    assert [row["text"] for row in read_rows(tmp_path / "stage", "rows")] == [f"you said q{i}" for i in range(12)]
    assert sorted(body["messages"][0]["content"] for body in server.billed) == sorted(f"q{i}" for i in range(12))


def test_what_fails_for_ever_can_be_taken_as_unanswered(server: FaultyServer, tmp_path: Path) -> None:
    server.faults["q1"] = [500] * 99
    processed(shipped(server, AnswerStore(tmp_path / "answers", 0), 5000.0, keep_errors=True), stage(tmp_path), 4)
    assert [row["why"] for row in read_rows(tmp_path / "stage", "rows")] == ["stop", "error", "stop", "stop"]


def test_what_the_server_refuses_for_what_it_is_stops_nothing(server: FaultyServer, tmp_path: Path) -> None:
    server.faults["q1"] = [400] * 99
    processed(shipped(server, AnswerStore(tmp_path / "answers", 0)), stage(tmp_path), 4)
    assert server.tries["q1"] == 1
    assert [row["why"] for row in read_rows(tmp_path / "stage", "rows")] == ["stop", "error", "stop", "stop"]
