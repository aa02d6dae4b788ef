"""Rows of ``metrics.json``: what metrics are computed from, and every one of a method on a benchmark. A metric is
registered by its field in :class:`MetricRow`."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Literal, Self, Union, get_args, get_origin, get_type_hints

import numpy as np

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.evaluate.hooks import extras, resolved
from judgetrain.evaluate.metrics import groups as grouped
from judgetrain.evaluate.metrics import intervals, verdicts
from judgetrain.evaluate.metrics.groups import Group, mean
from judgetrain.evaluate.metrics.intervals import Correlations, Interval, bootstrap_interval
from judgetrain.evaluate.metrics.verdicts import Bools, Verdicts
from judgetrain.judges.base import Prediction


def read_record(kind: Any, value: Any) -> Any:
    """A dataclass, or a tuple, list or mapping of some, out of plain data.

    Names that the dataclass does not have are left out; those that the data does not have keep their defaults, or are
    None.
    """
    if value is None:
        return None
    if isinstance(kind, type) and is_dataclass(kind):
        needed = {f.name: None for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
        found = {name: read_record(hint, value[name]) for name, hint in _hints(kind).items() if name in value}
        return kind(**needed | found)
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return read_record(next(part for part in parts if part is not NoneType), value)
    if origin is tuple:
        return tuple(read_record(parts[0], each) for each in value) if parts[-1] is ... else tuple(value)
    if isinstance(value, Mapping) and len(parts) == 2:
        return {parts[0](key): read_record(parts[1], each) for key, each in value.items()}
    return value


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


class Sample:
    """One method's predictions on a benchmark, in its order, and what several metrics need of them (ValueError:
    predictions of other comparisons or in another order).

    Arrays and lists [n] are over the comparisons with a label. What the data does not have is None, and so is every
    metric that needs it.
    """

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
        self.agreed, self.consistent = verdicts.agreement(self.ab, self.ba, self.labels), verdicts.consistency(*said)
        self.without_ties = verdicts.without_ties(self.labels)
        """Items whose label is A or B."""
        self.decided = verdicts.decided(self.ab, self.ba, self.labels)
        """Those that the verdict gives to A or B, too."""
        margins = [p.margin for p in self.labelled]
        self.single_margins = None if predictions[0].branches or set(margins) <= {None} else margins
        """Score of A minus that of B by a method without branches, such as a scorer."""
        self.longer = [c.longer for c in comparisons]
        """The response with more characters, A, B or tie."""
        self.prompts = [benchmark.prompt_of(c) for c in comparisons]
        """What intervals resample whole."""
        self.groups = [c.group for c in comparisons]
        self.domains = [benchmark.domains.get(c.group or "") for c in comparisons]
        failures: Counter[str] = sum((Counter(p.failures) for p in self.labelled), Counter())
        self.failures = dict(sorted(failures.items()))
        """Unreadable judgments by reason; a reason with a colon ended a branch before its judgment."""
        self.seconds = None if math.isnan(seconds) else seconds
        """Of a verdict."""
        self.resamples, self.seed = resamples, seed


Unit = Literal["percent", "points", "integer", "tenths", "hundredths", "thousandths", "seconds"]
"""How a value is shown: a share in percent, a difference of shares in points, a number to so many decimals."""


@dataclass(frozen=True)
class Column:
    """A column of a table of the report.

    ``table`` is the title of a table whose rows are methods, a new one if there is none of this name. A ``sparse``
    column is left out where no method has a value. Columns stand in their ``order``, equal ones as they are
    registered.
    """

    table: str
    header: str
    unit: Unit = "percent"
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
        needs: names of attributes of :class:`~judgetrain.evaluate.metrics.rows.Sample`, with spaces between.
        column: where the report shows it; without one it stands in ``metrics.json`` only.
    """
    return field(default=None, metadata={"metric": Metric(compute, tuple(needs.split()), column)})


_OPTIONAL = ("asked", "plan", "learned", "money", "run")
DEFINITIONS, BIASES, COST = "Definitions", "Biases", "Cost"
"""Tables of the report whose columns are declared here."""


@dataclass(frozen=True)
class MethodKey:
    """A method with its number of branches, 0 where it has none."""

    method: str
    branches: int

    def __str__(self) -> str:
        return f"{self.method}@{self.branches}" if self.branches else self.method


def _where(values: Bools, mask: Bools) -> Bools:
    return values[mask]


def _count(mask: Bools) -> int:
    return int(mask.sum())


def _mean_of(name: str) -> Callable[[Sequence[Prediction]], float | None]:
    return lambda found: mean([value for value in map(attrgetter(name), found) if value is not None])


def _position_interval(ab: verdicts.Verdicts, ba: verdicts.Verdicts, prompts: Sequence[str]) -> Interval | None:
    decides = verdicts.flips(ab, ba)
    first = [verdict == "A" for verdict, there in zip(ab, decides, strict=True) if there]
    of = [prompt for prompt, there in zip(prompts, decides, strict=True) if there]
    return intervals.wilson_interval(first, of if len(set(of)) < len(of) else None)


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What a method without training learned from: ``labels`` labelled pairs, and what it took, once, before the first
    verdict."""

    labels: int
    calls: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    seconds: float = 0.0
    money: float | None = None


@dataclass(frozen=True, kw_only=True)
class MetricRow:
    """A method with a number of branches (0: it has none) on a benchmark, over its ``n`` comparisons with a label.

    Shares are from 0 to 1; ``..._ci`` are 95% intervals over items, or over the ``n_prompts`` prompts where
    comparisons share one; ``..._wo_tie`` leaves out the items whose label is a tie. Tokens, calls and ``seconds`` are
    per verdict in one order, mean over items and orders. ``parse_failures`` counts those of ``judgments`` without
    readable scores; ``failures`` has the reasons, and beside them what ended a branch before its judgment
    (``guideline:...``, ``criteria:...``); ``unreadable_verdicts`` counts verdicts (of 2n) in which no branch could be
    read. ``asked``: how the judge was asked (``greedy``, ``T=1``); ``plan``: ``shared``, both orders were judged by one
    list of criteria and its guidelines, or ``independent``. ``learned``: what a method without training learned
    from. ``money``: of a verdict, where the engine has a price. ``extras``: the columns of extras by their names
    (:mod:`judgetrain.evaluate.hooks`).
    ``run``: in a merged report, its run.
    ``asked_again`` counts how often a comparison was asked about anew, since its first branch could not be read.
    A metric is None where it is not defined.
    """

    method: str
    benchmark: str
    split: str
    branches: int
    n: int
    agreement: float | None = metric(np.asarray, "agreed")
    agreement_ci: Interval | None = metric(bootstrap_interval, "agreed resamples seed prompts")
    consistency: float | None = metric(np.asarray, "consistent")
    consistency_ci: Interval | None = metric(bootstrap_interval, "consistent resamples seed prompts")
    n_wo_tie: int | None = metric(_count, "without_ties")
    agreement_wo_tie: float | None = metric(_where, "agreed without_ties", Column(DEFINITIONS, "agreement w/o ties %"))
    consistency_wo_tie: float | None = metric(
        _where, "consistent without_ties", Column(DEFINITIONS, "consistency w/o ties %")
    )
    single_order_accuracy: float | None = metric(
        verdicts.single_order_accuracy, "single_ab single_ba labels", Column(DEFINITIONS, "single order %")
    )
    conflict_as_tie: float | None = metric(
        verdicts.conflict_as_tie, "ab ba labels", Column(DEFINITIONS, "conflict as tie %")
    )
    n_decided: int | None = metric(_count, "decided", Column(DEFINITIONS, "n both decide", "integer", order=1))
    agreement_decided: float | None = metric(_where, "agreed decided", Column(DEFINITIONS, "both decide %"))
    n_flips: int | None = metric(
        lambda ab, ba: _count(verdicts.flips(ab, ba)), "single_ab single_ba", Column(BIASES, "n by order", "integer")
    )
    position_bias: float | None = metric(verdicts.position_bias, "single_ab single_ba", Column(BIASES, "first wins %"))
    position_bias_ci: Interval | None = metric(_position_interval, "single_ab single_ba prompts")
    length_correlation: float | None = metric(
        grouped.length_correlation, "ab ba longer", Column(BIASES, "with length r", "hundredths")
    )
    length_correlation_ci: Interval | None = metric(
        grouped.length_correlation_interval, "ab ba longer resamples seed prompts"
    )
    length_balanced: float | None = metric(
        grouped.length_balanced, "agreed labels longer", Column(DEFINITIONS, "length-balanced %")
    )
    length_balanced_ci: Interval | None = metric(
        grouped.length_balanced_interval, "agreed labels longer resamples seed prompts"
    )
    correlations: Correlations | None = metric(
        intervals.margin_correlations, "single_margins labels prompts resamples seed"
    )
    judgments: int | None = metric(lambda found: sum(p.judgments for p in found), "labelled")
    parse_failures: int | None = metric(
        lambda failures: sum(n for reason, n in failures.items() if ":" not in reason), "failures"
    )
    failures: Mapping[str, int] | None = metric(dict, "failures")
    unreadable_verdicts: int | None = metric(lambda ab, ba: _count(verdicts.unreadable([*ab, *ba])), "ab ba")
    prompt_tokens: float | None = metric(
        _mean_of("cost.prompt_tokens"), "labelled", Column(COST, "prompt tokens", "integer")
    )
    generated_tokens: float | None = metric(
        _mean_of("cost.generated_tokens"), "labelled", Column(COST, "generated tokens", "integer")
    )
    calls: float | None = metric(_mean_of("cost.calls"), "labelled", Column(COST, "calls", "tenths"))
    asked_again: int | None = metric(
        lambda found: sum(p.asked_again for p in found), "labelled", Column(COST, "asked again", "integer")
    )
    seconds: float | None = metric(float, "seconds", Column(COST, "seconds", "seconds"))
    groups: Mapping[str, Group] | None = metric(grouped.agreement_by_name, "groups agreed")
    domains: Mapping[str, Group] | None = metric(grouped.agreement_by_name, "domains agreed")
    n_prompts: int | None = metric(lambda prompts: len(set(prompts)), "prompts")
    asked: str | None = None
    plan: str | None = None
    learned: Learned | None = None
    money: float | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)
    run: str | None = None

    @property
    def key(self) -> MethodKey:
        """The method with its number of branches."""
        return MethodKey(self.method, self.branches)

    @property
    def money_of_1000(self) -> float | None:
        """What 1,000 verdicts cost."""
        return None if self.money is None else 1000 * self.money

    @property
    def labels(self) -> int | None:
        """The labelled pairs that a method without training learned from."""
        return self.learned.labels if self.learned else None

    @property
    def unreadable(self) -> float | None:
        """The share of judgments without readable scores; None where there are no judgments, or it is not known."""
        return self.parse_failures / self.judgments if self.judgments and self.parse_failures is not None else None

    @property
    def no_verdict(self) -> float | None:
        """The share of verdicts in which no branch could be read; None where it is not known."""
        return None if self.unreadable_verdicts is None else self.unreadable_verdicts / (2 * self.n)

    def to_row(self) -> dict[str, Any]:
        """The JSON-ready row; correlations and extras' columns stand beside the metrics, where there are any."""
        row: dict[str, Any] = {}
        for name, value in asdict(self).items():
            if name in ("correlations", "extras"):
                row |= value or {}
            elif value is not None or name not in _OPTIONAL:
                row[name] = value
        return row

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """A row as it was written."""
        columns = {e.name: resolved(e.column) for e in extras() if e.column and row.get(e.name)}
        found = {name: read_record(kind, row[name]) for name, kind in columns.items()}
        correlated = row if "pearson" in row else None
        read: Self = read_record(cls, {**row, "correlations": correlated, "extras": found})
        return read


METRICS: Mapping[str, Metric] = {f.name: f.metadata["metric"] for f in fields(MetricRow) if "metric" in f.metadata}
"""Every metric by its name in ``metrics.json``."""
_COLUMNS = {name: found.column for name, found in METRICS.items() if found.column} | {
    "labels": Column(COST, "labels used", "integer", sparse=True),
    "money_of_1000": Column(COST, "money per 1,000", "hundredths", sparse=True),
}
COLUMNS = dict(sorted(_COLUMNS.items(), key=lambda item: item[1].order))
"""The columns of the report by the attribute of a row that they show."""


def metric_row(
    benchmark: Benchmark, predictions: Sequence[Prediction], seconds: float, resamples: int, seed: int
) -> MetricRow:
    """Every registered metric of one method with one number of branches, by predictions in the benchmark's order (else
    a ValueError); ``seconds``: what a verdict took, NaN where it is not known."""
    sample = Sample(benchmark, predictions, seconds, resamples, seed)
    return MetricRow(
        method=predictions[0].method,
        benchmark=benchmark.name,
        split=benchmark.split,
        branches=predictions[0].branches,
        n=len(sample.labels),
        asked=predictions[0].asked,
        plan=predictions[0].plan,
        **{name: found.of(sample) for name, found in METRICS.items()},
    )
