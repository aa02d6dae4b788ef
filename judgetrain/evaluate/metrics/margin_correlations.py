"""Correlations of margins with labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from judgetrain.evaluate.metrics.registry import Interval
from judgetrain.evaluate.metrics.statistics import correlation_intervals
from judgetrain.evaluate.metrics.verdicts import correlations


@dataclass(frozen=True, kw_only=True)
class Correlations:
    """Correlations of margins with labels (A 1, tie 0, B -1), or of scores with ratings, and their 95% intervals."""

    pearson: float | None
    kendall: float | None
    spearman: float | None
    pearson_ci: Interval | None
    kendall_ci: Interval | None
    spearman_ci: Interval | None


def margin_correlations(
    margins: Sequence[float | None], labels: Sequence[str], prompts: Sequence[str], resamples: int, seed: int
) -> Correlations:
    """Of the items [n] that have a margin; intervals resample prompts whole."""
    number = {"A": 1.0, "tie": 0.0, "B": -1.0}
    kept = [(m, number[y], p) for m, y, p in zip(margins, labels, prompts, strict=True) if m is not None]
    x, truth, clusters = zip(*kept, strict=True)
    found: dict[str, Any] = {**correlations(x, truth)}
    for name, ends in correlation_intervals(x, truth, resamples, seed, clusters).items():
        found[f"{name}_ci"] = ends
    return Correlations(**found)
