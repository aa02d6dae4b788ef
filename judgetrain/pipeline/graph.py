"""The stages by name: each is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pkgutil import resolve_name
from typing import Any

from judgetrain import rooms
from judgetrain.artifacts.stages import Stage


class Stages(Mapping[str, Stage[Any]]):
    """Every room's stages, those that others need first."""

    def __getitem__(self, name: str) -> Stage[Any]:
        found: Stage[Any] = resolve_name(rooms.stages()[name].code)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(rooms.stages())

    def __len__(self) -> int:
        return len(rooms.stages())


STAGES = Stages()
"""Every stage by name."""
