"""Scorers in the table: each group of scores computed once for a benchmark, every method read off it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.console import duration
from judgetrain.artifacts.files import write_text_atomic
from judgetrain.artifacts.reuse import adopt
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.evaluate.runners.reuse import score_key
from judgetrain.judges.base import Prediction
from judgetrain.judges.kinds.scorer import PREFIX, predictions, samples_of
from judgetrain.pipeline.config import Config
from judgetrain.schema import Comparison
from judgetrain.scorers.encode import Unscored
from judgetrain.scorers.glassbox import Scores
from judgetrain.scorers.lazy import lazy_scorer
from judgetrain.scorers.methods import ScorerSettings, assemble, better, groups, score
from judgetrain.scorers.results import Usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from judgetrain.scorers.statistics import TokenScorer


def names_of(methods: Sequence[str]) -> list[str]:
    """The scorers among the methods, without their prefix."""
    return [m.removeprefix(PREFIX) for m in methods if m.startswith(PREFIX)]


def score_benchmarks(benchmarks: Sequence[Benchmark], config: Config, out: StageRun) -> None:
    """Compute the scores of all ``scorer:`` methods on all benchmarks, shard by shard, with one model."""
    settings = ScorerSettings.of(config.scorer)
    with lazy_scorer(config) as scorer:
        for group, members in groups(names_of(config.evaluate.methods)).items():
            for benchmark in benchmarks:
                adopt(_shards(benchmark.name, group), score_key(members, benchmark, config), out, _cost_of)
                _score(group, members, benchmark, settings, scorer, config, out)


def _score(
    group: str,
    members: Sequence[str],
    benchmark: Benchmark,
    settings: ScorerSettings,
    scorer: Callable[[], TokenScorer],
    config: Config,
    out: StageRun,
) -> None:
    shards, spent = _shards(benchmark.name, group), 0.0

    def process(index: int, items: Sequence[Comparison]) -> ShardResult:
        nonlocal spent
        ready = scorer()
        started, before = time.perf_counter(), ready.usage
        seed = derive_seed(out.shard_seed(index), benchmark.name, group)
        found = score(ready, samples_of(items), members, settings, seed)
        usage, seconds = ready.usage - before, time.perf_counter() - started
        spent += seconds
        write_text_atomic(out.path(_cost_file(shards, index)), json.dumps([asdict(usage), seconds]))
        rows = [{"id": c.id, **{m: _pair(found[m], i) for m in members}} for i, c in enumerate(items)]
        gone = found[members[0]].unscored
        return ShardResult(rows, len(rows), dict(gone), usage.prompt_tokens, usage.generated_tokens)

    out.sharded(shards, benchmark.comparisons, config.scorer.shard_size, process, "comparisons")
    if spent:
        size = f"{len(benchmark.comparisons)} comparisons"
        out.log(f"evaluate: {benchmark.name}: {', '.join(members)}: {size}, in {duration(spent)}")


def read_scores(method: str, benchmark: Benchmark, config: Config, out: StageRun) -> tuple[list[Prediction], float]:
    """The predictions of one ``scorer:`` method, and seconds of a verdict: those of its group's passes."""
    (name,) = names_of([method])
    settings = ScorerSettings.of(config.scorer)
    found: dict[str, Scores] = {}
    usage, seconds = Usage(), 0.0
    for group, members in groups([name]).items():
        shards = _shards(benchmark.name, group)
        rows = list(read_rows(out.directory, shards))
        for member in members:
            values = [Unscored(v) if isinstance(v, str) else float(v) for row in rows for v in row[member]]
            found[member] = Scores(member, values, better(member, settings))
        for index in range(-(-len(rows) // config.scorer.shard_size)):
            cost, took = json.loads(out.path(_cost_file(shards, index)).read_text())
            usage, seconds = usage + Usage(**cost), seconds + took
    scores = replace(assemble(found, name), method=method)
    done = predictions(benchmark.comparisons, scores, method, config.scorer.tie_threshold, usage)
    return done, round(seconds / len(done), 6)


def _pair(scores: Scores, index: int) -> list[Any]:
    pair = scores.values[2 * index : 2 * index + 2]
    return [v.reason if isinstance(v, Unscored) else v for v in pair]


def _shards(benchmark: str, group: str) -> str:
    return f"scores-{benchmark}-{group}"


def _cost_of(stem: str) -> list[str]:
    """The name of the file that holds a shard's cost."""
    return [f".{stem.rpartition('-of-')[0]}.cost"]


def _cost_file(shards: str, index: int) -> str:
    return f".{shards}-{index:05d}.cost"
