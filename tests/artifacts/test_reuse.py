"""Shards of artifacts beside one: which are taken over, and that those of similar names are left alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, adopt


def made(directory: Path, key: str, name: str, says: str, dropped: dict[str, int] | None = None) -> list[int]:
    """The shards that had to be made, of two with two items each; the second drops."""
    out, processed = StageRun(directory, "evaluate", 0, Console()), list[int]()

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
