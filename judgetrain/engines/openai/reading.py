"""What a server's answer says: a chat completion, whatever it makes of its parts, or a given text's log-probabilities.

Of a given text, which a server is sent as token ids, what the answer tells is taken by its place, one number a token.
The offsets beside it (``text_offset``) are not read: vLLM adds up the lengths of single tokens' texts for them, and
those are not characters of the prompt where a character is split over tokens, or a tokenizer strips white space.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from judgetrain.engines.answers import counted_tokens, prompt_tokens, writable
from judgetrain.engines.base import (
    Choice,
    Completion,
    FinishReason,
    Reading,
    Request,
    Sampling,
    choices_of,
    cut_at_stop,
)
from judgetrain.engines.openai.refusals import UnusableError

FRAME = 100_000
"""Tokens that a server may add to a prompt (its own instructions) or think before an answer; more are not believed."""
CHARACTERS = 128
"""Of a text for each token that was allowed: more than a token holds in common vocabularies."""
ENDED = (None, "stop", "eos", "eos_token", "end_turn", "stop_sequence")
"""How servers say that a reply reached its normal end, or say nothing of it; whatever else they say, it may be cut."""
LOWEST = -9999.0
"""What stands for minus infinity and for no number, which JSON has not; so does vLLM write it."""
ID = "token_id:"
"""How tokens begin where a server names them by id (vLLM's ``--return-tokens-as-token-ids``)."""
SPACES = " \t\r\n▁Ġ"
"""White space around a token's text, and how vocabularies write it."""


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
    generated = _count(reported.get("completion_tokens"), 1 if text.strip() else 0, longest)
    estimated = prompt is None or generated is None
    if prompt is None:
        prompt = prompt_tokens(request)
    if generated is None:
        generated = max(counted_tokens(text), request.sampling.max_new_tokens if cut else 1)
    return prompt, generated, estimated


def _count(value: Any, low: int, high: int) -> int | None:
    """A reported number of tokens, if it is one and can be."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        return None
    return int(value)


def _choices(choice: Mapping[str, Any], sampling: Sampling, text: str) -> tuple[Choice, ...]:
    """The probabilities of candidates; none where what the server reports cannot be read."""
    try:
        reported = (choice.get("logprobs") or {}).get("content") or []
        ranked = [(t["token"], [(o["token"], o["logprob"]) for o in t.get("top_logprobs") or []]) for t in reported]
        return choices_of(ranked, sampling.candidates, text)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
        return ()


def reading_body(model: str, reading: Reading) -> dict[str, Any]:
    """The parameters of a request for the log-probabilities of a text, as many servers take them.

    One token is written after the text, since not all servers allow none.
    """
    ids = [*reading.ids]
    return {"model": model, "prompt": ids, "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0.0}


def read_logprobs(answer: Mapping[str, Any], reading: Reading, where: str) -> Completion:
    """The log-probabilities of a text's tokens after the first, out of a parsed answer.

    ``where``: the server's address, for messages.

    Raises:
        UnusableError: there are none, or not of the tokens that were sent.
        KeyError, IndexError, TypeError, AttributeError: it is no completion.
    """
    told = answer["choices"][0].get("logprobs")
    found: Mapping[str, Any] = told if isinstance(told, Mapping) else {}
    values: Any = found.get("token_logprobs")
    number, usage = len(reading.ids), answer.get("usage")
    read = usage.get("prompt_tokens") if isinstance(usage, Mapping) else None
    if why := _unread(values, number, read) or _other_tokens(found.get("tokens"), reading):
        raise UnusableError(
            f"{where} does not tell the log-probabilities of a given text: {why}; scorer.engine needs a server that "
            "takes completions of token ids with echo and logprobs, as vLLM's does, and scorer.model the tokenizer of "
            "the model that is served"
        )
    logprobs = tuple(max(float(v), LOWEST) if math.isfinite(v) else LOWEST for v in values[1:number])
    return Completion(finish_reason="stop", prompt_tokens=number, generated_tokens=1, logprobs=logprobs)


def _unread(values: Any, number: int, read: Any) -> str:
    """Why numbers are not those of the text's tokens; empty where they are, with or without that of the token after."""
    if not isinstance(values, list) or len(values) < number:
        return f"its answer to {number} tokens holds log-probabilities of {len(values) if values else 'none'}"
    if len(values) > number + 1 or (isinstance(read, int) and read != number):
        return f"it was sent {number} tokens, and read {read if isinstance(read, int) else len(values) - 1}"
    if any(isinstance(value, bool) or not isinstance(value, (int, float)) for value in values[1:number]):
        return "tokens after the first have none"
    return ""


def _other_tokens(texts: Any, reading: Reading) -> str:
    """The first token that the server spells otherwise; empty where there is none."""
    if not isinstance(texts, Sequence) or len(texts) < len(reading.ids):
        return "its answer does not hold the tokens"
    for number, text, expected in zip(reading.ids, texts, reading.texts, strict=False):
        same = text == f"{ID}{number}" if str(text).startswith(ID) else str(text).strip(SPACES) == expected
        if expected and not same:
            return f"token {number} is {text!r} there, and {expected!r} by the tokenizer of scorer.model"
    return ""
