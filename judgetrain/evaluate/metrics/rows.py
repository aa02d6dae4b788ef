"""Rows of ``metrics.json``: every metric of a method on a benchmark, and the sample that it is computed from.

A metric is registered by its field in :class:`MetricRow`, or by the ``room.yaml`` of a room, also of another package.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from functools import cache
from operator import attrgetter
from pkgutil import resolve_name
from types import NoneType, UnionType
from typing import Any, Literal, Self, Union, get_args, get_origin, get_type_hints

import numpy as np

from judgetrain import rooms
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.intervals import Floats, Interval, Resampling, bootstrap_interval, wilson_interval
from judgetrain.errors import ConfigError
from judgetrain.evaluate.hooks import extras, resolved
from judgetrain.evaluate.metrics import groups as grouped
from judgetrain.evaluate.metrics import intervals, verdicts
from judgetrain.evaluate.metrics.groups import GroupAgreement, mean
from judgetrain.evaluate.metrics.intervals import Correlations
from judgetrain.evaluate.metrics.verdicts import Bools, Verdicts
from judgetrain.judges.predictions import Prediction
from judgetrain.schema import Comparison


def read_record(kind: Any, value: Any) -> Any:
    """Return a dataclass, or a tuple, list or mapping of some, out of plain data.

    Files of other versions can be read: names that the dataclass does not have are left out, and those that the data
    does not have keep their defaults, or are None.

    Args:
        kind: the type to make.
        value: as JSON has it.
    """
    # Whatever the type is: a metric that is not defined is null.
    if value is None:
        return None
    if isinstance(kind, type) and is_dataclass(kind):
        arguments: dict[str, Any] = {}
        for item in fields(kind):
            if item.default is MISSING and item.default_factory is MISSING:
                # A metric that an older version did not have.
                arguments[item.name] = None
        for name, hint in _hints(kind).items():
            if name in value:
                arguments[name] = read_record(hint, value[name])
        return kind(**arguments)

    origin = get_origin(kind)
    parts = get_args(kind)
    if origin in (Union, UnionType):
        # Of a union only "X | None" is used.
        return read_record(next(part for part in parts if part is not NoneType), value)
    if origin is tuple and parts[-1] is ...:
        return tuple(read_record(parts[0], item) for item in value)
    if origin is tuple:
        return tuple(value)
    # JSON has text alone for keys.
    if isinstance(value, Mapping) and len(parts) == 2:
        key_kind, item_kind = parts
        return {key_kind(key): read_record(item_kind, item) for key, item in value.items()}
    return value


# Resolving a class's annotations is slow, and a report reads many rows.
@cache
def _hints(kind: Any) -> dict[str, Any]:
    """Return the types of a class's fields."""
    return get_type_hints(kind)


class MethodPredictions:
    """One method's predictions on a benchmark, and what several metrics need of them.

    Arrays and lists [n] are over the comparisons with a label. What the data does not have is None, and so is every
    metric that needs it.

    Args:
        benchmark: the benchmark.
        predictions: in its order.
        seconds: those that a verdict took; NaN where it is not known.
        resampling: how intervals are drawn.

    Raises:
        ValueError: predictions of other comparisons or in another order.
    """

    def __init__(
        self, benchmark: Benchmark, predictions: Sequence[Prediction], seconds: float, resampling: Resampling
    ) -> None:
        # Everything below goes by place: a row that is missing or moved would make wrong figures without a word.
        if [p.comparison_id for p in predictions] != [c.id for c in benchmark.comparisons]:
            raise ValueError(f"the predictions are not those of the comparisons of {benchmark.name}, in their order")
        comparisons = []
        self.labelled: list[Prediction] = []
        for comparison, prediction in zip(benchmark.comparisons, predictions, strict=True):
            if comparison.label is not None:
                comparisons.append(comparison)
                self.labelled.append(prediction)
        self.labels = [str(comparison.label) for comparison in comparisons]
        self._take_verdicts()
        self._take_comparisons(benchmark, comparisons)

        # Score of A minus that of B by a method without branches, such as a scorer.
        margins = [prediction.margin for prediction in self.labelled]
        self.single_margins: list[float | None] | None = None
        if not predictions[0].branches and any(margin is not None for margin in margins):
            self.single_margins = margins

        # By forced choice, of which a judge that ties is half right.
        self.margins = margins
        self.forced = verdicts.forced(self.ab, self.ba, margins, self.labels)

        # Unreadable judgments by reason; a reason with a colon ended a branch before its judgment.
        failures: Counter[str] = Counter()
        for prediction in self.labelled:
            failures.update(prediction.failures)
        self.failures = dict(sorted(failures.items()))
        self.seconds: float | None = seconds
        # JSON has no NaN.
        if math.isnan(seconds):
            self.seconds = None
        self.resampling = resampling
        # Beside it, for metrics that name the two (docs/extending.md).
        self.resamples = resampling.number
        self.seed = resampling.seed

    def _take_verdicts(self) -> None:
        """Note the verdicts of both orders, and which of them agree, are consistent or decide."""
        # The verdicts that count, which fitted weights may decide over both orders.
        self.ab: Verdicts = [prediction.decided[0] for prediction in self.labelled]
        self.ba: Verdicts = [prediction.decided[1] for prediction in self.labelled]
        # The verdicts of the single orders, which are not known where both are stored as one.
        verdicts_ab = [prediction.verdict_ab for prediction in self.labelled]
        verdicts_ba = [prediction.verdict_ba for prediction in self.labelled]
        self.single_ab: Verdicts | None = verdicts_ab
        self.single_ba: Verdicts | None = verdicts_ba
        if any(prediction.merged for prediction in self.labelled):
            self.single_ab = None
            self.single_ba = None

        self.agreed = verdicts.agreement(self.ab, self.ba, self.labels)
        # Of the orders themselves: fitted weights give both the same verdict, which is no consistency.
        self.consistent = verdicts.consistency(verdicts_ab, verdicts_ba)
        # Items whose label is A or B, and of these the ones that the verdict gives to A or B, too.
        self.without_ties = verdicts.without_ties(self.labels)
        self.decided = verdicts.decided(self.ab, self.ba, self.labels)

    def _take_comparisons(self, benchmark: Benchmark, comparisons: Sequence[Comparison]) -> None:
        """Note what metrics need of the labelled comparisons besides their labels."""
        # The response with more characters: A, B or tie.
        self.longer = [comparison.longer for comparison in comparisons]
        # Intervals resample prompts whole.
        self.prompts = [benchmark.prompt_of(comparison) for comparison in comparisons]
        self.groups = [comparison.group for comparison in comparisons]
        # The prompts that a published figure counts; None where it counts pairs.
        self.counted: list[str | None] | None = None
        if benchmark.counted:
            self.counted = [benchmark.counted.get(comparison.id) for comparison in comparisons]
        # A domain is a set of groups; a comparison without a group is in none.
        self.domains = [benchmark.domains.get(comparison.group or "") for comparison in comparisons]


Unit = Literal["percent", "points", "integer", "tenths", "hundredths", "thousandths", "seconds"]
"""The unit that a value is shown in: a share in percent, a difference of shares in points, a number with decimals."""


@dataclass(frozen=True)
class Column:
    """A column of a table of the report.

    Args:
        table: the title of a table whose rows are methods, a new one if there is none of this name.
        header: the column's.
        unit: of its values.
        sparse: True: the column is left out where no method has a value.
        order: where it stands among the columns, equal ones as they are registered.
    """

    table: str
    header: str
    unit: Unit = "percent"
    sparse: bool = False
    order: int = 0


@dataclass(frozen=True)
class Metric:
    """A metric of a method on a benchmark.

    Args:
        compute: the function.
        needs: the attributes of a :class:`MethodPredictions` that it is called with.
        column: of the report; None: there is none.
    """

    compute: Callable[..., Any]
    needs: tuple[str, ...]
    column: Column | None = None

    def of(self, sample: MethodPredictions) -> Any:
        """Return the value, which is the mean over items where the function gives an array.

        It is None where something that it needs is None.

        Raises:
            ConfigError: it needs what there is not.
        """
        unknown = [name for name in self.needs if not hasattr(sample, name)]
        if unknown:
            known = ", ".join(name for name in vars(sample) if not name.startswith("_"))
            raise ConfigError(f"a metric needs {', '.join(unknown)}, which predictions do not have; they have {known}")
        arguments = [getattr(sample, name) for name in self.needs]
        if any(argument is None for argument in arguments):
            return None
        value = self.compute(*arguments)
        if isinstance(value, np.ndarray):
            return mean(value)
        return value


def metric(compute: Callable[..., Any], needs: str, column: Column | None = None) -> Any:
    """Return a field of :class:`~judgetrain.evaluate.metrics.rows.MetricRow` that is computed for every method.

    Args:
        compute: called with what it needs, in that order; returns a JSON-ready value or a dataclass, None where the
            metric is not defined, or an array [n] of one value an item, whose mean is the metric.
        needs: names of attributes of :class:`~judgetrain.evaluate.metrics.rows.MethodPredictions`, with spaces between.
        column: where the report shows it; without one it stands in ``metrics.json`` only.
    """
    return field(default=None, metadata={"metric": Metric(compute, tuple(needs.split()), column)})


_OPTIONAL = ("asked", "plan", "learned", "money", "run", "data")
"""Fields that a row of ``metrics.json`` has only where they have a value."""

# The tables of the report whose columns are declared here.
FORCED = "By forced choice"
DEFINITIONS = "Definitions"
BIASES = "Biases"
COST = "Cost"


@dataclass(frozen=True)
class MethodKey:
    """A method with its number of branches, 0 where it has none."""

    method: str
    branches: int

    def __str__(self) -> str:
        if not self.branches:
            return self.method
        return f"{self.method}@{self.branches}"


def _where(values: Bools, mask: Bools) -> Bools:
    """Return the values [n] where a mask holds."""
    return values[mask]


def _interval_where(values: Floats, mask: Bools, resampling: Resampling, prompts: Sequence[str]) -> Interval | None:
    """Return the 95% bootstrap interval over prompts of the mean of the values [n] where a mask holds."""
    clusters = [prompt for prompt, holds in zip(prompts, mask, strict=True) if holds]
    return bootstrap_interval(values[mask], resampling.number, resampling.seed, clusters)


def _count(mask: Bools) -> int:
    """Return how many items a mask holds."""
    return int(mask.sum())


def _count_flips(ab: Verdicts, ba: Verdicts) -> int:
    """Return how many verdicts flip with the order."""
    return _count(verdicts.flips(ab, ba))


def _count_unreadable(ab: Verdicts, ba: Verdicts) -> int:
    """Return how many of the 2n verdicts could not be read."""
    return _count(verdicts.unreadable([*ab, *ba]))


def _count_judgments(predictions: Sequence[Prediction]) -> int:
    """Return how many judgments were sampled."""
    return sum(prediction.judgments for prediction in predictions)


def _count_asked_again(predictions: Sequence[Prediction]) -> int:
    """Return how often comparisons were asked about anew."""
    return sum(prediction.asked_again for prediction in predictions)


def _count_parse_failures(failures: Mapping[str, int]) -> int:
    """Return how many judgments could not be read, without what ended a branch before its judgment."""
    return sum(number for reason, number in failures.items() if ":" not in reason)


def _count_different(names: Sequence[str]) -> int:
    """Return how many different names there are."""
    return len(set(names))


def _mean_of(name: str) -> Callable[[Sequence[Prediction]], float | None]:
    """Return a function that returns the mean of an attribute (``a.b``) of predictions, without those of None."""
    attribute = attrgetter(name)

    def compute(predictions: Sequence[Prediction]) -> float | None:
        values = map(attribute, predictions)
        return mean([value for value in values if value is not None])

    return compute


def _position_interval(ab: Verdicts, ba: Verdicts, prompts: Sequence[str]) -> Interval | None:
    """Return the 95% interval of :func:`~judgetrain.evaluate.metrics.verdicts.position_bias`; None without flips."""
    first_wins = []
    clusters = []
    for verdict, prompt, flipped in zip(ab, prompts, verdicts.flips(ab, ba), strict=True):
        if flipped:
            first_wins.append(verdict == "A")
            clusters.append(prompt)
    # Where no prompt comes twice, items are independent.
    if len(set(clusters)) == len(clusters):
        return wilson_interval(first_wins, None)
    return wilson_interval(first_wins, clusters)


@dataclass(frozen=True, kw_only=True)
class Learned:
    """The labelled pairs that a method without training learned from, and the cost of learning, paid once.

    Args:
        labels: number of pairs.
        calls: requests.
        prompt_tokens: tokens read.
        generated_tokens: tokens written.
        seconds: that it took.
        money: in the currency of the engine's price; None: there is none.
    """

    labels: int
    calls: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    seconds: float = 0.0
    money: float | None = None


@dataclass(frozen=True, kw_only=True)
class MetricRow:
    """A method with a number of branches (0: it has none) on a benchmark, over its ``n`` comparisons with a label.

    Shares are from 0 to 1. A metric is None where it is not defined. Names that end alike mean:

    - ``..._ci``: 95% intervals over items, or over the ``n_prompts`` prompts where comparisons share one.
    - ``..._wo_tie``: over the items whose label is no tie.
    - ``..._decided``: over the items that both label and verdict decide for A or B.
    - ``right_...``: by forced choice, of the items that the label decides; a judge that ties is half right there
      (:func:`~judgetrain.evaluate.metrics.verdicts.forced`).

    Tokens, calls, seconds and money are per verdict in one order, mean over items and orders.

    Args:
        judgments: how many were sampled.
        parse_failures: how many of them have no readable scores.
        failures: by reason; also what ended a branch before its judgment (``guideline:...``, ``criteria:...``).
        unreadable_verdicts: how many verdicts (of 2n) have no branch that could be read.
        asked_again: how often a comparison was asked about anew, since its first branch could not be read.
        every_pair: where a published figure counts prompts, the share of them of which every pair is right: the plain
            mean over groups (``every_pair_groups``).
        asked: how the judge was asked (``greedy``, ``T=1``).
        plan: ``shared``: both orders were judged by one list of criteria and its guidelines; or ``independent``.
        learned: what a method without training learned from.
        money: in the currency of the engine's price; None: it has none.
        extras: the columns of extras by their names (:mod:`judgetrain.evaluate.hooks`).
        of_rooms: the metrics of rooms by their names (:func:`metrics`); each is an attribute of the row, too.
        run: in a merged report, the row's run.
        data: :attr:`~judgetrain.data.benchmarks.benchmark.Benchmark.content` of the comparisons; None in files of
            versions that did not note it.
    """

    method: str
    benchmark: str
    split: str
    branches: int
    n: int
    # Metrics stand in the order of ``metrics.json``. Each is computed from the attributes of MethodPredictions that it
    # names.
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
    n_flips: int | None = metric(_count_flips, "single_ab single_ba", Column(BIASES, "n by order", "integer"))
    position_bias: float | None = metric(verdicts.position_bias, "single_ab single_ba", Column(BIASES, "first wins %"))
    position_bias_ci: Interval | None = metric(_position_interval, "single_ab single_ba prompts")
    length_correlation: float | None = metric(
        grouped.length_correlation, "ab ba longer", Column(BIASES, "with length r", "hundredths")
    )
    length_correlation_ci: Interval | None = metric(
        grouped.length_correlation_interval, "ab ba longer resampling prompts"
    )
    length_balanced: float | None = metric(
        grouped.length_balanced, "agreed labels longer", Column(DEFINITIONS, "length-balanced %")
    )
    length_balanced_ci: Interval | None = metric(
        grouped.length_balanced_interval, "agreed labels longer resampling prompts"
    )
    right_of_decided: float | None = metric(_where, "forced without_ties", Column(FORCED, "right of decided %"))
    right_of_decided_ci: Interval | None = metric(_interval_where, "forced without_ties resampling prompts")
    right_length_balanced: float | None = metric(
        grouped.length_balanced, "forced labels longer", Column(FORCED, "length-balanced %")
    )
    right_length_balanced_ci: Interval | None = metric(
        grouped.length_balanced_interval, "forced labels longer resampling prompts"
    )
    correlations: Correlations | None = metric(
        intervals.margin_correlations, "single_margins labels prompts resampling"
    )
    judgments: int | None = metric(_count_judgments, "labelled")
    parse_failures: int | None = metric(_count_parse_failures, "failures")
    failures: Mapping[str, int] | None = metric(dict, "failures")
    unreadable_verdicts: int | None = metric(_count_unreadable, "ab ba")
    prompt_tokens: float | None = metric(
        _mean_of("cost.prompt_tokens"), "labelled", Column(COST, "prompt tokens", "integer")
    )
    generated_tokens: float | None = metric(
        _mean_of("cost.generated_tokens"), "labelled", Column(COST, "generated tokens", "integer")
    )
    calls: float | None = metric(_mean_of("cost.calls"), "labelled", Column(COST, "calls", "tenths"))
    asked_again: int | None = metric(_count_asked_again, "labelled", Column(COST, "asked again", "integer"))
    seconds: float | None = metric(float, "seconds", Column(COST, "seconds", "seconds"))
    groups: Mapping[str, GroupAgreement] | None = metric(grouped.agreement_by_name, "groups agreed")
    domains: Mapping[str, GroupAgreement] | None = metric(grouped.agreement_by_name, "domains agreed")
    n_prompts: int | None = metric(_count_different, "prompts")
    every_pair: float | None = metric(grouped.every_pair, "agreed counted groups")
    every_pair_ci: Interval | None = metric(grouped.every_pair_interval, "agreed counted groups resampling")
    every_pair_groups: Mapping[str, GroupAgreement] | None = metric(
        grouped.every_pair_by_group, "agreed counted groups"
    )
    asked: str | None = None
    plan: str | None = None
    learned: Learned | None = None
    money: float | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)
    of_rooms: Mapping[str, Any] = field(default_factory=dict)
    run: str | None = None
    data: str | None = None

    def __getattr__(self, name: str) -> Any:
        """Return the metric of a room, None where the row has none; asked for what is no field."""
        if name.startswith("__") or name not in rooms.metrics():
            raise AttributeError(f"a row of metrics has no {name}")
        return self.of_rooms.get(name)

    @property
    def key(self) -> MethodKey:
        """Return the method with its number of branches."""
        return MethodKey(self.method, self.branches)

    @property
    def money_of_1000(self) -> float | None:
        """Return the price of 1,000 verdicts; None where the engine has no price."""
        if self.money is None:
            return None
        return 1000 * self.money

    @property
    def labels(self) -> int | None:
        """Return how many labelled pairs a method without training learned from; None for other methods."""
        if self.learned is None:
            return None
        return self.learned.labels

    @property
    def unreadable(self) -> float | None:
        """Return the share of judgments without readable scores; None without judgments, or where it is not known."""
        if not self.judgments or self.parse_failures is None:
            return None
        return self.parse_failures / self.judgments

    @property
    def no_verdict(self) -> float | None:
        """Return the share of verdicts in which no branch could be read; None where it is not known."""
        if self.unreadable_verdicts is None:
            return None
        return self.unreadable_verdicts / (2 * self.n)

    def to_row(self) -> dict[str, Any]:
        """Return the JSON-ready row; correlations and extras' columns stand beside the metrics, if there are any."""
        row: dict[str, Any] = {}
        # In the order of the fields, which is that of the file.
        for name, value in asdict(self).items():
            # Their own names are the columns of the file.
            if name in ("correlations", "extras", "of_rooms"):
                row.update(value or {})
            elif value is not None or name not in _OPTIONAL:
                row[name] = value
        return row

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Return the row that :meth:`to_row` wrote."""
        columns = {}
        for extra in extras():
            if extra.column and row.get(extra.name):
                columns[extra.name] = read_record(resolved(extra.column), row[extra.name])
        correlated = None
        # Correlations stand among the metrics, all of them or none.
        if "pearson" in row:
            correlated = row
        of_rooms = {name: row[name] for name in rooms.metrics() if name in row}
        others = {"correlations": correlated, "extras": columns, "of_rooms": of_rooms}
        result: Self = read_record(cls, {**row, **others})
        return result


METRICS: Mapping[str, Metric] = {
    item.name: item.metadata["metric"] for item in fields(MetricRow) if "metric" in item.metadata
}
"""Every metric of a row's own by its name in ``metrics.json``."""


@cache
def metrics_of_rooms() -> Mapping[str, Metric]:
    """Return the metrics that rooms bring, by their names.

    They are loaded when they are first needed: their modules import this one.

    Raises:
        ConfigError: a name that a row has for something else, or what is named is no :class:`Metric`.
    """
    result = {}
    for name, code in rooms.metrics().items():
        if name in {item.name for item in fields(MetricRow)} or hasattr(MetricRow, name):
            raise ConfigError(
                f"The metric {name!r} ({code}) has the name of another column: rename it in its room.yaml."
            )
        registered = resolve_name(code)
        if not isinstance(registered, Metric):
            raise ConfigError(f"The metric {name!r}: {code} is a {type(registered).__name__}; expected a Metric.")
        result[name] = registered
    return result


@cache
def columns() -> dict[str, Column]:
    """Return the columns of the report by the attribute of a row that they show."""
    all_metrics = {**METRICS, **metrics_of_rooms()}
    result = {name: registered.column for name, registered in all_metrics.items() if registered.column}
    result["labels"] = Column(COST, "labels used", "integer", sparse=True)
    result["money_of_1000"] = Column(COST, "money per 1,000", "hundredths", sparse=True)
    # Sorting is stable: equal orders stay as they are registered.
    return dict(sorted(result.items(), key=lambda item: item[1].order))


def metric_row(
    benchmark: Benchmark, predictions: Sequence[Prediction], seconds: float, resampling: Resampling
) -> MetricRow:
    """Return every registered metric of one method with one number of branches.

    Arguments are as of :class:`MethodPredictions`.
    """
    # Made once: metrics share what several of them need.
    sample = MethodPredictions(benchmark, predictions, seconds, resampling)
    return MetricRow(
        method=predictions[0].method,
        benchmark=benchmark.name,
        split=benchmark.split,
        branches=predictions[0].branches,
        n=len(sample.labels),
        asked=predictions[0].asked,
        plan=predictions[0].plan,
        data=benchmark.content,
        of_rooms={name: registered.of(sample) for name, registered in metrics_of_rooms().items()},
        **{name: registered.of(sample) for name, registered in METRICS.items()},
    )
