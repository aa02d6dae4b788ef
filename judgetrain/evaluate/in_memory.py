"""Measures a judge in Python, without a run: the figures of stage evaluate on rows with labels."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from judgetrain.amounts import amount
from judgetrain.data.benchmarks.benchmark import Benchmark, case_of, united
from judgetrain.data.benchmarks.responses import ResponseBenchmark, benchmark_of_rows, counted, row_holds_one
from judgetrain.data.cells import RowError, majority
from judgetrain.data.config import SourceConfig
from judgetrain.data.intervals import Resampling
from judgetrain.data.labelled import OVERALL
from judgetrain.data.rows.reader import RowReader
from judgetrain.errors import ConfigError, DataError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.metrics.rating_rows import Measuring
from judgetrain.evaluate.metrics.rows import metric_row
from judgetrain.evaluate.runners.responses import ScoreResult
from judgetrain.judges.base import Given, Judge
from judgetrain.judges.predictions import Score
from judgetrain.judges.rows import Rows, comparisons_in, each_row
from judgetrain.schema import ORDERS


def evaluate_judge(
    judge: Judge,
    rows: Rows,
    *,
    name: str = "rows",
    seed: int = 0,
    criteria: Given = None,
    resamples: int | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Return the figures of a judge on labelled rows, as stage evaluate has them.

    Of comparisons these are a row of ``metrics.json``. Shares are from 0 to 1, intervals resample prompts whole;
    ``agreement`` asks for the label in both orders. Rows that label one pair of responses are votes on one comparison,
    which counts once, as in stage evaluate.

    Of single responses they are the row of ``ratings.json`` that is of responses as a whole, where labels are; and,
    beside it, ``by_criterion``: such rows by the name of each criterion that labels and scores are of, and ``always``:
    the row of the rule that gives every response the commonest label.

    Args:
        judge: to be measured.
        rows: as :meth:`~judgetrain.judges.base.Judge.compare_all` reads them, with labels (``A``, ``B``, ``tie``); or
            mappings and tables as :meth:`~judgetrain.judges.base.Judge.score_all` reads them, one response a row, with
            labels in ``label`` or ``score`` (pass and fail, 0 and 1, 1 to 5, or an object with a label a criterion).
        name: what the rows are called in the row of figures.
        seed: of what is sampled, and of intervals.
        criteria: to judge by, for rows without criteria of their own.
        resamples: resamples of an interval; None: as many as stage evaluate takes.
        progress: whether a bar shows how far it is, once it has taken a few seconds.

    Raises:
        DataError: a row cannot be read or holds a single response beside rows of two, two rows have one id, or none
            has a label that counts.
        ConfigError: what is given is no judge, criteria for one that goes by none, or single responses for one that
            compares two.
    """
    # The name of a judge is an easy slip: rewards take one.
    if not hasattr(judge, "compare_all"):
        raise ConfigError(
            f"judge={judge!r:.80}: expected a judge, as load_judge('longer') returns it, found {type(judge).__name__}"
        )
    if resamples is None:
        resamples = EvaluateConfig.bootstrap
    resampling = Resampling(resamples, seed)
    # A generator is read once, and the first row says what all rows are.
    records = list(each_row(rows))
    if _hold_single_responses(records):
        responses = _labelled(records, name, judge)
        result = _scored(judge, responses, seed, criteria, progress)
        return _figures_of_scores(responses, result, resampling)
    comparisons = comparisons_in(records, labelled=True).items
    _check_ids([comparison.id for comparison in comparisons])
    if all(comparison.label is None for comparison in comparisons):
        raise DataError(
            f"none of the {amount(len(comparisons), 'row')} has a label to measure {judge.name} by: give a column "
            "label with A, B or tie"
        )
    cases = united([case_of(comparison) for comparison in comparisons])
    comparisons = [replace(case.comparison, label=majority(case.votes)) for case in cases]
    if all(comparison.label is None for comparison in comparisons):
        raise DataError(
            f"no label to measure {judge.name} by: of each pair of responses as many rows say one as say the other"
        )
    began = time.perf_counter()
    predictions = judge.compare_all(comparisons, seed, criteria=criteria, progress=progress)
    seconds = time.perf_counter() - began
    benchmark = Benchmark(name=name, split="", comparisons=comparisons)
    per_verdict = round(seconds / len(comparisons) / len(ORDERS), 6)
    return metric_row(benchmark, predictions, per_verdict, resampling).to_row()


def _hold_single_responses(records: Sequence[Any]) -> bool:
    """Return whether rows hold one response each, as the first one that tells has it.

    Raises:
        DataError: two columns of a row have one name.
    """
    columns = RowReader(SourceConfig(name="rows"), key="").columns
    for number, row in enumerate(records):
        try:
            holds_one = row_holds_one(columns, row)
        except RowError as error:
            raise DataError(f"row {number}: {error}") from error
        if holds_one is not None:
            return holds_one
    return False


def _labelled(records: Sequence[Any], name: str, judge: Judge) -> ResponseBenchmark:
    """Return rows of one response each as a benchmark of this name (DataError: no label of theirs counts)."""
    benchmark = benchmark_of_rows(records, name)
    if not counted(benchmark.responses, benchmark.scales):
        raise DataError(
            f"none of the {amount(len(records), 'row')} has a label to measure {judge.name} by: give a column label "
            "with pass and fail, 0 and 1, or 1 to 5, on which annotators do not tie"
        )
    return benchmark


def _scored(judge: Judge, benchmark: ResponseBenchmark, seed: int, criteria: Given, progress: bool) -> ScoreResult:
    """Return a judge's scores of a benchmark's responses; other arguments as of :func:`evaluate_judge`."""
    began = time.perf_counter()
    groups = judge.score_all(
        [response.candidates for response in benchmark.responses], seed, criteria=criteria, progress=progress
    )
    seconds = time.perf_counter() - began
    scores = [score for (score,) in groups]
    per_score = round(seconds / len(scores), 6)
    return ScoreResult(method=judge.name, branches=_own_criteria(scores), scores=scores, seconds=per_score)


def _figures_of_scores(benchmark: ResponseBenchmark, result: ScoreResult, resampling: Resampling) -> dict[str, Any]:
    """Return the figures of scores of labelled responses, as :func:`evaluate_judge` says."""
    measuring = Measuring(benchmark, benchmark.split, [True] * len(result.scores), resampling)
    overall: dict[str, Any] = {}
    always: dict[str, Any] | None = None
    by_criterion = {}
    for row in measuring.rows([result]):
        figures = row.to_row()
        if row.criterion != OVERALL:
            # The rule's row of a criterion is as easily counted from its prevalence.
            if not row.is_rule:
                by_criterion[row.criterion] = figures
        elif row.is_rule:
            always = figures
        else:
            overall = figures
    return {**overall, "by_criterion": by_criterion, "always": always}


def _own_criteria(scores: Sequence[Score]) -> int:
    """Return how many criteria of its own a judge went by, at most; 0 for a rule."""
    counts = []
    for score in scores:
        own = {reason.criterion for reason in score.reasons if reason.source != "given"}
        counts.append(len(own))
    return max(counts)


def _check_ids(ids: list[str]) -> None:
    """Refuse (DataError) rows that share an id, which would be counted as one."""
    first: dict[str, int] = {}
    for number, row_id in enumerate(ids):
        if row_id in first:
            raise DataError(f"rows {first[row_id]} and {number} are the same comparison ({row_id}): give each row once")
        first[row_id] = number
