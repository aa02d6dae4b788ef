"""From predictions to rows of metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from judgetrain.dialogues.schema import Comparison
from judgetrain.evaluate import metrics
from judgetrain.evaluate.benchmarks import Benchmark
from judgetrain.evaluate.statistics import bootstrap_interval
from judgetrain.judges.base import Prediction


def metric_row(
    benchmark: Benchmark, predictions: Sequence[Prediction], seconds: float, resamples: int, seed: int
) -> dict[str, Any]:
    """One row of ``metrics.json``: a method with a number of branches on a benchmark (DESIGN section 5)."""
    ab, ba = [p.verdict_ab for p in predictions], [p.verdict_ba for p in predictions]
    labels = [str(c.label) for c in benchmark.comparisons]
    agreed, consistent = metrics.agreement(ab, ba, labels), metrics.consistency(ab, ba)
    decided = metrics.without_ties(labels)
    judgments = sum(p.judgments for p in predictions)
    failures: Counter[str] = sum((Counter(p.failures) for p in predictions), Counter())
    return {
        "method": predictions[0].method,
        "benchmark": benchmark.name,
        "split": benchmark.split,
        "branches": predictions[0].branches,
        "n": len(predictions),
        "agreement": _mean(agreed),
        "agreement_ci": bootstrap_interval(agreed, resamples, seed),
        "consistency": _mean(consistent),
        "consistency_ci": bootstrap_interval(consistent, resamples, seed),
        "n_without_ties": int(decided.sum()),
        "agreement_without_ties": _mean(agreed[decided]),
        "consistency_without_ties": _mean(consistent[decided]),
        "single_order_accuracy": _mean(metrics.single_order_accuracy(ab, ba, labels)),
        "conflict_as_tie": _mean(metrics.conflict_as_tie(ab, ba, labels)),
        "position_bias": metrics.position_bias(ab, ba),
        "longer_preference": metrics.longer_preference(ab, ba, [_longer(c) for c in benchmark.comparisons]),
        "judgments": judgments,
        "parse_failures": sum(n for k, n in failures.items() if k != "criteria:none"),
        "failures": dict(sorted(failures.items())),
        "unreadable_verdicts": sum((a is None) + (b is None) for a, b in zip(ab, ba, strict=True)),
        "prompt_tokens": _mean([p.cost.prompt_tokens for p in predictions]),
        "generated_tokens": _mean([p.cost.generated_tokens for p in predictions]),
        "calls": _mean([p.cost.calls for p in predictions]),
        "seconds": seconds,
        "groups": _groups(benchmark.comparisons, agreed, consistent),
    }


def prediction_rows(benchmark: Benchmark, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
    """Rows of ``predictions.parquet``: one a comparison, method and number of branches."""
    return [
        {
            "benchmark": benchmark.name,
            "comparison_id": c.id,
            "group": c.group,
            "label": c.label,
            "method": p.method,
            "branches": p.branches,
            "verdict_ab": p.verdict_ab,
            "verdict_ba": p.verdict_ba,
            "margin": p.margin,
            "judgments": p.judgments,
            "unreadable": sum(p.failures.values()),
            "prompt_tokens": p.cost.prompt_tokens,
            "generated_tokens": p.cost.generated_tokens,
            "calls": p.cost.calls,
        }
        for c, p in zip(benchmark.comparisons, predictions, strict=True)
    ]


def _groups(comparisons: Sequence[Comparison], agreed: Any, consistent: Any) -> dict[str, Mapping[str, Any]]:
    names = [c.group for c in comparisons]
    result: dict[str, Mapping[str, Any]] = {}
    for name in sorted({n for n in names if n is not None}):
        mask = np.array([n == name for n in names])
        result[name] = {"n": int(mask.sum()), "agreement": _mean(agreed[mask]), "consistency": _mean(consistent[mask])}
    return result


def _longer(comparison: Comparison) -> str:
    a, b = len(comparison.response_a), len(comparison.response_b)
    return "tie" if a == b else "A" if a > b else "B"


def _mean(values: Any) -> float | None:
    array = np.asarray(values, dtype=float)
    return round(float(array.mean()), 6) if len(array) else None
