"""Artifacts: whole files or none, shards that survive a kill, counts that add up."""

import errno
import multiprocessing
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.artifacts import files, heartbeat
from judgetrain.artifacts.console import Console
from judgetrain.artifacts.executor import Work
from judgetrain.artifacts.files import write_bytes_atomic
from judgetrain.artifacts.shards import SECONDS, markers_of, read_rows, seconds_of, seconds_so_far, shard_progress
from judgetrain.artifacts.stage_run import RunOptions, ShardResult, StageRun
from judgetrain.errors import DataError, JudgetrainError

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def stage(directory: Path) -> StageRun:
    return StageRun(directory, "tree", 7, Console(), RunOptions(clock=lambda: 0.0))


def doubled(index: int, items: Sequence[int]) -> ShardResult:
    return ShardResult(
        [{"value": 2 * i} for i in items if i % 5],
        len(items),
        {"multiple_of_5": sum(i % 5 == 0 for i in items)},
        prompt_tokens=3,
        generated_tokens=4,
    )


@settings(max_examples=30, deadline=None)
@given(rows=st.lists(st.dictionaries(st.text(), JSON, max_size=4), max_size=12), size=st.integers(1, 5))
def test_rows_come_back_from_any_shards(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], size: int
) -> None:
    out = stage(tmp_path_factory.mktemp("artifact"))
    out.sharded("rows", rows, size, lambda i, items: ShardResult(list(items), len(items)))
    assert list(read_rows(out.directory, "rows")) == rows
    assert out.totals()["counts"] == {"in": len(rows), "out": len(rows), "dropped": {}}


def test_a_killed_run_redoes_only_the_unfinished_shard(tmp_path: Path) -> None:
    seen: list[int] = []

    def process(index: int, items: Sequence[int]) -> ShardResult:
        if index == 2 and not seen.count(99):
            seen.append(99)
            raise KeyboardInterrupt
        seen.append(index)
        return doubled(index, items)

    with pytest.raises(KeyboardInterrupt):
        stage(tmp_path / "a").sharded("rows", range(20), 5, process)
    assert shard_progress(tmp_path / "a") == (2, 4)
    resumed = stage(tmp_path / "a")
    resumed.sharded("rows", range(20), 5, process)
    assert seen == [0, 1, 99, 2, 3]
    whole = stage(tmp_path / "b")
    whole.sharded("rows", range(20), 5, doubled)
    names = sorted(p.name for p in (tmp_path / "b").iterdir())
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == names
    assert all((tmp_path / "a" / n).read_bytes() == (tmp_path / "b" / n).read_bytes() for n in names if n != SECONDS)
    assert resumed.totals() == whole.totals()
    assert whole.totals() == {
        "counts": {"in": 20, "out": 16, "dropped": {"multiple_of_5": 4}},
        "tokens": {"prompt": 12, "generated": 16},
    }


def ticking(directory: Path, last: int, dies: str) -> StageRun:
    """Doubles four items in shards of one, up to a shard in which the run ends; a look at its clock takes 10 s."""
    ticks = count(step=10)
    out = StageRun(directory, "tree", 7, Console(), RunOptions(clock=lambda: float(next(ticks))))

    def process(index: int, items: Sequence[int]) -> ShardResult:
        if index > last:
            if dies == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise KeyboardInterrupt
        return replace(doubled(index, items), facts={"calls": index})

    with out.timed():
        assert out.sharded("rows", range(4), 1, process) == 10.0 * (3 - 1)
    return out


def test_seconds_add_up_over_runs_that_end_in_any_way(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        ticking(tmp_path, last=0, dies="interrupted")
    # Looks: the beginning, once into the stage, a shard's beginning and end and once it is kept, a shard's beginning
    # and the stage's end.
    assert seconds_so_far(tmp_path)[0] == 60.0
    killed = multiprocessing.get_context("fork").Process(target=ticking, args=(tmp_path, 1, "killed"))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert seconds_so_far(tmp_path)[0] == 60.0 + 40.0, "up to the shard that was finished last"
    out = ticking(tmp_path, last=3, dies="")
    assert out.seconds > seconds_so_far(tmp_path)[0] == 100.0 + 80.0
    markers = markers_of(tmp_path, "rows")
    assert [marker["seconds"] for marker in markers] == [10.0] * 4 and seconds_of(tmp_path, "rows") == 40.0
    assert [marker["facts"] for marker in markers] == [{"calls": i} for i in range(4)]


def test_loading_is_no_time_of_a_shard(tmp_path: Path) -> None:
    now = 0.0
    loads = 0

    def load() -> None:
        nonlocal now, loads
        now = now + 100
        loads = loads + 1

    def process(index: int, items: Sequence[int]) -> ShardResult:
        nonlocal now
        assert loads, "it is loaded before"
        now += 3
        return doubled(index, items)

    out = StageRun(tmp_path, "tree", 7, Console(), RunOptions(clock=lambda: now))
    work = Work(process=process, load=load)
    assert out.sharded("rows", range(2), 1, work) == seconds_of(tmp_path, "rows") == 6.0
    loads = 0
    assert out.sharded("rows", range(2), 1, work) == 0.0 and not loads, "nothing is left to do"


def test_off_a_terminal_lines_say_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(heartbeat.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(heartbeat, "_activities", [])
    lines = []

    def slow(index: int, items: Sequence[int]) -> ShardResult:
        lines.append(heartbeat.line(clock[0] + 10))
        clock[0] += 20
        if index == 4:
            raise KeyboardInterrupt
        return doubled(index, items)

    with pytest.raises(KeyboardInterrupt):
        stage(tmp_path).sharded("rows", range(40), 5, slow, "rows")
    # 20 s a shard of 5, looked at in the middle of each: 10 s in, then 30 s for 5 of 40, 50 s for 10 and so on.
    assert lines == [
        "tree: rows: 0 of 40 rows, 10.0 s so far",
        "tree: rows: 5 of 40 rows, about 3.5 min left",
        "tree: rows: 10 of 40 rows, about 2.5 min left",
        "tree: rows: 15 of 40 rows, about 1.9 min left",
        "tree: rows: 20 of 40 rows, about 90.0 s left",
    ]
    assert heartbeat.line(clock[0]) is None


def test_a_missing_shard_and_a_broken_line_are_named(tmp_path: Path) -> None:
    out = stage(tmp_path)
    out.sharded("rows", range(1, 5), 2, doubled)
    (tmp_path / "rows-00001-of-00002.jsonl").unlink()
    with pytest.raises(DataError, match="1 of 2 shards of rows"):
        list(read_rows(tmp_path, "rows"))
    (tmp_path / "single.jsonl").write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(DataError, match=r"single\.jsonl:2"):
        list(read_rows(tmp_path, "single"))
    with pytest.raises(DataError, match=r"neither nothing\.jsonl nor shards"):
        list(read_rows(tmp_path, "nothing"))


def test_shards_of_another_size_are_not_mixed(tmp_path: Path) -> None:
    stage(tmp_path).sharded("rows", range(1, 5), 2, doubled)
    again = stage(tmp_path)
    again.sharded("rows", range(1, 5), 4, doubled)
    assert [r["value"] for r in read_rows(tmp_path, "rows")] == [2, 4, 6, 8]
    assert again.totals()["counts"]["in"] == 4


def test_files_can_be_read_by_whom_the_umask_allows(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        path = stage(tmp_path).write_rows("rows", [{"a": 1}])
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o640


def test_leftovers_of_a_killed_write_go_away(tmp_path: Path) -> None:
    (tmp_path / ".rows.jsonl.1-2.tmp").write_text("{")
    stage(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_full_disk_keeps_the_old_file_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(JudgetrainError, match="disk is full"):
        write_bytes_atomic(path, b"new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_notes_survive_a_restart(tmp_path: Path) -> None:
    stage(tmp_path).note("a", {"b": 1})
    later = stage(tmp_path)
    later.note("c", 2)
    assert later.notes == {"a": {"b": 1}, "c": 2}
