"""Rows of ``ratings.json``: the metrics of a method on a benchmark of single responses, as a whole or by criterion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from itertools import compress
from typing import TYPE_CHECKING, Any, Self

from judgetrain.data.benchmarks.responses import ResponseBenchmark, labels_of
from judgetrain.data.intervals import Resampling
from judgetrain.data.labelled import OVERALL
from judgetrain.evaluate.metrics.groups import mean
from judgetrain.evaluate.metrics.ratings import (
    People,
    Scored,
    commonest,
    label_sentences,
    metrics_of,
    people_of,
    prevalence,
)
from judgetrain.evaluate.metrics.rows import MethodKey, read_record
from judgetrain.judges.predictions import Score
from judgetrain.rubrics import criterion_key, label_of_criterion

if TYPE_CHECKING:
    from judgetrain.evaluate.runners.responses import ScoreResult

ALWAYS = "always"
"""The beginning of the name of the rule that gives every response the commonest label."""


@dataclass(frozen=True, kw_only=True)
class RatingRow:
    """A method on a benchmark of single responses, over its ``n`` responses with a label.

    Args:
        method: its name.
        benchmark: the benchmark's name.
        split: of the benchmark.
        branches: how many criteria of its own it went by; 0 for a rule.
        criterion: that labels and scores are of; empty: of the response as a whole.
        n: responses with a label.
        n_prompts: that they are on.
        unread: the share of scores that could not be read, which agree with no label.
        prevalence: the share of labels at each level, by the level's name, the worst first.
        metrics: by name, and their 95% intervals as ``..._ci``
            (:func:`~judgetrain.evaluate.metrics.ratings.metrics_of`).
        people: how people agree, and the judge with them; None where no response has two labels.
        prompt_tokens: of a score, mean.
        generated_tokens: likewise.
        calls: requests, likewise.
        seconds: of a score.
        money: of a score, in the currency of the engine's price; None: it has none.
        data: the hash of the benchmark's content.
    """

    method: str
    benchmark: str
    split: str
    branches: int
    criterion: str
    n: int
    n_prompts: int
    unread: float
    prevalence: Mapping[str, float]
    metrics: Mapping[str, Any]
    people: People | None = None
    prompt_tokens: float | None = None
    generated_tokens: float | None = None
    calls: float | None = None
    seconds: float | None = None
    money: float | None = None
    data: str = ""

    @property
    def key(self) -> MethodKey:
        """Return the method with its number of branches."""
        return MethodKey(self.method, self.branches)

    @property
    def is_rule(self) -> bool:
        """Return whether it is the rule that always gives the commonest label."""
        return self.method.startswith(f"{ALWAYS} ")

    @property
    def has_two_levels(self) -> bool:
        """Return whether labels are of two classes."""
        return len(self.prevalence) == 2

    def to_row(self) -> dict[str, Any]:
        """Return the JSON-ready row, in which metrics stand beside the other columns."""
        row = asdict(self)
        return {**row, **row.pop("metrics")}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Return the row that :meth:`to_row` wrote; of other versions' files as :func:`read_record` has it."""
        names = {item.name for item in fields(cls)}
        metrics = {name: value for name, value in row.items() if name not in names}
        result: Self = read_record(cls, {**row, "metrics": metrics})
        return result


@dataclass(frozen=True)
class Measuring:
    """Measures scores on a split of a benchmark.

    Args:
        benchmark: with the labels.
        split: the split's name.
        mask: which responses are in it.
        resampling: how intervals are drawn.
    """

    benchmark: ResponseBenchmark
    split: str
    mask: Sequence[bool]
    resampling: Resampling

    @cached_property
    def _prompts(self) -> list[str]:
        """Return the prompts of the split."""
        return list(compress(self.benchmark.prompts, self.mask))

    @cached_property
    def _labels(self) -> dict[str, list[float | None]]:
        """Return the labels of the split by criterion; criteria without any are left out."""
        labels = {}
        for name in self.benchmark.scales:
            of_name = list(compress(labels_of(self.benchmark, name), self.mask))
            if any(label is not None for label in of_name):
                labels[name] = of_name
        return labels

    def rows(self, results: Sequence[ScoreResult]) -> Iterator[RatingRow]:
        """Yield the rows of every method, as a whole and by criterion, and last those of the commonest label."""
        for name in self._labels:
            # A method that went by other criteria has nothing to be measured by these labels.
            judged = [result for result in results if judged_by(result.scores, name)]
            for result in judged:
                yield self._row(result, name)
            if judged:
                yield self._always(name)

    def notices(self, results: Sequence[ScoreResult]) -> Iterator[str]:
        """Yield lines about labels that few conclusions can be drawn from, and criteria that lack one side."""
        for name, labels in self._labels.items():
            subject = self.benchmark.name
            if name:
                subject = f"{self.benchmark.name}: {name}"
            # Without scores: what is looked at here are the labels alone.
            scored = Scored.of(labels, [None] * len(labels), self.benchmark.scales[name], self._prompts)
            yield from label_sentences(subject, scored)
            if name and not any(judged_by(result.scores, name) for result in results):
                yield (
                    f"{subject}: no judge went by a criterion of this name, so that its labels measure nothing; give "
                    "one in column criteria, or with criteria=FILE, to a method +given"
                )

        # The other way round: criteria that rows bring, of which no label says how well they were judged.
        named = {criterion_key(name) for name in self._labels if name != OVERALL}
        # A dictionary for its order: lines come as criteria do, and each once.
        without: dict[str, None] = {}
        for result in results:
            for score in result.scores:
                for reason in score.reasons:
                    label = label_of_criterion(reason.name, reason.criterion, named)
                    if named and reason.source == "given" and label is None:
                        without[reason.name or reason.criterion] = None
        for label in without:
            yield f"{self.benchmark.name}: criterion {label!r} has no label, so that nothing is measured of it alone"

    def _row(self, result: ScoreResult, name: str) -> RatingRow:
        """Return the row of a method."""
        in_split: list[Score] = list(compress(result.scores, self.mask))
        values = scores_by(in_split, name)
        scale = self.benchmark.scales[name]
        # Single votes besides the label that they make: how people agree is measured by them.
        votes = [response.votes.get(name, ()) for response in compress(self.benchmark.responses, self.mask)]
        costs = [score.cost for score in in_split]
        return self._measured(
            result.method,
            name,
            values,
            branches=result.branches,
            people=people_of(votes, values, scale, self._prompts, self.resampling),
            prompt_tokens=mean([cost.prompt_tokens for cost in costs]),
            generated_tokens=mean([cost.generated_tokens for cost in costs]),
            calls=mean([cost.calls for cost in costs]),
            seconds=result.seconds,
        )

    def _always(self, name: str) -> RatingRow:
        """Return the row of the rule that gives every response the commonest label."""
        scale = self.benchmark.scales[name]
        labels = self._labels[name]
        level = commonest(Scored.of(labels, [None] * len(labels), scale, self._prompts))
        # The score that stands for the level, which every response gets.
        values = [scale.scores[level]] * len(labels)
        row = self._measured(f"{ALWAYS} {scale.names[level]}", name, values, branches=0)
        # Kappa is 0 by its definition, whatever other prompts there are.
        return replace(row, metrics={**row.metrics, "kappa_ci": None})

    def _measured(self, method: str, name: str, values: Sequence[float | None], **others: Any) -> RatingRow:
        """Return the row of scores; ``others`` are further fields of it."""
        scored = Scored.of(self._labels[name], values, self.benchmark.scales[name], self._prompts)
        return RatingRow(
            method=method,
            benchmark=self.benchmark.name,
            split=self.split,
            criterion=name,
            n=len(scored.labels),
            n_prompts=len(set(scored.prompts)),
            unread=round(float(1 - scored.read.mean()), 6),
            prevalence=prevalence(scored),
            metrics=metrics_of(scored, self.resampling),
            data=self.benchmark.content,
            **others,
        )


def judged_by(scores: Sequence[Score], name: str) -> bool:
    """Return whether a method went by a criterion; every method scores a response as a whole."""
    return name == OVERALL or any(score.by_label(name) is not None for score in scores)


def scores_by(scores: Sequence[Score], name: str) -> list[float | None]:
    """Return scores of responses as a whole, or by a criterion; None where one could not be read."""
    if name == OVERALL:
        return [score.value for score in scores]
    return [score.by_label(name) for score in scores]


def scored_rows(benchmark: ResponseBenchmark, result: ScoreResult) -> Iterator[dict[str, Any]]:
    """Yield the rows of ``scored.jsonl``: each response's labels beside a method's score."""
    labels = {name: labels_of(benchmark, name) for name in benchmark.scales}
    # Rows may be labelled by criteria alone.
    overall = labels.get(OVERALL, [None] * len(benchmark.responses))
    for place, (response, score) in enumerate(zip(benchmark.responses, result.scores, strict=True)):
        by_criterion = {}
        for name, of_name in labels.items():
            if name != OVERALL:
                value = score.by_label(name)
                by_criterion[name] = {"label": of_name[place], "score": value}
        yield {
            "benchmark": benchmark.name,
            "id": response.id,
            "group": response.group,
            "model": response.model,
            "method": result.method,
            "branches": result.branches,
            "label": overall[place],
            "votes": response.votes.get(OVERALL, ()),
            "score": score.value,
            "criteria": by_criterion,
            "failures": dict(sorted(score.failures.items())),
        }
