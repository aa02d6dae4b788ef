"""Passwords and keys, taken out of whatever is shown, kept or sent."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL")
_IN_ADDRESS = re.compile(
    r"(\b\w+://)[^/\s'\"]*@|([?&][\w-]*(?:key|token|secret|password|sig|signature)=)[^&\s'\"]+", re.IGNORECASE
)


def without_passwords(text: str) -> str:
    """The text with ``***`` for passwords and tokens that stand in addresses (``http://USER:PASSWORD@``, ``?key=``)."""
    return _IN_ADDRESS.sub(lambda m: f"{m[1]}***@" if m[1] else f"{m[2]}***", text)


def without_secrets(value: Any) -> Any:
    """A copy of JSON-like ``value`` that can be sent.

    Passwords in addresses and the values of environment variables that are named like secrets (``..._KEY``,
    ``..._TOKEN``) become ``***``.
    """
    return _each(value, _without_values)


def without_passwords_in(value: Any) -> Any:
    """A copy of JSON-like ``value`` without the passwords of :func:`without_passwords`."""
    return _each(value, without_passwords)


def _each(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _each(part, change) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_each(part, change) for part in value]
    return change(value) if isinstance(value, str) else value


def _without_values(value: str) -> str:
    for name, secret in os.environ.items():
        if len(secret) >= 8 and _SECRET_NAME.search(name.upper()):
            value = value.replace(secret, "***")
    return without_passwords(value)
