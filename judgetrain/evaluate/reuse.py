"""What the trees that an evaluation samples depend on, so that the next one takes them over where nothing differs.

New metrics, another method in the table, or a sweep that leaves a judge as it is then need no new inference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

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


def seconds_of(stem: str) -> list[str]:
    """The name of the file that holds a shard's seconds."""
    return [f".{stem.rpartition('-of-')[0]}.seconds"]
