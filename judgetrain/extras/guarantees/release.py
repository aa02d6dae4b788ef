"""An earlier evaluation that a gate sets a judge against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.errors import DataError
from judgetrain.evaluate.metrics.rows import MethodKey
from judgetrain.extras.guarantees.config import GuaranteesConfig

Verdicts = dict[str, tuple[Any, Any]]
"""The verdicts in both orders by comparison id."""
FILE = "predictions.parquet"
READ = ["comparison_id", "method", "branches", "verdict_ab", "verdict_ba", "summed", "content"]


def check_release(config: GuaranteesConfig, settings: object) -> None:
    """Look for the release that the gate sets judges against."""
    if config.required and config.release:
        _file(config.release)


def release_verdicts(directory: str, benchmark: Benchmark) -> dict[MethodKey, Verdicts]:
    """What a finished evaluation says of a benchmark's comparisons: of those whose texts are the same, by their hashes.

    Ids may be the same where texts are not. Labels are today's, whatever they were then.
    """
    import pyarrow.parquet

    texts = {c.id: c.content for c in benchmark.comparisons}
    found: dict[MethodKey, Verdicts] = {}
    rows = pyarrow.parquet.read_table(_file(directory), columns=READ, filters=[("benchmark", "=", benchmark.name)])
    for row in rows.to_pylist():
        name, both = row["comparison_id"], row["summed"]
        if texts.get(name) == row["content"]:
            verdicts = (both, both) if both else (row["verdict_ab"], row["verdict_ba"])
            found.setdefault(MethodKey(row["method"], row["branches"]), {})[name] = verdicts
    return found


def _file(directory: str) -> Path:
    path = Path(directory).expanduser() / FILE
    if not path.is_file():
        raise DataError(f"guarantees.release={directory!r}: no finished evaluation ({path} is missing)")
    return path
