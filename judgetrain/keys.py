"""A configuration key: its default, documentation and range, and the check of all of them."""

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from numbers import Integral, Real
from os import PathLike
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from judgetrain.errors import ConfigError

C = TypeVar("C")
MANY = 10
"""Above this many choices, errors add "did you mean"."""
PACKAGE = "package:"
"""A path that starts with this names an installed PyPI package."""
PathOf = Callable[[Any, Any], "str | list[Any] | None"]
"""A function that returns the path which a key's value names.

It is given the value and the object that holds it. It returns a file, a glob, a directory or ``package:NAME``; a list
for what stands on the Hub; None where the value names no file.
"""


@dataclass(frozen=True)
class File:
    """A path whose files' content takes its place in fingerprints."""

    path: str


def in_place(path_of: PathOf, keep: bool = False) -> Callable[[Any, Any], Any]:
    """Return a ``content=`` function for keys that name files (:func:`key`).

    Fingerprints then hold the files' content in place of the path, so that moving a file changes no result. An
    installed package keeps its name, beside its version. A value that names no file stays as it is.

    Args:
        path_of: returns the path that a value names.
        keep: the value says more than a place, and stays beside the content. This holds for the entries of a list too.
    """

    def content(value: Any, owner: Any) -> Any:
        if isinstance(value, list):
            return [content(entry, owner) for entry in value]

        path = path_of(value, owner)
        if not path:
            return value
        if isinstance(path, list):
            # It stands for a place on the Hub, and there are no files here to read.
            return [value, path]

        if keep or path.startswith(PACKAGE):
            return [value, File(path)]
        return File(path)

    return content


of_file = in_place(lambda path, owner: path or None)
"""``content=`` for the path of one file, which may be absent."""
beside = partial(in_place, keep=True)
"""Return a ``content=`` function that keeps the value beside its files' content (:func:`in_place`)."""


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
    """Return a configuration field: a default, one line of documentation, and what values are allowed.

    Args:
        default: a value, a dataclass, or a list, dictionary or dataclass instance that is copied for every object.
        doc: one line.
        low: the smallest number allowed; in a list or mapping, for its entries.
        above: numbers must be larger than this; in a list or mapping, its entries.
        high: the largest number allowed; in a list or mapping, for its entries.
        choices: the values allowed; in a list, for its entries.
        unit: the unit of a number, for messages.
        empty: a text may be empty although its default is not.
        in_fingerprint: whether the value decides results. False for what changes only how fast or where something is
            computed.
        active_if: returns whether the value has any effect, given the object that holds the field. Fingerprints leave
            it out where it has none.
        content: returns what stands in fingerprints in place of the value, given the value and the object that holds
            it. The result is plain data in which :class:`File` stands for a file's content. :func:`in_place` and
            :func:`beside` make such functions.
        variants: the dataclasses that the field may hold, by the value of their key ``type``.
    """
    limits = {"low": low, "above": above, "high": high, "choices": choices, "unit": unit, "empty": empty}
    uses = {"in_fingerprint": in_fingerprint, "active_if": active_if, "content": content, "variants": variants}
    metadata = {"doc": doc, **limits, **uses}
    # Objects must not share a default that can be changed.
    if isinstance(default, type) and dataclasses.is_dataclass(default):
        return field(default_factory=default, metadata=metadata)
    if isinstance(default, (list, dict)) or dataclasses.is_dataclass(default):
        return field(default_factory=lambda: copy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def validate(config: Any, prefix: str = "") -> None:
    """Check every value of a configuration dataclass against its range, those in lists and mappings too.

    Numbers must be finite. A text that has a default must not be empty.

    Args:
        config: an instance of the dataclass.
        prefix: stands before the name of every key in messages, as ``train.``.

    Raises:
        ConfigError: a value is out of range; names the key, the value and what is allowed.
    """
    for item in dataclasses.fields(config):
        _check(f"{prefix}{item.name}", getattr(config, item.name), item)


def changed(config: C, changes: Mapping[str, Any], prefix: str, besides: Sequence[str] = ()) -> C:
    """Return a configuration with some keys changed.

    Args:
        config: a configuration's dataclass.
        changes: new values, by key.
        prefix: where its keys stand in the whole configuration (``judge.``), for messages.
        besides: other names that a misspelt key may have meant.

    Raises:
        ConfigError: no such key, or a value of another type or out of range.
    """
    types = get_type_hints(type(config))
    keys = [item.name for item in dataclasses.fields(cast(Any, config))]
    for name in changes:
        if name not in keys:
            hint = did_you_mean(name, [*keys, *besides])
            raise ConfigError(f"{name}: there is no such setting here; there are {', '.join(keys)}{hint}")
        _check_type(f"{prefix}{name}", changes[name], types[name])
    result: C = replace(cast(Any, config), **changes)
    validate(result, prefix)
    return result


_IN_WORDS: dict[Any, str] = {bool: "True or False", int: "a whole number", float: "a number", str: "a text"}
"""The types of single values, as messages call them."""


def _check_type(name: str, value: Any, annotation: Any) -> None:
    """Raise ConfigError where a caller in Python gives a single value of another type than its key has.

    OmegaConf checks the values of the command line.
    """
    allowed = [annotation]
    if get_origin(annotation) in (Union, UnionType):
        allowed = list(get_args(annotation))
    # Lists, mappings and sections are checked by what reads them.
    if any(kind not in _IN_WORDS and kind is not NoneType for kind in allowed):
        return
    if any(_is_of(value, kind) for kind in allowed):
        return
    words = " or ".join("None" if kind is NoneType else _IN_WORDS[kind] for kind in allowed)
    raise ConfigError(f"{name}={value!r}: expected {words}")


def _is_of(value: Any, kind: Any) -> bool:
    """Return whether a value is of a single value's type; numbers of NumPy are numbers, and paths are texts."""
    if isinstance(value, bool):
        return kind is bool
    if kind is int:
        return isinstance(value, Integral)
    if kind is float:
        return isinstance(value, Real)
    if kind is str:
        return isinstance(value, (str, PathLike))
    return isinstance(value, kind)


def did_you_mean(wrong: str, names: Iterable[str]) -> str:
    """Return the end of a message that proposes the closest of some names, or an empty text where none is close."""
    # A right name in the wrong place is no slip of the pen: to propose it would be no help.
    closest = get_close_matches(wrong, list(names), n=1)
    if not closest or closest[0] == wrong:
        return ""
    return f"; did you mean {closest[0]}?"


def bounds(meta: Mapping[str, Any]) -> str:
    """Return a key's range in words, as ``at least 0 and at most 1``; empty where it has none.

    ``meta`` is the metadata of the key's dataclass field.
    """
    parts = []
    for limit, words in (("low", "at least"), ("above", "above"), ("high", "at most")):
        if meta.get(limit) is not None:
            parts.append(f"{words} {meta[limit]:g}")
    return " and ".join(parts)


def _check(name: str, value: Any, item: dataclasses.Field[Any]) -> None:
    """Raise ConfigError where a value, or an entry in it, is none that its field allows."""
    if dataclasses.is_dataclass(value):
        validate(value, f"{name}.")
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            _check_entry(f"{name}[{index}]", entry, item)
    elif isinstance(value, Mapping):
        for entry_name, entry in value.items():
            _check_entry(f"{name}.{entry_name}", entry, item)
    else:
        _check_single(name, value, item)


def _check_single(name: str, value: Any, item: dataclasses.Field[Any]) -> None:
    """Raise ConfigError where a text, number or other single value is none that its field allows."""
    choices = item.metadata.get("choices")
    if choices and value not in choices:
        hint = did_you_mean(str(value), map(str, choices)) if len(choices) > MANY else ""
        raise ConfigError(f"{name}={value!r}: allowed are {', '.join(map(str, choices))}{hint}")

    has_default = item.default not in ("", None, dataclasses.MISSING)
    if value == "" and has_default and not item.metadata.get("empty"):
        raise ConfigError(f"{name}={value!r}: must not be empty; leave it out for {item.default}")

    if isinstance(value, (int, float)) and not isinstance(value, bool):
        _check_number(name, value, item.metadata)


_OF_VALUES = re.compile(r"(?:list|dict)\[(?:(?:str|Any), )?(str|int|float)\]")
"""Matches the annotation of a list or mapping whose entries are single values."""


def _check_entry(name: str, value: Any, item: dataclasses.Field[Any]) -> None:
    """Raise ConfigError where an entry of a list or mapping is none that its field allows.

    OmegaConf lets lists and mappings stand where a single value is expected, so that is refused here.
    """
    single = _OF_VALUES.fullmatch(str(item.type))
    if single is not None and (value is None or isinstance(value, (list, Mapping))):
        if single[1] == "str":
            raise ConfigError(f"{name}={value!r}: expected a text")
        raise ConfigError(f"{name}={value!r}: expected a number")
    _check(name, value, item)


def _check_number(name: str, value: float, meta: Mapping[str, Any]) -> None:
    """Raise ConfigError where a number is not finite or out of its field's range."""
    # NaN would pass all comparisons below.
    if not math.isfinite(value):
        raise ConfigError(f"{name}={value!r}: must be a finite number")

    too_low = meta.get("low") is not None and value < meta["low"]
    not_above = meta.get("above") is not None and value <= meta["above"]
    too_high = meta.get("high") is not None and value > meta["high"]
    if too_low or not_above or too_high:
        unit = f" {meta['unit']}" if meta.get("unit") else ""
        raise ConfigError(f"{name}={value!r}: must be {bounds(meta)}{unit}")
