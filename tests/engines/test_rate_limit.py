"""Under a server's rate limit requests wait together, and none is lost; what fails in other ways is asked again."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from judgetrain.engines.answers import AnswerStore
from judgetrain.engines.base import Request
from judgetrain.engines.config import OpenAIEngineConfig
from judgetrain.engines.openai.engine import OUTAGE, RUNS, OpenAIEngine
from judgetrain.engines.openai.gate import OWN, Clock, retry_after
from judgetrain.errors import EngineError, UnansweredError
from tests.builders.engines import PausesOnly, ask
from tests.builders.faulty_server import FaultyServer, FixedWindow


def shipped(
    server: FaultyServer, answers: AnswerStore | None = None, clock: Clock | None = None, **options: Any
) -> Any:
    """Return an engine with the settings as shipped; only time passes by its pauses alone."""
    address = f"http://127.0.0.1:{server.server_port}/v1"
    config = OpenAIEngineConfig(model="m", base_url=address, **options)
    engine = OpenAIEngine(config, answers)
    engine._clock = clock or PausesOnly()
    return engine


def asked(number: int) -> list[Request]:
    return [ask(f"q{i}") for i in range(number)]


def test_a_fixed_window_loses_nothing_and_is_asked_little_more_often_than_it_answers(
    server: FaultyServer, tmp_path: Path
) -> None:
    clock = PausesOnly()
    limit = server.faults = FixedWindow(60, clock.now)
    done = shipped(server, AnswerStore(tmp_path, 0), clock).generate(asked(200), 1)
    assert [c.text for c in done] == [f"you said q{i}" for i in range(200)]
    assert len(server.billed) == 200
    assert 0 < limit.refused <= 3 * (8 + 8), "in each of three windows those in flight, then one at a time"


def test_all_wait_for_as_long_as_the_server_says(server: FaultyServer) -> None:
    server.faults["q0"] = [(429, {"Retry-After": "0.6"})]
    clock = PausesOnly()
    engine = shipped(server, clock=clock, concurrency=1)
    times = []

    def reply(text: str) -> str:
        times.append(clock.time)
        return text

    server.reply = reply
    done = engine.generate(asked(3), 1)
    assert [c.text for c in done] == ["q0", "q1", "q2"]
    assert len(server.tries) == 3
    assert times[0] < 0.6, "the refusal"
    assert min(times[1:]) >= 0.6, "q1 and q2 were never refused, and wait all the same"


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"Retry-After": "7200"}, r"left alone for 120.0 min \(HTTP 429: no more\); 30.0 min without an answer"),
        ({}, r"lets no request through.*; 30.0 min .*every answer is kept: run the same command again"),
    ],
)
def test_a_limit_that_outlasts_the_longest_wait_ends_the_run(
    headers: dict[str, str], message: str, server: FaultyServer
) -> None:
    server.faults["q1"] = [(429, headers, "no more")] * 10_000
    with pytest.raises(EngineError, match=message):
        shipped(server).generate(asked(2), 1)
    assert server.tries["q1"] < 200, "half an hour, with at most half a minute between tries"


TOO_LARGE = "Request too large for m on tokens per min (TPM): Limit 10000, Requested 15000"


def test_a_request_that_is_too_large_for_the_limit_fails_alone(server: FaultyServer, tmp_path: Path) -> None:
    server.faults["q3"] = [(429, {}, TOO_LARGE)] * 10_000
    with pytest.raises(UnansweredError, match="1 request was given up, the last for: HTTP 429: Request too large"):
        shipped(server, AnswerStore(tmp_path, 0)).generate(asked(40), 1)
    with pytest.raises(UnansweredError):
        shipped(server, AnswerStore(tmp_path, 0)).generate(asked(40), 1)
    done = shipped(server, AnswerStore(tmp_path, 0)).generate(asked(40), 1)
    assert [i for i, c in enumerate(done) if c.finish_reason == "error"] == [3]
    assert server.tries["q3"] == RUNS, "once in each run"
    assert len(server.billed) == 39


def test_a_request_that_alone_is_never_let_through_fails_alone(server: FaultyServer) -> None:
    server.faults["q3"] = [(429, {}, "slow down")] * 10_000
    engine = shipped(server, concurrency=4)
    done = engine.generate(asked(40), 1)
    assert [(i, c.error) for i, c in enumerate(done) if c.error] == [(3, "HTTP 429: slow down")]
    assert server.tries["q3"] == OWN


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "3", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "-4"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
def test_what_a_server_asks_for(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_a_server_may_ask_to_wait_until_a_date() -> None:
    # Made here and not as a parameter, which is made when tests are collected: a run may take an hour.
    in_three_hours = datetime.now(UTC) + timedelta(hours=3)
    seconds = retry_after({"retry-after": format_datetime(in_three_hours, usegmt=True)})
    assert seconds == pytest.approx(3 * 3600.0, abs=120)


def test_many_that_always_fail_are_no_outage_and_the_third_run_finishes_without_them(
    server: FaultyServer, tmp_path: Path
) -> None:
    failing = range(OUTAGE + 2)
    server.faults |= {f"q{i}": [500] * 999 for i in failing}
    for _ in range(RUNS - 1):
        with pytest.raises(UnansweredError, match=f"{len(failing)} requests were given up"):
            shipped(server, AnswerStore(tmp_path, 0)).generate(asked(20), 1)
    done = shipped(server, AnswerStore(tmp_path, 0)).generate(asked(20), 1)
    assert [i for i, c in enumerate(done) if c.finish_reason == "error"] == list(failing)
    assert len(server.billed) == 20 - len(failing)
