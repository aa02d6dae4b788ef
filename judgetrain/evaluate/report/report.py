"""What a report holds: results by benchmark, and where they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

from judgetrain.artifacts.integrity import made_from, read_manifest
from judgetrain.evaluate.hooks import Sections, extras, resolved
from judgetrain.evaluate.metrics.choose import Choice
from judgetrain.evaluate.metrics.paired import PairedComparison
from judgetrain.evaluate.metrics.rows import COLUMNS, DEFINITIONS, MetricRow
from judgetrain.evaluate.report import sections
from judgetrain.evaluate.report.sections import SeedMeans
from judgetrain.evaluate.report.table import Columns, Table, number

Row = Mapping[str, Any]
KEPT = ("stage", "fingerprint", "recipe", "seed", "counts", "tokens", "seconds", "config", "upstream")
"""Of a manifest."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a report is made of.

    ``rows`` of ``metrics.json`` and ``paired`` of ``paired.json``; the others by benchmark or as a list: what was left
    out, the numbers of branches ``chosen`` on a development split, the ``lineage`` (manifests of everything upstream)
    and package ``versions``. ``runs`` describes the runs that were put together, ``seeds`` the means over runs that
    differ in nothing but their seed, ``records`` what extras noted of each benchmark, by their names.
    """

    recipe: str
    seed: int | None
    rows: Sequence[MetricRow]
    paired: Sequence[PairedComparison] = ()
    left_out: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    chosen: Mapping[str, Sequence[Choice]] = field(default_factory=dict)
    lineage: Sequence[Row] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    runs: Sequence[Row] = ()
    seeds: Sequence[SeedMeans] = ()
    records: Mapping[tuple[str, str], Sequence[Any]] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        """All but the rows of the other files, for ``summary.json``."""
        found = asdict(replace(self, rows=(), paired=(), records={}))
        return {name: value for name, value in found.items() if name not in ("rows", "paired", "records")}

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

    def tables(self, benchmark: str) -> list[Table]:
        """The tables of a benchmark; those without rows are left out."""
        rows, found = self.benchmarks()[benchmark], self.of_extras(benchmark)
        verdicts = [r for r in rows if r.agreement is not None]
        declared = dict.fromkeys(column.table for column in COLUMNS.values() if column.table != DEFINITIONS)
        tables = [
            *(table for each in found for table in each.first),
            sections.glance(verdicts),
            *(table for each in found for table in each.front),
            sections.results(verdicts),
            sections.ratings(rows),
            sections.seed_means([r for r in self.seeds if r.benchmark == benchmark]),
            sections.chosen(self.chosen.get(benchmark, ())),
            sections.declared(DEFINITIONS, verdicts),
            sections.votes(verdicts),
            *(sections.declared(title, verdicts) for title in declared),
            sections.by_domain(verdicts),
            sections.by_group(verdicts),
            sections.differences([r for r in self.paired if r.benchmark == benchmark]),
            *(table for each in found for table in each.folded),
        ]
        return [table for table in tables if table.cells]

    def closing(self) -> list[Table]:
        """What the results were made from; empty tables are left out."""
        tables = [_run_table(self.runs), _lineage_table(self.lineage), _version_table(self.versions)]
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
    """The artifacts that results were made from; a dash for what an older manifest does not have."""

    def amount(part: str, name: str) -> Callable[[Row], str]:
        return lambda row: number((row.get(part) or {}).get(name), 0)

    columns: Columns = {"stage": itemgetter("stage"), "fingerprint": itemgetter("fingerprint")}
    columns |= {"in": amount("counts", "in"), "out": amount("counts", "out")}
    columns |= {"tokens generated": amount("tokens", "generated"), "seconds": lambda r: number(r.get("seconds"), 0)}
    return Table.of("Made from", rows, columns)


def _run_table(rows: Sequence[Row]) -> Table:
    """The runs that were put together."""
    columns: Columns = {name: itemgetter(name) for name in ("run", "recipe", "seed", "fingerprint")}
    return Table.of("Runs", rows, columns)


def _version_table(found: Mapping[str, str]) -> Table:
    """The versions of packages."""
    return Table.of("Versions", found.items(), {"package": itemgetter(0), "version": itemgetter(1)})
