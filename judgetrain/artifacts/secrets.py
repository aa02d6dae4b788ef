"""Passwords and keys, taken out of whatever is shown, kept or sent."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL")
_IN_ADDRESS = re.compile(
    r"(\w+://)[^/\s'\"]*@|([?&][\w-]*(?:key|token|secret|password|sig|signature)=)[^&\s'\"]+", re.IGNORECASE
)


def without_passwords(text: str) -> str:
    """The text with ``***`` for passwords and tokens that stand in addresses (``http://USER:PASSWORD@``, ``?key=``)."""
    return _IN_ADDRESS.sub(lambda m: f"{m[1]}***@" if m[1] else f"{m[2]}***", text)


def without_secrets(value: Any) -> Any:
    """A copy of JSON-like ``value`` that can be sent.

    Passwords in addresses and the values of environment variables that are named like secrets (``..._KEY``,
    ``..._TOKEN``) become ``***``.
    """
    if isinstance(value, Mapping):
        return {key: without_secrets(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_secrets(part) for part in value]
    if not isinstance(value, str):
        return value
    for name, secret in os.environ.items():
        if len(secret) >= 8 and _SECRET_NAME.search(name.upper()):
            value = value.replace(secret, "***")
    return without_passwords(value)
