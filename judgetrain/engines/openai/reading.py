"""What a server's answer says: a chat completion, whatever it makes of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from judgetrain.engines.answers import counted_tokens, prompt_tokens, writable
from judgetrain.engines.base import Choice, Completion, FinishReason, Request, Sampling, choices_of, cut_at_stop

FRAME = 100_000
"""Tokens that a server may add to a prompt (its own instructions) or think before an answer; more are not believed."""
CHARACTERS = 128
"""Of a text for each token that was allowed: more than a token holds in common vocabularies."""
ENDED = (None, "stop", "eos", "eos_token", "end_turn", "stop_sequence")
"""How servers say that a reply reached its normal end, or say nothing of it; whatever else they say, it may be cut."""


NAME = 200
"""Characters of a model's name that are kept."""


def read_completion(answer: Mapping[str, Any], request: Request) -> Completion:
    """The completion of a parsed answer to a request.

    An answer without content (a refusal, or reasoning alone) is one, too: ``no_content``, and ``error`` says why. Where
    the server reports no token counts that can be, they are estimates on the safe side.

    Raises:
        ValueError, KeyError, IndexError, TypeError, AttributeError: it is no chat completion.
    """
    choice = answer["choices"][0]
    message, sampling = choice["message"], request.sampling
    content = _text(message.get("content"))
    finish = choice.get("finish_reason")
    unseen = " ".join(str(message.get(name) or "") for name in ("refusal", "reasoning_content", "reasoning"))
    prompt, generated, estimated = _tokens(answer.get("usage"), request, f"{content or ''}{unseen}", finish == "length")
    counts: dict[str, Any] = {"prompt_tokens": prompt, "generated_tokens": generated, "estimated": estimated}
    counts["model"] = writable(str(answer.get("model") or ""))[:NAME]
    if content is None:
        return Completion(finish_reason="no_content", error=_why(message, finish), **counts)
    text = writable(content)
    reason: FinishReason = "stop" if finish in ENDED else "length"
    longest = CHARACTERS * sampling.max_new_tokens
    if len(text) > longest:  # a server that ignores the limit
        text, reason = text[:longest], "length"
    if (cut := cut_at_stop(text, sampling.stop)) is not None:  # a server that returns the string, or ignores it
        text, reason = cut, "stop"
    return Completion(text=text, finish_reason=reason, choices=_choices(choice, sampling, text), **counts)


def is_other_model(said: str, asked: str) -> bool:
    """Whether a server says that another model answered than the one that was asked.

    It may name the same more exactly (``gpt-5.4-2026-03-05``), without its provider, or by its file.
    """
    short, long = sorted((said.strip().lower(), asked.strip().lower()), key=len)
    return bool(short) and short not in long and short.rpartition("/")[2] not in long


def _text(content: Any) -> str | None:
    """The text of a message, also where it comes in parts; None where it has none."""
    if isinstance(content, str):
        return content
    parts = [part.get("text") for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []
    texts = [part for part in parts if isinstance(part, str)]
    return "".join(texts) if texts else None


def _why(message: Mapping[str, Any], finish: Any) -> str:
    """Why an answer has no content, for people."""
    refusal = message.get("refusal")
    if isinstance(refusal, str) and refusal.strip():
        return writable(f"the model refused: {' '.join(refusal.split())[:200]}")
    if finish == "length":
        return "the answer has no content: it ran out of tokens while it was thinking (raise max_new_tokens)"
    return writable(f"the answer has no content (finish_reason {str(finish)[:40]})")


def _tokens(usage: Any, request: Request, text: str, cut: bool) -> tuple[int, int, bool]:
    """Prompt and generated tokens, and whether one of them is an estimate."""
    reported = usage if isinstance(usage, Mapping) else {}
    written = sum(len(m["content"]) for m in request.messages)
    prompt = _count(reported.get("prompt_tokens"), 1, 4 * written + FRAME)
    longest = 4 * max(len(text), request.sampling.max_new_tokens) + FRAME
    generated = _generated(reported, 1 if text.strip() else 0, longest)
    estimated = prompt is None or generated is None
    if prompt is None:
        prompt = prompt_tokens(request)
    if generated is None:
        generated = max(counted_tokens(text), request.sampling.max_new_tokens if cut else 1)
    return prompt, generated, estimated


def _generated(reported: Mapping[str, Any], low: int, high: int) -> int | None:
    """What the server charges as generated: the largest number that its fields imply.

    Some count what a model thinks in ``total_tokens`` or its details alone (xAI).
    """
    details = reported.get("completion_tokens_details")
    thought = details.get("reasoning_tokens") if isinstance(details, Mapping) else None
    total, prompt = (_count(reported.get(name), 0, 2 * high) for name in ("total_tokens", "prompt_tokens"))
    rest = None if total is None or prompt is None else total - prompt
    written = _count(reported.get("completion_tokens"), low, high)
    found = [n for n in (written, _count(rest, low, high), _count(thought, low, high)) if n is not None]
    return max(found, default=None)


def _count(value: Any, low: int, high: int) -> int | None:
    """A reported number of tokens, if it is one and can be."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        return None
    return int(value)


def _choices(choice: Mapping[str, Any], sampling: Sampling, text: str) -> tuple[Choice, ...]:
    """The probabilities of candidates; none where what the server reports cannot be read."""
    try:
        reported = (choice.get("logprobs") or {}).get("content") or []
        ranked = [
            (
                bytes(t.get("bytes") or t["token"].encode()),
                [(o["token"], o["logprob"]) for o in t.get("top_logprobs") or []],
            )
            for t in reported
        ]
        return choices_of(ranked, sampling.candidates, text)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
        return ()
