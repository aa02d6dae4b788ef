"""Branching judges on benchmarks: sampled once with the most branches, read off for every smaller number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from judgetrain.artifacts.console import duration
from judgetrain.artifacts.reuse import adopt
from judgetrain.artifacts.shards import read_rows, seconds_of
from judgetrain.artifacts.stage_run import ShardResult, derive_seed
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.engines.once import loaded_once
from judgetrain.evaluate.report.disagreements import write_disagreements
from judgetrain.evaluate.runners.base import Evaluation, Result
from judgetrain.judges.config import Aggregation
from judgetrain.judges.kinds.branching import predict
from judgetrain.judges.loading import check_model
from judgetrain.judges.method import TARGETS, Method
from judgetrain.judges.prompting.prompts import prompt_path
from judgetrain.judges.trees.schema import EvaluationTree, shard_of
from judgetrain.schema import Comparison


class BranchingRunner:
    """Keeps the trees as ``trees-BENCHMARK-METHOD`` shards."""

    forms = f"{', '.join(TARGETS)}, a judge's directory (./NAME)"

    def check(self, method: Method, config: Any) -> None:
        """The model that it names, and that it gives the probabilities which a readout needs."""
        check_model(config, method, "evaluate.methods")

    def run(self, method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
        """Sample every benchmark with one model, then read off the results."""
        settings, models = evaluation.settings.evaluate, evaluation.models
        aggregation, branches = cast(Aggregation, settings.aggregation), max(settings.branches)

        def load() -> Any:
            return models.branching(method, branches, aggregation, settings.early_stop, settings.top_up)

        with loaded_once(load) as judge:
            for benchmark in evaluation.benchmarks:
                adopt(shards_of(benchmark, method), self._key(method, benchmark, evaluation), evaluation.out)
                self._sample(method, judge, benchmark, evaluation)
        for benchmark in evaluation.benchmarks:
            yield benchmark, list(self._read_off(method, benchmark, evaluation))

    def _key(self, method: Method, benchmark: Benchmark, evaluation: Evaluation) -> str:
        """What the trees depend on; metrics and other methods are not part of it."""
        settings = evaluation.settings
        asked = settings.evaluate
        trained = method.target in evaluation.inputs or method.is_directory  # it brings its own prompts
        return evaluation.key(
            benchmark,
            method="+".join(method.readouts) if method.is_directory else method.text,
            judge=evaluation.models.identity(method, evaluation.hashes),
            branches=max(asked.branches),
            aggregation=asked.aggregation if asked.early_stop else None,
            how=[asked.early_stop, asked.top_up, evaluation.shard_size],
            asking=settings.asking,
            engine=settings.engine,
            prompts=None if trained else evaluation.hashes.of(prompt_path(settings.prompts or "")),
        )

    def _sample(self, method: Method, judge: Any, benchmark: Benchmark, evaluation: Evaluation) -> None:
        """Grow the judge's trees over a benchmark, shard by shard."""
        branches, out = max(evaluation.settings.evaluate.branches), evaluation.out

        def process(index: int, items: Sequence[Comparison]) -> ShardResult:
            seed = derive_seed(out.shard_seed(index), benchmark.name, method.name)
            return shard_of(judge().sample(items, seed, branches))

        shards, size = shards_of(benchmark, method), evaluation.shard_size
        if spent := out.sharded(shards, benchmark.comparisons, size, process, "comparisons", load=judge):
            done = f"{len(benchmark.comparisons)} comparisons, both orders, up to {branches} branches"
            out.log(f"evaluate: {benchmark.name}: {method.name}: {done}, in {duration(spent)}")

    def _read_off(self, method: Method, benchmark: Benchmark, evaluation: Evaluation) -> Iterator[Result]:
        """The results for each number of branches, from one sampled run.

        Seconds are measured for the largest number; for a smaller one they are that time's share by generated tokens.
        """
        settings, out, shards = evaluation.settings.evaluate, evaluation.out, shards_of(benchmark, method)
        trees = [EvaluationTree.from_row(row) for row in read_rows(out.directory, shards)]
        seconds, aggregation = seconds_of(out.directory, shards), cast(Aggregation, settings.aggregation)
        read = {
            k: [predict(t, k, aggregation, method.name, settings.early_stop) for t in trees] for k in settings.branches
        }
        write_disagreements(method.name, benchmark, trees, read[max(read)], settings.view, out)
        tokens = {k: sum(p.cost.generated_tokens for p in predictions) for k, predictions in read.items()}
        full = tokens[max(tokens)]
        for branches, predictions in read.items():
            share = tokens[branches] / full if full else 1.0
            yield predictions, round(seconds / len(trees) / 2 * share, 6)


def shards_of(benchmark: Benchmark, method: Method) -> str:
    """The name of the shards of a method's trees on a benchmark."""
    return f"trees-{benchmark.name}-{method.name}"
