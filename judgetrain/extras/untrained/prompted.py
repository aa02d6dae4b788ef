"""A model asked by one criterion, without training (``prompted:MODEL``)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from judgetrain.artifacts.stage_run import ShardResult
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.rubrics import read_rubric
from judgetrain.evaluate.hooks import asked_as
from judgetrain.evaluate.runners.base import Evaluation, Result
from judgetrain.evaluate.runners.judges import trees_on
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.judges.config import JudgeOptions
from judgetrain.judges.kinds.branching import predict
from judgetrain.judges.method import Method
from judgetrain.judges.prompting.prompts import prompt_path
from judgetrain.judges.settings import check_model
from judgetrain.judges.trees.grow import Shape, grow
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
"""Where the configuration gives no ``criteria``: a sentence that fits any query."""
SHAPE = Shape(count=1, criteria=1, judgments=8, orders=RESPONSES)
"""Eight judgments of each response, as users take the mean of eight samples of a strong model."""


class PromptedByCriterion:
    """What one would do without training: every response judged by itself, by one criterion, eight times.

    Keeps ``trees-BENCHMARK-METHOD`` shards, trees of one branch with several judgments.
    """

    forms = "base, teacher or external after prompted:"

    def check(self, method: Method, settings: EvaluateSettings) -> None:
        """The model that it names, and the criteria that are given."""
        check_model(settings, asked_as(method), "evaluate.methods")

    def run(self, method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
        """By the criteria of the configuration, or by one sentence."""
        settings, options = evaluation.settings, evaluation.models.options(asked_as(method))
        rubric = read_rubric(settings.rubric) if settings.rubric else DEFAULT
        options = replace(options, aggregation="mean", fitted=None, early_stop=False)
        return self.judged(method, evaluation, rubric, options, SHAPE)

    def judged(
        self,
        method: Method,
        evaluation: Evaluation,
        rubric: Rubric,
        options: JudgeOptions,
        shape: Shape,
        load: Callable[[], Any] | None = None,
    ) -> Iterator[tuple[Benchmark, list[Result]]]:
        """Judge every benchmark by a rubric; the larger mean of scores wins. ``load``: a model that is there."""
        models, by = evaluation.models, asked_as(method)

        def process(judge: Any, items: Sequence[Comparison], seed: int) -> ShardResult:
            shown = [replace(c, rubric=rubric) for c in items]
            return shard_of(grow(shown, judge.engine, judge.prompts, shape, options.steps, seed))

        depends = self.depends(method, evaluation, options) | {"rubric": rubric.to_row()}
        how: dict[str, Any] = {"depends": depends, "gpus": models.gpus(by)}
        load = load or (lambda: models.judge(by))
        for benchmark, rows, seconds in evaluation.kept("trees", method.name, load, process, **how):
            trees = [trees_on(row, comparison)[0] for row, comparison in zip(rows, benchmark.comparisons, strict=True)]
            found = [replace(predict(tree, 1, options, method.name), branches=0) for tree in trees]
            yield benchmark, [(found, round(seconds / len(rows), 6))]

    def depends(self, method: Method, evaluation: Evaluation, options: JudgeOptions) -> dict[str, Any]:
        """What judgments depend on besides the rubric."""
        models, by = evaluation.models, asked_as(method)
        return {
            "method": method.kind,
            "judge": models.identity(by, evaluation.hashes),
            "shard_size": evaluation.shard_size,
            "asking": options.steps,
            "engine": models.own_engine(by),
            "prompts": evaluation.hashes.of(prompt_path(evaluation.settings.prompts or "")),
        }
