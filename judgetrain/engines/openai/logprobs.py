"""The log-probabilities of a given text, of which a server is sent the token ids.

What the answer tells is taken by its place, one number a token. The offsets beside it (``text_offset``) are not read:
vLLM adds up the lengths of single tokens' texts for them, and those are not characters of the prompt where a character
is split over tokens, or is unknown, or a tokenizer strips white space.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from judgetrain.engines.base import Completion, Reading
from judgetrain.engines.openai.refusals import UnusableError

LOWEST = -9999.0
"""What stands for minus infinity and for no number, which JSON has not; so does vLLM write it."""
ID = "token_id:"
"""How tokens begin where a server names them by id (vLLM's ``--return-tokens-as-token-ids``)."""
SPACES = " \t\r\n▁Ġ"
"""White space around a token's text, and how vocabularies write it."""


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
