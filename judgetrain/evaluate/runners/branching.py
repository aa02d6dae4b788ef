"""Branching judges on benchmarks: sampled once with the most branches, read off for every smaller number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from judgetrain.artifacts.shards import read_rows, seconds_of
from judgetrain.artifacts.stage_run import ShardResult, derive_seed
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.engines.once import loaded_once
from judgetrain.evaluate.report.disagreements import write_disagreements
from judgetrain.evaluate.runners.base import Evaluation, Result
from judgetrain.judges.config import Aggregation
from judgetrain.judges.kinds.branching import BranchingJudge, predict
from judgetrain.judges.loading import check_criteria, check_model
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
        check_criteria(config, method, max(config.evaluate.branches), "evaluate.branches")

    def run(self, method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
        """Sample every benchmark with one model, then read off the results."""
        asked, models = evaluation.settings.evaluate, evaluation.models
        how = max(asked.branches), cast(Aggregation, asked.aggregation), asked.early_stop, asked.top_up
        with loaded_once(lambda: models.branching(method, *how)) as judge:
            for benchmark in evaluation.benchmarks:
                self._sample(method, judge, benchmark, evaluation)
        for benchmark in evaluation.benchmarks:
            yield benchmark, list(self._read_off(method, benchmark, evaluation))

    def _sample(
        self, method: Method, judge: Callable[[], BranchingJudge], benchmark: Benchmark, evaluation: Evaluation
    ) -> None:
        """Grow the judge's trees over a benchmark, shard by shard."""
        settings, asked = evaluation.settings, evaluation.settings.evaluate
        branches = max(asked.branches)

        def process(seed: int, items: Sequence[Comparison]) -> ShardResult:
            return shard_of(judge().sample(items, derive_seed(seed, benchmark.name, method.name), branches))

        trained = method.target in evaluation.inputs or method.is_directory  # it brings its own prompts
        depends = {
            "method": "+".join(method.readouts) if method.is_directory else method.text,
            "judge": evaluation.models.identity(method, evaluation.hashes),
            "branches": branches,
            "aggregation": asked.aggregation if asked.early_stop else None,
            "how": [asked.early_stop, asked.top_up, evaluation.shard_size],
            "asking": settings.asking,
            "engine": evaluation.models.own_engine(method),
            "prompts": None if trained else evaluation.hashes.of(prompt_path(settings.prompts or "")),
        }
        told = f", both orders, up to {branches} branches"
        evaluation.fill(_shards(benchmark, method), benchmark, depends, process, judge, method.name, told)

    def _read_off(self, method: Method, benchmark: Benchmark, evaluation: Evaluation) -> Iterator[Result]:
        """The results for each number of branches, from one sampled run.

        Seconds are measured for the largest number; for a smaller one they are that time's share by generated tokens.
        """
        settings, out, shards = evaluation.settings.evaluate, evaluation.out, _shards(benchmark, method)
        rows = zip(read_rows(out.directory, shards), benchmark.comparisons, strict=True)
        # Trees of an earlier evaluation may carry labels that have been corrected since.
        trees = [replace(EvaluationTree.from_row(row), comparison=comparison) for row, comparison in rows]
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


def _shards(benchmark: Benchmark, method: Method) -> str:
    return f"trees-{benchmark.name}-{method.name}"
