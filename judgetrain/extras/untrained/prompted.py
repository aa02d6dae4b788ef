"""A model asked by one criterion, without training (``prompted:MODEL``)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from judgetrain.artifacts.stage_run import ShardResult
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.rubrics import read_rubric
from judgetrain.evaluate.runners.base import Evaluation, Result, RowMaker
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.judges.kinds.branching import trees_on
from judgetrain.judges.kinds.kind import Use
from judgetrain.judges.kinds.tree_predictions import predict
from judgetrain.judges.method import Method
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.prompting.prompts import prompt_path
from judgetrain.judges.settings import check_model
from judgetrain.judges.trees.grow import Shape, TreeModel, grow
from judgetrain.judges.trees.schema import shard_of
from judgetrain.rubrics import Criterion, Rubric
from judgetrain.schema import RESPONSES, Comparison

DEFAULT = Rubric(
    (
        Criterion(
            text="The response does what the query asks for: what it says is right, complete, to the point and clear.",
            guideline="5: in every respect. 4: with one small flaw. 3: in part. 2: hardly. 1: not at all.",
        ),
    )
)
"""The rubric where the configuration gives no ``criteria``: a sentence that fits any query."""
SHAPE = Shape(count=1, criteria=1, judgments=8, orders=RESPONSES)
"""Eight judgments of each response, as users take the mean of eight samples of a strong model."""


def check(settings: EvaluateSettings, method: Method, use: Use) -> None:
    """Refuse a model that cannot be asked, and criteria that cannot be read."""
    check_model(settings, method.asked_as, use.key)


def run(method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
    """Yield what one would get without training: every response judged by itself, by one criterion, eight times.

    The criteria are the configuration's, else one sentence. ``trees-BENCHMARK-METHOD`` shards keep trees of one branch
    with several judgments.
    """
    rubric = DEFAULT
    if evaluation.settings.rubric:
        rubric = read_rubric(evaluation.settings.rubric)
    options = evaluation.models.options(method.asked_as)
    # The mean of all eight judgments decides, however judge.* asks the run's own judges.
    options = replace(options, aggregation="mean", fitted=None, thresholds=None, early_stop=False)
    return judge_by(RubricAsking(rubric=rubric, options=options, shape=SHAPE), method, evaluation)


@dataclass(frozen=True, kw_only=True)
class RubricAsking:
    """The way to ask a model about every comparison by one rubric.

    Args:
        rubric: the criteria.
        options: how the judge is asked.
        shape: how many judgments each comparison gets.
    """

    rubric: Rubric
    options: JudgeOptions
    shape: Shape


def judge_by(
    asking: RubricAsking, method: Method, evaluation: Evaluation, load: Callable[[], Any] | None = None
) -> Iterator[tuple[Benchmark, list[Result]]]:
    """Yield every benchmark judged by a rubric; of two responses the one with the larger mean of scores wins.

    Args:
        asking: the rubric, and how the model is asked by it.
        method: names the results.
        evaluation: that goes on.
        load: returns the judge where it is loaded already; None: it is loaded here.
    """
    models = evaluation.models
    by = method.asked_as
    rubric = asking.rubric
    options = asking.options

    def process(judge: Any, comparisons: Sequence[Comparison], seed: int) -> ShardResult:
        with_rubric = [replace(c, rubric=rubric.for_query(c.dialogue.query)) for c in comparisons]
        return shard_of(grow(with_rubric, TreeModel(judge.engine, judge.prompts, options.steps), asking.shape, seed))

    maker = RowMaker(
        kind="trees",
        name=method.name,
        load=load or (lambda: models.judge(by)),
        process=process,
        depends=depends_on(method, evaluation, options) | {"rubric": rubric.content},
        gpus=models.gpus(by),
    )
    for benchmark, rows, seconds in evaluation.kept(maker):
        predictions = []
        for row, comparison in zip(rows, benchmark.comparisons, strict=True):
            # Responses are judged by themselves, so that there is no second tree for another order.
            tree = trees_on(row, comparison)[0]
            # The criteria are given, so that tables show no number of branches.
            predictions.append(replace(predict(tree, 1, options, method.name), branches=0))
        yield benchmark, [(predictions, round(seconds / len(rows), 6))]


def depends_on(method: Method, evaluation: Evaluation, options: JudgeOptions) -> dict[str, Any]:
    """Return what judgments depend on besides the rubric."""
    models = evaluation.models
    by = method.asked_as
    return {
        "method": method.kind,
        "judge": models.identity(by, evaluation.hashes),
        "shard_size": evaluation.shard_size,
        "asking": options.steps,
        "engine": models.own_engine(by),
        "prompts": evaluation.hashes.of(prompt_path(evaluation.settings.prompts or "")),
    }
