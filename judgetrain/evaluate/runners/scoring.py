"""Scorers in the table: each group of scores computed once for a benchmark, every method read off it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.console import duration
from judgetrain.artifacts.reuse import adopt
from judgetrain.artifacts.shards import markers_of, read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed, tokens_of
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.evaluate.runners.reuse import score_key
from judgetrain.judges.base import Prediction
from judgetrain.judges.kinds.scorer import PREFIX, predictions, samples_of
from judgetrain.pipeline.config import Config
from judgetrain.schema import Comparison
from judgetrain.scorers.config import ScorerConfig
from judgetrain.scorers.encode import Unscored
from judgetrain.scorers.estimator import Scores
from judgetrain.scorers.lazy import lazy_scorer
from judgetrain.scorers.methods import assemble, better, groups, score
from judgetrain.scorers.results import Usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from judgetrain.scorers.statistics import TokenScorer


def names_of(methods: Sequence[str]) -> list[str]:
    """The scorers among the methods, without their prefix."""
    return [m.removeprefix(PREFIX) for m in methods if m.startswith(PREFIX)]


def score_benchmarks(benchmarks: Sequence[Benchmark], config: Config, out: StageRun) -> None:
    """Compute the scores of all ``scorer:`` methods on all benchmarks, shard by shard, with one model."""
    settings = config.scorer
    with lazy_scorer(config) as scorer:
        for group, members in groups(names_of(config.evaluate.methods)).items():
            for benchmark in benchmarks:
                adopt(_shards(benchmark.name, group), score_key(members, benchmark, config), out)
                _score(group, members, benchmark, settings, scorer, config, out)


def _score(
    group: str,
    members: Sequence[str],
    benchmark: Benchmark,
    settings: ScorerConfig,
    scorer: Callable[[], TokenScorer],
    config: Config,
    out: StageRun,
) -> None:

    def process(index: int, items: Sequence[Comparison]) -> ShardResult:
        ready = scorer()
        before = ready.usage
        seed = derive_seed(out.shard_seed(index), benchmark.name, group)
        found = score(ready, samples_of(items), members, settings, seed)
        usage = ready.usage - before
        rows = [{"id": c.id, **{m: _pair(found[m], i) for m in members}} for i, c in enumerate(items)]
        gone = found[members[0]].unscored
        return ShardResult(rows, len(rows), gone, **tokens_of([usage]), facts={"calls": usage.calls})

    shards, size = _shards(benchmark.name, group), config.scorer.shard_size
    spent = out.sharded(shards, benchmark.comparisons, size, process, "comparisons", load=scorer)
    if spent:
        done = f"{len(benchmark.comparisons)} comparisons, in {duration(spent)}"
        out.log(f"evaluate: {benchmark.name}: {', '.join(members)}: {done}")


def read_scores(method: str, benchmark: Benchmark, config: Config, out: StageRun) -> tuple[list[Prediction], float]:
    """The predictions of one ``scorer:`` method, and seconds of a verdict: those of its group's passes."""
    (name,) = names_of([method])
    settings = config.scorer
    found: dict[str, Scores] = {}
    usage, seconds = Usage(), 0.0
    for group, members in groups([name]).items():
        shards = _shards(benchmark.name, group)
        rows = list(read_rows(out.directory, shards))
        for member in members:
            values = [Unscored(v) if isinstance(v, str) else float(v) for row in rows for v in row[member]]
            found[member] = Scores(member, values, better(member, settings))
        for marker in markers_of(out.directory, shards):
            tokens, seconds = marker["tokens"], seconds + marker["seconds"]
            usage += Usage(tokens["prompt"], tokens["generated"], marker["facts"]["calls"])
    scores = replace(assemble(found, name), method=method)
    done = predictions(benchmark.comparisons, scores, method, config.scorer.tie_threshold, usage)
    return done, round(seconds / len(done), 6)


def _pair(scores: Scores, index: int) -> list[Any]:
    pair = scores.values[2 * index : 2 * index + 2]
    return [v.reason if isinstance(v, Unscored) else v for v in pair]


def _shards(benchmark: str, group: str) -> str:
    return f"scores-{benchmark}-{group}"
