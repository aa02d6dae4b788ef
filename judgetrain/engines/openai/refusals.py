"""What a server means that does not answer: an account that is empty, a wrong request, or a moment's trouble."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from judgetrain.engines.answers import writable

FATAL = {401: "the key is wrong or missing", 403: "the key may not use it", 404: "no such model or endpoint"}
SAID = 300
"""Characters of a refusing server's message that are repeated."""

_EMPTY = re.compile(
    r"insufficient[ _-]?(?:quota|balance|credits?|funds)|(?:credit|account) balance|no credits? (?:left|remain)"
    r"|billing[ _](?:hard[ _]limit|not[ _]active)|payment[ _]required|arrearage|overdue[ _-]?payment|in good standing"
    r"|(?:credits?|balance|funds) (?:is |are |has been )?(?:exhausted|depleted|insufficient|used up)",
    re.IGNORECASE,
)
"""How services say that an account has nothing left."""
_QUOTA = re.compile(r"quota[^.]{0,40}(?:exceeded|exhausted)|(?:exceeded|exhausted)[^.]{0,40}quota", re.IGNORECASE)
_A_MOMENT = re.compile(r"retry|try again|per[ _-]?(?:second|minute|hour)|rate[ _]limit", re.IGNORECASE)
"""A quota by itself may be one of a minute."""


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
    """What the body of a refusal says, on one line, and not for ever: OpenAI's ``error.message``, else all of it."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = text
    if isinstance(body, Mapping):
        if "choices" in body:
            return ""
        said = body.get("error") or body.get("message") or body.get("detail")
        body = said.get("message", said) if isinstance(said, Mapping) else said
    line = writable(" ".join((body if isinstance(body, str) and body else text).split()))
    return line if len(line) <= SAID else f"{line[:SAID]}…"


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
