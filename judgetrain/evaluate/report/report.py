"""What a report holds: results by benchmark, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from judgetrain.evaluate.report import between, grouped, provenance, sections
from judgetrain.evaluate.report.sections import Row, Table


@dataclass(frozen=True)
class Report:
    """What a report is made of.

    ``rows`` of ``metrics.json`` and ``paired`` of ``paired.json``; the others by benchmark or as a list: what was left
    out, the numbers of branches ``chosen`` on a development split, ``disagreements`` between methods, the ``lineage``
    (manifests of everything upstream) and package ``versions``. ``runs`` describes the runs that were put together,
    ``seeds`` the means over runs that differ in nothing but their seed, ``scenarios`` the classifier that groups
    benchmarks without groups.
    """

    recipe: str
    seed: int | None
    rows: Sequence[Row]
    paired: Sequence[Row]
    left_out: Mapping[str, Mapping[str, int]]
    chosen: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    disagreements: Mapping[str, Row] = field(default_factory=dict)
    lineage: Sequence[Row] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    runs: Sequence[Row] = ()
    seeds: Sequence[Row] = ()
    scenarios: Mapping[str, float] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        """All but the rows of the other two files, for ``summary.json``."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("rows", "paired")}

    def benchmarks(self) -> dict[str, list[Row]]:
        """The metric rows by benchmark."""
        result: dict[str, list[Row]] = {}
        for row in self.rows:
            result.setdefault(row["benchmark"], []).append(row)
        return result

    def title(self, benchmark: str) -> str:
        """A benchmark with its split, size and what was left out of it."""
        rows = self.benchmarks()[benchmark]
        sizes = " or ".join(str(n) for n in sorted({row["n"] for row in rows}))  # several in a report of several runs
        left_out = "".join(f", {n} left out: {why}" for why, n in self.left_out.get(benchmark, {}).items())
        return f"{benchmark} ({rows[0]['split']}, n = {sizes}{left_out})"

    def tables(self, benchmark: str) -> list[Table]:
        """The tables of a benchmark; those without rows are left out."""
        rows = self.benchmarks()[benchmark]
        verdicts, ratings = [r for r in rows if "agreement" in r], [r for r in rows if "pearson" in r]
        differ = self.disagreements.get(benchmark, {})
        tables = [
            sections.glance(verdicts),
            sections.results(verdicts),
            sections.ratings(ratings),
            sections.over_seeds([r for r in self.seeds if r["benchmark"] == benchmark]),
            sections.chosen(self.chosen.get(benchmark, ())),
            sections.definitions(verdicts),
            sections.votes(verdicts),
            sections.biases(verdicts),
            sections.costs(verdicts),
            sections.calibration(verdicts),
            grouped.by_domain(verdicts),
            grouped.by_group(verdicts),
            between.differences([r for r in self.paired if r["benchmark"] == benchmark]),
            between.overlap(differ.get("pairs", ())),
            between.examples(differ.get("examples", ())),
        ]
        return [table for table in tables if table.cells]

    def closing(self) -> list[Table]:
        """What the results were made from; empty tables are left out."""
        tables = [
            provenance.runs(self.runs),
            provenance.scenarios(self.scenarios),
            provenance.lineage(self.lineage),
            provenance.versions(self.versions),
        ]
        return [table for table in tables if table.cells]
