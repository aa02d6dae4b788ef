"""Stage ``evaluate``: every judge, scorer and baseline on every benchmark, one table (branching paper, section 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from judgetrain.artifacts.files import write_bytes_atomic, write_text_atomic
from judgetrain.artifacts.installed import versions
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.benchmarks.benchmark import Benchmark, load_benchmark
from judgetrain.data.benchmarks.scenarios import load_classifier, with_scenarios
from judgetrain.engines.answers import spending
from judgetrain.errors import ConfigError
from judgetrain.evaluate.guarantees.gate import FILE, Check, failures, gate_checks, gate_row
from judgetrain.evaluate.guarantees.measure import guarantees
from judgetrain.evaluate.metrics.choose import Choice, better_judge, choose, part_of, split
from judgetrain.evaluate.metrics.paired import disagreements, paired_comparisons
from judgetrain.evaluate.metrics.predictions import parquet, prediction_rows
from judgetrain.evaluate.metrics.rows import MethodKey, MetricRow, metric_row
from judgetrain.evaluate.overlap import Overlaps
from judgetrain.evaluate.report.disagreements import Link, disagreement_links, training_links
from judgetrain.evaluate.report.page import html_page
from judgetrain.evaluate.report.provenance import lineage
from judgetrain.evaluate.report.report import Report
from judgetrain.evaluate.report.text import console_tables, markdown
from judgetrain.evaluate.report.tracking import track_report
from judgetrain.evaluate.robustness.battery import Battery, attacked_methods, batteries
from judgetrain.evaluate.robustness.measure import robustness
from judgetrain.evaluate.robustness.record import Attacked
from judgetrain.evaluate.runners import runner_of
from judgetrain.evaluate.runners.base import Evaluation, Result
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.judges.base import Prediction
from judgetrain.judges.kinds.baselines import BASELINES
from judgetrain.judges.method import JUDGE_STAGES, Method


def run(settings: EvaluateSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``metrics.json``, ``paired.json``, ``summary.json``, ``predictions.parquet``, ``report.md`` and ``.html``.

    With ``evaluate.dev_share`` they are about the test split, and ``development.json`` has the rows of ``metrics.json``
    over the development split. Beside them, in ``view``, are pages of single trees to look at. A branching judge is
    sampled once with the largest number of branches; smaller numbers are read off the same trees, which the shards
    ``trees-BENCHMARK-METHOD`` keep. Those that an earlier evaluation sampled from the same judge in the same way are
    taken over. Judges that are asked once leave ``replies-...``, scorers ``scores-...``; both are taken over likewise.
    One model is in memory at a time. What an external model answers is kept in ``output_dir`` before it is used, and
    none is asked beyond ``evaluate.max_requests`` and ``evaluate.max_tokens``. ``overlap.jsonl`` names the
    comparisons with a query that the judges were trained on.
    """
    config = settings.evaluate
    benchmarks = [load_benchmark(b, i, settings.seed, settings.world) for i, b in enumerate(config.benchmarks)]
    methods = [Method.parse(text) for text in config.methods]
    tried = batteries(benchmarks, settings)
    _refuse_equal_names([*benchmarks, *(each.benchmark for each in tried)], methods)
    if config.scenarios.path:
        classifier = load_classifier(config.scenarios, "evaluate.scenarios", settings.seed)
        benchmarks = [with_scenarios(benchmark, classifier) for benchmark in benchmarks]
        out.note("scenarios", classifier.facts())
    for benchmark in benchmarks:
        out.note(f"left_out:{benchmark.name}", benchmark.left_out)
    overlaps = Overlaps.find(methods, inputs, benchmarks, settings.near_similarity)
    out.write_rows("overlap", map(asdict, overlaps.seen))
    for line in overlaps.told(benchmarks):
        out.log(line)
    attacked = attacked_methods(methods, settings)
    by_benchmark: dict[str, list[Result]] = {b.name: [] for b in (*benchmarks, *(each.benchmark for each in tried))}
    with spending(settings.asked_engines, config, "evaluate", out) as budget:
        evaluation = Evaluation(
            settings=settings, benchmarks=benchmarks, methods=methods, inputs=inputs, out=out, budget=budget
        )
        with_attacks = replace(evaluation, benchmarks=[*benchmarks, *(each.benchmark for each in tried)])
        for method in methods:
            asked = with_attacks if method in attacked else evaluation
            if not evaluation.models.paid(method):  # so that workers may share what it asks
                asked = replace(asked, budget=None)
            for benchmark, results in runner_of(method).run(method, asked):
                by_benchmark[benchmark.name] += results
    links = {"": training_links(inputs.values(), out), **_links(evaluation, tried)}
    _write(evaluation, by_benchmark, tried, overlaps, links)


def _links(evaluation: Evaluation, tried: Sequence[Battery]) -> dict[str, list[Link]]:
    """By benchmark the pages of trees behind verdicts that are not the label, under attack too."""
    names, out = [method.name for method in evaluation.methods], evaluation.out
    links = {b.name: disagreement_links(b.name, names, out) for b in evaluation.benchmarks}
    for each in tried:
        seen = disagreement_links(each.name, names, out)
        links[each.of.name] += [(text.replace("disagreements", "attacks"), address) for text, address in seen]
    return links


def _write(
    evaluation: Evaluation,
    by_benchmark: Mapping[str, Sequence[Result]],
    tried: Sequence[Battery],
    overlaps: Overlaps,
    links: Mapping[str, Sequence[Link]],
) -> None:
    """Everything that is computed from the predictions."""
    settings, seed, out = evaluation.settings.evaluate, evaluation.settings.seed, evaluation.out
    rows, tuning, paired, predicted, chosen, differ = [], [], [], [], {}, {}
    gated: list[Check] = []
    for benchmark in evaluation.benchmarks:
        results = by_benchmark[benchmark.name]
        dev, test = split(benchmark, settings.dev_share)
        choices = choose(dev, [p for p, _ in results]) if dev else []
        tested = [part_of(test, p) for p, _ in results]
        relied = guarantees(dev, test, [p for p, _ in results], settings, seed)
        tested_rows = _rows(test, results, choices, settings.bootstrap, seed, overlaps)
        attacks = _attacks([each for each in tried if each.of.name == benchmark.name], by_benchmark, results)
        rows += [replace(r, guarantees=relied.get(r.key), robustness=attacks.get(r.key)) for r in tested_rows]
        tuning += _rows(dev, results, choices, settings.bootstrap, seed, overlaps) if dev else []
        paired += list(paired_comparisons(test, tested, settings.bootstrap, seed))
        gated += gate_checks(test, tested, {c.method: c.branches for c in choices}, settings, seed)
        for part in (dev, test):
            predicted += [r for p, _ in results if part for r in prediction_rows(part, part_of(part, p))]
        chosen[benchmark.name] = choices
        differ[benchmark.name] = disagreements(test, _one_each(tested, choices))
    report = Report(
        recipe=out.recipe,
        seed=seed,
        rows=rows,
        paired=paired,
        left_out={b.name: b.left_out for b in evaluation.benchmarks},
        chosen=chosen,
        disagreements=differ,
        lineage=lineage(evaluation.inputs.values()),
        versions=versions(),
        scenarios=out.notes.get("scenarios", {}),
        gate=gated,
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
    if settings.gate.required:
        _write_gate(gated, settings.gate.required, out)
    out.log(f"evaluate: report: {out.path('report.html')}")
    if trained := [name for name in JUDGE_STAGES if name in evaluation.inputs]:
        model = evaluation.inputs[trained[-1]] / "model"
        out.log(f"evaluate: the {trained[-1]} judge, for judgetrain judge verdicts.judge=DIRECTORY: {model}")
        if told := better_judge(rows, trained, evaluation.benchmarks[0].name):
            out.log(f"evaluate: {told[1]}", keep=True)
            out.log(f"evaluate: the {told[0]} judge: {evaluation.inputs[told[0]] / 'model'}")


def _write_gate(checks: Sequence[Check], required: Sequence[str], out: StageRun) -> None:
    """Write what the gate found, and raise an alert where it did not pass; the run fails once the artifact is there."""
    found = gate_row(checks, required)
    out.write_json(FILE, found)
    out.track.summary({"gate/passed": found["passed"]})
    for check in checks:
        out.log(f"evaluate: gate: {check.told}: {'passed' if check.passed else 'FAILED'}")
    if told := failures(found):
        out.track.alert(f"{out.recipe}: the judge did not pass its gate", told)


def _rows(
    part: Benchmark, results: Sequence[Result], choices: Sequence[Choice], resamples: int, seed: int, overlaps: Overlaps
) -> list[MetricRow]:
    """The metrics of every method on a part of a benchmark."""
    best = {(c.method, c.branches) for c in choices}
    found = [metric_row(part, part_of(part, p), seconds, resamples, seed) for p, seconds in results]
    return [
        replace(
            row,
            chosen=(row.method, row.branches) in best,
            overlap=overlaps.of(row.method, part.name, part.comparisons),
        )
        for row in found
    ]


def _attacks(
    tried: Sequence[Battery], by_benchmark: Mapping[str, Sequence[Result]], results: Sequence[Result]
) -> dict[MethodKey, tuple[Attacked, ...]]:
    """What the attacks on a benchmark did to each method that was attacked, by its number of branches."""
    plain = {MethodKey(p[0].method, p[0].branches): p for p, _ in results}
    found = {MethodKey(p[0].method, p[0].branches): (each, p) for each in tried for p, _ in by_benchmark[each.name]}
    return {name: robustness(each, plain[name], p) for name, (each, p) in found.items()}


def _one_each(results: Sequence[list[Prediction]], choices: Sequence[Choice]) -> list[list[Prediction]]:
    """Each method once: with the number of branches that was chosen for it, else the most. Baselines are left out."""
    chosen = {c.method: c.branches for c in choices}
    best: dict[str, list[Prediction]] = {}
    for predictions in results:
        method, branches = predictions[0].method, predictions[0].branches
        if method not in BASELINES and branches == chosen.get(
            method, max(branches, best.get(method, predictions)[0].branches)
        ):
            best[method] = predictions
    return list(best.values())


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
