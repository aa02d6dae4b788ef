"""What metrics are computed from, and how one is registered: what computes it, what it needs, where it is shown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.evaluate.metrics.verdicts import Verdicts, agreement, consistency, decided, without_ties
from judgetrain.judges.base import Prediction


class Sample:
    """One method's predictions on a benchmark, in its order, and what several metrics need of them.

    Arrays and lists [n] are over the comparisons with a label. What the data does not have is None, and so is every
    metric that needs it.

    Raises:
        ValueError: predictions of other comparisons or in another order.
    """

    __slots__ = (
        *("labelled", "labels", "ab", "ba", "single_ab", "single_ba", "agreed", "consistent", "without_ties"),
        *("decided", "margins", "single_margins", "longer", "prompts", "named_prompts", "groups", "domains"),
        *("failures", "votes", "seconds", "resamples", "seed"),
    )

    def __init__(
        self, benchmark: Benchmark, predictions: Sequence[Prediction], seconds: float, resamples: int, seed: int
    ) -> None:
        if [p.comparison_id for p in predictions] != [c.id for c in benchmark.comparisons]:
            raise ValueError(f"the predictions are not those of the comparisons of {benchmark.name}, in their order")
        pairs = list(zip(benchmark.comparisons, predictions, strict=True))
        comparisons = [c for c, _ in pairs if c.label is not None]
        self.labelled = [p for c, p in pairs if c.label is not None]
        self.labels = [str(c.label) for c in comparisons]
        # What each order counts for, as the comparison has it, and what it says, where both are not stored as one.
        self.ab: Verdicts = [p.decided[0] for p in self.labelled]
        self.ba: Verdicts = [p.decided[1] for p in self.labelled]
        said: list[Verdicts] = [[p.verdict_ab for p in self.labelled], [p.verdict_ba for p in self.labelled]]
        merged = any(p.merged for p in self.labelled)
        self.single_ab, self.single_ba = (None if merged else each for each in said)
        self.agreed, self.consistent = agreement(self.ab, self.ba, self.labels), consistency(*said)
        self.without_ties = without_ties(self.labels)
        """Items whose label is A or B."""
        self.decided = decided(self.ab, self.ba, self.labels)
        """Those that the verdict gives to A or B, too."""
        self.margins = [p.margin for p in self.labelled]
        """Score of A minus that of B; ``single_margins``: those of a method without branches, such as a scorer."""
        alone = not predictions[0].branches and not set(self.margins) <= {None}
        self.single_margins = self.margins if alone else None
        self.longer = [c.longer for c in comparisons]
        """The response with more characters, A, B or tie."""
        self.prompts = [benchmark.prompt_of(c) for c in comparisons]
        """What intervals resample whole; ``named_prompts``: where the benchmark says what belongs together."""
        self.named_prompts = self.prompts if benchmark.prompts else None
        self.groups = [c.group for c in comparisons]
        self.domains = [benchmark.domains.get(c.group or "") for c in comparisons]
        failures: Counter[str] = sum((Counter(p.failures) for p in self.labelled), Counter())
        self.failures = dict(sorted(failures.items()))
        """Unreadable judgments by reason; a reason with a colon ended a branch before its judgment."""
        votes = [(p, benchmark.prompt_of(c), benchmark.votes.get(c.id, ())) for c, p in pairs]
        self.votes = votes if benchmark.votes else None
        """Every prediction, labelled or not, with its prompt and the votes on it."""
        self.seconds = None if math.isnan(seconds) else seconds
        """Of a verdict."""
        self.resamples, self.seed = resamples, seed


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
        value = None if any(argument is None for argument in arguments) else self.compute(*arguments)
        return mean(value) if isinstance(value, np.ndarray) else value


def metric(compute: Callable[..., Any], needs: str, column: Column | None = None) -> Any:
    """A field of :class:`~judgetrain.evaluate.metrics.rows.MetricRow` that is computed for every method.

    Args:
        compute: called with what it needs, in that order; returns a JSON-ready value or a dataclass, None where the
            metric is not defined, or an array [n] of one value an item, whose mean is the metric.
        needs: names of attributes of :class:`~judgetrain.evaluate.metrics.registry.Sample`, with spaces between.
        column: where the report shows it; without one it stands in ``metrics.json`` only.

    Raises:
        AttributeError: a sample has no such attribute.
    """
    names = tuple(needs.split())
    for name in names:
        if name not in Sample.__slots__:
            raise AttributeError(f"a metric needs {name!r}, which is no attribute of Sample")
    return field(default=None, metadata={"metric": Metric(compute, names, column)})


def mean(values: Any) -> float | None:
    """The mean, to six decimals; None without values or where one of them is not known (NaN)."""
    array = np.asarray(values, dtype=float)
    return round(float(array.mean()), 6) if len(array) and not np.isnan(array).any() else None
