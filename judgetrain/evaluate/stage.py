"""Stage ``evaluate``: every judge, scorer and floor on every benchmark, one table (branching paper, section 5)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from judgetrain.artifacts import ShardResult, StageRun, derive_seed, read_rows, write_bytes_atomic, write_text_atomic
from judgetrain.config import Config
from judgetrain.dialogues.schema import Comparison
from judgetrain.errors import ConfigError
from judgetrain.evaluate.benchmarks import Benchmark, load_benchmark
from judgetrain.evaluate.methods import load_judge, method_name
from judgetrain.evaluate.page import html_page
from judgetrain.evaluate.report import Report, console_tables, markdown
from judgetrain.evaluate.scoring import read_scores, score_benchmarks
from judgetrain.evaluate.table import metric_row, paired_rows, parquet, prediction_rows
from judgetrain.judges.base import Prediction
from judgetrain.judges.branching import Aggregation, BranchingJudge, predict
from judgetrain.judges.floors import FLOORS
from judgetrain.judges.scorer import PREFIX
from judgetrain.track import duration
from judgetrain.tree.schema import EvaluationTree
from judgetrain.tree.teach import shard_of

Result = tuple[list[Prediction], float]
"""Predictions of a method with one number of branches on one benchmark, and the seconds a verdict took."""


def run(config: Config, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``metrics.json``, ``paired.json``, ``predictions.parquet``, ``report.md`` and ``report.html``.

    A branching judge is sampled once with the largest number of branches; smaller numbers are read off the same
    trees, which the shards ``trees-BENCHMARK-METHOD`` keep. One model is in memory at a time.
    """
    settings = config.evaluate
    benchmarks = [load_benchmark(config, b, i) for i, b in enumerate(settings.benchmarks)]
    _refuse_equal_names(benchmarks, settings.methods)
    for benchmark in benchmarks:
        out.note(f"left_out:{benchmark.name}", benchmark.left_out)
    by_benchmark: dict[str, list[Result]] = {b.name: [] for b in benchmarks}
    for method in settings.methods:
        for benchmark, results in _evaluate(method, benchmarks, config, inputs, out):
            by_benchmark[benchmark.name] += results
    _write(benchmarks, by_benchmark, config, out)


def _write(
    benchmarks: Sequence[Benchmark], by_benchmark: Mapping[str, Sequence[Result]], config: Config, out: StageRun
) -> None:
    """Everything that is computed from the predictions."""
    resamples, seed = config.evaluate.bootstrap, config.seed
    rows, paired, predicted = [], [], []
    for benchmark in benchmarks:
        results = by_benchmark[benchmark.name]
        rows += [metric_row(benchmark, p, seconds, resamples, seed) for p, seconds in results]
        paired += list(paired_rows(benchmark, [p for p, _ in results], resamples, seed))
        predicted += [row for p, _ in results for row in prediction_rows(benchmark, p)]
    report = Report(config.recipe_name, seed, rows, paired, {b.name: b.left_out for b in benchmarks})
    out.write_json("metrics", rows)
    out.write_json("paired", paired)
    write_bytes_atomic(out.path("predictions.parquet"), parquet(predicted))
    write_text_atomic(out.path("report.md"), markdown(report))
    write_text_atomic(out.path("report.html"), html_page(report))
    out.track.log(_flat(rows))
    out.console.plain(console_tables(report))
    out.log(f"evaluate: report: {out.path('report.html')}")


def _evaluate(
    method: str, benchmarks: Sequence[Benchmark], config: Config, inputs: Mapping[str, Path], out: StageRun
) -> Iterator[tuple[Benchmark, list[Result]]]:
    """One method on every benchmark; its model is freed before the results are read."""
    if method in FLOORS:
        for benchmark in benchmarks:
            yield benchmark, [(FLOORS[method]().compare_all(benchmark.comparisons, config.seed), 0.0)]
        return
    if method.startswith(PREFIX):
        if method == next(m for m in config.evaluate.methods if m.startswith(PREFIX)):
            score_benchmarks(benchmarks, config, out)  # all scorers at once
        for benchmark in benchmarks:
            yield benchmark, [read_scores(method, benchmark, config, out)]
        return
    name = method_name(method)
    with _loaded_once(lambda: load_judge(method, config, inputs)) as judge:
        for benchmark in benchmarks:
            _sample(name, judge, benchmark, config, out)
    for benchmark in benchmarks:
        yield benchmark, list(_read_off(name, benchmark, config, out))


@contextmanager
def _loaded_once(load: Callable[[], BranchingJudge]) -> Iterator[Callable[[], BranchingJudge]]:
    """A function that loads a judge when it is first called; the judge is closed at the end."""
    loaded: list[BranchingJudge] = []

    def judge() -> BranchingJudge:
        if not loaded:
            loaded.append(load())
        return loaded[0]

    try:
        yield judge
    finally:
        for each in loaded:
            each.close()


def _sample(
    name: str, judge: Callable[[], BranchingJudge], benchmark: Benchmark, config: Config, out: StageRun
) -> None:
    """Grow the judge's trees over a benchmark, shard by shard; a shard's time is kept beside it."""
    shards, branches = _shards(benchmark.name, name), max(config.evaluate.branches)
    spent: list[float] = []

    def process(index: int, items: Sequence[Comparison]) -> ShardResult:
        engine_ready = judge()
        started = time.perf_counter()
        seed = derive_seed(out.shard_seed(index), benchmark.name, name)
        trees = engine_ready.sample(items, seed, branches)
        spent.append(time.perf_counter() - started)
        write_text_atomic(out.path(_time_file(shards, index)), json.dumps(spent[-1]))
        return shard_of(trees)

    out.sharded(shards, benchmark.comparisons, _shard_size(config), process, "comparisons")
    if spent:
        size = f"{len(benchmark.comparisons)} comparisons, both orders, up to {branches} branches"
        out.log(f"evaluate: {benchmark.name}: {name}: {size}, in {duration(sum(spent))}")


def _read_off(name: str, benchmark: Benchmark, config: Config, out: StageRun) -> Iterator[Result]:
    """The results for each number of branches, from one sampled run.

    Seconds are measured for the largest number; for a smaller one they are that time's share by generated tokens.
    """
    shards = _shards(benchmark.name, name)
    trees = [EvaluationTree.from_row(row) for row in read_rows(out.directory, shards)]
    parts = range(-(-len(trees) // _shard_size(config)))
    seconds = sum(json.loads(out.path(_time_file(shards, i)).read_text()) for i in parts)
    aggregation = cast(Aggregation, config.evaluate.aggregation)
    read = {k: [predict(t, k, aggregation, name) for t in trees] for k in config.evaluate.branches}
    tokens = {k: sum(p.cost.generated_tokens for p in predictions) for k, predictions in read.items()}
    full = tokens[max(tokens)]
    for branches, predictions in read.items():
        share = tokens[branches] / full if full else 1.0
        yield predictions, round(seconds / len(trees) / 2 * share, 6)


def _shards(benchmark: str, method: str) -> str:
    return f"trees-{benchmark}-{method}"


def _time_file(shards: str, index: int) -> str:
    return f".{shards}-{index:05d}.seconds"


def _shard_size(config: Config) -> int:
    return config.tree.shard_size * 2  # a judge's tree is small beside one that is grown for labels


def _refuse_equal_names(benchmarks: Sequence[Benchmark], methods: Sequence[str]) -> None:
    """Stop where two results would go by one name, as benchmark ``a-b`` by ``c`` and benchmark ``a`` by ``b-c``."""
    seen: dict[str, str] = {}
    for benchmark in benchmarks:
        for method in methods:
            name = _shards(benchmark.name, method_name(method))
            here = f"{benchmark.name!r} by {method!r}"
            if name in seen:
                raise ConfigError(
                    f"evaluate.methods: {seen[name]} and {here} would both be called {name}: rename one of them"
                )
            seen[name] = here


def _flat(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    names = ("agreement", "consistency", "generated_tokens")
    return {
        f"{row['benchmark']}/{row['method']}@{row['branches']}/{name}": row[name]
        for row in rows
        for name in names
        if row[name] is not None
    }
