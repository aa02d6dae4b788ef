"""Choosing the number of branches on a development split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.errors import DataError
from judgetrain.evaluate.metrics.verdicts import agreement
from judgetrain.judges.base import Prediction

DEVELOPMENT = "development"  # the name of the split that choices are made on


@dataclass(frozen=True)
class Choice:
    """The number of branches chosen for a method: strict agreement on the ``n`` development items by number."""

    method: str
    branches: int
    n: int
    agreement: dict[int, float]


def split(benchmark: Benchmark, share: float) -> tuple[Benchmark | None, Benchmark]:
    """The development split (None for a share of 0) and the test split; a query is on one side only.

    On which depends on the query alone, not on the run's seed: what was chosen on in one run is reported in none.

    Raises:
        DataError: one of the two would have no labelled comparison.
    """
    if not share:
        return None, benchmark
    dev = drawn(benchmark, share, DEVELOPMENT)
    sides = [[c for c in benchmark.comparisons if (c.id in dev) == side] for side in (True, False)]
    if not all(any(c.label is not None for c in side) for side in sides):
        queries = len({benchmark.prompt_of(c) for c in benchmark.comparisons})
        raise DataError(
            f"evaluate.dev_share={share}: benchmark {benchmark.name} has {queries} different queries, too few for a "
            "development and a test split"
        )
    return benchmark.part(sides[0], DEVELOPMENT), benchmark.part(sides[1], benchmark.split)


def drawn(benchmark: Benchmark, share: float, purpose: str) -> set[str]:
    """The ids of a share of the comparisons, whole queries at a time; which depends on purpose and queries alone."""
    queries: dict[str, list[str]] = {}
    for comparison in benchmark.comparisons:
        queries.setdefault(benchmark.prompt_of(comparison), []).append(comparison.id)
    found: set[str] = set()
    for query in sorted(queries, key=lambda query: derive_seed(0, purpose, query)):
        if len(found) >= share * len(benchmark.comparisons):
            break
        found.update(queries[query])
    return found


def part_of(benchmark: Benchmark, predictions: Sequence[Prediction]) -> list[Prediction]:
    """The predictions on a part of a benchmark, in its order."""
    by_id = {p.comparison_id: p for p in predictions}
    return [by_id[c.id] for c in benchmark.comparisons]


def choose(dev: Benchmark, results: Sequence[Sequence[Prediction]]) -> list[Choice]:
    """For every method with several numbers of branches: the one with the best strict agreement on ``dev``.

    Of equally good ones the smallest, which is the cheapest.
    """
    by_method: dict[str, dict[int, float]] = {}
    labelled = dev.part([c for c in dev.comparisons if c.label is not None], dev.split)
    labels = [str(c.label) for c in labelled.comparisons]
    for predictions in results:
        mine = part_of(labelled, predictions)
        agreed = agreement([p.decided[0] for p in mine], [p.decided[1] for p in mine], labels)
        by_method.setdefault(mine[0].method, {})[mine[0].branches] = round(float(np.mean(agreed)), 6)
    return [
        Choice(method, max(sorted(found), key=lambda k: found[k]), len(labels), dict(sorted(found.items())))
        for method, found in by_method.items()
        if len(found) > 1
    ]
