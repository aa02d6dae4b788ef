"""What a stage needs of this machine, of the network and of the environment, looked at before anything runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from judgetrain.artifacts.fingerprint import counted


def check_parts(settings: Any, key: str, checked: set[str]) -> None:
    """Have every configuration object in a stage's settings say whether it can be used here: its ``check_here(key)``.

    What decides nothing is left out (:func:`~judgetrain.artifacts.fingerprint.counted`), and so is what is in
    ``checked``, to which everything that was looked at is added.

    Raises:
        ConfigError: an object cannot be used; names its key and the remedy.
    """
    if isinstance(settings, Mapping):
        for name, item in settings.items():
            check_parts(item, f"{key}.{name}", checked)
    elif isinstance(settings, (list, tuple)):
        for index, item in enumerate(settings):
            check_parts(item, f"{key}[{index}]", checked)
    elif dataclasses.is_dataclass(settings) and not isinstance(settings, type):
        if (check := getattr(settings, "check_here", None)) and repr(settings) not in checked:
            checked.add(repr(settings))
            check(key)
        for field, item in counted(settings):
            check_parts(item, field.metadata.get("key") or f"{key}.{field.name}", checked)
