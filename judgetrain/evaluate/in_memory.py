"""Measures a judge in Python, without a run: the figures of ``metrics.json`` on rows with labels."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from judgetrain.amounts import amount
from judgetrain.data.benchmarks.benchmark import Benchmark, case_of, united
from judgetrain.data.cells import majority
from judgetrain.data.intervals import Resampling
from judgetrain.errors import ConfigError, DataError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.metrics.rows import metric_row
from judgetrain.judges.base import Given, Judge
from judgetrain.judges.rows import Rows, comparisons_in
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
    """Return the figures of a judge on labelled comparisons, as a row of ``metrics.json`` has them.

    Shares are from 0 to 1, intervals resample prompts whole; ``agreement`` asks for the label in both orders. Rows that
    label one pair of responses are votes on one comparison, which counts once, as in stage evaluate.

    Args:
        judge: to be measured.
        rows: as :meth:`~judgetrain.judges.base.Judge.compare_all` reads them, with labels (``A``, ``B``, ``tie``).
        name: what the rows are called in the row of figures.
        seed: of what is sampled, and of intervals.
        criteria: to judge by, for rows without criteria of their own.
        resamples: resamples of an interval; None: as many as stage evaluate takes.
        progress: whether a bar shows how far it is, once it has taken a few seconds.

    Raises:
        DataError: a row cannot be read or holds a single response, two rows have one id, or none has a label that
            counts.
        ConfigError: what is given is no judge, or criteria for one that goes by none.
    """
    # The name of a judge is an easy slip: rewards take one.
    if not hasattr(judge, "compare_all"):
        raise ConfigError(
            f"judge={judge!r:.80}: expected a judge, as load_judge('longer') returns it, found {type(judge).__name__}"
        )
    if resamples is None:
        resamples = EvaluateConfig.bootstrap
    comparisons = comparisons_in(rows, labelled=True).items
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
    return metric_row(benchmark, predictions, per_verdict, Resampling(resamples, seed)).to_row()


def _check_ids(ids: list[str]) -> None:
    """Refuse (DataError) rows that share an id, which would be counted as one."""
    first: dict[str, int] = {}
    for number, row_id in enumerate(ids):
        if row_id in first:
            raise DataError(f"rows {first[row_id]} and {number} are the same comparison ({row_id}): give each row once")
        first[row_id] = number
