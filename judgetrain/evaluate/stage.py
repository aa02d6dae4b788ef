"""Stage ``evaluate``: every judge, scorer and floor on every benchmark, one table (branching paper, section 5)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import cast

from judgetrain.artifacts.console import duration
from judgetrain.artifacts.files import write_bytes_atomic, write_text_atomic
from judgetrain.artifacts.installed import versions
from judgetrain.artifacts.reuse import adopt
from judgetrain.artifacts.shards import read_rows, seconds_of
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed
from judgetrain.data.benchmarks.benchmark import Benchmark, load_benchmark
from judgetrain.data.benchmarks.scenarios import load_classifier, with_scenarios
from judgetrain.engines.answers import Budget, budget_of
from judgetrain.engines.once import loaded_once
from judgetrain.errors import ConfigError
from judgetrain.evaluate.metrics.choose import Choice, choose, part_of, split
from judgetrain.evaluate.metrics.overlap import disagreements
from judgetrain.evaluate.metrics.rows import metric_row, paired_rows, parquet, prediction_rows
from judgetrain.evaluate.report.disagreements import Link, disagreement_links, training_links, write_disagreements
from judgetrain.evaluate.report.lineage import lineage
from judgetrain.evaluate.report.page import html_page
from judgetrain.evaluate.report.report import Report
from judgetrain.evaluate.report.text import console_tables, markdown
from judgetrain.evaluate.report.tracking import track_report
from judgetrain.evaluate.runners.asked import ask_benchmark, read_replies, replies_name
from judgetrain.evaluate.runners.reuse import reply_key, sample_key
from judgetrain.evaluate.runners.scoring import read_scores, score_benchmarks
from judgetrain.evaluate.runners.stored import PREFIX as STORED
from judgetrain.evaluate.runners.stored import stored_named, stored_predictions
from judgetrain.judges.base import Prediction
from judgetrain.judges.kinds.branching import BranchingJudge, predict
from judgetrain.judges.kinds.early_stop import Aggregation
from judgetrain.judges.kinds.floors import FLOORS
from judgetrain.judges.kinds.scorer import PREFIX
from judgetrain.judges.methods import external_engine, load_asked_judge, load_judge
from judgetrain.judges.names import file_name, method_name, split_method
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label.teach import shard_of
from judgetrain.pipeline.config import Config
from judgetrain.schema import Comparison

Result = tuple[list[Prediction], float]
"""Predictions of a method with one number of branches on one benchmark, and the seconds a verdict took."""


def run(config: Config, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``metrics.json``, ``paired.json``, ``summary.json``, ``predictions.parquet``, ``report.md`` and ``.html``.

    Beside them, in ``view``, are pages of single trees to look at. A branching judge is sampled once with the largest
    number of branches; smaller numbers are read off the same trees, which the shards ``trees-BENCHMARK-METHOD`` keep.
    Those that an earlier evaluation sampled from the same judge in the same way are taken over. Judges that are asked
    once leave ``replies-...``, scorers ``scores-...``; both are taken over likewise. One model is in memory at a time.
    What an external model answers is kept in ``output_dir`` before it is used, and none is asked beyond
    ``evaluate.max_requests`` and ``evaluate.max_tokens``.
    """
    settings = config.evaluate
    benchmarks = [load_benchmark(config, b, i) for i, b in enumerate(settings.benchmarks)]
    _refuse_equal_names(benchmarks, settings.methods)
    if settings.scenarios.path:
        classifier = load_classifier(settings.scenarios, "evaluate.scenarios", config.seed)
        benchmarks = [with_scenarios(benchmark, classifier) for benchmark in benchmarks]
        out.note("scenarios", classifier.facts())
    for benchmark in benchmarks:
        out.note(f"left_out:{benchmark.name}", benchmark.left_out)
    by_benchmark: dict[str, list[Result]] = {b.name: [] for b in benchmarks}
    engines = [external_engine(split_method(method)[1], config) for method in settings.methods]
    budget = budget_of(engines, settings, "evaluate", out.path(".spent.jsonl"))
    try:
        for method in settings.methods:
            for benchmark, results in _evaluate(method, benchmarks, config, inputs, out, budget):
                by_benchmark[benchmark.name] += results
    finally:
        if budget:
            out.note("spent", dict(budget.spent))
    links = {b.name: disagreement_links(b.name, map(method_name, settings.methods), out) for b in benchmarks}
    _write(benchmarks, by_benchmark, config, inputs, {"": training_links(inputs.values(), out), **links}, out)


def _write(
    benchmarks: Sequence[Benchmark],
    by_benchmark: Mapping[str, Sequence[Result]],
    config: Config,
    inputs: Mapping[str, Path],
    links: Mapping[str, Sequence[Link]],
    out: StageRun,
) -> None:
    """Everything that is computed from the predictions."""
    settings, seed = config.evaluate, config.seed
    rows, paired, predicted, chosen, differ = [], [], [], {}, {}
    for benchmark in benchmarks:
        results = by_benchmark[benchmark.name]
        dev, test = split(benchmark, settings.dev_share, seed)
        choices = choose(dev, [p for p, _ in results]) if dev else []
        tested = [(part_of(test, p), seconds) for p, seconds in results]
        for predictions, seconds in tested:
            row = metric_row(test, predictions, seconds, settings.bootstrap, seed)
            rows.append(
                row | {"chosen": any((c.method, c.branches) == (row["method"], row["branches"]) for c in choices)}
            )
        paired += list(paired_rows(test, [p for p, _ in tested], settings.bootstrap, seed))
        for part in (dev, test):
            predicted += [r for p, _ in results if part for r in prediction_rows(part, part_of(part, p))]
        chosen[benchmark.name] = [asdict(c) for c in choices]
        differ[benchmark.name] = disagreements(test, _one_each([p for p, _ in tested], choices))
    report = Report(
        config.recipe_name,
        seed,
        rows,
        paired,
        {b.name: b.left_out for b in benchmarks},
        chosen,
        differ,
        lineage(inputs.values()),
        versions(),
        scenarios=out.notes.get("scenarios", {}),
    )
    out.write_json("metrics", rows)
    out.write_json("paired", paired)
    out.write_json("summary", report.summary())
    write_bytes_atomic(out.path("predictions.parquet"), parquet(predicted))
    write_text_atomic(out.path("report.md"), markdown(report))
    write_text_atomic(out.path("report.html"), html_page(report, links))
    track_report(report, out.track)
    out.console.plain(console_tables(report))
    out.log(f"evaluate: report: {out.path('report.html')}")


def _one_each(results: Sequence[list[Prediction]], choices: Sequence[Choice]) -> list[list[Prediction]]:
    """Each method once: with the number of branches that was chosen for it, else the largest. Floors are left out."""
    chosen = {c.method: c.branches for c in choices}
    best: dict[str, list[Prediction]] = {}
    for predictions in results:
        method, branches = predictions[0].method, predictions[0].branches
        if method not in FLOORS and branches == chosen.get(
            method, max(branches, best.get(method, predictions)[0].branches)
        ):
            best[method] = predictions
    return list(best.values())


def _evaluate(
    method: str,
    benchmarks: Sequence[Benchmark],
    config: Config,
    inputs: Mapping[str, Path],
    out: StageRun,
    budget: Budget | None,
) -> Iterator[tuple[Benchmark, list[Result]]]:
    """One method on every benchmark; its model is freed before the results are read."""
    if method in FLOORS:
        for benchmark in benchmarks:
            found = FLOORS[method]().compare_all(benchmark.comparisons, config.seed)
            out.count(in_=len(found), out=len(found))
            yield benchmark, [(found, 0.0)]
        return
    if method.startswith(STORED):
        yield from _stored(method, benchmarks, config, out)
        return
    if split_method(method)[0]:
        with loaded_once(lambda: load_asked_judge(method, config, inputs, budget)) as asked:
            for benchmark in benchmarks:
                key = reply_key(method, benchmark, config, inputs, _shard_size(config))
                adopt(replies_name(benchmark.name, method), key, out)
                ask_benchmark(method, asked, benchmark, _shard_size(config), out)
        for benchmark in benchmarks:
            yield benchmark, [read_replies(method, benchmark, out)]
        return
    if method.startswith(PREFIX):
        if method == next(m for m in config.evaluate.methods if m.startswith(PREFIX)):
            score_benchmarks(benchmarks, config, out)  # all scorers at once
        for benchmark in benchmarks:
            yield benchmark, [read_scores(method, benchmark, config, out)]
        return
    name = method_name(method)
    with loaded_once(lambda: load_judge(method, config, inputs, budget=budget)) as judge:
        for benchmark in benchmarks:
            adopt(_shards(benchmark.name, name), sample_key(method, benchmark, config, inputs), out)
            _sample(name, judge, benchmark, config, out)
    for benchmark in benchmarks:
        yield benchmark, list(_read_off(name, benchmark, config, out))


def _stored(
    method: str, benchmarks: Sequence[Benchmark], config: Config, out: StageRun
) -> Iterator[tuple[Benchmark, list[Result]]]:
    """Stored verdicts, on the one benchmark that they are about."""
    stored = stored_named(config, method)
    settings = {b.name: b for b in config.evaluate.benchmarks}
    key = f"evaluate.stored[{config.evaluate.stored.index(stored)}]"
    for benchmark in benchmarks:
        if benchmark.name == stored.benchmark:
            found = stored_predictions(stored, settings[benchmark.name], benchmark.comparisons, key)
            dropped = Counter(f"stored:{reason}" for p in found for reason in Counter(p.failures).elements())
            out.count(in_=len(found), out=len(found), dropped=dropped)
            yield benchmark, [(found, math.nan)]


def _sample(
    name: str, judge: Callable[[], BranchingJudge], benchmark: Benchmark, config: Config, out: StageRun
) -> None:
    """Grow the judge's trees over a benchmark, shard by shard."""
    shards, branches = _shards(benchmark.name, name), max(config.evaluate.branches)

    def process(index: int, items: Sequence[Comparison]) -> ShardResult:
        seed = derive_seed(out.shard_seed(index), benchmark.name, name)
        return shard_of(judge().sample(items, seed, branches))

    spent = out.sharded(shards, benchmark.comparisons, _shard_size(config), process, "comparisons", load=judge)
    if spent:
        size = f"{len(benchmark.comparisons)} comparisons, both orders, up to {branches} branches"
        out.log(f"evaluate: {benchmark.name}: {name}: {size}, in {duration(spent)}")


def _read_off(name: str, benchmark: Benchmark, config: Config, out: StageRun) -> Iterator[Result]:
    """The results for each number of branches, from one sampled run.

    Seconds are measured for the largest number; for a smaller one they are that time's share by generated tokens.
    """
    shards = _shards(benchmark.name, name)
    trees = [EvaluationTree.from_row(row) for row in read_rows(out.directory, shards)]
    seconds = seconds_of(out.directory, shards)
    aggregation = cast(Aggregation, config.evaluate.aggregation)
    read = {
        k: [predict(t, k, aggregation, name, config.evaluate.early_stop) for t in trees]
        for k in config.evaluate.branches
    }
    write_disagreements(name, benchmark, trees, read[max(read)], config.evaluate.view, out)
    tokens = {k: sum(p.cost.generated_tokens for p in predictions) for k, predictions in read.items()}
    full = tokens[max(tokens)]
    for branches, predictions in read.items():
        share = tokens[branches] / full if full else 1.0
        yield predictions, round(seconds / len(trees) / 2 * share, 6)


def _shards(benchmark: str, method: str) -> str:
    return f"trees-{benchmark}-{method}"


def _shard_size(config: Config) -> int:
    return config.tree.shard_size * 2  # a judge's tree is small beside one that is grown for labels


def _refuse_equal_names(benchmarks: Sequence[Benchmark], methods: Sequence[str]) -> None:
    """Stop where two results would go by one name, as benchmark ``a-b`` by ``c`` and benchmark ``a`` by ``b-c``."""
    seen: dict[str, str] = {}
    for benchmark in benchmarks:
        for method in methods:
            name = _shards(benchmark.name, file_name(method))
            here = f"{benchmark.name!r} by {method!r}"
            if name in seen:
                raise ConfigError(
                    f"evaluate.methods: {seen[name]} and {here} would both be called {name}: rename one of them"
                )
            seen[name] = here
