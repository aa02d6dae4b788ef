"""A server that fails at random, over many requests: nothing answered is paid twice, no limit is passed, none told.

By hand in full: ``JUDGETRAIN_FUZZ=full python -m pytest tests/fuzz/test_paid.py``; every attack is drawn from its
number, which a failure names.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.shards import read_rows
from judgetrain.engines.openai.engine import BROKEN
from judgetrain.errors import EngineError
from tests.builders.faulty_server import KEY, Fault, FaultyServer, Try, serving
from tests.builders.paid import stage, started
from tests.fuzz.effort import effort

WORDS = ["", "no", "max_tokens too large", f"bad key {KEY}", "<h1>502</h1>", "caf\u00e9 \ud83d"]
ABSURD: list[Any] = [None, -1, 0, 10**12, 1e12, "7", True, [], {}, float("nan"), float("inf"), 0.5]
USAGES: list[Any] = [None, {}, [], "many", 7]

Draw = Callable[[random.Random, str], Fault]


def body_of(content: Any, usage: Any = None, **message: Any) -> dict[str, Any]:
    """Return a chat completion."""
    honest = {"prompt_tokens": 7, "completion_tokens": 9}
    choice = {"message": {"role": "assistant", "content": content, **message}, "finish_reason": "stop"}
    return {"choices": [choice], "usage": honest if usage is None else usage}


def said(prompt: str) -> str:
    """Return the good answer to a prompt."""
    return f"you said {prompt}"


def _refused(rng: random.Random, prompt: str) -> Fault:
    status = rng.choice([400, 408, 409, 413, 422, 425, 451, 500, 502, 503, 504, 529])
    return Fault(f"HTTP {status}", status, _words(rng))


def _error_inside(rng: random.Random, prompt: str) -> Fault:
    error = {"message": rng.choice(WORDS), "code": rng.choice([None, 429, "503", 422, "overloaded", 10**9])}
    return Fault("error in an answer", body=_json({"error": error}))


def _limited(rng: random.Random, prompt: str) -> Fault:
    waits = [{"Retry-After": "1"}, {"Retry-After": "soon"}, {"retry-after-ms": "30"}, {"x-ratelimit-reset-x": "2s"}]
    return Fault("HTTP 429", 429, _words(rng), rng.choice([{}, *waits]))


def _fatal(rng: random.Random, prompt: str) -> Fault:
    status = rng.choice([401, 402, 403, 404])
    if status == 402 and rng.random() < 0.5:
        credit = json.dumps({"error": {"message": "Your credit balance is too low", "key": KEY}})
        return Fault("empty account", rng.choice([400, 403, 429]), credit.encode())
    return Fault(f"HTTP {status}", status, _words(rng))


def _words(rng: random.Random) -> bytes:
    word = rng.choice(WORDS)
    forms: list[Any] = [word, {"error": {"message": word}}, {"error": word}, {"detail": word}, [word], {"error": None}]
    form = rng.choice(forms)
    return (word if rng.random() < 0.3 else json.dumps(form)).encode("utf-8", "surrogatepass")


def _no_content(rng: random.Random, prompt: str) -> Fault:
    message = rng.choice([{}, {"refusal": f"no {KEY}"}, {"reasoning_content": "hm " * 20}, {"tool_calls": [{}]}])
    return Fault("no content", body=_json(body_of(rng.choice([None, [], 5]), **message)), charged=True)


def _usage(rng: random.Random, prompt: str) -> Fault:
    absurd = {"prompt_tokens": rng.choice(ABSURD), "completion_tokens": rng.choice(ABSURD)}
    answer = body_of(said(prompt), usage=rng.choice([absurd, absurd, *USAGES]))
    if rng.random() < 0.2:
        del answer["usage"]
    return Fault("absurd usage", body=_json(answer), charged=True)


def _odd(rng: random.Random, prompt: str) -> Fault:
    answer = body_of(said(prompt))
    kind = rng.choice(["choices", "parts", "finish", "logprobs", "mark", "drip", "late", "surrogate", "utf-16"])
    if kind == "choices":
        answer["choices"] *= rng.randint(2, 5)
    elif kind == "parts":
        answer["choices"][0]["message"]["content"] = [{"type": "text", "text": said(prompt)}, 7, {"type": "image"}]
    elif kind == "finish":
        answer["choices"][0]["finish_reason"] = rng.choice([None, 3, [], "content_filter", "odd"])
    elif kind == "logprobs":
        answer["choices"][0]["logprobs"] = rng.choice([[], {"content": [{}]}, {"content": 3}])
    elif kind == "surrogate":
        answer["note"] = "\ud83d"
    data = json.dumps(answer).encode("utf-16" if kind == "utf-16" else "ascii")
    headers = {"Content-Type": f"application/json; charset={rng.choice(['utf-8', 'latin-1', 'utf-16', 'none'])}"}
    return Fault(
        f"odd: {kind}",
        body=b"\xef\xbb\xbf" + data if kind == "mark" else data,
        headers=headers,
        drip=0.001 if kind == "drip" else 0.0,
        pause=0.05 if kind == "late" else 0.0,
        charged=True,
    )


def _broken(rng: random.Random, prompt: str) -> Fault:
    good = _json(body_of(said(prompt)))
    data = rng.choice(
        [
            good[: rng.randrange(len(good))],
            b"", b"{}", b"[]", b"null", b"7", b'{"choices": []}', b'{"choices": [{}]}', b'{"choices": {}}',
            b"[" * 5000, b'{"choices": [{"message": null}]}', b"<html>busy</html>", b"\xff\xfe\x00",
            json.dumps(body_of("caf\u00e9"), ensure_ascii=False).encode("latin-1"),
        ]
    )  # fmt: skip
    return Fault("broken answer", body=data, charged=True)


def _reset(rng: random.Random, prompt: str) -> Fault:
    good = _json(body_of(said(prompt)))
    return Fault("reset", body=good, cut=rng.choice([0, rng.randrange(len(good))]), charged=True)


def slow(timeout: float) -> Draw:
    """Answers that are not there within the time-out: late, or a byte at a time."""

    def draw(rng: random.Random, prompt: str) -> Fault:
        good = _json(body_of(said(prompt)))
        if rng.random() < 0.5:
            return Fault("late", body=good, pause=1.3 * timeout, charged=True)
        return Fault("drip", body=good, drip=2 * timeout / len(good), charged=True)

    return draw


def _json(answer: Any) -> bytes:
    return json.dumps(answer).encode()


VALID = ("no content", "absurd usage", "odd: ")
"""How the names of faults begin that are answers all the same: paid for, delivered, and not to be asked again."""


class Attack(dict):  # type: ignore[type-arg]
    """Faults drawn for a share of all tries, whatever the prompt; ``given`` counts them."""

    def __init__(self, seed: int, share: float, timeout: float) -> None:
        self.rng = random.Random(seed)
        self.share = share
        self.given = Counter[str]()
        valid = {_no_content: 3, _usage: 5, _odd: 5, _broken: 4, _reset: 3, slow(timeout): 0.5}
        self._kinds: dict[Draw, float] = {_refused: 4, _error_inside: 1, _limited: 3, _fatal: 1, **valid}

    def get(self, text: str, default: Any = None) -> list[Fault]:
        """Return the fault of one try, if it gets one."""
        if self.rng.random() >= self.share:
            return []
        (draw,) = self.rng.choices([*self._kinds], [*self._kinds.values()])
        fault = draw(self.rng, text)
        self.given[fault.name] += 1
        return [fault]


REQUESTS = 24
RUNS = 40
TIMEOUT = 3.0
REAL = 10
"""Tokens that the server charges for an answer."""


def charged(tried: Try) -> bool:
    """Return whether the server generated an answer for it."""
    return tried.fault is None or tried.fault.charged


def delivered(tried: Try) -> bool:
    """Return whether that was an answer, sent whole and well in time."""
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
        """Note a message that a user saw."""
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
        server.reply = said
        server.faults = attack
        return Attacked(server, tmp_path / str(number), attack, options | {"timeout": TIMEOUT})

    return make


def check_money(attacked: Attacked, lost: int = 0) -> None:
    """Nothing that was answered is asked again, and no request is paid more often than is stated.

    ``lost``: answers that kills may have cost, those that were under way.
    """
    kept = {}
    for path in (attacked.home / "answers").rglob("*.json"):
        seed = json.loads(path.read_text())["request"]["seed"]
        assert seed not in kept, "one file a request"
        kept[seed] = path.stat().st_mtime
    log = [(tried.body["seed"], tried) for tried in attacked.server.log]
    late = [tried for seed, tried in log if tried.when > kept.get(seed, float("inf")) + 0.05]
    assert not late, "asked again though the answer was kept"
    twice = Counter(seed for seed, tried in log if delivered(tried))
    assert sum(twice.values()) - len(twice) <= lost, "paid twice"
    paid = Counter((seed, tried.run) for seed, tried in log if charged(tried))
    assert max(paid.values()) <= BROKEN * (attacked.options["retries"] + 1) + lost
    broken = Counter((seed, tried.run) for seed, tried in log if tried.fault and tried.fault.name == "broken answer")
    assert max(broken.values(), default=0) <= BROKEN + lost


def check_rows(attacked: Attacked) -> None:
    """Check that every request has its own answer, or says why there is none."""
    rows = list(read_rows(attacked.home / "artifacts" / "stage" / "a", "rows"))
    assert [row["content"] for row in rows] == [f"question {i}" for i in range(REQUESTS)]
    for row in rows:
        answered = row["finish_reason"] in ("stop", "length")
        assert row["text"] == (said(row["content"]) if answered else "")
        assert answered or row["error"]


def check_key(attacked: Attacked, *printed: str) -> None:
    """Check that the key is in no file, message or line."""
    texts = [*printed, *attacked.said]
    texts += [p.read_bytes().decode("utf-8", "replace") for p in attacked.home.rglob("*") if p.is_file()]
    assert not any(KEY in text for text in texts)


def check(attacked: Attacked, lost: int = 0, *printed: str) -> None:
    """Check money, rows and the key."""
    check_money(attacked, lost)
    check_rows(attacked)
    check_key(attacked, *printed)


def finish(attacked: Attacked) -> None:
    """Run on until the stage is finished, with fewer faults from run to run."""
    for _ in range(RUNS):
        if attacked.once():
            return
        attacked.attack.share *= 0.8
    raise AssertionError(f"not finished after {RUNS} runs: {attacked.said[-1]}")


def test_nothing_is_paid_twice_whatever_the_server_does(
    observed: Any, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for number in range(effort(3, 80)):
        with serving() as server:
            attacked = observed(number, server)
            finish(attacked)
            printed = capsys.readouterr()
            check(attacked, 0, printed.out, printed.err, caplog.text)
            caplog.clear()
            before = len(attacked.server.log)
            assert attacked.once() and len(attacked.server.log) == before, "a finished stage asks nothing"


def test_budgets_hold_whatever_the_server_does(observed: Any) -> None:
    for number in range(1000, 1000 + effort(2, 40)):
        rng = random.Random(number)
        with serving() as server:
            attacked = observed(number, server)
            requests = rng.randint(1, 20)
            tokens = rng.randint(100, 1500)
            for _ in range(RUNS):
                finished = attacked.once(max_requests=requests, max_tokens=tokens)
                assert len(attacked.server.log) <= requests
                assert sum(REAL for tried in attacked.server.log if charged(tried)) <= tokens
                if finished:
                    break
                if "max_requests" in attacked.said[-1]:
                    requests += rng.randint(1, 20)
                elif "max_tokens" in attacked.said[-1]:
                    tokens += rng.randint(100, 1500)
                else:
                    attacked.attack.share *= 0.8
            finish(attacked)
            check(attacked)


def test_kills_and_second_processes_lose_no_more_than_what_was_under_way(observed: Any) -> None:
    for number in range(2000, 2000 + effort(1, 15)):
        rng = random.Random(number)
        with serving() as server:
            attacked = observed(number, server)
            server.reply = lambda text: time.sleep(0.02) or said(text)
            lost = 0
            for _ in range(RUNS):
                server.run += 1
                running = [started(attacked.home, name, REQUESTS, speed=500.0, **attacked.options) for name in "ab"]
                before = len(attacked.server.log)
                kill = rng.random() < 0.6
                if kill:
                    goal = before + rng.randint(1, 30)
                    while len(attacked.server.log) < goal and running[0].poll() is None:
                        time.sleep(0.005)
                    time.sleep(rng.random() * 0.05)
                    running[0].kill()
                    lost += attacked.options["concurrency"]
                ended = [process.communicate(timeout=300) for process in running]
                check_key(attacked, *(text for pair in ended for text in pair))
                for process, (_, said_last) in zip(running, ended, strict=True):
                    if process.returncode == 2:
                        attacked.told(said_last.strip().splitlines()[-1])
                    assert process.returncode in ((0, 2, -9) if kill else (0, 2)), said_last
                if [process.returncode for process in running] == [0, 0]:
                    break
                attacked.attack.share *= 0.7
            check(attacked, lost)
