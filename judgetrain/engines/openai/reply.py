"""What an OpenAI-compatible server answers: a completion, or why there is none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from judgetrain.engines.answers import writable
from judgetrain.engines.base import Choice, Completion, FinishReason, Sampling
from judgetrain.engines.choices import choices_of

RETRIED = frozenset({408, 409, 425, 500, 502, 503, 504, 520, 522, 524, 529})
FATAL = {401: "the key is wrong or missing", 403: "the key may not use it", 404: "no such model or endpoint"}
SAID = 200
"""Characters of a refusing server's message that are repeated."""


@dataclass(frozen=True)
class Failure:
    """Why a try gave nothing; ``after``: the server's Retry-After, seconds; ``again``: whether to try again;
    ``unreachable``: there was no connection, which no single request can be the cause of; ``limited``: too many
    requests for the server (429), which no request is the cause of either, and ``said``: what it says; ``status``: of
    HTTP, None where nothing came back."""

    reason: str
    after: float | None = None
    again: bool = True
    unreachable: bool = False
    limited: bool = False
    said: str = ""
    status: int | None = None


def quoted(text: str) -> str:
    """What a refusing server says, as the rest of a line."""
    line = " ".join(text.split())
    return f": {line[:SAID]}" if line else ""


def read_completion(answer: Mapping[str, Any], sampling: Sampling) -> Completion:
    """The completion of a parsed answer; ``sampling`` is what was asked for.

    Raises:
        ValueError, KeyError, IndexError, TypeError, AttributeError: it is no chat completion.
    """
    choice = answer["choices"][0]
    text = choice["message"]["content"]
    if not isinstance(text, str):
        raise TypeError("no content")
    text = writable(text)
    usage = answer.get("usage") or {}
    reason: FinishReason = "length" if choice.get("finish_reason") == "length" else "stop"
    cut = min((at for at in (text.find(stop) for stop in sampling.stop) if at >= 0), default=None)
    if cut is not None:  # a server that returns the stop string or ignores it
        text, reason = text[:cut], "stop"
    prompt, generated = (int(usage.get(f"{kind}_tokens") or 0) for kind in ("prompt", "completion"))
    return Completion(text, prompt, generated, reason, choices=tuple(_choices(choice, sampling.candidates, text)))


def _choices(choice: Mapping[str, Any], candidates: Sequence[str], text: str) -> Iterator[Choice]:
    """The candidates' probabilities, where the server reports any."""
    reported = (choice.get("logprobs") or {}).get("content") or []
    ranked = ((t["token"], [(o["token"], o["logprob"]) for o in t.get("top_logprobs") or []]) for t in reported)
    yield from choices_of(ranked, candidates, text)
