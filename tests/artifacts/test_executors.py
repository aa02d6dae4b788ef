"""Shards processed elsewhere: the same artifact whatever the executor, and a worker's death costs its shard alone."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.executor import Executor
from judgetrain.artifacts.shards import markers_of, read_rows, rows_at
from judgetrain.artifacts.stage_run import ShardResult, StageRun
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.errors import UnansweredError
from tests.builders.watched import Elsewhere

ROWS = range(40)
SIZE = 4


class Model:
    """Stands for a model: it says in a file which process loaded it."""

    def __init__(self, log: Path) -> None:
        self.log = log
        with log.open("a") as file:
            file.write(f"{os.getpid()}\n")

    def close(self) -> None:
        with self.log.open("a") as file:
            file.write("closed\n")


def stage(directory: Path, executor: Executor | None = None) -> StageRun:
    return StageRun(directory / "a" / "tree" / "f", "tree", 7, Console(), executor=executor)


def fill(out: StageRun, log: Path, pause: float = 0.0, rows: Sequence[int] = ROWS) -> None:
    """Shards whose rows depend on the shard's seed, made with a model."""
    with loaded_once(lambda: Model(log)) as model:

        def process(index: int, items: Sequence[int]) -> ShardResult:
            model()
            time.sleep(pause)
            rng = random.Random(out.shard_seed(index))
            made = [{"item": i, "drawn": rng.random()} for i in items]
            return ShardResult(made, len(made), {"odd": sum(i % 2 for i in items)}, prompt_tokens=2, generated_tokens=3)

        out.sharded("rows", rows, SIZE, process, load=model, spread=True)


def kept(out: StageRun) -> tuple[list[Any], dict[str, Any]]:
    return list(read_rows(out.directory, "rows")), out.totals()


def test_another_executor_gives_the_same_rows_and_totals(tmp_path: Path) -> None:
    here, there = stage(tmp_path / "here"), stage(tmp_path / "there", Elsewhere())
    fill(here, tmp_path / "log")
    fill(there, tmp_path / "log")
    assert kept(there) == kept(here)
    assert [m["counts"] for m in markers_of(there.directory, "rows")] == [
        {"in": 4, "out": 4, "dropped": {"odd": 2}} for _ in range(10)
    ]


def test_a_shard_s_items_are_taken_when_its_turn_comes(tmp_path: Path) -> None:
    """Items may be made as they are asked for: no more than a shard of them is there at once."""
    taken: list[slice] = []

    class Made(Sequence[int]):
        def __len__(self) -> int:
            return len(ROWS)

        def __getitem__(self, place: Any) -> Any:
            taken.append(place)
            return list(ROWS[place])

    def process(index: int, items: Sequence[int]) -> ShardResult:
        assert len(taken) == index + 1
        return ShardResult([{"item": i} for i in items], len(items))

    out = stage(tmp_path)
    out.sharded("rows", Made(), SIZE, process)
    assert [row["item"] for row in read_rows(out.directory, "rows")] == list(ROWS)


def test_a_model_is_loaded_once_where_it_was_sent_and_leaves_for_the_next(tmp_path: Path) -> None:
    executor, logs = Elsewhere(), [tmp_path / name for name in ("first", "second")]
    for log in (*logs, logs[0]):
        fill(stage(tmp_path / f"run-{log.name}-{os.urandom(4).hex()}", executor), log)
    assert logs[0].read_text().split() == [str(os.getpid()), "closed", str(os.getpid())]
    assert logs[1].read_text().split() == [str(os.getpid()), "closed"]


def test_unanswered_shards_are_left_and_the_others_finished(tmp_path: Path) -> None:
    def process(index: int, items: Sequence[int]) -> ShardResult:
        if index in (1, 3):
            raise UnansweredError(2, "busy")
        return ShardResult([{"item": i} for i in items], len(items))

    out = stage(tmp_path, Elsewhere())
    with pytest.raises(UnansweredError, match="4 requests were given up"):
        out.sharded("rows", ROWS, SIZE, process, spread=True)
    assert len(markers_of(out.directory, "rows")) == 8


def test_rows_at_gives_what_all_rows_have_at_that_place(tmp_path: Path) -> None:
    out = stage(tmp_path)
    out.sharded("rows", range(23), 5, lambda index, items: ShardResult([{"item": i} for i in items], len(items)))
    every = list(read_rows(out.directory, "rows"))
    for start in range(25):
        for count in (0, 1, 5, 11, 40):
            assert rows_at(out.directory, "rows", start, count) == every[start : start + count]
