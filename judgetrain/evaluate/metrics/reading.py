"""Records as JSON files hold them, read back by the annotations of their dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints


def read_record(kind: Any, value: Any) -> Any:
    """A dataclass, or a tuple, list or mapping of some, out of plain data.

    Names that the dataclass does not have are left out; those that the data does not have keep their defaults, or are
    None.
    """
    if value is None:
        return None
    if isinstance(kind, type) and is_dataclass(kind):
        needed = {f.name: None for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
        found = {name: read_record(hint, value[name]) for name, hint in _hints(kind).items() if name in value}
        return kind(**needed | found)
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return read_record(next(part for part in parts if part is not NoneType), value)
    if origin is tuple:
        return tuple(read_record(parts[0], each) for each in value) if parts[-1] is ... else tuple(value)
    if isinstance(value, Mapping) and len(parts) == 2:
        return {parts[0](key): read_record(parts[1], each) for key, each in value.items()}
    return value


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
