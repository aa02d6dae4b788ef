"""A configuration key: its default, documentation and range, and the check of all of them."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import field
from typing import Any

from judgetrain.errors import ConfigError


def key(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[Any, ...] | None = None,
    unit: str | None = None,
    neutral: bool = False,
    was: tuple[str, ...] = (),
) -> Any:
    """A configuration field: its default, one line of documentation, and what values are allowed.

    A ``neutral`` field changes how fast or where something is computed, not what; fingerprints leave it out. ``was``
    are names that the key had or that others give it: who uses one is told the key's own (``did you mean``).
    """
    metadata = {"doc": doc, "low": low, "high": high, "choices": choices, "unit": unit, "neutral": neutral, "was": was}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    if isinstance(default, type) and dataclasses.is_dataclass(default):
        return field(default_factory=default, metadata=metadata)
    if dataclasses.is_dataclass(default) and not isinstance(default, type):
        return field(default_factory=lambda: dataclasses.replace(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def validate(config: Any, prefix: str = "") -> None:
    """Check every value of a configuration dataclass against its range.

    Raises:
        ConfigError: names the key, the value and what is allowed.
    """
    for item in dataclasses.fields(config):
        name, value, meta = f"{prefix}{item.name}", getattr(config, item.name), item.metadata
        if dataclasses.is_dataclass(value):
            validate(value, f"{name}.")
        elif isinstance(value, list):
            for i, entry in enumerate(value):
                if dataclasses.is_dataclass(entry):
                    validate(entry, f"{name}[{i}].")
                elif meta.get("choices") and entry not in meta["choices"]:
                    raise ConfigError(f"{name}[{i}]={entry!r}: allowed are {', '.join(map(str, meta['choices']))}")
        elif meta.get("choices") and value not in meta["choices"]:
            raise ConfigError(f"{name}={value!r}: allowed are {', '.join(map(str, meta['choices']))}")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            low, high = meta.get("low"), meta.get("high")
            if not math.isfinite(value):
                raise ConfigError(f"{name}={value!r}: must be a finite number")
            if (low is not None and not value >= low) or (high is not None and not value <= high):
                unit = f" {meta['unit']}" if meta.get("unit") else ""
                bounds = " and ".join(
                    t
                    for t in (
                        f"at least {low}" if low is not None else "",
                        f"at most {high}" if high is not None else "",
                    )
                    if t
                )
                raise ConfigError(f"{name}={value!r}: must be {bounds}{unit}")
