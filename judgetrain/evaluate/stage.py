"""Stage ``evaluate``: every judge, scorer and baseline on every benchmark, one table (branching paper, section 5)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from judgetrain.artifacts.files import write_bytes_atomic, write_text_atomic
from judgetrain.artifacts.installed import versions
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.engines.answers import spending
from judgetrain.errors import ConfigError
from judgetrain.evaluate.hooks import Further, Measured, Predicted, calls
from judgetrain.evaluate.metrics.choose import Choice, choose, part_of, split
from judgetrain.evaluate.metrics.paired import paired_comparisons
from judgetrain.evaluate.metrics.predictions import parquet, prediction_rows
from judgetrain.evaluate.metrics.rows import MethodKey, MetricRow, metric_row
from judgetrain.evaluate.overlap import Overlaps
from judgetrain.evaluate.report.disagreements import Link, disagreement_links
from judgetrain.evaluate.report.render import console_tables, html_page, markdown, track_report
from judgetrain.evaluate.report.report import Report, lineage
from judgetrain.evaluate.runners import runner_of
from judgetrain.evaluate.runners.base import Evaluation, Result
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.judges.method import JUDGE_STAGES, Method


def run(settings: EvaluateSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``metrics.json``, ``paired.json``, ``summary.json``, ``predictions.parquet``, ``report.md`` and ``.html``.

    With ``evaluate.dev_share`` they are about the test split, and ``development.json`` has the rows of ``metrics.json``
    over the development split. Beside them, in ``view``, are pages of single trees to look at. A branching judge is
    sampled once with the largest number of branches; smaller numbers are read off the same trees, which the shards
    ``trees-BENCHMARK-METHOD`` keep. Those that an earlier evaluation sampled from the same judge in the same way are
    taken over. Judges that are asked once leave ``replies-...``, scorers ``scores-...``; both are taken over likewise.
    One model is in memory at a time. What an external model answers is kept in ``output_dir`` before it is used, and
    none is asked beyond ``evaluate.max_requests`` and ``evaluate.max_tokens``.
    """
    config = settings.evaluate
    benchmarks, methods = settings.benchmarks, settings.evaluated
    further: dict[str, list[Further]] = {}
    for extra, make, _ in calls("benchmarks", settings):
        further[extra.name] = make(settings, benchmarks, methods)
    made = [each for of_extra in further.values() for each in of_extra]
    _refuse_equal_names([*benchmarks, *(each.benchmark for each in made)], methods)
    for benchmark in benchmarks:
        out.note(f"left_out:{benchmark.name}", benchmark.left_out)
    overlaps = Overlaps.find(methods, inputs, benchmarks)
    for line in overlaps.told(benchmarks):
        out.log(line)
    by_benchmark: dict[str, list[Result]] = {b.name: [] for b in (*benchmarks, *(each.benchmark for each in made))}
    with spending(settings.asked_engines, config, "evaluate", out) as budget:
        evaluation = Evaluation(
            settings=settings, benchmarks=benchmarks, methods=methods, inputs=inputs, out=out, budget=budget
        )
        for method in methods:
            own = [each.benchmark for each in made if method in each.methods]
            asked = replace(evaluation, benchmarks=[*benchmarks, *own])
            if not evaluation.models.paid(method):  # so that workers may share what it asks
                asked = replace(asked, budget=None)
            for benchmark, results in runner_of(method).run(method, asked):
                by_benchmark[benchmark.name] += results
    _write(evaluation, by_benchmark, further, overlaps, _links(evaluation, made))


def _links(evaluation: Evaluation, made: Sequence[Further]) -> dict[str, list[Link]]:
    """By benchmark the pages of trees behind verdicts that are not the label, of extras' benchmarks too."""
    names, links = [method.name for method in evaluation.methods], defaultdict[str, list[Link]](list)
    shown = [(b.name, b.name) for b in evaluation.benchmarks] + [(each.of, each.benchmark.name) for each in made]
    for of, benchmark in shown:
        links[of] += disagreement_links(benchmark, names, evaluation.out)
    return links


def _write(
    evaluation: Evaluation,
    by_benchmark: Mapping[str, Sequence[Result]],
    further: Mapping[str, Sequence[Further]],
    overlaps: Overlaps,
    links: Mapping[str, Sequence[Link]],
) -> None:
    """Everything that is computed from the predictions."""
    settings, seed, out = evaluation.settings.evaluate, evaluation.settings.seed, evaluation.out
    rows, tuning, paired, predicted, chosen = [], [], [], [], {}
    records: dict[tuple[str, str], Sequence[Any]] = {}
    for benchmark in evaluation.benchmarks:
        results = by_benchmark[benchmark.name]
        dev, test = split(benchmark, settings.dev_share)
        choices = choose(dev, [p for p, _ in results]) if dev else []
        tested = [part_of(test, p) for p, _ in results]
        tested_rows = _rows(test, results, choices, settings.bootstrap, seed, overlaps)
        best = {c.method: c.branches for c in choices}
        found = Predicted(
            settings=evaluation.settings, dev=dev, test=test, results=[p for p, _ in results], chosen=best
        )
        columns: dict[MethodKey, dict[str, Any]] = {r.key: {} for r in tested_rows}
        for extra, measure, _ in calls("measure", evaluation.settings):
            own = [each for each in further.get(extra.name, ()) if each.of == benchmark.name]
            of_own = [(each, [p for p, _ in by_benchmark[each.benchmark.name]]) for each in own]
            measured: Measured = measure(replace(found, further=of_own))
            records[extra.name, benchmark.name] = measured.records
            for key, value in measured.values.items():
                columns[key][extra.name] = value
        rows += [replace(row, extras=columns[row.key]) for row in tested_rows]
        tuning += _rows(dev, results, choices, settings.bootstrap, seed, overlaps) if dev else []
        paired += list(paired_comparisons(test, tested, settings.bootstrap, seed))
        for part in (dev, test):
            predicted += [r for p, _ in results if part for r in prediction_rows(part, part_of(part, p))]
        chosen[benchmark.name] = choices
    report = Report(
        recipe=out.recipe,
        seed=seed,
        rows=rows,
        paired=paired,
        left_out={b.name: b.left_out for b in evaluation.benchmarks},
        chosen=chosen,
        lineage=lineage(evaluation.inputs.values()),
        versions=versions(),
        records=records,
    )
    out.write_json("metrics", [row.to_row() for row in rows])
    if tuning:
        out.write_json("development", [row.to_row() for row in tuning])
    out.write_json("paired", [row.to_row() for row in paired])
    out.write_json("summary", report.summary())
    write_bytes_atomic(out.path("predictions.parquet"), parquet(predicted))
    write_text_atomic(out.path("report.md"), markdown(report))
    write_text_atomic(out.path("report.html"), html_page(report, links))
    track_report(report, out.track)
    out.tell(console_tables(report))
    for extra, write, section in calls("write", evaluation.settings):
        write([r for (name, _), each in records.items() if name == extra.name for r in each], section, out)
    out.log(f"evaluate: report: {out.path('report.html')}")
    if trained := [name for name in JUDGE_STAGES if name in evaluation.inputs]:
        model = evaluation.inputs[trained[-1]] / "model"
        out.log(f"evaluate: the {trained[-1]} judge, for judgetrain judge verdicts.judge=DIRECTORY: {model}")


def _rows(
    part: Benchmark, results: Sequence[Result], choices: Sequence[Choice], resamples: int, seed: int, overlaps: Overlaps
) -> list[MetricRow]:
    """The metrics of every method on a part of a benchmark."""
    best = {(c.method, c.branches) for c in choices}
    found = [metric_row(part, part_of(part, p), seconds, resamples, seed) for p, seconds in results]
    return [
        replace(
            row, chosen=(row.method, row.branches) in best, overlap=overlaps.of(row.method, part.name, part.comparisons)
        )
        for row in found
    ]


def _refuse_equal_names(benchmarks: Sequence[Benchmark], methods: Sequence[Method]) -> None:
    """Stop where two results would go by one name, as benchmark ``a-b`` by ``c`` and benchmark ``a`` by ``b-c``."""
    seen: dict[str, str] = {}
    for benchmark in benchmarks:
        for method in methods:
            name, here = f"{benchmark.name}-{method.file_name}", f"{benchmark.name!r} by {method.text!r}"
            if name in seen:
                raise ConfigError(
                    f"evaluate.methods: {seen[name]} and {here} would both be called {name}: rename one of them"
                )
            seen[name] = here
