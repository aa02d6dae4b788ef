"""Rows on disk and shards: what is taken over, processed elsewhere, or kept in a temporary file."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import joblib.externals.loky.backend.context  # noqa: F401
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.artifacts import executor
from judgetrain.artifacts.console import Console
from judgetrain.artifacts.executor import Executor, ExecutorConfig, Work, idle_cores, make_executor, share_cores
from judgetrain.artifacts.shards import DiskList, markers_of, only, read_rows, rows_at
from judgetrain.artifacts.stage_run import RunOptions, ShardResult, StageRun, adopt
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.errors import EngineError, UnansweredError
from tests.builders.watched import Elsewhere

ITEMS = range(40)
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
    return StageRun(directory / "a" / "tree" / "f", "tree", 7, Console(), RunOptions(executor=executor))


def fill(out: StageRun, log: Path, pause: float = 0.0, rows: Sequence[int] = ITEMS) -> None:
    """Shards whose rows depend on the shard's seed, made with a model."""
    with loaded_once(lambda: Model(log)) as model:

        def process(index: int, items: Sequence[int]) -> ShardResult:
            model()
            time.sleep(pause)
            rng = random.Random(out.shard_seed(index))
            drawn_rows = [{"item": i, "drawn": rng.random()} for i in items]
            return ShardResult(
                drawn_rows, len(drawn_rows), {"odd": sum(i % 2 for i in items)}, prompt_tokens=2, generated_tokens=3
            )

        out.sharded("rows", rows, SIZE, Work(process=process, load=model, spread=True))


def kept(out: StageRun) -> tuple[list[Any], dict[str, Any]]:
    return list(read_rows(out.directory, "rows")), out.totals()


def test_a_shard_s_items_are_taken_when_its_turn_comes(tmp_path: Path) -> None:
    """Items may be made as they are asked for: no more than a shard of them is there at once."""
    slices: list[slice] = []

    class Made(Sequence[int]):
        def __len__(self) -> int:
            return len(ITEMS)

        def __getitem__(self, place: Any) -> Any:
            slices.append(place)
            return list(ITEMS[place])

    def process(index: int, items: Sequence[int]) -> ShardResult:
        assert len(slices) == index + 1
        return ShardResult([{"item": i} for i in items], len(items))

    out = stage(tmp_path)
    out.sharded("rows", Made(), SIZE, process)
    assert [row["item"] for row in read_rows(out.directory, "rows")] == list(ITEMS)


def test_a_model_is_loaded_once_where_it_was_sent_and_leaves_for_the_next(tmp_path: Path) -> None:
    executor = Elsewhere()
    logs = [tmp_path / name for name in ("first", "second")]
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
        out.sharded("rows", ITEMS, SIZE, Work(process=process, spread=True))
    assert len(markers_of(out.directory, "rows")) == 8


def test_rows_at_gives_what_all_rows_have_at_that_place(tmp_path: Path) -> None:
    out = stage(tmp_path)
    out.sharded("rows", range(23), 5, lambda index, items: ShardResult([{"item": i} for i in items], len(items)))
    every = list(read_rows(out.directory, "rows"))
    for start in range(25):
        for count in (0, 1, 5, 11, 40):
            assert rows_at(out.directory, "rows", start, count) == every[start : start + count]


@pytest.fixture
def two() -> Iterator[Executor]:
    executor = make_executor(ExecutorConfig(workers=2))
    yield executor
    executor.close()


def test_two_processes_give_the_same_artifact_with_a_model_each(tmp_path: Path, two: Executor) -> None:
    here = stage(tmp_path / "here")
    elsewhere = stage(tmp_path / "there", two)
    fill(here, tmp_path / "log")
    multiprocessing.set_start_method("loky", force=True)  # as in a job of sweep=joblib, of which workers know nothing
    fill(elsewhere, tmp_path / "two", pause=0.05)
    multiprocessing.set_start_method(None, force=True)
    assert kept(elsewhere) == kept(here)
    loaded = [int(pid) for pid in (tmp_path / "two").read_text().split()]
    assert len({*loaded}) == len(loaded) == 2 and os.getpid() not in loaded
    two.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in loaded)


def test_a_killed_process_is_told_and_its_shard_is_made_by_the_next_run(tmp_path: Path, two: Executor) -> None:
    def process(index: int, items: Sequence[int]) -> ShardResult:
        if index == 5 and not (tmp_path / "dead").exists():
            (tmp_path / "dead").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return ShardResult([{"item": i} for i in items], len(items))

    out = stage(tmp_path, two)
    with pytest.raises(EngineError, match="executor.workers=2: a worker was killed"):
        out.sharded("rows", ITEMS, SIZE, Work(process=process, spread=True))
    done = len(markers_of(out.directory, "rows"))
    assert 0 < done < 10
    out.sharded("rows", ITEMS, SIZE, Work(process=process, spread=True))
    assert [row["item"] for row in read_rows(out.directory, "rows")] == list(ITEMS)


def test_no_process_outlives_the_one_that_started_it(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys; from judgetrain.artifacts.executor import ExecutorConfig\n"
        "from judgetrain.artifacts.executor import make_executor; from tests.artifacts.test_shards import *\n"
        "path, two = pathlib.Path(sys.argv[1]), make_executor(ExecutorConfig(workers=2))\n"
        "fill(stage(path, two), path / 'log', 60)"
    )
    run = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)])
    until(lambda: (tmp_path / "log").exists() and len((tmp_path / "log").read_text().split()) == 2)
    run.kill()
    run.wait()
    pids = (tmp_path / "log").read_text().split()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_a_signal_to_all_processes_leaves_no_errors_of_multiprocessing(tmp_path: Path) -> None:
    """As SLURM sends SIGUSR1: also to the process in which multiprocessing keeps what the others share."""
    program = (
        "import pathlib, signal, sys; from judgetrain.artifacts.executor import ExecutorConfig, make_executor\n"
        "from judgetrain.artifacts.signals import terminate; from tests.artifacts.test_shards import *\n"
        "signal.signal(signal.SIGUSR1, terminate)\n"
        "path, two = pathlib.Path(sys.argv[1]), make_executor(ExecutorConfig(workers=2))\n"
        "try: fill(stage(path, two), path / 'log', 60)\n"
        "except (KeyboardInterrupt, EngineError): print('ended')\n"
        "two.close()"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        until(lambda: (tmp_path / "log").exists() and len((tmp_path / "log").read_text().split()) == 2)
        for process in [*psutil.Process(run.pid).children(recursive=True), psutil.Process(run.pid)]:
            process.send_signal(signal.SIGUSR1)
        printed, errors = run.communicate(timeout=120)
    assert printed.endswith("ended\n") and run.returncode == 0, errors
    assert "resource_tracker" not in errors and "Error" not in errors


def until(true: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def made(directory: Path, key: str, name: str, says: str, dropped: dict[str, int] | None = None) -> list[int]:
    """Return the shards that had to be made, of two with two items each; the second drops."""
    out = StageRun(directory, "evaluate", 0, Console())
    processed = list[int]()

    def process(index: int, items: Sequence[int]) -> ShardResult:
        processed.append(index)
        return ShardResult([{"says": says, "item": i} for i in items], len(items), (dropped or {}) if index else {})

    adopt(name, key, out)
    out.sharded(name, range(4), 2, process)
    return processed


def test_shards_of_a_similar_name_are_others(tmp_path: Path) -> None:
    assert made(tmp_path / "old", "k1", "trees-judge-v2", "old") == [0, 1]
    assert made(tmp_path / "old", "k", "trees-judge", "old") == [0, 1]
    assert made(tmp_path / "new", "k2", "trees-judge-v2", "new") == [0, 1]
    assert made(tmp_path / "new", "k", "trees-judge", "new") == [], "its own are taken over"
    assert {row["says"] for row in read_rows(tmp_path / "new", "trees-judge-v2")} == {"new"}
    assert {row["says"] for row in read_rows(tmp_path / "new", "trees-judge")} == {"old"}


@pytest.mark.parametrize("reason", ["reply:error", "error"])
def test_what_an_engine_failed_to_answer_is_not_taken_over(tmp_path: Path, reason: str) -> None:
    assert made(tmp_path / "a", "k", "replies", "old", {reason: 1}) == [0, 1]
    assert made(tmp_path / "b", "k", "replies", "new") == [1]
    assert made(tmp_path / "c", "k", "replies", "newer") == []
    assert made(tmp_path / "d", "other", "replies", "newest") == [0, 1]


ROWS = st.lists(st.dictionaries(st.text(), st.none() | st.integers() | st.floats(allow_nan=False) | st.text()))


def spilled(rows: Any, place: Path | None = None) -> DiskList[dict[str, Any]]:
    disk_list = DiskList(dict, dict, place)
    disk_list.extend(rows)
    return disk_list


@settings(deadline=None)
@given(ROWS, ROWS, st.data())
def test_it_is_the_list_of_its_rows(first: list[Any], second: list[Any], data: st.DataObject) -> None:
    disk_list = spilled(first)
    rows = first + second
    assert list(disk_list) == first
    disk_list.extend(second)
    assert (len(disk_list), bool(disk_list), list(disk_list), disk_list[:], disk_list[1:3]) == (
        len(rows),
        bool(rows),
        rows,
        rows,
        rows[1:3],
    )
    indices = data.draw(st.lists(st.sampled_from(range(len(rows))))) if rows else []
    some = disk_list.only(indices)
    assert [disk_list[i] for i in indices] == list(some) == only(rows, indices) == list(only(disk_list, indices))
    assert list(some.only(range(len(some)))[::-1]) == list(some)[::-1]


def test_rows_of_its_own_file_can_be_added() -> None:
    disk_list = spilled({"n": i} for i in range(5))
    some = disk_list.only([4, 0])
    some.extend({"n": row["n"] + 10} for row in disk_list)
    disk_list.extend(some.only([0, 6]))
    assert [row["n"] for row in some] == [4, 0, 10, 11, 12, 13, 14]
    assert [row["n"] for row in disk_list] == [0, 1, 2, 3, 4, 4, 14]


def test_memory_holds_places_alone_and_the_directory_nothing(tmp_path: Path) -> None:
    tracemalloc.start()
    disk_list = spilled(({"text": f"{i} " + "x" * 10_000} for i in range(2_000)), tmp_path)
    assert sum(len(row["text"]) for row in disk_list) > 20_000_000
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 500_000
    assert not list(tmp_path.iterdir()), "it has no name: a kill leaves nothing of it"


def test_idle_cores_are_those_of_the_quietest_look(monkeypatch: pytest.MonkeyPatch) -> None:
    # In three looks 0.4, 0.2 and 0 of the cores' 0.8 seconds are idle. Time of guests is part of the user's time.
    ends = ((0.0, 0.0), (0.4, 0.4), (1.0, 0.6), (1.8, 0.6))
    looks = iter([(user, 0.0, 0.0, idle * 0.8, idle * 0.2, 0.0, 0.0, 0.0, user, 0.0) for user, idle in ends])
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(looks))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr(psutil, "cpu_count", lambda: 8)
    assert idle_cores() == 4


@pytest.mark.parametrize(
    ("chosen", "idle", "processes", "threads"),
    [
        (False, 8, 0, None),
        (False, 5, 0, "5"),
        (False, 0, 0, "1"),
        (False, 5, 2, "2"),
        (False, 8, 2, "4"),
        (True, 1, 2, None),
    ],
)
def test_threads_are_as_many_as_there_are_idle_cores_unless_the_user_has_chosen(
    chosen: bool, idle: int, processes: int, threads: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_THREADS_CHOSEN", chosen)
    monkeypatch.setattr(executor, "idle_cores", lambda: idle)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(8), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    remark = share_cores(processes)
    assert (remark is not None) == (not processes and threads is not None)
    if remark is not None:
        assert f"computes with {threads} thread" in remark
        assert "OMP_NUM_THREADS=8" in remark
    chosen_ones = os.environ["OMP_WAIT_POLICY"], os.environ["GOMP_SPINCOUNT"]
    assert (os.environ.get("OMP_NUM_THREADS"), chosen_ones) == (threads, ("ACTIVE", "7"))
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.delenv("GOMP_SPINCOUNT")
    share_cores(processes)
    assert (os.environ["OMP_WAIT_POLICY"], os.environ["GOMP_SPINCOUNT"]) == ("PASSIVE", "10000")
