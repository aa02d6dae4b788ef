"""What an OpenAI-compatible server answers: a completion, or why there is none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from judgetrain.engines.base import Choice, Completion, FinishReason, Sampling
from judgetrain.engines.choices import choices_of


@dataclass(frozen=True)
class Failure:
    """Why a try gave nothing; ``after``: the server's Retry-After, seconds; ``again``: whether to try again;
    ``unreachable``: there was no connection, which no single request can be the cause of; ``limited``: too many
    requests for the server (429), which no request is the cause of either, and ``said``: what it says."""

    reason: str
    after: float | None = None
    again: bool = True
    unreachable: bool = False
    limited: bool = False
    said: str = ""


def read_completion(answer: Mapping[str, Any], sampling: Sampling) -> Completion:
    """The completion of a parsed answer; ``sampling`` is what was asked for.

    Raises:
        ValueError, KeyError, IndexError, TypeError, AttributeError: it is no chat completion.
    """
    choice = answer["choices"][0]
    text = choice["message"]["content"]
    if not isinstance(text, str):
        raise TypeError("no content")
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
