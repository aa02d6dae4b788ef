"""Values that a configuration took from the environment (``${oc.env:NAME}``), and what is written in their place."""

import json
import os
from collections.abc import Mapping
from functools import cache
from html import escape
from typing import Any
from urllib.parse import quote, quote_plus

SHORTEST = 8
"""The least characters of a value that is looked for in texts; shorter ones stand there by chance."""

TEXTS: dict[str, str] = {}
"""The text that is written in place of a value of the environment, by the value."""


def unresolved(value: Any) -> Any:
    """Return a text, or JSON values, with names of variables in place of what the configuration took from them.

    Paths that are there stay as they are: messages say where files lie.
    """
    if isinstance(value, Mapping):
        return {unresolved(name): unresolved(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [unresolved(part) for part in value]
    if not isinstance(value, str):
        return value

    text = value
    # The longest first, since one value may be part of another.
    for secret in sorted(TEXTS, key=len, reverse=True):
        if len(secret) >= SHORTEST and secret.rstrip("/") in text and not os.path.exists(os.path.expanduser(secret)):
            text = text.replace(secret, TEXTS[secret])
            # Addresses of servers are used, and stand in errors, without the slash at their end.
            if len(secret.rstrip("/")) >= SHORTEST:
                text = text.replace(secret.rstrip("/"), TEXTS[secret])
        if len(secret) >= SHORTEST:
            for form in _escaped(secret):
                text = text.replace(form, TEXTS[secret])
    return text


@cache
def _escaped(secret: str) -> tuple[str, ...]:
    """Return the forms of a value that differ from it in JSON, in Python's notation, in addresses and in pages."""
    quoted = (json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret))
    forms = [notation[1:-1] for notation in quoted]
    # Some leave a slash as it is, and some write a blank as a plus.
    forms += [quote(secret), quote(secret, safe=""), quote_plus(secret), escape(secret), escape(secret, quote=False)]
    return tuple(form for form in dict.fromkeys(forms) if form != secret)
