"""Where methods differ: on which comparisons one is right and another is not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.judges.base import Prediction

EXAMPLES = 20
SNIPPET = 90


def disagreements(benchmark: Benchmark, results: Sequence[Sequence[Prediction]]) -> dict[str, Any]:
    """Counts for every pair of methods, and examples.

    ``pairs``: ``first``, ``second``, and over the comparisons with a label ``both_right``, ``only_first``,
    ``only_second``, ``both_wrong`` (right: strict agreement). ``examples``: comparisons on which some methods are right
    and some wrong, the most divided first: ``id``, ``group``, ``query`` (its beginning), ``label`` and each method's
    two ``verdicts``.

    Args:
        benchmark: what was evaluated.
        results: one method's predictions each, in the benchmark's order.
    """
    items = [i for i, c in enumerate(benchmark.comparisons) if c.label is not None]
    right = {
        r[0].method: [r[i].verdict_ab == r[i].verdict_ba == benchmark.comparisons[i].label for i in items]
        for r in results
    }
    pairs = []
    for first, second in combinations(right, 2):
        both = list(zip(right[first], right[second], strict=True))
        names = {"both_right": (True, True), "only_first": (True, False), "only_second": (False, True)}
        counts = {name: both.count(value) for name, value in names.items()}
        pairs.append({"first": first, "second": second, **counts, "both_wrong": both.count((False, False))})
    return {"pairs": pairs, "examples": _examples(benchmark, results, items, list(right.values()))}


def _examples(
    benchmark: Benchmark, results: Sequence[Sequence[Prediction]], items: Sequence[int], right: Sequence[Sequence[bool]]
) -> list[dict[str, Any]]:
    divided = []
    for position, item in enumerate(items):
        share = sum(r[position] for r in right) / len(right) if right else 0
        if 0 < share < 1:
            divided.append((abs(share - 0.5), item))
    found = []
    for _, item in sorted(divided)[:EXAMPLES]:
        comparison = benchmark.comparisons[item]
        query = " ".join(comparison.dialogue.query.split())
        found.append(
            {
                "id": comparison.id,
                "group": comparison.group,
                "query": query if len(query) <= SNIPPET else f"{query[:SNIPPET]}…",
                "label": comparison.label,
                "verdicts": {r[item].method: [r[item].verdict_ab, r[item].verdict_ba] for r in results},
            }
        )
    return found
