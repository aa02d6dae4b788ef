"""Judges on benchmarks, whatever their kind."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from judgetrain.amounts import agree, amount
from judgetrain.artifacts.stage_run import ShardResult, StageRun
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.rubrics import read_rubric
from judgetrain.errors import ConfigError
from judgetrain.evaluate.runners.base import Evaluation, Process, Result, RowMaker, Shown
from judgetrain.judges.kinds.kind import KindResults, kind_of
from judgetrain.judges.method import Method
from judgetrain.judges.predictions import Prediction
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.judges.views.tree_page import DIRECTORY, View, write_views
from judgetrain.rubrics import Rubric
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
    kind = kind_of(by)
    models = evaluation.models
    ask = kind.ask
    assert ask is not None
    numbers = by.branches(evaluation.settings.evaluate.branches)
    # Trees of the most branches hold those of every smaller number.
    most = max(numbers, default=1)
    depends = {
        "judge": models.identity(by, evaluation.hashes),
        "shard_size": evaluation.shard_size,
        "engine": models.own_engine(by),
        **kind.setup.identity(models, by, evaluation.hashes, most),
        **(more or {}),
    }

    def ask_kind(judge: Any, comparisons: Sequence[Comparison], seed: int) -> ShardResult:
        return ask.process(judge, comparisons, seed, most)

    maker = RowMaker(
        kind=ask.rows,
        name=method.name,
        load=lambda: models.judge(by, most),
        process=process or ask_kind,
        depends=depends,
        shown=shown_by(method, evaluation),
        progress=ask.progress.format(branches=most),
        gpus=models.gpus(by),
    )
    for benchmark, rows, seconds in evaluation.kept(maker):
        outcome = ask.read(rows, benchmark.comparisons, models.options(by), method.name, numbers)
        if outcome.message:
            line = f"evaluate: {benchmark.name}: {method.name}: {outcome.message}"
            evaluation.out.log(line, keep=outcome.lasting)
        # Other kinds leave nothing to look at but their replies.
        if outcome.trees:
            # With the most branches, of which the others are a part.
            predictions = outcome.predictions[max(outcome.predictions)]
            write_disagreements(method.name, benchmark, outcome.trees, predictions, evaluation.out)
        yield benchmark, list(_timed(outcome, seconds / len(rows) / ask.orders))


def _timed(outcome: KindResults, seconds: float) -> Iterator[Result]:
    """Yield the predictions for every number of branches with the seconds that a verdict took.

    ``seconds`` were measured with the most branches; fewer take that time's share by generated tokens.
    """
    tokens = {}
    for branches, predictions in outcome.predictions.items():
        tokens[branches] = sum(prediction.cost.generated_tokens for prediction in predictions)
    full = tokens[max(tokens)]
    for branches, predictions in outcome.predictions.items():
        share = 1.0
        # A judge that generates nothing takes the same time whatever the number.
        if full:
            share = tokens[branches] / full
        yield predictions, round(seconds * share, 6)


def ask_at_once(method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
    """Yield the results of a judge that costs nothing; nothing is kept."""
    judge = evaluation.models.judge(method)
    for benchmark in evaluation.benchmarks:
        predictions = judge.compare_batch(benchmark.comparisons, evaluation.settings.seed)
        # Counted here, as there are no shards that would count.
        evaluation.out.count(in_=len(predictions), out=len(predictions))
        yield benchmark, [(predictions, 0.0)]


def shown_by(method: Method, evaluation: Evaluation) -> Shown | None:
    """Return what gives a benchmark's comparisons the criteria that a method goes by; None for judges without any."""
    by = method.asked_as
    if not kind_of(by).criteria:
        return None

    def with_criteria(benchmark: Benchmark) -> list[Comparison]:
        place = f"{method.text}: {benchmark.name}"
        return by_criteria(benchmark.comparisons, by.criteria, place, evaluation.settings.rubric)

    return with_criteria


def by_criteria(
    comparisons: Sequence[Comparison], criteria: str, what: str, file: str | None = None
) -> list[Comparison]:
    """Return comparisons with the criteria that a judge goes by.

    Args:
        comparisons: of a benchmark.
        criteria: which (:attr:`~judgetrain.judges.method.Method.criteria`). Shuffled ones are those of the comparison
            half a benchmark further on, or of the next one whose criteria differ.
        what: the method and the benchmark, for messages.
        file: a file of criteria for comparisons that bring none.

    Raises:
        ConfigError: comparisons bring no criteria, or none that differ.
    """
    # Criteria that come with a benchmark would else be taken as given ones.
    if criteria == "own":
        return [replace(comparison, rubric=None) for comparison in comparisons]
    if file is not None:
        rubric = read_rubric(file)
        comparisons = [comparison.with_rubric(rubric) for comparison in comparisons]
    missing = sum(comparison.rubric is None for comparison in comparisons)
    if missing:
        raise ConfigError(
            f"evaluate.methods: {what}: {missing} of {amount(len(comparisons), 'row')} {agree(missing, 'bring')} "
            "no column criteria"
        )
    if criteria == "given":
        return list(comparisons)

    shuffled = []
    for place, comparison in enumerate(comparisons):
        other = _other_rubric(comparisons, place)
        if other is None:
            raise ConfigError(f"evaluate.methods: {what}: all comparisons have the same criteria: none to swap")
        shuffled.append(replace(comparison, rubric=other))
    return shuffled


def _other_rubric(comparisons: Sequence[Comparison], place: int) -> Rubric | None:
    """Return the first rubric that differs from a comparison's, from half a benchmark further on; None without any."""
    number = len(comparisons)
    for step in range(number):
        # Half a benchmark away, as neighbours are often about the same prompt.
        other = comparisons[(place + number // 2 + step) % number].rubric
        if other != comparisons[place].rubric:
            return other
    return None


def write_disagreements(
    name: str,
    benchmark: Benchmark,
    trees: Sequence[tuple[EvaluationTree, EvaluationTree | None]],
    predictions: Sequence[Prediction],
    out: StageRun,
) -> None:
    """Write pages of up to :data:`VIEW` comparisons on which the judge does not give the label in both orders.

    Those with the largest margin for the wrong side come first.

    Args:
        name: the method's.
        benchmark: the benchmark.
        trees: of each comparison the tree and None, or with independent plans those of both orders, a page each.
        predictions: with the most branches.
        out: the stage's run.
    """
    wrong = []
    for prediction, (first, second) in zip(predictions, trees, strict=True):
        label = first.comparison.label
        if label is not None and prediction.verdict != label:
            wrong.append((_wrongness(prediction, label), prediction, first, second))
    # By the number alone: predictions and trees have no order.
    wrong.sort(key=lambda entry: -entry[0])

    views = []
    for _, prediction, first, second in wrong[:VIEW]:
        views.append(View(first, facts=_facts(prediction)))
        if second is not None:
            views.append(View(second, facts=_facts(prediction)))
    comparisons = min(VIEW, len(wrong))
    title = f"{benchmark.name}, {name}: {comparisons} of {amount(len(wrong), 'comparison')} without the right verdict"
    write_views(views, out.path(DIRECTORY) / f"{benchmark.name}-{name}", title)


def _wrongness(prediction: Prediction, label: str) -> float:
    """Return how far the mean margin is from the label's side; -1 where nothing could be read."""
    if prediction.margin is None:
        return -1.0
    if label == "A":
        return -prediction.margin
    if label == "B":
        return prediction.margin
    # A tie is missed by a margin for either side.
    return abs(prediction.margin)


def _facts(prediction: Prediction) -> dict[str, str]:
    """Return the lines at the top of a disagreement's page, by name."""
    words = {"A": "A", "B": "B", "tie": "tie", None: "none could be read"}
    margin = "–"
    if prediction.margin is not None:
        margin = f"{prediction.margin:+.2f}"
    return {
        "verdict, A shown first": words[prediction.verdict_ab],
        "verdict, B shown first": words[prediction.verdict_ba],
        "mean score of A minus B": margin,
    }
