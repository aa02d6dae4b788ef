"""Benchmarks: labelled comparisons, from the generated world or from a file."""

from __future__ import annotations

import random
from dataclasses import dataclass

from judgetrain.artifacts import derive_seed
from judgetrain.config import BenchmarkConfig, Config
from judgetrain.dialogues import world
from judgetrain.dialogues.schema import Comparison
from judgetrain.dialogues.sources import read_comparisons
from judgetrain.errors import DataError


@dataclass(frozen=True)
class Benchmark:
    """A benchmark as evaluated: ``left_out`` counts comparisons by why they are not in it."""

    name: str
    split: str
    comparisons: list[Comparison]
    left_out: dict[str, int]


def load_benchmark(config: Config, benchmark: BenchmarkConfig, index: int) -> Benchmark:
    """The comparisons of a benchmark, each with a label.

    Raises:
        ConfigError: a missing path.
        DataError: a malformed row or unknown label (file, line and value), a repeated id, or nothing left.
    """
    key = f"evaluate.benchmarks[{index}]"
    if benchmark.source.type == "world":
        comparisons = world.eval_comparisons(config.dialogues.world, config.seed)
        split = "heldout"
    else:
        comparisons = list(read_comparisons(benchmark.source, benchmark.labels, f"{key}.source"))
        split = benchmark.source.split if benchmark.source.type == "hub" else "test"
    seen: set[str] = set()
    for comparison in comparisons:
        if comparison.id in seen:
            raise DataError(f"{key}: the id {comparison.id!r} stands twice; ids must differ")
        seen.add(comparison.id)
    kept = [c for c in comparisons if benchmark.max_chars is None or _chars(c) <= benchmark.max_chars]
    left_out = {"too_long": len(comparisons) - len(kept)}
    if benchmark.limit is not None and benchmark.limit < len(kept):
        left_out["over_limit"] = len(kept) - benchmark.limit
        kept = random.Random(derive_seed(config.seed, "benchmark", benchmark.name)).sample(kept, benchmark.limit)
    if not kept:
        raise DataError(f"{key}: no comparison is left of {len(comparisons)}; look at max_chars={benchmark.max_chars}")
    return Benchmark(benchmark.name, split, kept, {k: n for k, n in left_out.items() if n})


def _chars(comparison: Comparison) -> int:
    texts = [m.content for m in comparison.dialogue.messages]
    return sum(map(len, (*texts, comparison.response_a, comparison.response_b)))
