"""Taking over finished shards of other artifacts of the same stage, where all that decides their rows is equal.

So a change that leaves some of a stage's work as it is (another metric, another weight of a reward) does not repeat it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from judgetrain.artifacts.files import read_json, write_text_atomic
from judgetrain.artifacts.integrity import whole_shard
from judgetrain.artifacts.shards import shards_of
from judgetrain.artifacts.stage_run import StageRun


def adopt(shards: str, key: str, out: StageRun) -> None:
    """Take over the finished shards of artifacts beside this one that have the same key, and leave the key here.

    Shards that lie here under another key, or under none, are others and are dropped.

    Args:
        shards: the name of the shards, as for :meth:`~judgetrain.artifacts.stage_run.StageRun.sharded`.
        key: a hash of all that decides what they hold.
        out: the stage's directory.
    """
    if not _has(out.directory, shards, key):
        for markers in (True, False):
            for stale, _ in shards_of(out.directory, shards, markers=markers):
                stale.unlink()
        write_text_atomic(out.path(f".{shards}.key"), key)
    for other in sorted(out.directory.parent.iterdir()):
        if other == out.directory or not _has(other, shards, key):
            continue
        taken = 0
        for marker, _ in shards_of(other, shards, markers=True):
            if _failed(marker):
                continue
            stem = marker.name.removeprefix(".").removesuffix(".json")
            files = [f"{stem}.jsonl", marker.name]  # the marker last: it says that the shard is there
            if whole_shard(other / files[0], marker) and not out.path(marker.name).exists():
                for name in files:
                    _link(other / name, out.path(name))
                taken += 1
        if taken:
            out.log(f"{out.stage}: {shards}: {taken} shards are those of {other}")


def _failed(marker: Path) -> bool:
    """Whether a shard holds what an engine failed to answer, which is asked again rather than taken over.

    The reason is ``error``, by itself or behind what it is about (``judgment:error``).
    """
    found = read_json(marker)
    dropped = found["counts"]["dropped"] if isinstance(found, dict) and "counts" in found else ("error",)
    return any(reason == "error" or reason.endswith(":error") for reason in dropped)


def _has(directory: Path, shards: str, key: str) -> bool:
    path = directory / f".{shards}.key"
    return path.is_file() and path.read_text(encoding="utf-8") == key


def _link(source: Path, target: Path) -> None:
    """A second name for a file, which is never changed in place; a copy where the disk knows no second names."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
