"""Real Ray, where it is installed (its own environment: docs/scale.md): a worker's death costs its shard alone."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.executor import Done, Executor, ExecutorConfig, Work, make_executor
from judgetrain.artifacts.stage_run import ShardResult
from judgetrain.errors import EngineError
from judgetrain.extras.ray.cluster import is_alive
from tests.artifacts.test_shards import ROWS, SIZE, fill, kept, stage
from tests.fuzz.effort import effort


def test_ray_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EngineError, match=r"judgetrain\[ray\]"):
        fill(stage(tmp_path, make_executor(ExecutorConfig(type="ray"))), tmp_path / "log")


@pytest.fixture
def workers() -> Iterator[Callable[[int], Executor]]:
    made: list[Executor] = []

    def executor(number: int) -> Executor:
        made.append(make_executor(ExecutorConfig(type="ray", workers=number)))
        return made[-1]

    yield executor
    for each in made:
        each.close()


@pytest.mark.ray
@pytest.mark.parametrize("number", [1, 2])
def test_ray_workers_give_the_same_artifact(tmp_path: Path, workers: Callable[[int], Executor], number: int) -> None:
    here, there = stage(tmp_path / "here"), stage(tmp_path / "there", workers(number))
    fill(here, tmp_path / "log")
    fill(there, tmp_path / "ray")
    assert kept(there) == kept(here)
    loaded = (tmp_path / "ray").read_text().split()
    assert len(loaded) == len({*loaded}) <= number and str(os.getpid()) not in loaded, "once in each worker"


@pytest.mark.ray
def test_killed_ray_workers_cost_their_shards_alone(tmp_path: Path, workers: Callable[[int], Executor]) -> None:
    """By hand (``JUDGETRAIN_FUZZ=full``, a quiet machine): twenty of them and more in one run."""
    log, killed, rows = tmp_path / "ray", [], range(SIZE * effort(10, 400))

    class Killing:
        """Kills the worker that loaded its model last, after every second shard."""

        def __init__(self, inner: Executor) -> None:
            self.inner = inner
            self.close = inner.close

        def run(self, work: Work[Any], shards: Iterable[tuple[int, Any]]) -> Iterator[Done[Any]]:
            for number, each in enumerate(self.inner.run(work, shards)):
                yield each
                pid = int(log.read_text().split()[-1])
                if number % 2 and pid not in killed:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

    here, there = stage(tmp_path / "here"), stage(tmp_path / "there", Killing(workers(2)))
    fill(here, tmp_path / "log", rows=rows)
    fill(there, log, pause=0.2, rows=rows)
    assert kept(there) == kept(here) and len(killed) >= effort(1, 20)


@pytest.mark.ray
def test_what_a_killed_worker_has_started_ends_with_it(tmp_path: Path, workers: Callable[[int], Executor]) -> None:
    """As vLLM's engine, a process of its own that holds the GPU: else the next worker would find no room there."""
    started = tmp_path / "started"

    def process(index: int, items: Sequence[int]) -> ShardResult:
        if not started.exists():
            started.write_text(str(subprocess.Popen(["sleep", "300"]).pid))
            os.kill(os.getpid(), signal.SIGKILL)
        return ShardResult([{"item": i} for i in items], len(items))

    stage(tmp_path / "out", workers(1)).sharded("rows", ROWS, SIZE, process, spread=True)
    pid, until = int(started.read_text()), time.monotonic() + 15
    while is_alive(pid) and time.monotonic() < until:
        time.sleep(0.1)
    assert not is_alive(pid)


@pytest.mark.ray
def test_ray_workers_are_gone_at_the_end_with_what_they_loaded(
    tmp_path: Path, workers: Callable[[int], Executor]
) -> None:
    log, executor = tmp_path / "ray", workers(2)
    fill(stage(tmp_path, executor), log, pause=0.1)
    executor.close()
    said = log.read_text().split()
    pids = [int(word) for word in said if word != "closed"]
    assert pids and said.count("closed") == len(pids), "a model is closed before its process ends"
    assert not [pid for pid in pids if is_alive(pid)]
