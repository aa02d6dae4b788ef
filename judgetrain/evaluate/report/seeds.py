"""Means over runs that differ in nothing but their seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from judgetrain.evaluate.metrics.rows import MetricRow
from judgetrain.evaluate.metrics.statistics import over_seeds


@dataclass(frozen=True, kw_only=True)
class SeedMeans:
    """A method's mean agreement and consistency over so many ``seeds``, and their sample standard deviations."""

    benchmark: str
    branches: int
    seeds: int
    method: str
    agreement: float
    agreement_std: float | None
    consistency: float
    consistency_std: float | None

    @classmethod
    def of(cls, rows: Sequence[MetricRow], method: str) -> Self:
        """Of the rows of one method with one number of branches on one benchmark, a row a seed."""
        found: dict[str, Any] = {"benchmark": rows[0].benchmark, "branches": rows[0].branches, "seeds": len(rows)}
        for name in ("agreement", "consistency"):
            found[name], found[f"{name}_std"] = over_seeds([getattr(row, name) for row in rows])
        return cls(method=method, **found)
