"""Functions watched while a test runs: one that is interrupted at some call, and how a stage spreads its shards."""

from __future__ import annotations

from typing import Any

import pytest

from judgetrain.artifacts.stage_run import StageRun


def interrupted(patch: pytest.MonkeyPatch, owner: Any, name: str, at: int) -> list[Any]:
    """Ctrl-C in the place of the ``at``-th call of ``owner.name``; gives the arguments of each call so far."""
    real, calls = getattr(owner, name), []

    def call(*arguments: Any, **named: Any) -> Any:
        calls.append(arguments)
        if len(calls) == at:
            raise KeyboardInterrupt
        return real(*arguments, **named)

    patch.setattr(owner, name, call)
    return calls


def spread(patch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Whether workers may share them, by the names of rows that go by shards from now on."""
    real, found = StageRun.sharded, dict[str, bool]()

    def sharded(self: StageRun, name: str, *arguments: Any, spread: bool = True, **named: Any) -> float:
        found[name] = spread
        return real(self, name, *arguments, spread=spread, **named)

    patch.setattr(StageRun, "sharded", sharded)
    return found
