"""What a report holds, and how it is shown: on the console, as Markdown, as one page, and to the tracker."""

import datetime
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from judgetrain.artifacts.console import VERBOSE
from judgetrain.artifacts.files import write_text_atomic
from judgetrain.artifacts.integrity import made_from, read_manifest
from judgetrain.artifacts.pages import Chart, Point, render
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.artifacts.tracker import Run
from judgetrain.evaluate.hooks import extras, resolved
from judgetrain.evaluate.metrics.paired import PairedComparison
from judgetrain.evaluate.metrics.rows import COLUMNS, DEFINITIONS, MetricRow
from judgetrain.evaluate.report import table as shown
from judgetrain.evaluate.report.table import TEMPLATES, Columns, Sections, Table, number, percent
from judgetrain.judges.kinds.kind import find_kind
from judgetrain.judges.method import JUDGE_STAGES

Row = Mapping[str, Any]
FEW = 5
"""Rows of a benchmark on the console."""
KEPT = ("stage", "fingerprint", "recipe", "seed", "counts", "tokens", "seconds", "config", "upstream")
"""Of a manifest."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a report is made of.

    ``rows`` of ``metrics.json`` and ``paired`` of ``paired.json``; the others by benchmark or as a list: what was
    left out, the ``lineage`` (manifests of everything
    upstream) and package ``versions``. ``runs`` describes the runs that were put together, ``seeds`` the means over
    runs that differ in nothing but their seed, ``more`` further tables by benchmark, ``records`` what extras noted
    of each benchmark, by their names.
    """

    recipe: str
    seed: int | None
    rows: Sequence[MetricRow]
    paired: Sequence[PairedComparison] = ()
    left_out: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    lineage: Sequence[Row] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    runs: Sequence[Row] = ()
    seeds: Sequence[Any] = ()
    more: Mapping[str, Sequence[Table]] = field(default_factory=dict)
    records: Mapping[tuple[str, str], Sequence[Any]] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        """All but the rows of the other files, for ``summary.json``."""
        found = asdict(replace(self, rows=(), paired=(), records={}, more={}))
        return {name: value for name, value in found.items() if name not in ("rows", "paired", "records", "more")}

    def benchmarks(self) -> dict[str, list[MetricRow]]:
        """The metric rows by benchmark."""
        result: dict[str, list[MetricRow]] = {}
        for row in self.rows:
            result.setdefault(row.benchmark, []).append(row)
        return result

    def title(self, benchmark: str) -> str:
        """A benchmark with its split, size and what was left out of it."""
        rows = self.benchmarks()[benchmark]
        sizes = " or ".join(str(n) for n in sorted({row.n for row in rows}))  # several in a report of several runs
        left_out = "".join(f", {n} left out: {why}" for why, n in self.left_out.get(benchmark, {}).items())
        return f"{benchmark} ({rows[0].split}, n = {sizes}{left_out})"

    def of_extras(self, benchmark: str) -> list[Sections]:
        """What every extra shows of a benchmark."""
        rows = [r for r in self.benchmarks()[benchmark] if r.agreement is not None]
        named = [(e.name, e.sections) for e in extras() if e.sections]
        return [resolved(of)(rows, self.records.get((name, benchmark), ())) for name, of in named]

    def first(self, benchmark: str) -> list[Table]:
        """What extras put before everything else."""
        return [table for each in self.of_extras(benchmark) for table in each.first if table.cells]

    def tables(self, benchmark: str) -> list[Table]:
        """The tables of a benchmark; those without rows are left out."""
        rows, found = self.benchmarks()[benchmark], self.of_extras(benchmark)
        verdicts = [r for r in rows if r.agreement is not None]
        titles = dict.fromkeys(column.table for column in COLUMNS.values() if column.table != DEFINITIONS)
        tables = [
            *self.first(benchmark),
            *(table for each in found for table in each.front),
            shown.results(verdicts),
            shown.ratings(rows),
            *self.more.get(benchmark, ()),
            shown.declared(DEFINITIONS, verdicts),
            *(shown.declared(title, verdicts) for title in titles),
            shown.by_domain(verdicts),
            shown.by_group(verdicts),
            shown.differences([r for r in self.paired if r.benchmark == benchmark]),
            *(table for each in found for table in each.folded),
        ]
        return [table for table in tables if table.cells]

    def closing(self) -> list[Table]:
        """What the results were made from; empty tables are left out."""
        runs: Columns = {name: itemgetter(name) for name in ("run", "recipe", "seed", "fingerprint")}
        packages: Columns = {"package": itemgetter(0), "version": itemgetter(1)}
        tables = [Table.of("Runs", self.runs, runs), _lineage_table(self.lineage)]
        tables.append(Table.of("Versions", self.versions.items(), packages))
        return [table for table in tables if table.cells]


def lineage(directories: Iterable[Path]) -> list[dict[str, Any]]:
    """The artifacts that these were made from, and they themselves, inputs first: what their manifests say.

    Artifacts lie as ``STAGE/FINGERPRINT``; a directory without a manifest tells nothing and is left out.
    """
    found: dict[Path, dict[str, Any]] = {}

    def visit(directory: Path) -> None:
        if directory in found or not (manifest := read_manifest(directory)):
            return
        for source in made_from(directory).values():
            visit(source)
        found[directory] = {name: manifest.get(name) for name in KEPT}

    for directory in directories:
        visit(directory)
    return list(found.values())


def _lineage_table(rows: Sequence[Row]) -> Table:
    columns: Columns = {"stage": itemgetter("stage"), "fingerprint": itemgetter("fingerprint")}
    columns |= {"in": lambda row: row["counts"]["in"], "out": lambda row: row["counts"]["out"]}
    columns |= {"tokens generated": lambda r: r["tokens"]["generated"], "seconds": lambda r: number(r["seconds"], 0)}
    return Table.of("Made from", rows, columns)


def console_tables(report: Report) -> list[Any]:
    """Rich tables, one a benchmark, for 80 columns, and what their columns mean: of the rows those that matter.

    With ``-v`` every row.
    """
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text  # in which Rich sees no markup, as in a benchmark called [red]

    tables: list[Any] = []
    for benchmark, rows in report.benchmarks().items():
        verdicts = [row for row in rows if row.agreement is not None]
        columns: Columns = {"method": attrgetter("method"), "k": shown.NAME["branches"]}
        columns |= shown.AGREED | {"tokens": shown.SPENT["tokens"]}
        title = Text(report.title(benchmark))
        table = RichTable(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        table.add_column("method", overflow="fold")
        for header in [*columns][1:]:
            table.add_column(header, justify="right")
        kept = verdicts if VERBOSE in os.environ else that_matter(verdicts)
        for row in kept:
            table.add_row(*(Text(cell(row)) for cell in columns.values()))
        if len(kept) < len(verdicts):
            table.caption = Text(f"{len(verdicts) - len(kept)} more rows stand in the report")
            table.caption_justify = "left"
        if verdicts:
            tables.append(table)
    told = "k: criteria of a judge's own. Agreement: both orders give the label."
    return [*tables, f"{told} In brackets: 95% interval over prompts."]


def that_matter(rows: Sequence[MetricRow]) -> list[MetricRow]:
    """Return at most :data:`FEW` rows: the judges that were trained, once each, and the best of what is beside them.

    What one could do without training stands before what nobody could, such as a reader who knows the truth.
    """
    if len(rows) <= FEW:
        return [*rows]
    one_row_each = shown.one_each(rows)
    as_first_asked = {row.method.partition("+")[0]: row for row in reversed(one_row_each)}
    trained = [as_first_asked[stage] for stage in JUDGE_STAGES if stage in as_first_asked][-FEW + 1 :]
    others = [row for row in one_row_each if row not in trained]

    def place(row: MetricRow) -> tuple[bool, bool, float]:
        is_trained = row.method.partition("+")[0] in JUDGE_STAGES
        return is_trained, _is_published(row.method), -(row.agreement or 0.0)

    others.sort(key=place)
    return [*trained, *others[: FEW - len(trained)]]


def _is_published(method: str) -> bool:
    """Return whether a method's verdicts are nothing that a user could have without training."""
    kind = find_kind(method.partition(":")[0])
    return kind is not None and kind.published


def markdown(report: Report) -> str:
    """The report as Markdown."""
    seed = "" if report.seed is None else f", seed {report.seed}"
    lines = [f"# Evaluation: recipe {_cell(report.recipe)}{seed}", ""]
    for benchmark in report.benchmarks():
        lines += [f"## {_cell(report.title(benchmark))}", ""]
        for table in report.tables(benchmark):
            lines += table_lines(table)
    if closing := report.closing():
        lines += ["## Where it comes from", "", *(line for table in closing for line in table_lines(table))]
    return "\n".join(lines)


def table_lines(table: Table) -> list[str]:
    """The lines of a Markdown table with its title and explanation."""
    head = [f"### {table.title}", "", _line(table.headers), _line(["---"] * len(table.headers))]
    return [*head, *(_line(row) for row in table.cells), "", table.explanation, ""]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """Text that cannot end a Markdown cell or become markup."""
    for character in "\\|*`":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.replace("<", "&lt;").replace(">", "&gt;").replace("](", "]\\(").split())


def html_page(report: Report, links: Mapping[str, Sequence[tuple[str, str]]] | None = None) -> str:
    """The page. ``links``: texts and addresses by benchmark."""
    return render(
        TEMPLATES / "report.html",
        title=f"{report.recipe}: evaluation",
        report=report,
        links=links or {},
        day=datetime.date.today().isoformat(),
        that_matter=that_matter,
        front=shown.front,
        figures=figures,
    )


def write_report(
    out: StageRun, title: str, tables: Sequence[Table], numbers: str, charts: Sequence[Chart] = ()
) -> None:
    """A stage's tables and charts as ``report.md``, and as ``report.html``, which needs nothing else.

    ``numbers``: the file beside them that has what they show.
    """
    lines = [f"# {title}", "", *(line for table in tables for line in table_lines(table))]
    write_text_atomic(out.path("report.md"), "\n".join(lines))
    page = render(TEMPLATES / "studies.html", title=title, charts=charts, tables=tables, numbers=numbers)
    write_text_atomic(out.path("report.html"), page)
    out.log(f"{out.stage}: report: {out.path('report.html')}")


def figures(rows: Iterable[MetricRow]) -> list[Chart]:
    """Agreement of the branching judges among metric rows, by branches; without such judges none."""
    drawn = sorted((row for row in rows if row.branches and row.agreement is not None), key=lambda row: row.branches)
    series: dict[str, list[Point]] = {}
    for row in drawn:
        tip = f"{row.method}, {row.branches} branches, n = {row.n}: {percent(row.agreement)}%"
        series.setdefault(row.method, []).append(Point(row.branches, row.agreement or 0.0, tip, row.agreement_ci))
    ticks = sorted({float(row.branches) for row in drawn})
    title = f"Agreement by branches (n = {drawn[0].n})" if drawn else ""
    return [Chart(title=title, x_label="branches", series=series, ticks=ticks)] if drawn else []


LOGGED = ("agreement", "consistency", "generated_tokens")
"""Metrics that are numbers of the run; all others are in the table of metrics."""


def track_report(report: Report, track: Run) -> None:
    """Log numbers as ``BENCHMARK/METHOD@BRANCHES/METRIC``, and tables by benchmark."""
    track.log(
        {
            f"{row.benchmark}/{row.method}@{row.branches}/{name}": getattr(row, name)
            for row in report.rows
            for name in LOGGED
            if getattr(row, name) is not None
        }
    )
    for benchmark, rows in report.benchmarks().items():
        flat = [_scalars(row) for row in rows]
        columns = list(dict.fromkeys(name for values in flat for name in values))
        track.table(f"{benchmark}/metrics", columns, [[values.get(name) for name in columns] for values in flat])


def _scalars(row: MetricRow) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in row.to_row().items():
        if name.endswith("_ci"):
            values[f"{name}_low"], values[f"{name}_high"] = value or (None, None)
        elif value is None or isinstance(value, (str, int, float)):
            values[name] = value
    return values
