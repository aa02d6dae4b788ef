"""A configuration key: its default, documentation and range, and the check of all of them."""

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from typing import Any

from judgetrain.errors import ConfigError

MANY = 10
"""Choices in whose list what was meant is looked for in vain."""
PACKAGE = "package:"
"""Stands before the name of an installed PyPI package where a path may name one."""
PathOf = Callable[[Any, Any], "str | list[Any] | None"]
"""Given a value and the object that holds it, the file, glob, directory or ``package:NAME`` that it names, or None."""


@dataclass(frozen=True)
class File:
    """In what a key's ``content`` gives: the content of the files that a path names."""

    path: str


def in_place(path_of: PathOf, keep: bool = False) -> Callable[[Any, Any], Any]:
    """``content=`` of a value that is only a place: fingerprints hold the files' content instead, wherever they lie.

    Of an installed package the name stays, beside its version; a value that names no file here stays as it is.
    ``keep``: the value, or each of a list, says more than a place, and stays beside the content.
    """

    def content(value: Any, owner: Any) -> Any:
        if isinstance(value, list):
            return [content(entry, owner) for entry in value]
        path = path_of(value, owner)
        if not path or isinstance(path, list):  # what stands for a place on the Hub
            return [value, path] if path else value
        return [value, File(path)] if keep or path.startswith(PACKAGE) else File(path)

    return content


of_file = in_place(lambda path, owner: path or None)
"""``content=`` of the path of one file, where there is one."""
beside = partial(in_place, keep=True)


def key(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    choices: tuple[Any, ...] | None = None,
    unit: str | None = None,
    empty: bool = False,
    in_fingerprint: bool = True,
    active_if: Callable[[Any], Any] | None = None,
    content: Callable[[Any, Any], Any] | None = None,
    variants: Mapping[str, type] | None = None,
) -> Any:
    """A configuration field: its default, one line of documentation, what values are allowed, and what depends on it.

    Args:
        default: a value, a dataclass, or a list, dictionary or dataclass instance, of which every object gets a copy.
        doc: one line.
        low: the smallest number allowed; of a list or mapping, of its entries.
        above: all numbers that are allowed are larger; of a list or mapping, of its entries.
        high: the largest number allowed.
        choices: the values allowed; of a list, of its entries.
        unit: of a number.
        empty: a text that may be empty though its default is not.
        in_fingerprint: whether it decides results; False for what changes how fast or where something is computed.
        active_if: given the object that holds the field, whether the value has any use beside the other values there;
            fingerprints leave it out where it has none.
        content: given the value and the object that holds it, what stands in fingerprints in its place: plain data, in
            which :class:`File` stands for a file's content. :func:`in_place` and :func:`beside` make such functions.
        variants: by the value of their key ``type``, the dataclasses that the field may hold.
    """
    limits = {"low": low, "above": above, "high": high, "choices": choices, "unit": unit, "empty": empty}
    uses = {"in_fingerprint": in_fingerprint, "active_if": active_if, "content": content, "variants": variants}
    metadata = {"doc": doc, **limits, **uses}
    if isinstance(default, type) and dataclasses.is_dataclass(default):
        return field(default_factory=default, metadata=metadata)
    if isinstance(default, (list, dict)) or dataclasses.is_dataclass(default):
        return field(default_factory=lambda: copy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def validate(config: Any, prefix: str = "") -> None:
    """Check every value of a configuration dataclass, those in lists and mappings too, against its range (ConfigError).

    Numbers must be finite, and a text that has a default must not be empty.
    """
    for item in dataclasses.fields(config):
        _check(f"{prefix}{item.name}", getattr(config, item.name), item)


def did_you_mean(wrong: str, there: Iterable[str]) -> str:
    """The end of a message that names what looks most like a wrong name; empty if nothing does."""
    found = get_close_matches(wrong, list(there), n=1)
    return f"; did you mean {found[0]}?" if found else ""


def _check(name: str, value: Any, item: dataclasses.Field[Any]) -> None:
    choices = item.metadata.get("choices")
    if dataclasses.is_dataclass(value):
        validate(value, f"{name}.")
    elif isinstance(value, list):
        for i, entry in enumerate(value):
            _check_entry(f"{name}[{i}]", entry, item)
    elif isinstance(value, Mapping):
        for k, entry in value.items():
            _check_entry(f"{name}.{k}", entry, item)
    elif choices and value not in choices:
        meant = did_you_mean(str(value), map(str, choices)) if len(choices) > MANY else ""
        raise ConfigError(f"{name}={value!r}: allowed are {', '.join(map(str, choices))}{meant}")
    elif value == "" and item.default not in ("", None, dataclasses.MISSING) and not item.metadata.get("empty"):
        raise ConfigError(f"{name}={value!r}: must not be empty; leave it out for {item.default}")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        _check_number(name, value, item.metadata)


_OF_VALUES = re.compile(r"(?:list|dict)\[(?:(?:str|Any), )?(str|int|float)\]")
"""A list or mapping whose entries are single values, as annotations write it."""


def _check_entry(name: str, value: Any, item: dataclasses.Field[Any]) -> None:
    """Check an entry; OmegaConf lets lists and mappings stand where a single value is expected."""
    found = _OF_VALUES.fullmatch(str(item.type))
    if found and (value is None or isinstance(value, (list, Mapping))):
        kind = "a text" if found[1] == "str" else "a number"
        raise ConfigError(f"{name}={value!r}: expected {kind}")
    _check(name, value, item)


def _check_number(name: str, value: float, meta: Mapping[str, Any]) -> None:
    if not math.isfinite(value):
        raise ConfigError(f"{name}={value!r}: must be a finite number")
    low, above, high = (meta.get(limit) for limit in ("low", "above", "high"))
    fits = (low is None or value >= low) and (above is None or value > above) and (high is None or value <= high)
    if not fits:
        unit = f" {meta['unit']}" if meta.get("unit") else ""
        raise ConfigError(f"{name}={value!r}: must be {bounds(meta)}{unit}")


def bounds(meta: Mapping[str, Any]) -> str:
    """The range of a key in words, out of its field's metadata; empty where it has none."""
    words = {"low": "at least", "above": "above", "high": "at most"}
    return " and ".join(f"{word} {meta[limit]:g}" for limit, word in words.items() if meta.get(limit) is not None)
