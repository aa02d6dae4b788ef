"""The stages by name: each is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pkgutil import resolve_name
from typing import Any

from judgetrain import rooms
from judgetrain.artifacts.stages import Stage


class Stages(Mapping[str, Stage[Any]]):
    """Every room's stages, those that others need first."""

    def __getitem__(self, name: str) -> Stage[Any]:
        return _stage(rooms.stages()[name].code)

    def __iter__(self) -> Iterator[str]:
        return iter(rooms.stages())

    def __len__(self) -> int:
        return len(rooms.stages())


@cache
def _stage(code: str) -> Stage[Any]:
    found: Stage[Any] = resolve_name(code)
    return found


STAGES = Stages()
"""Every stage by name."""
