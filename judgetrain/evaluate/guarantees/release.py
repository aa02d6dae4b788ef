"""An earlier evaluation that a gate sets a judge against: its verdicts, and whether they are of these comparisons."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.errors import DataError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.guarantees.config import GuaranteesConfig
from judgetrain.evaluate.metrics.rows import MethodKey

Verdicts = dict[str, tuple[Any, Any]]
"""The verdicts in both orders by comparison id."""
READ = ("comparison_id", "method", "branches", "verdict_ab", "verdict_ba", "label", "summed", "content")
"""The columns that are read of ``predictions.parquet``."""


@dataclass(frozen=True)
class Release:
    """What an evaluation's ``predictions.parquet`` says of a benchmark.

    ``verdicts`` by method; by comparison id the ``contents``, hashes of the texts, and the ``labels`` of that time.
    """

    verdicts: dict[MethodKey, Verdicts] = field(default_factory=dict)
    contents: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)

    def differs(self, benchmark: Benchmark) -> str:
        """What shows that comparisons of the same id have other texts, in words; empty where nothing does."""
        shared = [c for c in benchmark.comparisons if c.id in self.contents]
        other = [c.id for c in shared if c.content != self.contents[c.id]]
        if not other:
            return ""
        return f"{len(other)} of {len(shared)} comparisons of the same id have other texts there (first {other[0]!r})"

    def remark(self, benchmark: Benchmark) -> str:
        """How many labels were corrected since, in words; empty where none was."""
        labels = {c.id: c.label for c in benchmark.comparisons if c.label is not None}
        changed = sum(self.labels.get(name, label) != label for name, label in labels.items())
        return f"{changed} labels are not those of then; both are held against today's" if changed else ""


def check_release(config: GuaranteesConfig, evaluate: EvaluateConfig) -> None:
    """Read the release that the gate sets judges against.

    Raises:
        DataError: there is none.
    """
    if config.required and config.release:
        read_release(Path(config.release), evaluate.benchmarks[0].name)


def read_release(directory: Path, benchmark: str) -> Release:
    """What a finished evaluation says of a benchmark; nothing where it was not on it.

    Raises:
        DataError: there is none in the directory.
    """
    import pyarrow.parquet

    path = directory.expanduser() / "predictions.parquet"
    if not path.is_file():
        raise DataError(f"guarantees.release={str(directory)!r}: no finished evaluation ({path} is missing)")
    found = Release()
    rows = pyarrow.parquet.read_table(path, columns=list(READ), filters=[("benchmark", "=", benchmark)])
    for row in rows.to_pylist():
        key, name, one = MethodKey(row["method"], row["branches"]), row["comparison_id"], row["summed"]
        found.verdicts.setdefault(key, {})[name] = (one, one) if one else (row["verdict_ab"], row["verdict_ba"])
        for kept, value in ((found.contents, row["content"]), (found.labels, row["label"])):
            if value is not None:
                kept[name] = value
    return found
