"""A configuration key: its default, documentation and range, and the check of all of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from judgetrain.errors import ConfigError

PACKAGE = "package:"
"""Stands before the name of an installed PyPI package where a path may name one."""


def key(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[Any, ...] | None = None,
    unit: str | None = None,
    neutral: bool = False,
    when: Callable[[Any], bool] | None = None,
    file: Callable[[Any, Any], str | None] | None = None,
    content: Callable[[Any, Any], str | None] | None = None,
    identity: Callable[[Any, Any], Any] | None = None,
    variants: Mapping[str, type] | None = None,
    was: tuple[str, ...] = (),
) -> Any:
    """A configuration field: its default, one line of documentation, what values are allowed, and what depends on it.

    Args:
        default: a value, a dataclass, or a list, dictionary or dataclass instance, of which every object gets a copy.
        doc: one line.
        low: the smallest number allowed.
        high: the largest number allowed.
        choices: the values allowed; of a list, of its entries.
        unit: of a number.
        neutral: it changes how fast or where something is computed, not what; fingerprints leave it out.
        when: given the object that holds the field, whether it has any use beside the other values there; fingerprints
            leave it out where it has none.
        file: given the value and the object that holds it, the file, glob, directory or ``package:NAME`` that it names,
            or None; fingerprints hold the content in place of the value.
        content: the same, where the value says more than a place: fingerprints hold both.
        identity: given the value and the object that holds it, what stands in fingerprints in the value's place: plain
            data, for values of which only a part decides results.
        variants: by the value of their key ``type``, the dataclasses that the field may hold.
        was: names that the key had or that others give it; who uses one is told the key's own (``did you mean``).
    """
    limits = {"low": low, "high": high, "choices": choices, "unit": unit}
    uses = {
        "neutral": neutral,
        "when": when,
        "file": file,
        "content": content,
        "identity": identity,
        "variants": variants,
        "was": was,
    }
    metadata = {"doc": doc, **limits, **uses}
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
