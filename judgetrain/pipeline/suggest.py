"""What a misspelt configuration key may have been meant to be."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator
from typing import Any

from judgetrain.pipeline.config import Config

SIMILAR = 0.75
"""How alike two keys must be to be taken for one another (difflib's ratio)."""


def nearest_key(key: str) -> str | None:
    """The configuration key that looks most like one that does not exist; None if none does."""
    found = difflib.get_close_matches(key, list(_keys(Config(), "")), n=1, cutoff=SIMILAR)
    return found[0] if found else None


def _keys(config: Any, prefix: str) -> Iterator[str]:
    for item in dataclasses.fields(config):
        name, value = f"{prefix}{item.name}", getattr(config, item.name)
        yield name
        if dataclasses.is_dataclass(value):
            yield from _keys(value, f"{name}.")
