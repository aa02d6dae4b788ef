"""What a server means that does not answer: an account that is empty, a wrong request, or a moment's trouble."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from judgetrain.engines.answers import writable
from judgetrain.errors import EngineError

FATAL = {401: "the key is wrong or missing", 403: "the key may not use it", 404: "no such model or endpoint"}
SAID = 300
"""Characters of a refusing server's message that are repeated."""

_EMPTY = re.compile(
    r"insufficient[ _-]?(?:quota|balance|credits?|funds)|(?:credit|account) balance|out of credits?"
    r"|no credits? (?:left|remain)|billing[ _](?:hard[ _]limit|not[ _]active)|billing (?:is|has been) (?:disabled|not)"
    r"|payment[ _]required|arrearage|overdue[ _-]?payment|in good standing|recharge|top[ -]?up your"
    r"|(?:credits?|balance|funds) (?:is|are|has|have)? ?(?:been )?(?:exhausted|depleted|insufficient|used up)",
    re.IGNORECASE,
)
"""How services say that an account has nothing left; a quota by itself may be one of a minute."""
_USED = r"(?:exceeded|exhausted|used up)"
_QUOTA = re.compile(rf"quota[^.]{{0,40}}{_USED}|{_USED}[^.]{{0,40}}quota", re.IGNORECASE)
_A_MOMENT = re.compile(
    r"retry in|try again in|per[ _-]?(?:second|minute|hour)|RetryInfo|retryDelay|rate[ _]limit", re.IGNORECASE
)
_TAG = re.compile(r"<(style|script|head)\b.*?(?:</\1>|\Z)|</?[a-z][^<>]*>|<!doctype[^<>]*>", re.DOTALL | re.IGNORECASE)


class UnusableError(EngineError):
    """An answer came, and is paid for, that says what is asked for in no form that can be read; no other would."""


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


def words_of(text: str) -> str:
    """What the body of a refusal says in words, without the JSON or HTML around them; on one line, and not for ever."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = text
    if isinstance(body, Mapping) and "choices" in body:
        return ""
    said = body if isinstance(body, str) else _message(body) or text
    line = writable(" ".join(_TAG.sub(" ", said).split()))
    return line if len(line) <= SAID else f"{line[:SAID]}…"


def _message(body: Any) -> str:
    """The first text in an error's usual places: OpenAI's ``error.message``, FastAPI's ``detail``, Google's list."""
    if isinstance(body, list):
        body = body[0] if body else None
    if not isinstance(body, Mapping):
        return body if isinstance(body, str) else ""
    places = (body.get(name) for name in ("error", "message", "detail", "msg", "code"))
    return next((said for place in places if (said := _message(place).strip())), "")


def is_empty_account(status: int, text: str, prompt: str) -> bool:
    """Whether a refusal says that the account has nothing left, which no request is the cause of.

    A server that repeats the ``prompt``, which may speak of balances, says nothing by that.
    """
    if status == 402:
        return True
    found = _EMPTY.search(text)
    if not found and status in (400, 403) and not _A_MOMENT.search(text):
        found = _QUOTA.search(text)
    return status in (400, 403, 429) and found is not None and found[0].lower() not in prompt.lower()
