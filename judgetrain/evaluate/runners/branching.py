"""Branching judges on benchmarks: sampled once with the most branches, read off for every smaller number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from judgetrain.artifacts.shards import read_rows, seconds_of
from judgetrain.artifacts.stage_run import ShardResult, derive_seed
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.rubrics import read_rubric
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.errors import ConfigError
from judgetrain.evaluate.report.disagreements import write_disagreements
from judgetrain.evaluate.runners.base import Evaluation, Result
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.judges.checks import check_criteria, check_model, too_long_hint
from judgetrain.judges.kinds.branching import BranchingJudge, predict
from judgetrain.judges.method import TARGETS, Method
from judgetrain.judges.prompting.prompts import prompt_path
from judgetrain.judges.trees.schema import OTHER, EvaluationTree, shard_of, trees_of
from judgetrain.schema import Comparison


class BranchingRunner:
    """Keeps the trees as ``trees-BENCHMARK-METHOD`` shards."""

    forms = f"{', '.join(TARGETS)}, a judge's directory (./NAME)"

    def check(self, method: Method, settings: EvaluateSettings) -> None:
        """The model that it names, that it gives the probabilities which expected scores need, and the branches."""
        check_model(settings, method, "evaluate.methods")
        if method.most == 0:
            raise ConfigError(f"evaluate.methods: {method.text!r}: a judge has at least 1 branch")
        check_criteria(
            settings.criteria or 0, method, max(method.branches(settings.evaluate.branches)), "evaluate.branches"
        )

    def run(self, method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
        """Sample every benchmark with one model, then read off the results."""
        models, branches = evaluation.models, max(method.branches(evaluation.settings.evaluate.branches))
        with loaded_once(lambda: models.judge(method, branches)) as judge:
            for benchmark in evaluation.benchmarks:
                what = f"{method.text}: {benchmark.name}"
                shown = by_criteria(benchmark.comparisons, method.criteria, what, evaluation.settings.rubric)
                self._sample(method, judge, replace(benchmark, comparisons=shown), evaluation)
        for benchmark in evaluation.benchmarks:
            yield benchmark, list(self._read_off(method, benchmark, evaluation))

    def _sample(
        self, method: Method, judge: Callable[[], BranchingJudge], benchmark: Benchmark, evaluation: Evaluation
    ) -> None:
        """Grow the judge's trees over a benchmark, shard by shard; a row is a comparison."""
        settings, asked = evaluation.settings, evaluation.settings.evaluate
        branches, about = max(method.branches(asked.branches)), benchmark.name
        how = evaluation.models.asking(method)

        def process(seed: int, items: Sequence[Comparison]) -> ShardResult:
            trees, others = judge().ask(items, derive_seed(seed, about, method.name), branches)
            rows = [tree.to_row() for tree in trees]
            for row, other in zip(rows, others, strict=bool(others)):
                row[OTHER] = other.to_row()
            return replace(shard_of([*trees, *others]), rows=rows, counts_in=len(rows))

        trained = method.target in evaluation.inputs or method.is_directory  # it brings its own prompts
        depends = {
            "method": "+".join(method.options) if method.is_directory else method.name,
            "judge": evaluation.models.identity(method, evaluation.hashes),
            "branches": branches,
            "shard_size": evaluation.shard_size,
            # Aggregation and tie decide what is asked only where branches stop early.
            "asking": how if how.early_stop else how.changed(aggregation="vote", tie=0.0),
            "criteria": settings.criteria,
            "engine": evaluation.models.own_engine(method),
            "prompts": None if trained else evaluation.hashes.of(prompt_path(settings.prompts or "")),
        }
        told = f", both orders, up to {branches} branches"
        gpus = evaluation.models.gpus(method)
        evaluation.fill(_shards(benchmark, method), benchmark, depends, process, judge, method.name, told, gpus=gpus)

    def _read_off(self, method: Method, benchmark: Benchmark, evaluation: Evaluation) -> Iterator[Result]:
        """The results for each number of branches, from one sampled run.

        Seconds are measured for the largest number; for a smaller one they are that time's share by generated tokens.
        """
        settings, out, shards = evaluation.settings.evaluate, evaluation.out, _shards(benchmark, method)
        rows = zip(read_rows(out.directory, shards), benchmark.comparisons, strict=True)
        options, seconds = evaluation.models.options(method), seconds_of(out.directory, shards)
        trees = [_trees(row, comparison) for row, comparison in rows]
        read = {
            k: [predict(tree, k, options, method.name, other) for tree, other in trees]
            for k in method.branches(settings.branches)
        }
        lost: Counter[str] = Counter()
        for prediction in read[max(read)]:
            lost.update(prediction.failures)
        if told := too_long_hint(lost):
            out.log(f"evaluate: {benchmark.name}: {method.name}: {told}", keep=True)
        write_disagreements(method.name, benchmark, trees, read[max(read)], out)
        tokens = {k: sum(p.cost.generated_tokens for p in predictions) for k, predictions in read.items()}
        full = tokens[max(tokens)]
        for branches, predictions in read.items():
            share = tokens[branches] / full if full else 1.0
            yield predictions, round(seconds / len(trees) / 2 * share, 6)


def by_criteria(
    comparisons: Sequence[Comparison], criteria: str, what: str, file: str | None = None
) -> list[Comparison]:
    """The comparisons with the criteria that a judge is to go by (:attr:`~judgetrain.judges.method.Method.criteria`).

    ``file``: whose criteria are given with those that bring none. Shuffled ones are those of the comparison half a
    benchmark further on, or of the next one whose criteria differ.

    Raises:
        ConfigError: criteria are wanted, and none are given, or none differ; names ``what`` wants them.
    """
    if criteria == "own":
        return [replace(c, rubric=None) for c in comparisons]
    if file is not None:
        rubric = read_rubric(file)
        comparisons = [c if c.rubric else replace(c, rubric=rubric) for c in comparisons]
    if missing := sum(c.rubric is None for c in comparisons):
        raise ConfigError(
            f"evaluate.methods: {what}: {missing} of {len(comparisons)} comparisons bring no criteria (column criteria)"
        )
    if criteria == "given":
        return list(comparisons)
    found, n = [], len(comparisons)
    for i, own in enumerate(comparisons):
        others = (comparisons[(i + n // 2 + step) % n].rubric for step in range(n))
        other = next((rubric for rubric in others if rubric != own.rubric), None)
        if other is None:
            raise ConfigError(
                f"evaluate.methods: {what}: all comparisons have the same criteria: there is none to swap"
            )
        found.append(replace(own, rubric=other))
    return found


def _trees(row: Mapping[str, Any], comparison: Comparison) -> tuple[EvaluationTree, EvaluationTree | None]:
    """The tree of both orders and None, or that of order AB and that of order BA.

    Both are about the benchmark's ``comparison``: trees of an earlier evaluation may carry a label that has been
    corrected since.
    """
    first, *others = (replace(tree, comparison=comparison) for tree in trees_of(row))
    return first, others[0] if others else None


def _shards(benchmark: Benchmark, method: Method) -> str:
    """Where the trees are."""
    return f"trees-{benchmark.name}-{method.name}"
