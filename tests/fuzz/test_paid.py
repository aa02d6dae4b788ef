"""A server that fails at random, over many requests: nothing answered is paid twice, no limit is passed, none told.

By hand in full: ``JUDGETRAIN_FUZZ=full python -m pytest tests/fuzz/test_paid.py``; every attack is drawn from its
number, which a failure names.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.shards import read_rows
from judgetrain.engines.openai.engine import BROKEN
from judgetrain.errors import EngineError
from tests.builders.attacks import VALID, Attack, said
from tests.builders.faulty_server import KEY, FaultyServer, Try, serving
from tests.builders.paid import stage, started
from tests.fuzz.effort import effort

REQUESTS, RUNS, TIMEOUT = 24, 40, 3.0
REAL = 10
"""Tokens that the server charges for an answer."""


def charged(tried: Try) -> bool:
    """Whether the server generated an answer for it."""
    return tried.fault is None or tried.fault.charged


def delivered(tried: Try) -> bool:
    """Whether that was an answer, sent whole and well in time."""
    in_time = tried.took is not None and tried.took < TIMEOUT / 3
    return in_time and (tried.fault is None or tried.fault.name.startswith(VALID))


@dataclass
class Attacked:
    """A server under observation, and what one stage made of it."""

    server: FaultyServer
    home: Path
    attack: Attack
    options: dict[str, Any]
    said: list[str] = field(default_factory=list)

    def once(self, **changes: Any) -> bool:
        """Run the stage; whether it finished. Whatever else it ends with is one sentence."""
        self.server.run += 1
        try:
            stage(self.home, "a", REQUESTS, 500.0, **(self.options | changes))
        except EngineError as error:
            self.told(str(error))
            return False
        return True

    def told(self, message: str) -> None:
        """A message that a user saw."""
        assert message.strip() and "\n" not in message.strip()
        assert "Traceback" not in message
        self.said.append(message)


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("TEST_KEY", KEY)

    def make(number: int, server: FaultyServer) -> Attacked:
        rng = random.Random(number)
        attack = Attack(number, rng.choice([0.2, 0.4, 0.6]), TIMEOUT)
        address = f"http://127.0.0.1:{server.server_port}/v1"
        options = {"base_url": address, "concurrency": rng.choice([1, 3, 8]), "retries": rng.choice([1, 2, 4])}
        server.reply, server.faults = said, attack
        return Attacked(server, tmp_path / str(number), attack, options | {"timeout": TIMEOUT})

    return make


def check_money(found: Attacked, lost: int = 0) -> None:
    """Nothing that was answered is asked again, and no request is paid more often than is stated.

    ``lost``: answers that kills may have cost, those that were under way.
    """
    kept = {}
    for path in (found.home / "answers").rglob("*.json"):
        seed = json.loads(path.read_text())["request"]["seed"]
        assert seed not in kept, "one file a request"
        kept[seed] = path.stat().st_mtime
    log = [(tried.body["seed"], tried) for tried in found.server.log]
    late = [tried for seed, tried in log if tried.when > kept.get(seed, float("inf")) + 0.05]
    assert not late, "asked again though the answer was kept"
    twice = Counter(seed for seed, tried in log if delivered(tried))
    assert sum(twice.values()) - len(twice) <= lost, "paid twice"
    paid = Counter((seed, tried.run) for seed, tried in log if charged(tried))
    assert max(paid.values()) <= BROKEN * (found.options["retries"] + 1) + lost
    broken = Counter((seed, tried.run) for seed, tried in log if tried.fault and tried.fault.name == "broken answer")
    assert max(broken.values(), default=0) <= BROKEN + lost


def check_rows(found: Attacked) -> None:
    """Every request has its own answer, or says why there is none."""
    rows = list(read_rows(found.home / "artifacts" / "stage" / "a", "rows"))
    assert [row["content"] for row in rows] == [f"question {i}" for i in range(REQUESTS)]
    for row in rows:
        answered = row["finish_reason"] in ("stop", "length")
        assert row["text"] == (said(row["content"]) if answered else "")
        assert answered or row["error"]


def check_key(found: Attacked, *printed: str) -> None:
    """The key in no file, message or line."""
    texts = [*printed, *found.said]
    texts += [p.read_bytes().decode("utf-8", "replace") for p in found.home.rglob("*") if p.is_file()]
    assert not any(KEY in text for text in texts)


def check(found: Attacked, lost: int = 0, *printed: str) -> None:
    """All three."""
    check_money(found, lost)
    check_rows(found)
    check_key(found, *printed)


def finish(found: Attacked) -> None:
    """Run on until the stage is finished, with fewer faults from run to run."""
    for _ in range(RUNS):
        if found.once():
            return
        found.attack.share *= 0.8
    raise AssertionError(f"not finished after {RUNS} runs: {found.said[-1]}")


def test_nothing_is_paid_twice_whatever_the_server_does(
    observed: Any, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for number in range(effort(3, 80)):
        with serving() as server:
            found = observed(number, server)
            finish(found)
            printed = capsys.readouterr()
            check(found, 0, printed.out, printed.err, caplog.text)
            caplog.clear()
            before = len(found.server.log)
            assert found.once() and len(found.server.log) == before, "a finished stage asks nothing"


def test_budgets_hold_whatever_the_server_does(observed: Any) -> None:
    for number in range(1000, 1000 + effort(2, 40)):
        rng = random.Random(number)
        with serving() as server:
            found = observed(number, server)
            requests, tokens = rng.randint(1, 20), rng.randint(100, 1500)
            for _ in range(RUNS):
                finished = found.once(max_requests=requests, max_tokens=tokens)
                assert len(found.server.log) <= requests
                assert sum(REAL for tried in found.server.log if charged(tried)) <= tokens
                if finished:
                    break
                if "max_requests" in found.said[-1]:
                    requests += rng.randint(1, 20)
                elif "max_tokens" in found.said[-1]:
                    tokens += rng.randint(100, 1500)
                else:
                    found.attack.share *= 0.8
            finish(found)
            check(found)


def test_kills_and_second_processes_lose_no_more_than_what_was_under_way(observed: Any) -> None:
    for number in range(2000, 2000 + effort(1, 15)):
        rng = random.Random(number)
        with serving() as server:
            found = observed(number, server)
            server.reply = lambda text: time.sleep(0.02) or said(text)
            lost = 0
            for _ in range(RUNS):
                server.run += 1
                running = [started(found.home, name, REQUESTS, speed=500.0, **found.options) for name in "ab"]
                before = len(found.server.log)
                if kill := rng.random() < 0.6:
                    wanted = before + rng.randint(1, 30)
                    while len(found.server.log) < wanted and running[0].poll() is None:
                        time.sleep(0.005)
                    time.sleep(rng.random() * 0.05)
                    running[0].kill()
                    lost += found.options["concurrency"]
                ended = [process.communicate(timeout=300) for process in running]
                check_key(found, *(text for pair in ended for text in pair))
                for process, (_, said_last) in zip(running, ended, strict=True):
                    if process.returncode == 2:
                        found.told(said_last.strip().splitlines()[-1])
                    assert process.returncode in ((0, 2, -9) if kill else (0, 2)), said_last
                if [process.returncode for process in running] == [0, 0]:
                    break
                found.attack.share *= 0.7
            check(found, lost)
