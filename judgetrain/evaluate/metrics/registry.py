"""How a metric is registered: what computes it, what it needs, and where the report shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from judgetrain.evaluate.metrics.sample import Sample

Interval = tuple[float, float]
"""The ends of a 95% bootstrap interval."""
Unit = Literal["percent", "points", "count", "decimal", "number", "seconds"]
"""A share from 0 to 1, a difference of shares, no decimals, one, two, or three digits."""


@dataclass(frozen=True)
class Column:
    """A column of a table of the report.

    ``table`` is the title of a table whose rows are methods, a new one if there is none of this name. ``note`` is added
    to the table's explanation. A ``sparse`` column is left out where no method has a value.
    """

    table: str
    header: str
    unit: Unit = "percent"
    note: str = ""
    sparse: bool = False


@dataclass(frozen=True)
class Metric:
    """A function, the attributes of :class:`~judgetrain.evaluate.metrics.sample.Sample` that it is called with, and the
    column that shows its value; without one it stands in ``metrics.json`` only."""

    compute: Callable[..., Any]
    needs: tuple[str, ...]
    column: Column | None

    def of(self, sample: Sample) -> Any:
        """The value; the mean over items where the function gives an array. None where something needed is None."""
        arguments = [getattr(sample, need) for need in self.needs]
        if any(argument is None for argument in arguments):
            return None
        value = self.compute(*arguments)
        return mean(value) if isinstance(value, np.ndarray) else value


def metric(compute: Callable[..., Any], needs: str, column: Column | None = None) -> Any:
    """A field of :class:`~judgetrain.evaluate.metrics.rows.MetricRow`, computed by ``compute``.

    Args:
        compute: called with what it needs, in that order; returns a number, a JSON-ready value, None where the metric
            is not defined, or an array [n] of one value an item.
        needs: names of attributes of :class:`~judgetrain.evaluate.metrics.sample.Sample`, with spaces between.
        column: where the report shows it.

    Raises:
        AttributeError: a sample has no such attribute.
    """
    names = tuple(needs.split())
    if unknown := [name for name in names if name not in vars(Sample) and name not in Sample.__annotations__]:
        raise AttributeError(f"a metric needs {unknown[0]!r}, which is no attribute of Sample")
    return field(default=None, metadata={"metric": Metric(compute, names, column)})


def metrics_of(record: type) -> Mapping[str, Metric]:
    """The metrics among the fields of a dataclass, by the field's name."""
    fields = record.__dataclass_fields__  # type: ignore[attr-defined]
    return {name: found.metadata["metric"] for name, found in fields.items() if "metric" in found.metadata}


def mean(values: Any) -> float | None:
    """The mean, to six decimals; None without values or where one of them is not known (NaN)."""
    array = np.asarray(values, dtype=float)
    return round(float(array.mean()), 6) if len(array) and not np.isnan(array).any() else None
