"""Trees that an earlier evaluation sampled, taken over where nothing that they depend on has changed.

So new metrics, another method in the table, or a sweep that leaves a judge as it is need no new inference.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from judgetrain.artifacts import StageRun, write_text_atomic
from judgetrain.config import Config
from judgetrain.evaluate.benchmarks import Benchmark
from judgetrain.evaluate.names import base_method, is_directory
from judgetrain.fingerprint import ContentHashes, fingerprint, slice_of

FORMAT = 1
"""Raised when the code changes what is sampled."""


def sample_key(method: str, benchmark: Benchmark, config: Config, inputs: Mapping[str, Path]) -> str | None:
    """What a judge's trees on a benchmark depend on, as a hash; None for methods whose trees are not shared.

    Shared are those of judges that this run or another has trained: the judge by its fingerprint or its files, the
    comparisons, and the settings of sampling. Metrics and other methods are not part of it.
    """
    base = base_method(method)
    if base in inputs:
        judge: object = inputs[base].name
    elif is_directory(method):
        judge = ContentHashes(Path(config.output_dir) / ".content-hashes.json").of(base)
    else:
        return None
    settings = config.evaluate
    sampling = ("seed", "tree", "engine", "evaluate.early_stop", "evaluate.top_up")
    return fingerprint(
        {
            "format": FORMAT,
            "method": method if base in inputs else method.removeprefix(base),
            "judge": judge,
            "branches": max(settings.branches),
            "aggregation": settings.aggregation if settings.early_stop else None,
            "comparisons": [asdict(c) for c in benchmark.comparisons],
            **slice_of(config, sampling),
        }
    )


def adopt(shards: str, key: str, out: StageRun) -> None:
    """Take over the finished shards of evaluations beside this one that have the same key, and leave the key here.

    Shards that lie here under another key, or under none, are of other trees and are dropped.
    """
    if not _has(out.directory, shards, key):
        for stale in (*out.directory.glob(f".{shards}-*-of-*.json"), *out.directory.glob(f"{shards}-*-of-*.jsonl")):
            stale.unlink()
        write_text_atomic(out.path(f".{shards}.key"), key)
    for other in sorted(out.directory.parent.iterdir()):
        if other == out.directory or not _has(other, shards, key):
            continue
        taken = 0
        for marker in sorted(other.glob(f".{shards}-*-of-*.json")):
            stem = marker.name.removeprefix(".").removesuffix(".json")
            seconds = f".{stem.rpartition('-of-')[0]}.seconds"
            files = [f"{stem}.jsonl", seconds, marker.name]  # the marker last: it says that the shard is there
            if all((other / name).is_file() for name in files) and not out.path(marker.name).exists():
                for name in files:
                    _link(other / name, out.path(name))
                taken += 1
        if taken:
            out.log(f"evaluate: {shards}: {taken} shards are those of {other}")


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
