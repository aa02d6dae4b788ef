"""What a stage needs of this machine, of the network and of the environment, looked at before anything runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from judgetrain.artifacts.fingerprint import counted


def parts_of(settings: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """The configuration objects in a stage's settings, with where they stand; an outer one before those in it.

    What decides nothing is left out (:func:`~judgetrain.artifacts.fingerprint.counted`).
    """
    if isinstance(settings, Mapping):
        for name, item in settings.items():
            yield from parts_of(item, f"{key}.{name}")
    elif isinstance(settings, (list, tuple)):
        for index, item in enumerate(settings):
            yield from parts_of(item, f"{key}[{index}]")
    elif dataclasses.is_dataclass(settings) and not isinstance(settings, type):
        yield key, settings
        for field, item in counted(settings):
            yield from parts_of(item, field.metadata.get("key") or f"{key}.{field.name}")


def check_parts(settings: Any, key: str, checked: set[str]) -> None:
    """Have every configuration object in a stage's settings say whether it can be used here: its ``check_here(key)``.

    What is in ``checked`` is left out; everything that was looked at is added to it.

    Raises:
        ConfigError: an object cannot be used; names its key and the remedy.
    """
    for place, part in parts_of(settings, key):
        if (check := getattr(part, "check_here", None)) and repr(part) not in checked:
            checked.add(repr(part))
            check(place)
