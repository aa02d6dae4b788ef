"""Agreement with single votes, where several people voted on a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.evaluate import metrics
from judgetrain.evaluate.metrics.statistics import cluster_interval
from judgetrain.judges.base import Prediction


def vote_metrics(benchmark: Benchmark, predictions: Sequence[Prediction], resamples: int, seed: int) -> dict[str, Any]:
    """Each vote an item, also on comparisons without a majority.

    ``agreement``: strict. ``conflict_as_tie``: orders that conflict count as a tie (MT-Bench's setup 1).
    ``agreement_decided``: over the votes that, like the verdict, are for A or B (its setup 2). ``between_people``: the
    share of equal votes among all pairs of votes on one comparison, ``between_people_decided`` among pairs without
    ties. Intervals resample prompts, since votes on one comparison, and comparisons on one prompt, are not independent.
    """
    votes, prompts = benchmark.votes, {c.id: benchmark.prompt_of(c) for c in benchmark.comparisons}
    items = [(p, vote) for p in predictions for vote in votes.get(p.comparison_id, ())]
    ab, ba = [p.verdict_ab for p, _ in items], [p.verdict_ba for p, _ in items]
    labels: list[str] = [vote for _, vote in items]
    clusters = [prompts[p.comparison_id] for p, _ in items]
    strict, as_tie = metrics.agreement(ab, ba, labels), metrics.conflict_as_tie(ab, ba, labels)
    decided = metrics.decided(ab, ba, labels)
    pairs = [pair for p in predictions for pair in combinations(votes.get(p.comparison_id, ()), 2)]
    return {
        "n": len(items),
        "agreement": _mean(strict),
        "agreement_ci": cluster_interval(strict, clusters, resamples, seed),
        "conflict_as_tie": _mean(as_tie),
        "conflict_as_tie_ci": cluster_interval(as_tie, clusters, resamples, seed),
        "n_decided": int(decided.sum()),
        "agreement_decided": _mean(strict[decided]),
        "pairs_of_votes": len(pairs),
        "between_people": _mean([a == b for a, b in pairs]),
        "between_people_decided": _mean([a == b for a, b in pairs if "tie" not in (a, b)]),
    }


def _mean(values: Any) -> float | None:
    array = np.asarray(values, dtype=float)
    return round(float(array.mean()), 6) if len(array) else None
