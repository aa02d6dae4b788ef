"""Tables by step: what each member of a panel was asked, costs, decides and misses; and jurors' correlation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.labelled import OVERALL, Scale
from judgetrain.evaluate.hooks import Measured, Predicted, Rated
from judgetrain.evaluate.metrics.rows import MetricRow
from judgetrain.evaluate.report.table import Columns, Sections, Table, number, percent
from judgetrain.extras.panels.checks import members_of
from judgetrain.judges.kinds.kind import kind_of
from judgetrain.judges.method import Method
from judgetrain.judges.predictions import Step
from judgetrain.judges.settings import EXTERNAL
from judgetrain.schema import Verdict

FILE = "steps"
"""The name of the file of all records."""
FEWEST = 3
"""Answers of two jurors below which their correlation says nothing."""


@dataclass(frozen=True, kw_only=True)
class StepRow:
    """One member's work on a benchmark.

    Args:
        benchmark: its name.
        judge: the cascade or jury.
        step: the member's place, from 1.
        member: its name.
        asked: how many labelled rows it was asked about.
        share: of all labelled rows, those that it decides (a cascade), or has an answer on (a jury).
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
    """The agreement of two jurors.

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
"""The steps that were asked for each row, with whether their answer is the label; None: it could not be read."""


def measure(predicted: Predicted) -> Measured:
    """Return the records of cascades and juries on a benchmark of comparisons."""
    # Of the test split alone: predictions also hold the development split, which thresholds may have been chosen on.
    labels: dict[str, Verdict] = {}
    for comparison in predicted.test.comparisons:
        # Votes may tie. No answer to such a row is right or wrong.
        if comparison.label is not None:
            labels[comparison.id] = comparison.label
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
    # Predictions carry a method's name alone, and a benchmark that nobody judged has none at all.
    methods = {method.name: method for method in settings.evaluated if kind_of(method).target.panel}
    for predictions in results:
        if predictions and predictions[0].method in methods:
            yield methods[predictions[0].method], predictions


def _is_right(step: Step, label: Verdict) -> bool | None:
    """Return whether a verdict is the label; None where it could not be read."""
    if step.share is None:
        return None
    return step.answer == label


def _is_at_level(step: Step, label: float, scale: Scale, passing: int | None) -> bool | None:
    """Return whether a score is at the label's level; None where it could not be read.

    Args:
        step: with the score.
        label: of people, 0 to 1.
        scale: of the labels.
        passing: the lowest level that passes, where thresholds tell passes from fails: what is promised is then that
            the label passes, or fails, as the answer does. None: all levels are told apart.
    """
    if step.share is None:
        return None
    level = scale.level(step.share)
    if passing is None:
        return level == scale.level(label)
    passes = step.passes
    # A member without thresholds, and one that its thresholds leave undecided, gives a score alone.
    if passes is None:
        passes = level >= passing
    return passes == (scale.level(label) >= passing)


def _passing_level(steps: Sequence[Step], scale: Scale) -> int | None:
    """Return the number of the lowest level that passes by the thresholds of some member; None without any."""
    for step in steps:
        # Labels of another scale than the one that thresholds were chosen on may lack the level.
        if step.passes_from in scale.names:
            return scale.names.index(step.passes_from)
    return None


def measure_responses(rated: Rated) -> Sequence[Record]:
    """Return the records of cascades and juries on a benchmark of single responses."""
    # Steps have scores of the response as a whole: labels by single criteria say nothing of them.
    scale = rated.benchmark.scales.get(OVERALL)
    if scale is None:
        return ()
    methods = {method.name: method for method in rated.settings.evaluated if kind_of(method).target.panel}
    records: list[Record] = []
    for result in rated.results:
        if result.method not in methods:
            continue
        answers = []
        scored = zip(rated.benchmark.responses, rated.benchmark.prompts, result.scores, strict=True)
        for response, prompt, score in scored:
            # Of the test split alone, as above.
            if prompt in rated.development:
                continue
            label = scale.label(response.votes.get(OVERALL, ()))
            # Annotators of this response may have no majority.
            if label is None:
                continue
            passing = _passing_level(score.steps, scale)
            answers.append([(step, _is_at_level(step, label, scale, passing)) for step in score.steps])
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
        # A cascade's row ends with the member that decided it: later ones were not asked.
        answers_of_member = [row[place] for row in answers if len(row) > place]
        is_last = place == len(members) - 1
        counted = []
        for step, is_right in answers_of_member:
            # The last member's answers are taken as they are.
            if is_right is not None and (step.decision != "undecided" or is_last):
                counted.append(is_right)
        share = 0.0
        if answers:
            share = len(counted) / len(answers)
        error = None
        if counted:
            error = counted.count(False) / len(counted)

        # The run's own models have no price: only the teacher and the external model may be paid for.
        prompt_tokens = sum(step.cost.prompt_tokens for step, _ in answers_of_member)
        generated_tokens = sum(step.cost.generated_tokens for step, _ in answers_of_member)
        money = None
        if member.names_model and member.target in EXTERNAL:
            money = getattr(settings, member.target).money(prompt_tokens, generated_tokens)
        records.append(
            StepRow(
                benchmark=benchmark,
                judge=method.name,
                step=place + 1,
                member=member.name,
                asked=len(answers_of_member),
                share=share,
                error=error,
                prompt_tokens=prompt_tokens,
                generated_tokens=generated_tokens,
                money=money,
            )
        )
    # A cascade's members answer different rows, so that there is nothing to correlate.
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

    first_shares = []
    second_shares = []
    wrong = []
    for (first_step, first_right), (second_step, second_right) in pairs:
        if first_right is None or second_right is None:
            continue
        first_shares.append(first_step.share)
        second_shares.append(second_step.share)
        wrong.append((not first_right, not second_right))

    # Where a member says the same everywhere, its variance is 0 and the correlation undefined.
    pearson = None
    if len(wrong) >= FEWEST and len(set(first_shares)) > 1 and len(set(second_shares)) > 1:
        pearson = float(pearsonr(first_shares, second_shares).statistic)

    # Of the union of both members' errors: two jurors that never err have none to share.
    either = sum(any(pair) for pair in wrong)
    both = sum(all(pair) for pair in wrong)
    same_errors = None
    if either:
        same_errors = both / either
    return Correlation(
        benchmark=benchmark,
        judge=judge,
        first=names[0],
        second=names[1],
        n=len(wrong),
        pearson=pearson,
        same_errors=same_errors,
    )


def sections(rows: Sequence[MetricRow], records: Sequence[Record]) -> Sections:
    """Return the report's tables of steps and of jurors' correlation."""
    step_columns: Columns = {
        "judge": lambda r: r.judge,
        "step": lambda r: r.step,
        "member": lambda r: r.member,
        "asked": lambda r: r.asked,
        "decides %": lambda r: percent(r.share),
        "error %": lambda r: percent(r.error),
        "tokens read": lambda r: number(r.prompt_tokens, 0),
        "tokens written": lambda r: number(r.generated_tokens, 0),
        "money": lambda r: number(r.money, 4),
    }
    correlation_columns: Columns = {
        "jury": lambda r: r.judge,
        "first": lambda r: r.first,
        "second": lambda r: r.second,
        "n": lambda r: r.n,
        "correlation": lambda r: number(r.pearson, 2),
        "errors in common %": lambda r: percent(r.same_errors),
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
