"""Stages watched while they run: interrupted at a call, their shards spread or elsewhere, their files without times."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from judgetrain.artifacts.executor import Done, Executor, Work, done
from judgetrain.artifacts.shards import SECONDS
from judgetrain.artifacts.stage_run import StageRun


def interrupted(patch: pytest.MonkeyPatch, owner: Any, name: str, at: int) -> list[Any]:
    """Ctrl-C in the place of the ``at``-th call of ``owner.name``; gives the arguments of each call so far."""
    real = getattr(owner, name)
    calls = []

    def call(*arguments: Any, **named: Any) -> Any:
        calls.append(arguments)
        if len(calls) == at:
            raise KeyboardInterrupt
        return real(*arguments, **named)

    patch.setattr(owner, name, call)
    return calls


def spread(patch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Return whether workers may share them, by the names of rows that go by shards from now on."""
    real = StageRun.sharded
    spread_by_name = dict[str, bool]()

    def sharded(self: StageRun, name: str, items: Sequence[Any], size: int, work: Any, unit: str = "items") -> float:
        spread_by_name[name] = isinstance(work, Work) and work.spread
        return real(self, name, items, size, work, unit)

    patch.setattr(StageRun, "sharded", sharded)
    return spread_by_name


class Elsewhere(Executor):
    """Processes shards with a copy of what is to be done, in an order that is not theirs.

    ``carried``: bytes that a worker gets once, by the number of the call.
    """

    def __init__(self) -> None:
        self.carried: list[int] = []

    def run(self, work: Work[Any], shards: Iterable[tuple[int, Any]]) -> Iterator[Done[Any]]:
        packed = cloudpickle.dumps(work)
        self.carried.append(len(packed))
        received_work = cloudpickle.loads(packed)
        for shard in reversed([*shards]):
            index, items = cloudpickle.loads(cloudpickle.dumps(shard))
            yield cloudpickle.loads(cloudpickle.dumps(done(received_work, index, items)))

    def close(self) -> None: ...


def contents(directory: Path) -> dict[str, bytes]:
    """Return the files of a directory by name, without the seconds that they took."""
    files = {p.name: p.read_bytes() for p in directory.iterdir() if p.is_file() and p.name != SECONDS}
    return {name: re.sub(rb'"seconds": [^,]*,', b"", content) for name, content in files.items()}
