"""Stage ``evaluate``: every judge and floor on every benchmark, one table (branching paper, section 5)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from judgetrain.artifacts import ShardResult, StageRun, derive_seed, read_rows, write_bytes_atomic, write_text_atomic
from judgetrain.config import Config, EngineConfig
from judgetrain.dialogues.schema import Comparison
from judgetrain.engines.registry import make_engine
from judgetrain.errors import ConfigError
from judgetrain.evaluate.benchmarks import Benchmark, load_benchmark
from judgetrain.evaluate.report import console_table, markdown, write_html
from judgetrain.evaluate.table import metric_row, prediction_rows
from judgetrain.judges.base import Prediction
from judgetrain.judges.branching import BranchingJudge, predict
from judgetrain.judges.floors import FLOORS
from judgetrain.tree.prompts import FILE as PROMPTS
from judgetrain.tree.prompts import load_prompt_set
from judgetrain.tree.schema import EvaluationTree
from judgetrain.tree.teach import shard_of


def run(config: Config, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``metrics.json``, ``predictions.parquet``, ``report.md`` and ``report.html``.

    A branching judge is sampled once with the largest number of branches; smaller numbers are read off the same
    trees, which the shards ``trees-BENCHMARK-METHOD`` keep.
    """
    settings = config.evaluate
    benchmarks = [load_benchmark(config, b, i) for i, b in enumerate(settings.benchmarks)]
    rows: list[dict[str, Any]] = []
    predicted: list[dict[str, Any]] = []
    for benchmark in benchmarks:
        out.note(f"left_out:{benchmark.name}", benchmark.left_out)
        for method in settings.methods:
            for predictions, seconds in _predictions(method, benchmark, config, inputs, out):
                rows.append(metric_row(benchmark, predictions, seconds, settings.bootstrap, config.seed))
                predicted += prediction_rows(benchmark, predictions)
    out.write_json("metrics", rows)
    write_bytes_atomic(out.path("predictions.parquet"), _parquet(predicted))
    write_text_atomic(out.path("report.md"), markdown(rows, config.recipe_name, config.seed))
    write_html(out.path("report.html"), rows, config.recipe_name, config.seed)
    out.track.log(_flat(rows))
    out.console.plain(console_table(rows))
    out.log(f"evaluate: report: {out.path('report.html')}")


_Result = Iterator[tuple[list[Prediction], float]]


def _predictions(
    method: str, benchmark: Benchmark, config: Config, inputs: Mapping[str, Path], out: StageRun
) -> _Result:
    """Predictions of one method, for each number of branches, with the seconds a verdict took."""
    if method in FLOORS:
        yield FLOORS[method]().compare_all(benchmark.comparisons, config.seed), 0.0
        return
    name = Path(method).name if "/" in method else method
    shards = f"trees-{benchmark.name}-{name}"
    _sample(method, name, shards, benchmark, config, inputs, out)
    trees = [EvaluationTree.from_row(row) for row in read_rows(out.directory, shards)]
    seconds = sum(json.loads(p.read_text()) for p in out.directory.glob(f".{shards}-*.seconds"))
    for branches in config.evaluate.branches:
        predictions = [predict(t, branches, config.evaluate.aggregation, name) for t in trees]  # type: ignore[arg-type]
        spent = sum(p.cost.generated_tokens for p in predictions)
        full = sum(predict(t, max(config.evaluate.branches), "vote", name).cost.generated_tokens for t in trees)
        yield predictions, round(seconds / len(trees) / 2 * (spent / full if full else 1.0), 6)


def _sample(
    method: str,
    name: str,
    shards: str,
    benchmark: Benchmark,
    config: Config,
    inputs: Mapping[str, Path],
    out: StageRun,
) -> None:
    """Grow the judge's trees over a benchmark, shard by shard; the judge loads only when a shard is missing."""
    judge: BranchingJudge | None = None

    def process(index: int, items: Sequence[Comparison]) -> ShardResult:
        nonlocal judge
        if judge is None:
            judge = _judge(method, name, config, inputs)
        started = time.perf_counter()
        trees = judge.sample(
            items, derive_seed(out.shard_seed(index), benchmark.name, name), max(config.evaluate.branches)
        )
        write_text_atomic(out.path(f".{shards}-{index:05d}.seconds"), json.dumps(time.perf_counter() - started))
        return shard_of(trees)

    try:
        out.sharded(shards, benchmark.comparisons, config.tree.shard_size * 2, process, "comparisons")
    finally:
        if judge is not None:
            judge.close()


def _judge(method: str, name: str, config: Config, inputs: Mapping[str, Path]) -> BranchingJudge:
    if method == "teacher":
        engine, prompts = make_engine(config.teacher.engine, name=name), load_prompt_set(config.prompts)
    elif method == "base":
        settings = EngineConfig(**{**vars(config.engine), "model": config.train.base})
        engine, prompts = make_engine(settings, name=name), load_prompt_set(config.prompts)
    else:
        directory = inputs[method] / "model" if method in inputs else Path(method)
        if not (directory / PROMPTS).is_file():
            known = "base, teacher, initial, sft, dpo, " + ", ".join(FLOORS)
            raise ConfigError(f"evaluate.methods: {method!r} is neither of {known} nor a trained judge's directory")
        engine = make_engine(config.engine, model_path=str(directory), name=name)
        prompts = load_prompt_set(directory / PROMPTS)
    return BranchingJudge(engine, prompts, max(config.evaluate.branches), config.tree, name=name)


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    import io

    import pyarrow
    import pyarrow.parquet

    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), buffer)
    return buffer.getvalue()


def _flat(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    names = ("agreement", "consistency", "generated_tokens")
    return {
        f"{row['benchmark']}/{row['method']}@{row['branches']}/{name}": row[name]
        for row in rows
        for name in names
        if row[name] is not None
    }
