"""The report of an evaluation, shown on the console, as Markdown, as one page, and to the tracker."""

import datetime
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from judgetrain.amounts import amount
from judgetrain.artifacts.console import VERBOSE
from judgetrain.artifacts.files import write_text_atomic
from judgetrain.artifacts.integrity import made_from, read_manifest
from judgetrain.artifacts.pages import Chart, Point, render
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.artifacts.tracker import Run
from judgetrain.evaluate.hooks import extras, resolved
from judgetrain.evaluate.metrics.paired import PairedComparison
from judgetrain.evaluate.metrics.rating_rows import RatingRow
from judgetrain.evaluate.metrics.rows import DEFINITIONS, MetricRow, columns
from judgetrain.evaluate.report import ratings as rated
from judgetrain.evaluate.report import table as shown
from judgetrain.evaluate.report.table import TEMPLATES, Columns, Sections, Table, number, percent
from judgetrain.judges.kinds.kind import find_kind
from judgetrain.judges.method import JUDGE_STAGES

Row = Mapping[str, Any]
FEW = 5
"""Rows of a benchmark on the console."""
KEPT = ("stage", "fingerprint", "recipe", "seed", "counts", "tokens", "seconds", "config", "upstream")
"""The entries of a manifest that a report keeps."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """The contents of a report.

    Args:
        recipe: the run's.
        seed: the run's; None: a report of several runs.
        rows: of ``metrics.json``.
        paired: of ``paired.json``.
        left_out: by benchmark how many comparisons were left out, by reason.
        labelled_differently: by benchmark how many comparisons are on a pair that others of them label differently.
        lineage: manifests of everything upstream.
        versions: of packages.
        runs: the runs that were put together.
        seeds: means over runs that differ in nothing but their seed.
        more: further tables by benchmark.
        across: tables of figures that are of no single benchmark's data, each with its heading.
        records: what extras noted of each benchmark, by the extra's name and the benchmark's.
        ratings: of ``ratings.json``.
    """

    recipe: str
    seed: int | None
    rows: Sequence[MetricRow]
    paired: Sequence[PairedComparison] = ()
    left_out: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    labelled_differently: Mapping[str, int] = field(default_factory=dict)
    lineage: Sequence[Row] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    runs: Sequence[Row] = ()
    seeds: Sequence[Any] = ()
    more: Mapping[str, Sequence[Table]] = field(default_factory=dict)
    across: Sequence[tuple[str, Table]] = ()
    records: Mapping[tuple[str, str], Sequence[Any]] = field(default_factory=dict)
    ratings: Sequence[RatingRow] = ()

    def summary(self) -> dict[str, Any]:
        """Return all but the rows of the other files, for ``summary.json``."""
        others = ("rows", "paired", "records", "more", "across", "ratings")
        # Emptied first: as dictionaries the rows would be large.
        contents = asdict(replace(self, rows=(), paired=(), records={}, more={}, across=(), ratings=()))
        return {name: value for name, value in contents.items() if name not in others}

    def benchmarks(self) -> dict[str, list[MetricRow]]:
        """Return the metric rows by benchmark."""
        result: dict[str, list[MetricRow]] = {}
        for row in self.rows:
            result.setdefault(row.benchmark, []).append(row)
        return result

    def title(self, benchmark: str) -> str:
        """Return a benchmark's name with its split, its size and what was left out of it."""
        rows = self.benchmarks()[benchmark]
        left_out = ""
        for reason, number_left_out in self.left_out.get(benchmark, {}).items():
            left_out += f", {number_left_out} left out: {reason}"
        contradicted = ""
        if self.labelled_differently.get(benchmark):
            contradicted = f", {self.labelled_differently[benchmark]} on pairs with several labels"
        return f"{benchmark} ({rows[0].split}, n = {rows[0].n}{left_out}{contradicted})"

    def of_extras(self, benchmark: str) -> list[Sections]:
        """Return the tables that every extra shows of a benchmark."""
        rows = self._with_verdicts(benchmark)
        sections = []
        for extra in extras():
            if extra.sections:
                records = self.records.get((extra.name, benchmark), ())
                sections.append(resolved(extra.sections)(rows, records))
        return sections

    def _with_verdicts(self, benchmark: str) -> list[MetricRow]:
        """Return a benchmark's rows of methods that give verdicts: scorers of single responses give none."""
        return [row for row in self.benchmarks()[benchmark] if row.agreement is not None]

    def first(self, benchmark: str) -> list[Table]:
        """Return the tables that extras put before everything else."""
        tables: list[Table] = []
        for sections in self.of_extras(benchmark):
            tables.extend(sections.first)
        return [table for table in tables if table.cells]

    def tables(self, benchmark: str) -> list[Table]:
        """Return the tables of a benchmark; those without rows are left out."""
        rows = self._with_verdicts(benchmark)
        of_extras = self.of_extras(benchmark)
        # In the order in which a reader asks: what is new, the results, how they are defined, and the details.
        tables = self.first(benchmark)
        for sections in of_extras:
            tables.extend(sections.front)
        tables.append(shown.results(rows))
        tables.append(shown.ratings(self.benchmarks()[benchmark]))
        tables.extend(self.more.get(benchmark, ()))

        tables.append(shown.declared(DEFINITIONS, rows))
        # In the order in which columns are registered.
        titles = dict.fromkeys(column.table for column in columns().values())
        for title in titles:
            if title != DEFINITIONS:
                tables.append(shown.declared(title, rows))
        tables.append(shown.by_domain(rows))
        tables.append(shown.every_pair_by_group(rows))
        tables.append(shown.by_group(rows))
        tables.append(shown.differences([row for row in self.paired if row.benchmark == benchmark]))
        for sections in of_extras:
            tables.extend(sections.folded)
        return [table for table in tables if table.cells]

    def of_responses(self) -> dict[str, list[Table]]:
        """Return the tables of benchmarks of single responses, by their titles."""
        result = {}
        for benchmark, rows in rated.by_benchmark(self.ratings).items():
            tables: list[Table] = []
            for extra in extras():
                records = self.records.get((extra.name, benchmark), ())
                # Extras that measure verdicts alone have noted nothing here.
                if extra.sections and records:
                    tables.extend(resolved(extra.sections)([], records).first)
            title = rated.title(rows, self.left_out.get(benchmark, {}))
            result[title] = [table for table in tables if table.cells] + rated.tables(rows)
        return result

    def closing(self) -> list[Table]:
        """Return the tables of what the results were made from; empty ones are left out."""
        runs: Columns = {name: itemgetter(name) for name in ("run", "recipe", "seed", "fingerprint")}
        packages: Columns = {"package": itemgetter(0), "version": itemgetter(1)}
        tables = [
            Table.of("Runs", self.runs, runs),
            _lineage_table(self.lineage),
            Table.of("Versions", self.versions.items(), packages),
        ]
        return [table for table in tables if table.cells]


def lineage(directories: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the manifests of artifacts and of all that they were made from, inputs first.

    Artifacts lie as ``STAGE/FINGERPRINT``; a directory without a manifest tells nothing and is left out.
    """
    manifests: dict[Path, dict[str, Any]] = {}

    def visit(directory: Path) -> None:
        if directory in manifests:
            return
        manifest = read_manifest(directory)
        if not manifest:
            return
        for source in made_from(directory).values():
            visit(source)
        # After its inputs, so that they stand first.
        manifests[directory] = {name: manifest.get(name) for name in KEPT}

    for directory in directories:
        visit(directory)
    return list(manifests.values())


def _lineage_table(rows: Sequence[Row]) -> Table:
    """Return the table of the artifacts upstream."""
    columns: Columns = {
        "stage": itemgetter("stage"),
        "fingerprint": itemgetter("fingerprint"),
        "in": lambda row: row["counts"]["in"],
        "out": lambda row: row["counts"]["out"],
        "tokens generated": lambda row: row["tokens"]["generated"],
        "seconds": lambda row: number(row["seconds"], 0),
    }
    return Table.of("Made from", rows, columns)


def console_tables(report: Report) -> list[Any]:
    """Return Rich tables, one a benchmark, for 80 columns, and a line that explains their columns.

    They show the rows that matter, and with ``-v`` every row.
    """
    tables: list[Any] = []
    counts_prompts = False
    for benchmark, rows in report.benchmarks().items():
        verdicts = [row for row in rows if row.agreement is not None]
        if verdicts:
            counts_prompts = counts_prompts or any(row.every_pair is not None for row in verdicts)
            tables.append(_console_table_of_verdicts(report.title(benchmark), verdicts))
    for benchmark, rating_rows in rated.by_benchmark(report.ratings).items():
        title = rated.title(rating_rows, report.left_out.get(benchmark, {}))
        tables.append(_console_table(title, rated.console_columns(rating_rows), rating_rows, overflow="fold"))
        # The first method's alone: the share of people is the same beside each.
        sentences = [row.people.sentence for row in rating_rows if row.people is not None and not row.criterion]
        tables.extend(sentences[:1])
    if report.ratings and not report.rows:
        return [*tables, rated.EXPLANATION]
    explanation = (
        "k: criteria of a judge's own. Agreement: both orders give the label. In brackets: 95% interval over prompts."
    )
    if counts_prompts:
        explanation += " Every pair: the prompts of which every pair is right, as is published of this benchmark."
    if report.ratings:
        explanation = f"{explanation} {rated.EXPLANATION}"
    return [*tables, explanation]


def _console_table_of_verdicts(title: str, rows: Sequence[MetricRow]) -> Any:
    """Return a Rich table of the rows that matter, with how many others there are; with ``-v`` of every row."""
    from rich.text import Text

    columns: Columns = {
        "method": attrgetter("method"),
        "k": shown.NAME["branches"],
        **shown.agreed(rows),
        "tokens": shown.SPENT["tokens"],
    }
    shown_rows = rows
    if VERBOSE not in os.environ:
        shown_rows = that_matter(rows)
    table = _console_table(title, columns, shown_rows)
    notes = [f"{row.method}: learned from {amount(row.labels, 'label')}" for row in shown_rows if row.labels]
    if len(shown_rows) < len(rows):
        notes.append(f"{amount(len(rows) - len(shown_rows), 'more row')} in the report")
    if notes:
        table.caption = Text("; ".join(notes))
        table.caption_justify = "left"
    return table


def _console_table(title: str, columns: Columns, rows: Iterable[Any], overflow: Any = "ellipsis") -> Any:
    """Return a Rich table of records, a row each, names to the left and numbers to the right.

    Args:
        title: of the table.
        columns: of the records.
        rows: the records.
        overflow: what Rich does with a number that is too wide for 80 columns.
    """
    # Slow to import, and needed at the end of a run alone.
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    # As Text, in which Rich sees no markup, as in a benchmark called [red].
    table = RichTable(
        title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )
    for header in columns:
        if header in ("method", "criterion"):
            # A long name goes on in the next line, or it would push the numbers off the screen.
            table.add_column(header, overflow="fold")
        else:
            table.add_column(header, justify="right", overflow=overflow)
    for row in rows:
        table.add_row(*(Text(cell(row)) for cell in columns.values()))
    return table


def that_matter(rows: Sequence[MetricRow]) -> list[MetricRow]:
    """Return the rows to look at first: the judges that were trained, once each, and the best of what is beside them.

    These are :data:`FEW` methods at most; in a report of several runs more, if the last judge is another one in each:
    then all of its rows are among them. The last judge has two rows where fewer branches did best: these, and the most.
    What one could do without training stands before what nobody could, such as a reader who knows the truth; the best
    method that learned from labelled pairs keeps the last place.
    """
    if len(rows) <= FEW:
        return [*rows]
    one_row_each = shown.one_each(rows)
    # Of a judge that is asked in several ways, the way that stands first.
    rows_of_stage: dict[str, dict[str | None, MetricRow]] = {}
    for row in one_row_each:
        stage, run = _trained_in(row)
        rows_of_stage.setdefault(stage, {}).setdefault(run, row)
    stages = [stage for stage in JUDGE_STAGES if stage in rows_of_stage]
    last_rows: list[MetricRow] = []
    if stages:
        last_rows = [*rows_of_stage[stages[-1]].values()]
    # Earlier judges stand beside the last one, unless they are other ones in each run, too: one row would be a choice.
    earlier = [row for stage in stages[:-1] for row in rows_of_stage[stage].values() if len(rows_of_stage[stage]) == 1]
    # One place at least is kept for what the judges are measured against.
    number = max(0, FEW - 1 - len(last_rows))
    trained = [*earlier[len(earlier) - min(number, len(earlier)) :], *last_rows]
    others = [row for row in one_row_each if row not in trained]

    def place(row: MetricRow) -> tuple[bool, bool, float]:
        stage, _ = _trained_in(row)
        return stage in JUDGE_STAGES, _is_published(row.method), -(row.agreement or 0.0)

    others.sort(key=place)
    beside = others[: max(1, FEW - len(trained))]
    # A judge that needs no label is also measured against what a few labels give without any training.
    learned_from_labels = [row for row in others if row.labels]
    if learned_from_labels and len(beside) > 1:
        best_learned = shown.best_row(learned_from_labels)
        if best_learned not in beside:
            beside[-1] = best_learned
    if len(last_rows) == 1:
        fewer_branches = shown.best_row([row for row in rows if row.method == last_rows[0].method])
        if fewer_branches != last_rows[0]:
            trained.insert(len(trained) - 1, fewer_branches)
    return [*trained, *beside]


def headline(rows: Sequence[MetricRow]) -> MetricRow:
    """Return the row that agrees best, of what a user could have; of all rows where these are all there is."""
    of_users = [row for row in rows if not _is_published(row.method)]
    return shown.best_row(of_users or rows)


def _trained_in(row: MetricRow) -> tuple[str, str | None]:
    """Return the stage that a row's judge comes from, and its run where the judge is another one in each.

    Of other methods the stage is their name without options.
    """
    name = row.method
    run = None
    # A merged report calls a judge by its run, as ``dpo (beta=0.1)``, where runs differ.
    if row.run and name.endswith(f" ({row.run})"):
        name = name.removesuffix(f" ({row.run})")
        run = row.run
    return name.partition("+")[0], run


def _is_published(method: str) -> bool:
    """Return whether a method's verdicts are nothing that a user could have without training."""
    kind = find_kind(method.partition(":")[0])
    return kind is not None and kind.published


def markdown(report: Report) -> str:
    """Return the report as Markdown."""
    seed = ""
    if report.seed is not None:
        seed = f", seed {report.seed}"
    lines = [f"# Evaluation: recipe {_cell(report.recipe)}{seed}", ""]
    for benchmark in report.benchmarks():
        lines.extend([f"## {_cell(report.title(benchmark))}", ""])
        for table in report.tables(benchmark):
            lines.extend(table_lines(table))
    for heading, tables in report.of_responses().items():
        lines.extend([f"## {_cell(heading)}", ""])
        for table in tables:
            lines.extend(table_lines(table))
    for heading, table in report.across:
        lines.extend([f"## {_cell(heading)}", "", *table_lines(table)])
    closing = report.closing()
    if closing:
        lines.extend(["## Where it comes from", ""])
    for table in closing:
        lines.extend(table_lines(table))
    return "\n".join(lines)


def table_lines(table: Table) -> list[str]:
    """Return the lines of a Markdown table with its title and explanation."""
    lines = [f"### {table.title}", "", _line(table.headers), _line(["---"] * len(table.headers))]
    lines.extend(_line(row) for row in table.cells)
    lines.extend(["", table.explanation, ""])
    return lines


def _line(cells: Sequence[str]) -> str:
    """Return one row of a Markdown table."""
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """Return a text that can neither end a Markdown cell nor become markup."""
    # The backslash first, as the others are escaped by it.
    for character in "\\|*`":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.replace("<", "&lt;").replace(">", "&gt;").replace("](", "]\\(").split())


def html_page(report: Report, links: Mapping[str, Sequence[tuple[str, str]]] | None = None) -> str:
    """Return the report as one page; ``links`` are texts and addresses by benchmark."""
    return render(
        TEMPLATES / "report.html",
        title=f"{report.recipe}: evaluation",
        report=report,
        links=links or {},
        # The page alone says when it was made, as the other files are compared from run to run.
        day=datetime.date.today().isoformat(),
        that_matter=that_matter,
        headline=headline,
        front=shown.front,
        figures=figures,
    )


def write_report(
    out: StageRun, title: str, tables: Sequence[Table], numbers: str, charts: Sequence[Chart] = ()
) -> None:
    """Write a stage's tables and charts as ``report.md``, and as ``report.html``, which needs nothing else.

    Args:
        out: the stage's run.
        title: of both files.
        tables: of both files.
        numbers: the name of the file beside them that holds the numbers that they show.
        charts: of the page.
    """
    lines = [f"# {title}", ""]
    for table in tables:
        lines.extend(table_lines(table))
    write_text_atomic(out.path("report.md"), "\n".join(lines))
    page = render(TEMPLATES / "studies.html", title=title, charts=charts, tables=tables, numbers=numbers)
    write_text_atomic(out.path("report.html"), page)
    out.log(f"{out.stage}: report: {out.path('report.html')}")


def figures(rows: Iterable[MetricRow]) -> list[Chart]:
    """Return a chart of branching judges' agreement by branches, in a list; an empty list without such judges."""
    drawn = [row for row in rows if row.branches and row.agreement is not None]
    if not drawn:
        return []
    drawn.sort(key=lambda row: row.branches)
    series: dict[str, list[Point]] = {}
    for row in drawn:
        tip = f"{row.method}, {amount(row.branches, 'branch')}, n = {row.n}: {percent(row.agreement)}%"
        # Rows without an agreement were left out above: "or" is for the type checker.
        point = Point(row.branches, row.agreement or 0.0, tip, row.agreement_ci)
        series.setdefault(row.method, []).append(point)
    ticks = sorted({float(row.branches) for row in drawn})
    return [Chart(title=f"Agreement by branches (n = {drawn[0].n})", x_label="branches", series=series, ticks=ticks)]


LOGGED = ("agreement", "consistency", "generated_tokens")
"""Metrics that are numbers of the run; all others are in the table of metrics."""


def track_report(report: Report, track: Run) -> None:
    """Log numbers as ``BENCHMARK/METHOD@BRANCHES/METRIC``, and tables by benchmark."""
    numbers = {}
    for row in report.rows:
        for name in LOGGED:
            number_logged = getattr(row, name)
            if number_logged is not None:
                numbers[f"{row.benchmark}/{row.method}@{row.branches}/{name}"] = number_logged
    for rating in report.ratings:
        # Of responses as a whole; what criteria say is in the file.
        for name in rated.SHOWN:
            value = rating.metrics.get(name)
            if value is not None and not rating.criterion:
                numbers[f"{rating.benchmark}/{rating.method}@{rating.branches}/{name}"] = value
    track.log(numbers)

    for benchmark, rows in report.benchmarks().items():
        records = [_scalars(row) for row in rows]
        # Not every method has every metric.
        columns: dict[str, None] = {}
        for record in records:
            columns.update(dict.fromkeys(record))
        cells = []
        for record in records:
            cells.append([record.get(name) for name in columns])
        track.table(f"{benchmark}/metrics", list(columns), cells)


def _scalars(row: MetricRow) -> dict[str, Any]:
    """Return a row's texts and numbers, intervals as two numbers; trackers' tables hold nothing else."""
    values: dict[str, Any] = {}
    for name, value in row.to_row().items():
        if name.endswith("_ci"):
            low, high = value or (None, None)
            values[f"{name}_low"] = low
            values[f"{name}_high"] = high
        elif value is None or isinstance(value, (str, int, float)):
            values[name] = value
    return values
