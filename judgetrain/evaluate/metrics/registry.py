"""What metrics are computed from, and how one is registered: what computes it, what it needs, where it is shown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.evaluate.metrics.verdicts import Bools, Verdicts, agreement, consistency, decided, without_ties
from judgetrain.judges.base import Prediction


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Arrays and lists [n] over the comparisons with a label. What the data does not have is None, and so is every
    metric that needs it.

    ``labelled``: the predictions; ``labels``: A, B or tie; ``ab`` and ``ba``: what each order counts for, as the
    comparison has it (:attr:`~judgetrain.judges.base.Prediction.decided`); ``single_ab`` and ``single_ba``: what it
    says, None where both orders are stored as one verdict. ``agreed``: agreement of the former; ``consistent``:
    consistency of what each order says; ``without_ties``: items whose label is A or B; ``decided``: those that the
    verdict gives to A or B, too. ``margins``: score of A minus that of B; ``single_margins``: those of a method without
    branches, such as a scorer. ``longer``: the response with more characters, A, B or tie. ``prompts``: what intervals
    resample whole; ``named_prompts``: the same where the benchmark says which comparisons belong together. ``groups``,
    ``domains``: names or None. ``failures``: unreadable judgments by reason; a reason with a colon ended a branch
    before its judgment. ``votes``: every prediction, labelled or not, with its prompt and the votes on it. ``seconds``:
    of a verdict. ``resamples``, ``seed``: of intervals.
    """

    labelled: Sequence[Prediction]
    labels: Sequence[str]
    ab: Verdicts
    ba: Verdicts
    single_ab: Verdicts | None
    single_ba: Verdicts | None
    agreed: Bools
    consistent: Bools
    without_ties: Bools
    decided: Bools
    margins: Sequence[float | None]
    single_margins: Sequence[float | None] | None
    longer: Sequence[str]
    prompts: Sequence[str]
    named_prompts: Sequence[str] | None
    groups: Sequence[str | None]
    domains: Sequence[str | None]
    failures: dict[str, int]
    votes: Sequence[tuple[Prediction, str, tuple[str, ...]]] | None
    seconds: float | None
    resamples: int
    seed: int

    @classmethod
    def of(
        cls, benchmark: Benchmark, predictions: Sequence[Prediction], seconds: float, resamples: int, seed: int
    ) -> Self:
        """The sample of predictions in the benchmark's order; ``seconds`` NaN: not known.

        Raises:
            ValueError: predictions of other comparisons or in another order.
        """
        if [p.comparison_id for p in predictions] != [c.id for c in benchmark.comparisons]:
            raise ValueError(f"the predictions are not those of the comparisons of {benchmark.name}, in their order")
        pairs = list(zip(benchmark.comparisons, predictions, strict=True))
        comparisons, labelled = (
            [c for c, _ in pairs if c.label is not None],
            [p for c, p in pairs if c.label is not None],
        )
        labels, prompts = [str(c.label) for c in comparisons], [benchmark.prompt_of(c) for c in comparisons]
        ab, ba, margins = (
            [p.decided[0] for p in labelled],
            [p.decided[1] for p in labelled],
            [p.margin for p in labelled],
        )
        said = [p.verdict_ab for p in labelled], [p.verdict_ba for p in labelled]
        merged = any(p.merged for p in labelled)
        failures: Counter[str] = sum((Counter(p.failures) for p in labelled), Counter())
        every = zip(benchmark.comparisons, predictions, strict=True)
        votes = [(p, benchmark.prompt_of(c), benchmark.votes.get(c.id, ())) for c, p in every]
        return cls(
            labelled=labelled,
            labels=labels,
            ab=ab,
            ba=ba,
            single_ab=None if merged else said[0],
            single_ba=None if merged else said[1],
            agreed=agreement(ab, ba, labels),
            consistent=consistency(*said),
            without_ties=without_ties(labels),
            decided=decided(ab, ba, labels),
            margins=margins,
            single_margins=None if predictions[0].branches or set(margins) <= {None} else margins,
            longer=[c.longer for c in comparisons],
            prompts=prompts,
            named_prompts=prompts if benchmark.prompts else None,
            groups=[c.group for c in comparisons],
            domains=[benchmark.domains.get(c.group or "") for c in comparisons],
            failures=dict(sorted(failures.items())),
            votes=votes if benchmark.votes else None,
            seconds=None if math.isnan(seconds) else seconds,
            resamples=resamples,
            seed=seed,
        )


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
        needs: names of attributes of :class:`~judgetrain.evaluate.metrics.registry.Sample`, with spaces between.
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
