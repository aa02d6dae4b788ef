"""What one would do without training: a model asked by one criterion (``prompted:``), the mean of several judgments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from judgetrain.artifacts.shards import read_rows, seconds_of
from judgetrain.artifacts.stage_run import ShardResult, derive_seed
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.rubrics import read_rubric
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.evaluate.runners.base import Evaluation, Result
from judgetrain.evaluate.stages import EvaluateSettings, grown_by
from judgetrain.judges.checks import check_model
from judgetrain.judges.kinds.branching import predict
from judgetrain.judges.method import Method
from judgetrain.judges.prompting.prompts import prompt_path
from judgetrain.judges.trees.grow import Shape, grow
from judgetrain.judges.trees.schema import EvaluationTree, shard_of
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
    """Keeps the judgments as ``trees-BENCHMARK-METHOD`` shards, trees of one branch with several judgments."""

    forms = "base, teacher or external after prompted:"

    def check(self, method: Method, settings: EvaluateSettings) -> None:
        """The model that it names, and the criteria that are given."""
        check_model(settings, grown_by(method), "evaluate.methods")

    def run(self, method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
        """Judge every response by itself with one model; the larger mean of its expected scores wins."""
        models, asked = evaluation.models, grown_by(method)
        rubric = read_rubric(evaluation.settings.rubric) if evaluation.settings.rubric else DEFAULT
        options = replace(models.options(asked), rubric=rubric, aggregation="mean", fitted=None, early_stop=False)
        depends = {
            "method": method.kind,
            "judge": models.identity(asked, evaluation.hashes),
            "shard_size": evaluation.shard_size,
            "asking": options.steps,
            "rubric": rubric.to_row(),
            "engine": models.own_engine(asked),
            "prompts": evaluation.hashes.of(prompt_path(evaluation.settings.prompts or "")),
        }
        with loaded_once(lambda: models.judge(asked)) as judge:
            for benchmark in evaluation.benchmarks:

                def process(seed: int, items: Sequence[Comparison], about: str = benchmark.name) -> ShardResult:
                    shown = [replace(c, rubric=rubric) for c in items]
                    seed = derive_seed(seed, about, method.name)
                    return shard_of(grow(shown, judge().engine, judge().prompts, SHAPE, options.steps, seed))

                gpus = models.gpus(asked)
                evaluation.fill(_shards(benchmark, method), benchmark, depends, process, judge, method.name, gpus=gpus)
        for benchmark in evaluation.benchmarks:
            out, shards = evaluation.out, _shards(benchmark, method)
            trees = [EvaluationTree.from_row(row) for row in read_rows(out.directory, shards)]
            found = [replace(predict(tree, 1, options, method.name), branches=0) for tree in trees]
            yield benchmark, [(found, round(seconds_of(out.directory, shards) / len(trees), 6))]


def _shards(benchmark: Benchmark, method: Method) -> str:
    return f"trees-{benchmark.name}-{method.file_name}"
