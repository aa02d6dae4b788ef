"""Judges on benchmarks, whatever their kind."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from judgetrain.artifacts.stage_run import ShardResult, StageRun
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.rubrics import read_rubric
from judgetrain.errors import ConfigError
from judgetrain.evaluate.runners.base import Evaluation, Process, Result
from judgetrain.judges.base import Prediction
from judgetrain.judges.kinds.kind import Outcome, kind_of
from judgetrain.judges.method import Method
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.judges.views.tree_page import DIRECTORY, View, write_views
from judgetrain.schema import Comparison

VIEW = 20
"""Pages of disagreements to look at, per benchmark and judge."""


def ask_judge(
    method: Method, evaluation: Evaluation, process: Process | None = None, more: Mapping[str, Any] | None = None
) -> Iterator[tuple[Benchmark, list[Result]]]:
    """Yield a method's results on every benchmark: its judge is asked, or taken over, then what it said is read.

    What the judge said is kept as ``ROWS-BENCHMARK-METHOD`` shards, by branches at once: results for every number of
    them are read off one run with the most.

    Args:
        method: of a kind that asks a judge, its own or another kind's (``asked_as``).
        evaluation: under way.
        process: makes a shard of the judge, comparisons and a seed, where that is otherwise than the judge's kind does.
        more: what the rows then depend on besides, or otherwise.
    """
    by = method.asked_as
    kind, models = kind_of(by), evaluation.models
    ask = kind.ask
    assert ask is not None
    numbers = by.branches(evaluation.settings.evaluate.branches)
    most = max(numbers, default=1)
    depends = {
        "judge": models.identity(by, evaluation.hashes),
        "shard_size": evaluation.shard_size,
        "engine": models.own_engine(by),
        **kind.identity(models, by, evaluation.hashes, most),
        **(more or {}),
    }

    def ask_kind(judge: Any, comparisons: Sequence[Comparison], seed: int) -> ShardResult:
        return ask.process(judge, comparisons, seed, most)

    def with_criteria(benchmark: Benchmark) -> list[Comparison]:
        what = f"{method.text}: {benchmark.name}"
        return by_criteria(benchmark.comparisons, by.criteria, what, evaluation.settings.rubric)

    kept = evaluation.kept(
        ask.rows,
        method.name,
        lambda: models.judge(by, most),
        process or ask_kind,
        with_criteria if kind.criteria else None,
        depends=depends,
        told=ask.progress.format(branches=most),
        gpus=models.gpus(by),
    )
    for benchmark, rows, seconds in kept:
        outcome = ask.read(rows, benchmark.comparisons, models.options(by), method.name, numbers)
        if outcome.message:
            line = f"evaluate: {benchmark.name}: {method.name}: {outcome.message}"
            evaluation.out.log(line, keep=outcome.lasting)
        if outcome.trees:
            predictions = outcome.predictions[max(outcome.predictions)]
            write_disagreements(method.name, benchmark, outcome.trees, predictions, evaluation.out)
        yield benchmark, list(_timed(outcome, seconds / len(rows) / ask.orders))


def _timed(outcome: Outcome, seconds: float) -> Iterator[Result]:
    """Yield the predictions for every number of branches with the seconds that a verdict took.

    ``seconds`` were measured with the most branches; fewer take that time's share by generated tokens.
    """
    tokens = {}
    for branches, predictions in outcome.predictions.items():
        tokens[branches] = sum(prediction.cost.generated_tokens for prediction in predictions)
    full = tokens[max(tokens)]
    for branches, predictions in outcome.predictions.items():
        share = tokens[branches] / full if full else 1.0
        yield predictions, round(seconds * share, 6)


def ask_at_once(method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
    """Yield the results of a judge that costs nothing; nothing is kept."""
    judge = evaluation.models.judge(method)
    for benchmark in evaluation.benchmarks:
        predictions = judge.compare_all(benchmark.comparisons, evaluation.settings.seed)
        evaluation.out.count(in_=len(predictions), out=len(predictions))
        yield benchmark, [(predictions, 0.0)]


def by_criteria(
    comparisons: Sequence[Comparison], criteria: str, what: str, file: str | None = None
) -> list[Comparison]:
    """The comparisons with the criteria that a judge is to go by (:attr:`~judgetrain.judges.method.Method.criteria`)
    (ConfigError: criteria are wanted, and none are given, or none differ; names ``what`` wants them).

    ``file``: whose criteria are given with those that bring none. Shuffled ones are those of the comparison half a
    benchmark further on, or of the next one whose criteria differ.
    """
    if criteria == "own":
        return [replace(c, rubric=None) for c in comparisons]
    if file is not None:
        rubric = read_rubric(file)
        comparisons = [c if c.rubric else replace(c, rubric=rubric) for c in comparisons]
    if missing := sum(c.rubric is None for c in comparisons):
        raise ConfigError(f"evaluate.methods: {what}: {missing} of {len(comparisons)} rows bring no column criteria")
    if criteria == "given":
        return list(comparisons)
    found, n = [], len(comparisons)
    for i, own in enumerate(comparisons):
        others = (comparisons[(i + n // 2 + step) % n].rubric for step in range(n))
        other = next((rubric for rubric in others if rubric != own.rubric), None)
        if other is None:
            raise ConfigError(f"evaluate.methods: {what}: all comparisons have the same criteria: none to swap")
        found.append(replace(own, rubric=other))
    return found


def write_disagreements(
    name: str,
    benchmark: Benchmark,
    trees: Sequence[tuple[EvaluationTree, EvaluationTree | None]],
    predictions: Sequence[Prediction],
    out: StageRun,
) -> None:
    """Write pages of up to :data:`VIEW` comparisons on which the judge does not give the label in both orders.

    Those with the largest margin for the wrong side come first. ``trees``: of each comparison the tree and None, or
    with independent plans those of both orders, a page each. ``predictions`` are with the most branches.
    """
    wrong = [
        (p, both)
        for p, both in zip(predictions, trees, strict=True)
        if both[0].comparison.label is not None and p.verdict != both[0].comparison.label
    ]
    wrong.sort(key=lambda pair: -_wrongness(pair[0], pair[1][0].comparison.label))
    views = [View(tree, facts=_facts(p)) for p, both in wrong[:VIEW] for tree in both if tree is not None]
    shown = min(VIEW, len(wrong))
    title = f"{benchmark.name}, {name}: {shown} of {len(wrong)} comparisons without the right verdict"
    write_views(views, out.path(DIRECTORY) / f"{benchmark.name}-{name}", title)


def _wrongness(prediction: Prediction, label: str | None) -> float:
    """How far the mean margin is from what the label says; -1 where nothing could be read."""
    if prediction.margin is None:
        return -1.0
    return {"A": -prediction.margin, "B": prediction.margin}.get(str(label), abs(prediction.margin))


def _facts(prediction: Prediction) -> dict[str, str]:
    words = {"A": "A", "B": "B", "tie": "tie", None: "none could be read"}
    margin = "–" if prediction.margin is None else f"{prediction.margin:+.2f}"
    return {
        "verdict, A shown first": words[prediction.verdict_ab],
        "verdict, B shown first": words[prediction.verdict_ba],
        "mean score of A minus B": margin,
    }
