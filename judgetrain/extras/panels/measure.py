"""Tables by step: what each member of a panel was asked, costs, decides and misses; and jurors' correlation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.labelled import OVERALL
from judgetrain.evaluate.hooks import Measured, Predicted, Rated
from judgetrain.evaluate.metrics.rows import MetricRow
from judgetrain.evaluate.report.table import Columns, Sections, Table, number
from judgetrain.extras.panels.checks import members_of
from judgetrain.judges.base import Step
from judgetrain.judges.kinds.kind import kind_of
from judgetrain.judges.method import Method
from judgetrain.judges.settings import EXTERNAL

FILE = "steps"
"""The name of the file of all records."""
FEWEST = 3
"""Answers of two jurors below which their correlation says nothing."""


@dataclass(frozen=True, kw_only=True)
class StepRow:
    """What one member did on a benchmark.

    Args:
        benchmark: its name.
        judge: the cascade or jury.
        step: the member's place, from 1.
        member: its name.
        asked: how many rows it was asked about.
        share: of all rows, those that it decides (a cascade), or has an answer on (a jury).
        error: share of wrong answers among these; None without any.
        prompt_tokens: of all its answers.
        generated_tokens: likewise.
        money: by the price of the member's engine; None: it has none.
    """

    benchmark: str
    judge: str
    step: int
    member: str
    asked: int
    share: float
    error: float | None
    prompt_tokens: float
    generated_tokens: float
    money: float | None


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """How alike two jurors answer.

    Args:
        benchmark: its name.
        judge: the jury.
        first: a member.
        second: another one.
        n: rows on which both could be read.
        pearson: of how far A is ahead, or of the scores; None where either is always the same.
        same_errors: of rows that one of them gets wrong, the share that both do; None without any.
    """

    benchmark: str
    judge: str
    first: str
    second: str
    n: int
    pearson: float | None
    same_errors: float | None


Record = StepRow | Correlation
Answers = Sequence[Sequence[tuple[Step, bool | None]]]
"""By row the steps that were asked, each with whether its answer is the label; None: it could not be read."""


def measure(predicted: Predicted) -> Measured:
    """Return the records of cascades and juries on a benchmark of comparisons."""
    labels = {comparison.id: comparison.label for comparison in predicted.test.comparisons}
    records: list[Record] = []
    for method, predictions in _panels(predicted.settings, predicted.results):
        answers = []
        for prediction in predictions:
            if prediction.comparison_id in labels:
                label = labels[prediction.comparison_id]
                answers.append([(step, _is_right(step, label)) for step in prediction.steps])
        records += records_of(predicted.test.name, method, answers, predicted.settings)
    return Measured(records=records)


def _panels(settings: Any, results: Sequence[list[Any]]) -> Iterator[tuple[Method, list[Any]]]:
    """Yield the cascades and juries among the results of methods."""
    methods = {method.name: method for method in settings.evaluated if kind_of(method).panel}
    for predictions in results:
        if predictions and predictions[0].method in methods:
            yield methods[predictions[0].method], predictions


def _is_right(step: Step, label: str | None) -> bool | None:
    """Return whether a verdict is the label; None where it could not be read."""
    return None if step.share is None else step.answer == label


def measure_responses(rated: Rated) -> Sequence[Record]:
    """Return the records of cascades and juries on a benchmark of single responses."""
    scale = rated.benchmark.scales.get(OVERALL)
    if scale is None:
        return ()
    methods = {method.name: method for method in rated.settings.evaluated if kind_of(method).panel}
    records: list[Record] = []
    for result in rated.results:
        if result.method not in methods:
            continue
        answers = []
        for response, score in zip(rated.benchmark.responses, result.scores, strict=True):
            label = scale.label(response.votes.get(OVERALL, ()))
            if label is None:
                continue
            row = []
            for step in score.steps:
                right = None if step.share is None else scale.level(step.share) == scale.level(label)
                row.append((step, right))
            answers.append(row)
        records += records_of(rated.benchmark.name, methods[result.method], answers, rated.settings)
    return records


def records_of(benchmark: str, method: Method, answers: Answers, settings: Any) -> list[Record]:
    """Return the records of one cascade or jury.

    Args:
        benchmark: its name.
        method: of the cascade or jury.
        answers: on all labelled rows.
        settings: of the stage.
    """
    records: list[Record] = []
    members = [Method.parse(member.judge) for member in members_of(settings, method)]
    for place, member in enumerate(members):
        asked = [row[place] for row in answers if len(row) > place]
        is_last = place == len(members) - 1
        taken = []
        for step, right in asked:
            # The last member's answers are taken as they are.
            if right is not None and (step.decision != "undecided" or is_last):
                taken.append(right)
        prompt_tokens = sum(step.cost.prompt_tokens for step, _ in asked)
        generated_tokens = sum(step.cost.generated_tokens for step, _ in asked)
        money = None
        if member.names_model and member.target in EXTERNAL:
            money = getattr(settings, member.target).money(prompt_tokens, generated_tokens)
        records.append(
            StepRow(
                benchmark=benchmark,
                judge=method.name,
                step=place + 1,
                member=member.name,
                asked=len(asked),
                share=len(taken) / len(answers) if answers else 0.0,
                error=taken.count(False) / len(taken) if taken else None,
                prompt_tokens=prompt_tokens,
                generated_tokens=generated_tokens,
                money=money,
            )
        )
    if method.kind == "jury":
        for first, second in combinations(range(len(members)), 2):
            names = (members[first].name, members[second].name)
            pairs = [(row[first], row[second]) for row in answers if row]
            records.append(_correlation(benchmark, method.name, names, pairs))
    return records


def _correlation(
    benchmark: str,
    judge: str,
    names: tuple[str, str],
    pairs: Sequence[tuple[tuple[Step, bool | None], tuple[Step, bool | None]]],
) -> Correlation:
    """Return how alike two members answer."""
    from scipy.stats import pearsonr

    read = [(first, second) for first, second in pairs if first[1] is not None and second[1] is not None]
    ahead = [[step.share for step, _ in (pair[place] for pair in read)] for place in (0, 1)]
    pearson = None
    if len(read) >= FEWEST and all(len(set(shares)) > 1 for shares in ahead):
        pearson = float(pearsonr(*ahead).statistic)
    wrong = [(not first[1], not second[1]) for first, second in read]
    either = sum(any(pair) for pair in wrong)
    return Correlation(
        benchmark=benchmark,
        judge=judge,
        first=names[0],
        second=names[1],
        n=len(read),
        pearson=pearson,
        same_errors=sum(all(pair) for pair in wrong) / either if either else None,
    )


def sections(rows: Sequence[MetricRow], records: Sequence[Record]) -> Sections:
    """Return the report's tables of steps and of jurors' correlation."""
    step_columns: Columns = {
        "judge": lambda r: r.judge,
        "step": lambda r: r.step,
        "member": lambda r: r.member,
        "asked": lambda r: r.asked,
        "decides %": lambda r: number(100 * r.share, 1),
        "error %": lambda r: "–" if r.error is None else number(100 * r.error, 1),
        "tokens read": lambda r: number(r.prompt_tokens, 0),
        "tokens written": lambda r: number(r.generated_tokens, 0),
        "money": lambda r: "–" if r.money is None else number(r.money, 4),
    }
    correlation_columns: Columns = {
        "jury": lambda r: r.judge,
        "first": lambda r: r.first,
        "second": lambda r: r.second,
        "n": lambda r: r.n,
        "correlation": lambda r: "–" if r.pearson is None else number(r.pearson, 2),
        "errors in common %": lambda r: "–" if r.same_errors is None else number(100 * r.same_errors, 1),
    }
    steps = [record for record in records if isinstance(record, StepRow)]
    correlations = [record for record in records if isinstance(record, Correlation)]
    tables = []
    if steps:
        tables.append(Table.of("Steps", steps, step_columns, STEPS_NOTE, names=3))
    if correlations:
        tables.append(Table.of("Jurors", correlations, correlation_columns, JURORS_NOTE, names=3))
    return Sections(first=tables)


STEPS_NOTE = "A cascade's member decides what the next one is not asked about; a jury's members are all asked."
JURORS_NOTE = "The more alike jurors err, the less a jury gains. Errors in common: of rows that either gets wrong."


def write(records: Sequence[Record], section: object, out: StageRun) -> None:
    """Write all records as ``steps.json``."""
    rows: list[Mapping[str, Any]] = [asdict(record) for record in records]
    if rows:
        out.write_json(FILE, rows)
