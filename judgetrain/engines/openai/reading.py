"""What a server's answer says: a chat completion, whatever it makes of its parts, JSON of a schema, or a refusal."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from judgetrain.engines import base
from judgetrain.engines.answers import counted_tokens, prompt_tokens, writable

FRAME = 100_000
"""Tokens that a server may add to a prompt (its own instructions) or think before an answer; more are not believed."""
CHARACTERS = 128
"""Of a text for each token that was allowed: more than a token holds in common vocabularies."""
ENDED = (None, "stop", "eos", "eos_token", "end_turn", "stop_sequence")
"""How servers say that a reply reached its normal end, or say nothing of it; whatever else they say, it may be cut."""
NAME = 200
"""Characters of a model's name that are kept."""


def read_completion(answer: Mapping[str, Any], request: base.Request) -> base.Completion:
    """The completion of a parsed answer to a request (ValueError, KeyError, IndexError, TypeError, AttributeError: it
    is no chat completion).

    An answer without content (a refusal, or reasoning alone) is one, too: ``no_content``, and ``error`` says why. Where
    the server reports no token counts that can be, they are estimates on the safe side.
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
        return base.Completion(finish_reason="no_content", error=_why(message, finish), **counts)
    text = writable(content)
    reason: base.FinishReason = "stop" if finish in ENDED else "length"
    longest = CHARACTERS * sampling.max_new_tokens
    if len(text) > longest:  # a server that ignores the limit
        text, reason = text[:longest], "length"
    if (cut := base.cut_at_stop(text, sampling.stop)) is not None:  # a server that returns the string, or ignores it
        text, reason = cut, "stop"
    return base.Completion(text=text, finish_reason=reason, choices=_choices(choice, sampling, text), **counts)


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
    if isinstance(refusal := message.get("refusal"), str) and refusal.strip():
        return writable(f"the model refused: {' '.join(refusal.split())[:200]}")
    ran_out = ": it ran out of tokens while it was thinking (raise max_new_tokens)" if finish == "length" else ""
    return writable(f"the answer has no content (finish_reason {str(finish)[:40]}){ran_out}")


def _tokens(usage: Any, request: base.Request, text: str, cut: bool) -> tuple[int, int, bool]:
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
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        return None
    return int(value)


def _choices(choice: Mapping[str, Any], sampling: base.Sampling, text: str) -> tuple[base.Choice, ...]:
    """The probabilities of candidates; none where what the server reports cannot be read."""
    try:
        reported = (choice.get("logprobs") or {}).get("content") or []
        written = [bytes(t.get("bytes") or t["token"].encode()) for t in reported]
        ranked = [[(o["token"], o["logprob"]) for o in t.get("top_logprobs") or []] for t in reported]
        return base.choices_of(zip(written, ranked, strict=True), sampling.candidates, text)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
        return ()


FATAL = {401: "the key is wrong or missing", 403: "the key may not use it", 404: "no such model or endpoint"}
SAID = 300
"""Characters of a refusing server's message that are repeated."""

_EMPTY = re.compile(
    r"insufficient[ _-]?(?:quota|balance|credits?|funds)|(?:credit|account) balance|no credits? (?:left|remain)"
    r"|billing[ _](?:hard[ _]limit|not[ _]active)|payment[ _]required|arrearage|overdue[ _-]?payment|in good standing"
    r"|(?:credits?|balance|funds) (?:is |are |has been )?(?:exhausted|depleted|insufficient|used up)|monthly quota",
    re.IGNORECASE,
)
"""How services say that an account has nothing left."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a request has no answer.

    ``passing``: whether asking again another time may help; ``at_once``: whether it may right now; ``unreachable``:
    there was no connection, which no single request can be the cause of.
    """

    reason: str
    passing: bool = True
    at_once: bool = False
    unreachable: bool = False


def error_of(content: bytes) -> int | None:
    """The status of an error that came as an answer (200), as some services send them; None for other answers."""
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(answer, Mapping) or answer.get("choices") or not (error := answer.get("error")):
        return None
    status = error.get("code") if isinstance(error, Mapping) else None
    if isinstance(status, str) and status.isdigit():
        status = int(status)
    return status if isinstance(status, int) and 400 <= status < 600 else 500


def redact(text: str, secret: str) -> str:
    """The text with ``[key]`` in place of the key."""
    return text.replace(secret, "[key]") if secret else text


def words_of(text: str, secret: str = "") -> str:
    """What the body of a refusal says, on one line, the ``secret`` taken out and only then cut: OpenAI's
    ``error.message``, else all of it."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = text
    if isinstance(body, Mapping):
        if "choices" in body:
            return ""
        said = body.get("error") or body.get("message") or body.get("detail")
        body = said.get("message", said) if isinstance(said, Mapping) else said
    line = redact(writable(" ".join((body if isinstance(body, str) and body else text).split())), secret)
    return line if len(line) <= SAID else f"{line[:SAID]}…"


def is_empty_account(status: int, text: str, prompt: str) -> bool:
    """Whether a refusal says that the account has nothing left, which no request is the cause of.

    A server that repeats the ``prompt``, which may speak of balances, says nothing by that.
    """
    if status == 402:
        return True
    found = _EMPTY.search(text)
    return status in (400, 403, 429) and found is not None and found[0].lower() not in prompt.lower()


def response_format(form: base.Form, step: base.Step) -> dict[str, Any]:
    """The parameter ``response_format`` of a request whose reply has this form."""
    properties = {line.name: _schema(line) for line in form}
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    return {"type": "json_schema", "json_schema": {"name": step, "strict": True, "schema": schema}}


def _schema(line: base.FormLine) -> dict[str, Any]:
    values = [int(value) if value.isdigit() else value for value in line.values]
    kind = {"type": "integer" if values and isinstance(values[0], int) else "string"}
    return kind | ({"enum": values} if values else {})


def in_form(answer: str, form: base.Form) -> str:
    """The lines of the form with an answer's values, each on one line; the answer itself where it breaks the schema.

    Such an answer has to be in the prompt's own form, or nothing is read from it.
    """
    try:
        pairs = json.loads(answer, object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        return answer
    said = dict(pairs) if isinstance(pairs, tuple) else {}
    whole = len(said) == len(form) and len(pairs) == len(form)
    values = [(said.get(line.name), line) for line in form]
    fits = (v in (_schema(line).get("enum") or [str(v)]) and not isinstance(v, bool) for v, line in values)
    if not (whole and all(fits)):
        return answer
    return "\n".join(line.written.replace("{}", " ".join(str(said[line.name]).split())) for line in form)
