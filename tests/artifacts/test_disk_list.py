"""Rows in a temporary file: a sequence like any other, of which memory holds places alone."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.artifacts.shards import DiskList, only

ROWS = st.lists(st.dictionaries(st.text(), st.none() | st.integers() | st.floats(allow_nan=False) | st.text()))


def spilled(rows: Any, place: Path | None = None) -> DiskList[dict[str, Any]]:
    made = DiskList(dict, dict, place)
    made.extend(rows)
    return made


@settings(deadline=None)
@given(ROWS, ROWS, st.data())
def test_it_is_the_list_of_its_rows(first: list[Any], second: list[Any], data: st.DataObject) -> None:
    made, rows = spilled(first), first + second
    assert list(made) == first
    made.extend(second)
    assert (len(made), bool(made), list(made), made[:], made[1:3]) == (len(rows), bool(rows), rows, rows, rows[1:3])
    indices = data.draw(st.lists(st.sampled_from(range(len(rows))))) if rows else []
    some = made.only(indices)
    assert [made[i] for i in indices] == list(some) == only(rows, indices) == list(only(made, indices))
    assert list(some.only(range(len(some)))[::-1]) == list(some)[::-1]


def test_rows_of_its_own_file_can_be_added() -> None:
    made = spilled({"n": i} for i in range(5))
    some = made.only([4, 0])
    some.extend({"n": row["n"] + 10} for row in made)
    made.extend(some.only([0, 6]))
    assert [row["n"] for row in some] == [4, 0, 10, 11, 12, 13, 14]
    assert [row["n"] for row in made] == [0, 1, 2, 3, 4, 4, 14]


def test_memory_holds_places_alone_and_the_directory_nothing(tmp_path: Path) -> None:
    tracemalloc.start()
    made = spilled(({"text": f"{i} " + "x" * 10_000} for i in range(2_000)), tmp_path)
    assert sum(len(row["text"]) for row in made) > 20_000_000
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 500_000
    assert not list(tmp_path.iterdir()), "it has no name: a kill leaves nothing of it"
