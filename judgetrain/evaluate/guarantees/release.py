"""An earlier evaluation that a gate sets a judge against: its verdicts, and whether they are of these comparisons."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.errors import DataError
from judgetrain.evaluate.metrics.rows import MethodKey

Verdicts = dict[str, tuple[Any, Any]]
"""The verdicts in both orders by comparison id."""
READ = ("comparison_id", "method", "branches", "verdict_ab", "verdict_ba", "label", "summed", "content")
"""The columns that are read of ``predictions.parquet``; older files lack the last or the last two."""


@dataclass(frozen=True)
class Release:
    """What an evaluation's ``predictions.parquet`` says of a benchmark.

    ``verdicts`` by method; by comparison id the ``contents``, hashes of the texts (none in older files), and the
    ``labels`` of that time.
    """

    verdicts: dict[MethodKey, Verdicts] = field(default_factory=dict)
    contents: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)

    def differs(self, benchmark: Benchmark) -> str:
        """What shows that comparisons of the same id are not the same, in words; empty where nothing does.

        With hashes it is other texts, and another label is one that was corrected. Without, it is another label.
        """
        here = {c.id: c.content if self.contents else c.label for c in benchmark.comparisons}
        there = self.contents or self.labels
        shared = [name for name in here if name in there and here[name] is not None]
        other = [name for name in shared if here[name] != there[name]]
        if not other:
            return ""
        what = "texts" if self.contents else "labels"
        told = f"{len(other)} of {len(shared)} comparisons of the same id have other {what} there (first {other[0]!r})"
        return told if self.contents else f"{told}, and it kept no hashes of texts: evaluate that judge again"

    def remark(self, benchmark: Benchmark) -> str:
        """What a reader of the test must know of how comparisons were paired; empty where there is nothing."""
        if self.verdicts and not self.contents:
            return "paired by id and label alone: the release kept no hashes of texts"
        labels = {c.id: c.label for c in benchmark.comparisons if c.label is not None}
        changed = sum(self.labels.get(name, label) != label for name, label in labels.items())
        return f"{changed} labels are not those of then; both are held against today's" if changed else ""


def read_release(directory: Path, benchmark: str) -> Release:
    """What a finished evaluation says of a benchmark; nothing where it was not on it.

    Raises:
        DataError: there is none in the directory.
    """
    import pyarrow.parquet

    path = directory.expanduser() / "predictions.parquet"
    if not path.is_file():
        raise DataError(f"evaluate.gate.release={str(directory)!r}: no finished evaluation ({path} is missing)")
    found = Release()
    columns = [name for name in pyarrow.parquet.read_schema(path).names if name in READ]
    rows = pyarrow.parquet.read_table(path, columns=columns, filters=[("benchmark", "=", benchmark)])
    for row in rows.to_pylist():
        key, name, one = MethodKey(row["method"], row["branches"]), row["comparison_id"], row.get("summed")
        found.verdicts.setdefault(key, {})[name] = (one, one) if one else (row["verdict_ab"], row["verdict_ba"])
        for kept, value in ((found.contents, row.get("content")), (found.labels, row["label"])):
            if value is not None:
                kept[name] = value
    return found
