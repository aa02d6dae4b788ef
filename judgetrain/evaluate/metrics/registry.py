"""How a metric is registered: what computes it, what it needs, and where the report shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from judgetrain.evaluate.metrics.sample import Sample

Unit = Literal["percent", "points", "integer", "tenths", "hundredths", "seconds"]
"""How a value is shown: a share in percent, a difference of shares in points, a number to so many decimals."""


@dataclass(frozen=True)
class Column:
    """A column of a table of the report.

    ``table`` is the title of a table whose rows are methods, a new one if there is none of this name. ``note`` is added
    to the table's explanation. A ``sparse`` column is left out where no method has a value. Columns stand in their
    ``order``, equal ones as they are registered.
    """

    table: str
    header: str
    unit: Unit = "percent"
    note: str = ""
    sparse: bool = False
    order: int = 0


@dataclass(frozen=True)
class Metric:
    """A function, what it is called with, and the column that shows its value, if any."""

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
    """A field of :class:`~judgetrain.evaluate.metrics.rows.MetricRow` that is computed for every method.

    Args:
        compute: called with what it needs, in that order; returns a JSON-ready value or a dataclass, None where the
            metric is not defined, or an array [n] of one value an item, whose mean is the metric.
        needs: names of attributes of :class:`~judgetrain.evaluate.metrics.sample.Sample`, with spaces between.
        column: where the report shows it; without one it stands in ``metrics.json`` only.

    Raises:
        AttributeError: a sample has no such attribute.
    """
    names = tuple(needs.split())
    for name in names:
        if name not in Sample.__annotations__:
            raise AttributeError(f"a metric needs {name!r}, which is no attribute of Sample")
    return field(default=None, metadata={"metric": Metric(compute, names, column)})


def mean(values: Any) -> float | None:
    """The mean, to six decimals; None without values or where one of them is not known (NaN)."""
    array = np.asarray(values, dtype=float)
    return round(float(array.mean()), 6) if len(array) and not np.isnan(array).any() else None
