"""Reads JSON that people and programs bring, in which no key of an object may stand twice."""

import json
from typing import Any


class RepeatedKeyError(ValueError):
    """An object that has one key twice: nobody can say which value is meant."""


def _object_without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object from its keys and values; raise RepeatedKeyError for a key that stands twice."""
    values = dict(pairs)
    if len(values) == len(pairs):
        return values
    seen = set()
    for key, _ in pairs:
        if key in seen:
            raise RepeatedKeyError(f"the key {key!r} stands twice in an object")
        seen.add(key)
    return values


DECODER = json.JSONDecoder(object_pairs_hook=_object_without_repeats)
"""Reads JSON, and refuses an object with a repeated key: Python's would keep the last value in silence."""


def load_json(text: str | bytes) -> Any:
    """Return the value of a text of JSON.

    Raises:
        RepeatedKeyError: an object has one key twice.
        ValueError: it is no JSON.
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, object_pairs_hook=_object_without_repeats)
