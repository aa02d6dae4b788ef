"""Stage ``evaluate``: every judge, scorer and baseline on every benchmark, one table (branching paper, section 5)."""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from judgetrain import rooms
from judgetrain.artifacts.console import Console
from judgetrain.artifacts.files import write_bytes_atomic, write_text_atomic
from judgetrain.artifacts.fingerprint import versions
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.engines.answers import CostProbe, Costs, described, spending
from judgetrain.engines.config import EngineConfig
from judgetrain.errors import ConfigError
from judgetrain.evaluate.hooks import Further, Measured, Predicted, calls
from judgetrain.evaluate.metrics.paired import PairedComparison, paired_comparisons, part_of, split
from judgetrain.evaluate.metrics.rows import MethodKey, MetricRow, metric_row
from judgetrain.evaluate.report.report import Report, console_tables, html_page, lineage, markdown, track_report
from judgetrain.evaluate.runners import run_method
from judgetrain.evaluate.runners.base import Evaluation, Result
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.judges.base import Prediction
from judgetrain.judges.method import JUDGE_STAGES, Method
from judgetrain.judges.settings import EXTERNAL
from judgetrain.judges.views.tree_page import DIRECTORY, INDEX

Link = tuple[str, str]
"""Text and address, relative to the report's page."""


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
    benchmarks, methods = settings.benchmarks, settings.evaluated
    further = {extra.name: make(settings, benchmarks, methods) for extra, make, _ in calls("benchmarks", settings)}
    made: list[Further] = [each for of_extra in further.values() for each in of_extra]
    every = [*benchmarks, *(each.benchmark for each in made)]
    _refuse_equal_names(every, methods)
    for benchmark in benchmarks:
        out.note(f"left_out:{benchmark.name}", benchmark.left_out)
    made_from, results = lineage(inputs.values()), dict[str, list[Result]]()
    with spending(settings.asked_engines, settings.evaluate, "evaluate", out) as budget:
        evaluation = Evaluation(
            settings=settings, benchmarks=benchmarks, methods=methods, inputs=inputs, out=out, budget=budget
        )
        for method in methods:
            asked = [*benchmarks, *(each.benchmark for each in made if method in each.methods)]
            own = budget if evaluation.models.paid(method) else None  # so that workers may share what else is asked
            for benchmark, found in run_method(method, replace(evaluation, benchmarks=asked, budget=own)):
                results.setdefault(benchmark.name, []).extend(found)
    links: dict[str, list[Link]] = {benchmark.name: [] for benchmark in benchmarks}
    for of, about in [*((b.name, b.name) for b in benchmarks), *((each.of, each.benchmark.name) for each in made)]:
        pages = [(name, f"{DIRECTORY}/{about}-{name}/{INDEX}") for name in (method.name for method in methods)]
        links[of] += [(f"{about}: disagreements of {name}", at) for name, at in pages if out.path(at).is_file()]
    _write(evaluation, results, further, made_from, links)


def _write(
    evaluation: Evaluation,
    results: Mapping[str, Sequence[Result]],
    further: Mapping[str, Sequence[Further]],
    made_from: Sequence[Mapping[str, Any]],
    links: Mapping[str, Sequence[Link]],
) -> None:
    settings, seed, out = evaluation.settings.evaluate, evaluation.settings.seed, evaluation.out
    rows, tuning, paired, predicted = list[MetricRow](), list[MetricRow](), list[PairedComparison](), list[Any]()
    records = dict[tuple[str, str], Sequence[Any]]()
    engines = {method.name: evaluation.models.external(method.target) for method in evaluation.methods}
    for benchmark in evaluation.benchmarks:
        predictions = [found for found, _ in results[benchmark.name]]
        dev, test = split(benchmark, settings.dev_share)
        of_parts: dict[str, list[MetricRow]] = {}
        for part in filter(None, (dev, test)):
            of_parts[part.split] = own = []
            for found, seconds in results[benchmark.name]:
                row = metric_row(part, part_of(part, found), seconds, settings.bootstrap, seed)
                row = replace(row, learned=evaluation.learned.get(row.method))
                if engine := engines.get(row.method):
                    row = replace(row, money=engine.money(row.prompt_tokens, row.generated_tokens))
                own.append(row)
                predicted.append(prediction_table(part, part_of(part, found)))
        told = Predicted(settings=evaluation.settings, test=test, results=predictions, inputs=evaluation.inputs)
        columns: dict[MethodKey, dict[str, Any]] = {r.key: {} for r in of_parts[test.split]}
        for extra, measure, _ in calls("measure", evaluation.settings):
            made = [each for each in further.get(extra.name, ()) if each.of == benchmark.name]
            of_made = [(each, [p for p, _ in results.get(each.benchmark.name, ())]) for each in made]
            measured: Measured = measure(replace(told, further=of_made))
            records[extra.name, benchmark.name] = measured.records
            for key, value in measured.values.items():
                columns[key][extra.name] = value
        rows += [replace(row, extras=columns[row.key]) for row in of_parts[test.split]]
        tuning += of_parts[dev.split] if dev else []
        paired += paired_comparisons(test, [part_of(test, p) for p in predictions], settings.bootstrap, seed)
    report = Report(
        recipe=out.recipe,
        seed=seed,
        rows=rows,
        paired=paired,
        left_out={b.name: b.left_out for b in evaluation.benchmarks},
        lineage=made_from,
        versions=versions(),
        records=records,
    )
    out.write_json("metrics", [row.to_row() for row in rows])
    if tuning:
        out.write_json("development", [row.to_row() for row in tuning])
    out.write_json("paired", [asdict(row) for row in paired])
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
        shipped = (rooms.shipped("recipes") / f"{out.recipe}.yaml").is_file()
        recipe = f" recipe={out.recipe if shipped else 'YOUR_RECIPE.yaml'}" if out.recipe != "quickstart" else ""
        out.log(f"evaluate: ask it: judgetrain judge{recipe} verdicts.judge={model} verdicts.source.path=FILE")


def _refuse_equal_names(benchmarks: Sequence[Benchmark], methods: Sequence[Method]) -> None:
    """Stop where two results would go by one name, as benchmark ``a-b`` by ``c`` and benchmark ``a`` by ``b-c``."""
    seen: dict[str, str] = {}
    for benchmark in benchmarks:
        for method in methods:
            name, here = f"{benchmark.name}-{method.file_name}", f"{benchmark.name!r} by {method.text!r}"
            if name in seen:
                raise ConfigError(f"evaluate.methods: {seen[name]} and {here} are both called {name}: rename one")
            seen[name] = here


PREDICTED = {
    **dict.fromkeys(("benchmark", "split", "comparison_id", "group", "label", "method"), "string"),
    "branches": "int64",
    **dict.fromkeys(("verdict_ab", "verdict_ba", "summed"), "string"),
    "margin": "double",
    "judgments": "int64",
    "failures": "string",
    **dict.fromkeys(("prompt_tokens", "generated_tokens", "calls"), "double"),
    "merged": "bool",
    **dict.fromkeys(("asked", "plan"), "string"),
    "asked_again": "int64",
}
"""Arrow's types of the columns, the same whatever the rows hold, so that files add up."""


def prediction_table(benchmark: Benchmark, predictions: Sequence[Prediction]) -> Any:
    """Arrow's table of one method on a benchmark, in its order; ``failures`` is JSON."""
    import pyarrow as arrow

    columns: dict[str, list[Any]] = {name: [] for name in PREDICTED}
    for comparison, found in zip(benchmark.comparisons, predictions, strict=True):
        own = {"benchmark": benchmark.name, "split": benchmark.split, "group": comparison.group, **asdict(found.cost)}
        own |= {"label": comparison.label, "failures": json.dumps(dict(sorted(found.failures.items())))}
        for name, column in columns.items():
            column.append(own[name] if name in own else getattr(found, name))
    return arrow.table(columns, arrow.schema([(name, arrow.type_for_alias(kind)) for name, kind in PREDICTED.items()]))


def parquet(tables: Sequence[Any]) -> bytes:
    """The tables as one Parquet file."""
    import pyarrow.parquet

    buffer = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.concat_tables(tables).combine_chunks(), buffer)
    return bytes(buffer.getvalue())


def estimate(settings: EvaluateSettings, inputs: Callable[[], Mapping[str, Path]]) -> Iterator[str]:
    """The lines of a dry run of stage evaluate; its judges are not made for it."""
    found = dict(estimated(settings))
    yield f"evaluate: dry run for {', '.join(found)}, expected"
    total = CostProbe().costs
    for costs in found.values():
        for step, cost in costs.items():
            total[step] += cost
    yield from described(total, settings.evaluate, "evaluate")


def estimated(settings: EvaluateSettings) -> Iterator[tuple[str, Costs]]:
    """The methods that ask a model that is paid for, each with its costs by step.

    They go through all benchmarks with a :class:`~judgetrain.engines.answers.CostProbe` in the model's
    place, in a directory of which nothing stays. Answers that are kept already, and cost nothing, count like others.
    """
    benchmarks, methods = settings.benchmarks, settings.evaluated
    further = [each for _, make, _ in calls("benchmarks", settings) for each in make(settings, benchmarks, methods)]
    for method in methods:
        asked_of = method.names_model and method.target in EXTERNAL
        engine: EngineConfig | None = getattr(settings, method.target) if asked_of else None
        if engine is None or not engine.paid:
            continue
        probe = CostProbe(name=engine.model_name)
        changes: dict[str, Any] = {method.target: probe}
        acted = replace(settings, **changes)
        if acted.judge is not None:  # a probe's replies cannot be read, and are no reason to ask again
            acted = replace(acted, judge=acted.judge.changed(retries=0))
        with tempfile.TemporaryDirectory(prefix="judgetrain-estimate-") as folder:
            out = StageRun(Path(folder) / "a" / "b" / "c", "evaluate", settings.seed, Console(silent=True))
            asked = [*benchmarks, *(each.benchmark for each in further if method in each.methods)]
            evaluation = Evaluation(settings=acted, benchmarks=asked, methods=[method], inputs={}, out=out)
            list(run_method(method, evaluation))
        yield f"{method.text} ({engine.model_name})", probe.costs
