"""Judges on benchmarks of single responses, each of which gets a score."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from judgetrain.artifacts.stage_run import ShardResult
from judgetrain.evaluate.runners.base import Evaluation, RowMaker
from judgetrain.evaluate.runners.judges import shown_by
from judgetrain.judges.kinds.kind import kind_of
from judgetrain.judges.method import Method
from judgetrain.judges.predictions import Cost, Score, as_data
from judgetrain.schema import Candidates, Comparison

ROWS = "responses"
"""The first part of the shards' names."""


@dataclass(frozen=True, kw_only=True)
class ScoreResult:
    """The scores that a method gives the responses of a benchmark.

    Args:
        method: its name.
        branches: how many criteria of its own it went by.
        scores: in the benchmark's order.
        seconds: those that a score took.
    """

    method: str
    branches: int
    scores: Sequence[Score]
    seconds: float


def score_responses(method: Method, evaluation: Evaluation) -> Iterator[tuple[str, ScoreResult]]:
    """Yield the scores of a method by the name of each benchmark, asked with its own branches or the most.

    Its own are those behind its name, as ``./my-judge@3``: by as many criteria stages judge and calibrate score.

    They are kept in shards ``responses-BENCHMARK-METHOD``, and taken over from an earlier evaluation that asked the
    same.

    Args:
        method: of a kind that scores a single response, as it is asked.
        evaluation: under way, of :attr:`~judgetrain.data.benchmarks.responses.ResponseBenchmark.asked` benchmarks.
    """
    if not evaluation.benchmarks:
        return
    by = method.asked_as
    kind = kind_of(by)
    models = evaluation.models
    # Where there is one score and no row for each number of branches, the name's own number need not be among them.
    most = by.most or max(by.branches(evaluation.settings.evaluate.branches), default=1)
    options = models.options(by, most)
    depends = {
        "judge": models.identity(by, evaluation.hashes),
        "shard_size": evaluation.shard_size,
        "engine": models.own_engine(by),
        **kind.setup.identity(models, by, evaluation.hashes, most),
        # A score is made of the judgments at once, where verdicts are read off trees that are kept.
        "least_read": options.least_read,
        "fitted": options.fitted,
    }
    # Not a part without them, so that scores of earlier evaluations are taken over.
    if options.thresholds is not None:
        depends["thresholds"] = options.thresholds

    maker = RowMaker(
        kind=ROWS,
        name=method.name,
        load=lambda: models.judge(by, most),
        process=scored,
        depends=depends,
        shown=shown_by(method, evaluation),
        gpus=models.gpus(by),
        unit="responses",
    )
    branches = 0
    if kind.criteria:
        branches = most
    for benchmark, rows, seconds in evaluation.kept(maker):
        scores = [Score.from_row(row) for row in rows]
        per_score = round(seconds / len(rows), 6)
        yield benchmark.name, ScoreResult(method=method.name, branches=branches, scores=scores, seconds=per_score)


def scored(judge: Any, comparisons: Sequence[Comparison], seed: int) -> ShardResult:
    """Return a judge's scores of each comparison's response A, which stands alone, as a finished shard."""
    # Each in a group of its own: the criteria of one response must not be those written for another.
    groups = [Candidates(item.id, item.dialogue, (item.response_a,), item.rubric) for item in comparisons]
    scores = [score for (score,) in judge.score_batch(groups, seed)]
    failures: Counter[str] = Counter()
    for score in scores:
        failures.update(score.failures)
    spent = sum((score.cost for score in scores), Cost())
    return ShardResult([as_data(score) for score in scores], len(scores), failures, **spent.tokens)
