"""A scripted engine: answers computed from the request's slots, so that every expected value can be worked out."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from judgetrain.engines.base import Completion, Request, places
from judgetrain.schema import Comparison, Dialogue, Message

Answer = Callable[[Request, int], str]


class ScriptedEngine:
    """Answers with ``answer(request, occurrence)``; ``occurrence`` counts equal prompts within a call.

    Stop strings are honoured as a real engine does. A token is a word.
    """

    name = "scripted"
    continues = False

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[Request] = []

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        seen: dict[str, int] = {}
        done = []
        for request in requests:
            self.requests.append(request)
            key = request.messages[-1]["content"]
            seen[key] = seen.get(key, -1) + 1
            text = self.answer(request, seen[key])
            if text.startswith("!"):
                done.append(Completion(finish_reason=text[1:]))  # type: ignore[arg-type]
                continue
            for stop in request.sampling.stop:
                text = text.split(stop)[0]
            done.append(
                Completion(
                    text=text, prompt_tokens=len(key.split()), generated_tokens=len(text.split()), finish_reason="stop"
                )
            )
        return done

    def close(self) -> None:
        pass


class Ending(ScriptedEngine):
    """A scripted engine whose texts end for the reason that ``reasons`` gives for their step, else by themselves.

    ``seeds`` are those of the calls, and ``places`` the requests' places in them.
    """

    def __init__(self, answer: Answer, reasons: Mapping[str, str] | None = None) -> None:
        super().__init__(answer)
        self.reasons = reasons or {}
        self.seeds: list[int] = []
        self.places: list[list[int]] = []

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        self.seeds.append(seed)
        self.places.append(places(requests))
        done = zip(requests, super().generate(requests, seed), strict=True)
        return [replace(c, finish_reason=self.reasons.get(r.step, c.finish_reason)) for r, c in done]  # type: ignore[arg-type]


def number(*parts: object) -> int:
    """Return a fixed pseudo-random number for some values."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:4], "big")


def criteria(count: int) -> str:
    return "\n".join(f"{i}. c{i}: looks at {i}" for i in range(1, count + 1))


def judged(a: int, b: int, note: str = "") -> str:
    return f"Response A Score: {a}\nAnalysis of Response A: x{note}\nResponse B Score: {b}\nAnalysis of Response B: y"


def render_judgment(first: float, second: float, analysis_a: str, analysis_b: str, comparison: str) -> str:
    """Return a judgment in the frame, each text on one line."""
    analysis_a, analysis_b, comparison = (" ".join(text.splitlines()) for text in (analysis_a, analysis_b, comparison))
    return (
        f"Response A Score: {first:.17g}\nAnalysis of Response A: {analysis_a}\n"
        f"Response B Score: {second:.17g}\nAnalysis of Response B: {analysis_b}\nComparison: {comparison}"
    )


def noisy(request: Request, occurrence: int) -> str:
    """Lists, guidelines and judgments that vary; about one judgment in eight cannot be read."""
    slots = request.slots
    if request.step == "criteria":
        return criteria(int(slots["count"]))
    if request.step == "guideline":
        return f"guideline {occurrence} of {slots['criterion']}"
    draw = number(slots["criterion"], slots["guideline"], slots["response_a"], slots["response_b"], occurrence)
    if draw % 8 == 0:
        return "I like both."
    words = str(draw).translate(str.maketrans("0123456789", "abcdefghij"))
    return judged(1 + draw // 8 % 5, 1 + draw // 64 % 5, f" {words}")


def by_length(request: Request, occurrence: int) -> str:
    """Return a judge that reads content alone: longer is better, whatever the order."""
    if request.step != "judgment":
        return noisy(request, occurrence)
    a, b = (min(5, 1 + len(request.slots[f"response_{side}"])) for side in "ab")
    return judged(a, b)


def comparison(index: int, a: str = "one", b: str = "three", label: str | None = None) -> Comparison:
    dialogue = Dialogue(f"d{index}", "test", (Message("user", f"query {index}"),))
    return Comparison(f"d{index}", dialogue, f"{a} {index}", f"{b} {index}", "m1", "m2", label)  # type: ignore[arg-type]
