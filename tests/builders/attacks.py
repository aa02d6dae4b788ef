"""Faults of a paid server drawn at random from a seed: whatever a status, a body or a connection can be."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.builders.faulty_server import KEY, Fault

WORDS = ["", "no", "max_tokens too large", f"bad key {KEY}", "<h1>502</h1>", "caf\u00e9 \ud83d"]
ABSURD: list[Any] = [None, -1, 0, 10**12, 1e12, "7", True, [], {}, float("nan"), float("inf"), 0.5]
USAGES: list[Any] = [None, {}, [], "many", 7]

Draw = Callable[[random.Random, str], Fault]


def body_of(content: Any, usage: Any = None, **message: Any) -> dict[str, Any]:
    """A chat completion."""
    honest = {"prompt_tokens": 7, "completion_tokens": 9}
    choice = {"message": {"role": "assistant", "content": content, **message}, "finish_reason": "stop"}
    return {"choices": [choice], "usage": honest if usage is None else usage}


def said(prompt: str) -> str:
    """The good answer to a prompt."""
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
        self.rng, self.share, self.given = random.Random(seed), share, Counter[str]()
        valid = {_no_content: 3, _usage: 5, _odd: 5, _broken: 4, _reset: 3, slow(timeout): 0.5}
        self._kinds: dict[Draw, float] = {_refused: 4, _error_inside: 1, _limited: 3, _fatal: 1, **valid}

    def get(self, text: str, default: Any = None) -> list[Fault]:
        """The fault of one try, if it gets one."""
        if self.rng.random() >= self.share:
            return []
        (draw,) = self.rng.choices([*self._kinds], [*self._kinds.values()])
        fault = draw(self.rng, text)
        self.given[fault.name] += 1
        return [fault]
