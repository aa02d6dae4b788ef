"""Stage ``evaluate``: every judge, scorer and baseline on every benchmark, one table (branching paper, section 5)."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from judgetrain.amounts import agree, amount
from judgetrain.artifacts.files import write_bytes_atomic, write_text_atomic
from judgetrain.artifacts.fingerprint import versions
from judgetrain.artifacts.heartbeat import doing
from judgetrain.artifacts.losses import Losses
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.benchmarks.responses import ResponseBenchmark
from judgetrain.data.part_facts import PartFacts, are_divided
from judgetrain.data.votes import sentence_on_alike
from judgetrain.engines.answers import spending
from judgetrain.engines.config import EngineConfig
from judgetrain.errors import ConfigError
from judgetrain.evaluate.hooks import Further, Measured, Predicted, Rated, calls
from judgetrain.evaluate.metrics.paired import (
    DEVELOPMENT,
    PairedComparison,
    development_prompts,
    paired_comparisons,
    part_of,
    split,
)
from judgetrain.evaluate.metrics.rating_rows import Measuring, RatingRow, scored_rows
from judgetrain.evaluate.metrics.rows import MethodKey, MetricRow, metric_row
from judgetrain.evaluate.predictions_file import parquet, prediction_table
from judgetrain.evaluate.report.report import Report, console_tables, html_page, lineage, markdown, track_report
from judgetrain.evaluate.report.table import best_row
from judgetrain.evaluate.runners import run_method
from judgetrain.evaluate.runners.base import Evaluation, Result
from judgetrain.evaluate.runners.responses import ScoreResult, score_responses
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.judges.method import JUDGE_STAGES, Method, asks_judge_of
from judgetrain.judges.predictions import listed
from judgetrain.judges.settings import unread_hint
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

    Of benchmarks of single responses the methods that score one are measured: ``ratings.json`` has their metrics, and
    ``scored.jsonl`` the scores beside the labels.
    """
    benchmarks = settings.benchmarks
    methods = settings.evaluated
    # Benchmarks that extras make of these are asked about like any other; their results go to the extra.
    further: dict[str, list[Further]] = {}
    for extra, make, _ in calls("benchmarks", settings):
        further[extra.name] = make(settings, benchmarks, methods)
    derived = [item for of_extra in further.values() for item in of_extra]
    # Before anything is asked: shards of one name would overwrite each other.
    of_responses = [benchmark.asked for benchmark in settings.responses]
    _refuse_equal_names([*benchmarks, *(item.benchmark for item in derived), *of_responses], methods)

    for benchmark in benchmarks:
        # Noted in the manifest, where it is seen without opening the report.
        out.note(f"left_out:{benchmark.name}", benchmark.left_out)
        _tell_losses(benchmark, len(benchmark.comparisons), out)
        if benchmark.labelled_differently:
            out.note(f"labelled_differently:{benchmark.name}", benchmark.labelled_differently)
            out.log(
                f"evaluate: {benchmark.name}: {amount(benchmark.labelled_differently, 'row')} "
                f"{agree(benchmark.labelled_differently, 'are')} on pairs of responses that "
                "other rows label differently; no judge can agree with all of them"
            )
        alike = sentence_on_alike(benchmark.comparisons)
        if alike:
            out.log(f"evaluate: {benchmark.name}: {alike}")
    if are_divided(settings.evaluate.benchmarks):
        for benchmark in benchmarks:
            facts = PartFacts.of(benchmark.comparisons)
            out.note(f"part:{benchmark.name}", facts.to_row())
            out.log(f"evaluate: measured on, {benchmark.name}: {facts}", keep=True)
    for responses in settings.responses:
        out.note(f"left_out:{responses.name}", responses.left_out)
        _tell_losses(responses, len(responses.responses), out)
    made_from = lineage(inputs.values())
    outcomes = _Outcomes(further=further)
    with spending(settings.asked_engines, settings.evaluate, "evaluate", out) as budget:
        evaluation = Evaluation(
            settings=settings, benchmarks=benchmarks, methods=methods, inputs=inputs, out=out, budget=budget
        )
        # One method after the other, so that one model is in memory at a time.
        for method in methods:
            # Derived benchmarks are asked about by the methods that the extra names for them.
            of_method = [*benchmarks, *(item.benchmark for item in derived if method in item.methods)]
            method_budget = None
            # Without a budget workers may share the work: what is not paid for needs none.
            if evaluation.models.paid(method):
                method_budget = budget
            for_method = replace(evaluation, benchmarks=of_method, budget=method_budget)
            for benchmark, of_benchmark in run_method(method, for_method):
                outcomes.results.setdefault(benchmark.name, []).extend(of_benchmark)
            if method in settings.scoring:
                for name, result in score_responses(method, replace(for_method, benchmarks=of_responses)):
                    outcomes.scored.setdefault(name, []).append(result)
    _write(evaluation, outcomes, made_from, _links(evaluation, derived))


LEFT_OUT = {
    "too_long": "raise evaluate.benchmarks[].max_chars",
    "no_label": "name their column with evaluate.benchmarks[].source.fields={label: COLUMN}",
    "no_majority": "their votes tie; give rows with a majority",
    "repeated": "rows on one pair of responses are votes on it, and count once",
    "same_response": "rows on one response are votes on it, and count once",
}
"""The hint where a large part of a benchmark is left out, by reason."""


def _tell_losses(benchmark: Benchmark | ResponseBenchmark, kept: int, out: StageRun) -> None:
    """Print a line for each reason that left a large part of a benchmark out; ``kept`` of its rows are asked about."""
    # A limit is asked for, and whoever sets one knows.
    counts = {reason: count for reason, count in benchmark.left_out.items() if reason != "over_limit"}
    losses = Losses(counts, benchmark.left_out_examples)
    # Rows without a label are asked about, and count in no figure.
    number = kept + sum(count for reason, count in counts.items() if reason not in ("no_label", "no_majority"))
    for sentence in losses.sentences(number, LEFT_OUT, "rows"):
        out.log(f"evaluate: {benchmark.name}: {sentence}")


def _links(evaluation: Evaluation, derived: Sequence[Further]) -> dict[str, list[Link]]:
    """Return the links to pages of disagreements by benchmark; those of a derived one stand with its origin."""
    links: dict[str, list[Link]] = {benchmark.name: [] for benchmark in evaluation.benchmarks}
    origins = [(name, name) for name in links]
    origins += [(item.of, item.benchmark.name) for item in derived]
    for origin, benchmark_name in origins:
        for method in evaluation.methods:
            page = f"{DIRECTORY}/{benchmark_name}-{method.name}/{INDEX}"
            # Only judges that grow trees have pages, and only where they were wrong.
            if evaluation.out.path(page).is_file():
                links[origin].append((f"{benchmark_name}: disagreements of {method.name}", page))
    return links


@dataclass
class _Tables:
    """The rows of the files, which grow benchmark by benchmark.

    Args:
        rows: of ``metrics.json``.
        development: of ``development.json``.
        paired: of ``paired.json``.
        predictions: Arrow's tables of ``predictions.parquet``.
        records: what extras noted, by the extra's name and the benchmark's.
        ratings: of ``ratings.json``.
        development_ratings: of ``development_ratings.json``.
        scores: of ``scored.jsonl``.
    """

    rows: list[MetricRow] = field(default_factory=list)
    development: list[MetricRow] = field(default_factory=list)
    paired: list[PairedComparison] = field(default_factory=list)
    predictions: list[Any] = field(default_factory=list)
    records: dict[tuple[str, str], Sequence[Any]] = field(default_factory=dict)
    ratings: list[RatingRow] = field(default_factory=list)
    development_ratings: list[RatingRow] = field(default_factory=list)
    scores: list[Mapping[str, Any]] = field(default_factory=list)

    def records_of(self, extra: str) -> list[Any]:
        """Return an extra's records of all benchmarks."""
        records: list[Any] = []
        for (name, _), of_benchmark in self.records.items():
            if name == extra:
                records.extend(of_benchmark)
        return records


@dataclass
class _Outcomes:
    """The results of all methods, by the benchmarks' names.

    Args:
        further: the benchmarks that extras made, by the extra's name.
        results: of all methods, in the order of the methods.
        scored: of all methods that score single responses, likewise.
    """

    further: Mapping[str, Sequence[Further]]
    results: dict[str, list[Result]] = field(default_factory=dict)
    scored: dict[str, list[ScoreResult]] = field(default_factory=dict)


def _write(
    evaluation: Evaluation,
    outcomes: _Outcomes,
    made_from: Sequence[Mapping[str, Any]],
    links: Mapping[str, Sequence[Link]],
) -> None:
    """Measure the predictions and write all files.

    Args:
        evaluation: with all benchmarks and methods.
        outcomes: what methods made of the benchmarks.
        made_from: manifests of the artifacts upstream.
        links: of the page, by benchmark.
    """
    out = evaluation.out
    tables = _Tables()
    with doing("evaluate: computing metrics and their intervals"):
        for benchmark in evaluation.benchmarks:
            _measure(evaluation, benchmark, outcomes, tables)
        for responses in evaluation.settings.responses:
            _measure_responses(evaluation, responses, outcomes.scored.get(responses.name, ()), tables)
    left_out = {benchmark.name: benchmark.left_out for benchmark in evaluation.benchmarks}
    left_out |= {benchmark.name: benchmark.left_out for benchmark in evaluation.settings.responses}
    report = Report(
        recipe=out.recipe,
        seed=evaluation.settings.seed,
        rows=tables.rows,
        paired=tables.paired,
        left_out=left_out,
        labelled_differently={benchmark.name: benchmark.labelled_differently for benchmark in evaluation.benchmarks},
        lineage=made_from,
        versions=versions(),
        records=tables.records,
        ratings=tables.ratings,
    )

    out.write_json("metrics", [row.to_row() for row in tables.rows])
    if tables.development:
        out.write_json("development", [row.to_row() for row in tables.development])
    if tables.ratings:
        out.write_json("ratings", [row.to_row() for row in tables.ratings])
        out.write_rows("scored", tables.scores)
    if tables.development_ratings:
        out.write_json("development_ratings", [row.to_row() for row in tables.development_ratings])
    out.write_json("paired", [asdict(row) for row in tables.paired])
    out.write_json("summary", report.summary())
    # Single responses have no verdicts.
    if tables.predictions:
        write_bytes_atomic(out.path("predictions.parquet"), parquet(tables.predictions))
    with doing("evaluate: writing the report"):
        write_text_atomic(out.path("report.md"), markdown(report))
        write_text_atomic(out.path("report.html"), html_page(report, links))
    # After the files: a tracker that fails costs none of them.
    track_report(report, out.track)
    out.tell(console_tables(report))
    for extra, write, section in calls("write", evaluation.settings):
        write(tables.records_of(extra.name), section, out)
    out.log(f"evaluate: report: {out.path('report.html')}")
    _log_next_command(evaluation, tables.rows)


def _measure(evaluation: Evaluation, benchmark: Benchmark, outcomes: _Outcomes, tables: _Tables) -> None:
    """Add a benchmark's rows to the tables; arguments as of :func:`_write`."""
    settings = evaluation.settings.evaluate
    results = outcomes.results
    predictions = [of_method for of_method, _ in results[benchmark.name]]
    # Predictions are over both splits: they are divided here and not when the judge is asked.
    development, test = split(benchmark, settings.dev_share)
    if development is not None:
        rows = _metric_rows(evaluation, development, results[benchmark.name], tables)
        tables.development.extend(rows)
    rows = _metric_rows(evaluation, test, results[benchmark.name], tables)

    # The values of extras' columns by method and number of branches, then by the extra's name.
    columns: dict[MethodKey, dict[str, Any]] = {row.key: {} for row in rows}
    # Extras measure on the test split alone, of which the report is made.
    predicted = Predicted(settings=evaluation.settings, test=test, results=predictions, inputs=evaluation.inputs)
    for extra, measure, _ in calls("measure", evaluation.settings):
        of_extra = []
        for item in outcomes.further.get(extra.name, ()):
            if item.of == benchmark.name:
                of_extra.append((item, [of_method for of_method, _ in results.get(item.benchmark.name, ())]))
        measured: Measured = measure(replace(predicted, further=of_extra))
        tables.records[extra.name, benchmark.name] = measured.records
        for key, value in measured.values.items():
            columns[key][extra.name] = value
    tables.rows.extend(replace(row, extras=columns[row.key]) for row in rows)

    on_test = [part_of(test, of_method) for of_method in predictions]
    tables.paired.extend(paired_comparisons(test, on_test, evaluation.settings.resampling))


def _measure_responses(
    evaluation: Evaluation, benchmark: ResponseBenchmark, results: Sequence[ScoreResult], tables: _Tables
) -> None:
    """Add the rows of a benchmark of single responses to the tables, and say what its labels do not tell."""
    settings = evaluation.settings.evaluate
    out = evaluation.out
    for result in results:
        tables.scores.extend(scored_rows(benchmark, result))
        failures: Counter[str] = Counter()
        for score in result.scores:
            failures.update(score.failures)
        if failures:
            hint = unread_hint(failures)
            remedy = ""
            if hint:
                remedy = f"; {hint}"
            who = f"{benchmark.name}: {result.method}"
            out.log(f"evaluate: {who}: judgments not read: {listed(failures)}{remedy}", keep=True)
    # The same prompts are set aside as of comparisons: what was chosen on is reported nowhere.
    development: set[str] = set()
    if settings.dev_share:
        development = development_prompts(benchmark.prompts, settings.dev_share)
    is_development = [prompt in development for prompt in benchmark.prompts]
    reported = Measuring(
        benchmark, benchmark.split, [not set_aside for set_aside in is_development], evaluation.settings.resampling
    )
    tables.ratings.extend(_rating_rows(evaluation, reported, results))
    # Of the part that is reported alone.
    for line in reported.notices(results):
        out.log(f"evaluate: {line}", keep=True)
    if development:
        measuring = Measuring(benchmark, DEVELOPMENT, is_development, evaluation.settings.resampling)
        tables.development_ratings.extend(_rating_rows(evaluation, measuring, results))
    rated = Rated(settings=evaluation.settings, benchmark=benchmark, results=results, development=development)
    for extra, measure, _ in calls("measure_responses", evaluation.settings):
        tables.records[extra.name, benchmark.name] = measure(rated)


def _rating_rows(evaluation: Evaluation, measuring: Measuring, results: Sequence[ScoreResult]) -> Iterator[RatingRow]:
    """Yield the metrics of all methods on a part of a benchmark of single responses."""
    for row in measuring.rows(results):
        engine = _engine_of(evaluation, row.method)
        # Models of this run have no price, and of a rule no tokens are known.
        if engine is not None and row.prompt_tokens is not None and row.generated_tokens is not None:
            row = replace(row, money=engine.money(row.prompt_tokens, row.generated_tokens))
        yield row


def _metric_rows(
    evaluation: Evaluation, part: Benchmark, results: Sequence[Result], tables: _Tables
) -> list[MetricRow]:
    """Return the metrics of all methods on a part of a benchmark, and add their predictions to the tables."""
    rows = []
    for predictions, seconds in results:
        on_part = part_of(part, predictions)
        row = metric_row(part, on_part, seconds, evaluation.settings.resampling)
        row = replace(row, learned=evaluation.learned.get(row.method))
        engine = _engine_of(evaluation, row.method)
        # Models of this run have no price.
        if engine is not None:
            row = replace(row, money=engine.money(row.prompt_tokens, row.generated_tokens))
        rows.append(row)
        tables.predictions.append(prediction_table(part, on_part))
    return rows


def _engine_of(evaluation: Evaluation, name: str) -> EngineConfig | None:
    """Return the engine of an external model by its method's name; None for other methods."""
    for method in evaluation.methods:
        if method.name == name:
            return evaluation.models.external(method.target)
    return None


def _log_next_command(evaluation: Evaluation, rows: Sequence[MetricRow]) -> None:
    """Log the command that asks the last judge that this run trained, as it did best in the table.

    Args:
        evaluation: with the judges.
        rows: of the table.
    """
    # In the order of the pipeline, so that the last is the one that all training led to.
    trained = [name for name in JUDGE_STAGES if name in evaluation.inputs]
    if not trained:
        return
    out = evaluation.out
    judge = str(evaluation.inputs[trained[-1]] / "model")
    best = _best_way(trained[-1], rows)
    by_criteria_of_rows = False
    if best is not None:
        method = Method.parse(best.method)
        by_criteria_of_rows = "given" in method.options and _rows_differ_in_criteria(evaluation, best.benchmark)
        # By whose criteria it is asked, a command that judges a file says otherwise.
        options = [f"+{option}" for option in method.options if option != "given"]
        judge += "".join(options)
        if best.branches:
            judge += f"@{best.branches}"
    words = ["judgetrain", "judge", *out.asking, f"verdicts.judge={judge}", "verdicts.source.path=FILE"]
    command = " ".join(shlex.quote(word) for word in words)
    if by_criteria_of_rows:
        command += " (the rows of FILE bring their own criteria, as those that it was measured on)"
    out.log(f"evaluate: ask it: {command}")


def _best_way(stage: str, rows: Sequence[MetricRow]) -> MetricRow | None:
    """Return the row of a judge that agreed most on its first benchmark, of equal ones that with the fewest branches.

    Args:
        stage: the stage that trained the judge.
        rows: of the table. The judge may be in several, asked in several ways (``dpo``, ``dpo+given``).

    Returns:
        The row; None where the judge is in none.
    """
    of_judge = [row for row in rows if row.agreement is not None and asks_judge_of(row.method, stage)]
    if not of_judge:
        return None
    return best_row([row for row in of_judge if row.benchmark == of_judge[0].benchmark])


def _rows_differ_in_criteria(evaluation: Evaluation, name: str) -> bool:
    """Return whether the comparisons of a benchmark bring criteria of their own, and not all those of one file."""
    rubrics = []
    for benchmark in evaluation.benchmarks:
        if benchmark.name == name:
            rubrics = [comparison.rubric for comparison in benchmark.comparisons]
    return any(rubric != rubrics[0] for rubric in rubrics)


def _refuse_equal_names(benchmarks: Sequence[Benchmark], methods: Sequence[Method]) -> None:
    """Raise ConfigError where two results have one name, as benchmark ``a-b`` by ``c`` and ``a`` by ``b-c``."""
    description_of: dict[str, str] = {}
    for benchmark in benchmarks:
        for method in methods:
            name = f"{benchmark.name}-{method.file_name}"
            description = f"{benchmark.name!r} by {method.text!r}"
            if name in description_of:
                raise ConfigError(
                    f"evaluate.methods: {description_of[name]} and {description} are both called {name}: rename one"
                )
            description_of[name] = description
