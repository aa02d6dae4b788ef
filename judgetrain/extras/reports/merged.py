"""Several evaluations in one report."""

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Self

from judgetrain.artifacts.files import named, write_json_atomic, write_text_atomic
from judgetrain.artifacts.integrity import MANIFEST, checked
from judgetrain.errors import ConfigError
from judgetrain.evaluate.metrics.paired import PairedComparison
from judgetrain.evaluate.metrics.rows import MethodKey, MetricRow, read_record
from judgetrain.evaluate.report.naming import MEASURED, SEED, flat, natural, run_labels, swept_keys
from judgetrain.evaluate.report.report import Report, console_tables, html_page, lineage, markdown
from judgetrain.evaluate.report.table import NAME, Columns, Table, percent
from judgetrain.judges.method import Method
from judgetrain.pipeline.run import Pipeline
from judgetrain.pipeline.sweeps import JOB, evaluations, read_jobs


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished evaluation: its manifest, its files, and every setting of it and of what it was made from."""

    directory: Path
    manifest: Mapping[str, Any]
    rows: Sequence[MetricRow]
    paired: Sequence[PairedComparison]
    left_out: Mapping[str, Mapping[str, int]]
    settings: Mapping[str, str]

    @classmethod
    def read(cls, directory: Path) -> "Run":
        """A finished evaluation (ConfigError: it is none; DataError: it is damaged)."""
        if not (directory / MANIFEST).is_file() or not (directory / "metrics.json").is_file():
            raise ConfigError(f"report.runs: {str(directory)!r} is no finished evaluation; run stage=evaluate first")
        checked(directory)
        files = {name: directory / f"{name}.json" for name in ("manifest", "metrics", "paired", "summary")}
        read = {n: json.loads(p.read_text(encoding="utf-8")) if p.is_file() else {} for n, p in files.items()}
        manifest, summary = read["manifest"], read["summary"]
        settings = {SEED: str(manifest["seed"]), "recipe": str(manifest["recipe"])}
        for made in lineage([directory]):
            settings |= flat(made["config"] or {})
        return cls(
            directory=directory,
            manifest=manifest,
            rows=[MetricRow.from_row(row) for row in read["metrics"]],
            paired=read_record(tuple[PairedComparison, ...], read["paired"]),
            left_out=summary.get("left_out", {}),
            settings=settings,
        )


@dataclass(frozen=True, kw_only=True)
class SeedMeans:
    """A method's mean agreement and consistency over several ``seeds``, and their sample standard deviations."""

    benchmark: str
    branches: int
    seeds: int
    method: str
    agreement: float
    agreement_std: float | None
    consistency: float | None
    consistency_std: float | None

    @classmethod
    def of(cls, rows: Sequence[MetricRow], method: str) -> Self:
        """Of the rows of one method with one number of branches on one benchmark, a row a seed."""
        found: dict[str, Any] = {"benchmark": rows[0].benchmark, "branches": rows[0].branches, "seeds": len(rows)}
        for name in ("agreement", "consistency"):
            values = [getattr(row, name) for row in rows]
            found[name], found[f"{name}_std"] = (None, None) if None in values else (fmean(values), stdev(values))
        return cls(method=method, **found)


def seed_means(means: Sequence[SeedMeans]) -> Table:
    """Means with their deviations over runs that differ in nothing but the seed."""
    columns: Columns = NAME | {
        "seeds": attrgetter("seeds"),
        "agreement %": lambda r: f"{percent(r.agreement)} ± {percent(r.agreement_std)}",
        "consistency %": lambda r: f"{percent(r.consistency)} ± {percent(r.consistency_std)}",
    }
    return Table.of("Over seeds", means, columns)


def merged(runs: Sequence[Run], name: str, methods: Sequence[str] = ()) -> Report:
    """One report of several runs, in the order of the settings that differ.

    Methods stand in the order of ``methods`` (names), those that it lacks after them in that of the runs.

    A method is called by its run, as in ``dpo (beta=0.1)``, where its figures are not the same in all; rows of one name
    stand once. Runs that differ in nothing but their seed are also put together
    as mean and standard deviation.
    """
    keys = [*swept_keys([run.settings for run in runs]), SEED]
    runs = sorted(runs, key=lambda run: [natural(run.settings[key]) for key in keys])
    labels = run_labels([run.settings for run in runs])
    differ = _differing_methods(runs)
    rows: dict[Hashable, tuple[str, MetricRow]] = {}
    paired: dict[Hashable, PairedComparison] = {}
    for run, label in zip(runs, labels, strict=True):
        names = {row.method: f"{row.method} ({label})" if row.method in differ else row.method for row in run.rows}
        for row in run.rows:
            method, row = row.method, replace(row, method=names[row.method], run=label)
            rows.setdefault((row.benchmark, row.key), (method, row))
        for pair in run.paired:
            sides = [MethodKey(names[side.method], side.branches) for side in (pair.first, pair.second)]
            paired.setdefault((pair.benchmark, *sides), replace(pair, first=sides[0], second=sides[1]))
    every, seeds = {run.manifest["seed"] for run in runs}, _over_seeds(runs)
    facts = ("recipe", "seed", "fingerprint")
    return Report(
        recipe=name,
        seed=every.pop() if len(every) == 1 else None,
        rows=_by_method(rows, runs, methods),
        paired=list(paired.values()),
        left_out={benchmark: found for run in runs for benchmark, found in run.left_out.items()},
        lineage=list({row["fingerprint"]: row for run in runs for row in lineage([run.directory])}.values()),
        versions=runs[0].manifest["versions"],
        runs=[{"run": label} | {k: run.manifest[k] for k in facts} for run, label in zip(runs, labels, strict=True)],
        seeds=seeds,
        more={name: [seed_means([s for s in seeds if s.benchmark == name])] for name in {s.benchmark for s in seeds}},
    )


def _by_method(
    rows: Mapping[Hashable, tuple[str, MetricRow]], runs: Sequence[Run], methods: Sequence[str]
) -> list[MetricRow]:
    """The rows, each with the name that its method has in its run, by benchmark and method."""
    fullest = sorted(runs, key=lambda run: -len({row.method for row in run.rows}))
    order = list(dict.fromkeys([*methods, *(row.method for run in fullest for row in run.rows)]))
    benchmarks = list(dict.fromkeys(row.benchmark for _, row in rows.values()))
    found = sorted(rows.values(), key=lambda item: (benchmarks.index(item[1].benchmark), order.index(item[0])))
    return [row for _, row in found]


def _differing_methods(runs: Sequence[Run]) -> set[str]:
    figures: dict[str, dict[Hashable, set[Hashable]]] = {}
    for row in (row for run in runs for row in run.rows):
        pearson = row.correlations.pearson if row.correlations else None
        found = row.n, row.agreement, row.consistency, pearson, row.conflict_as_tie
        figures.setdefault(row.method, {}).setdefault((row.benchmark, row.key), set()).add(found)
    return {method for method, places in figures.items() if any(len(found) > 1 for found in places.values())}


def _over_seeds(runs: Sequence[Run]) -> list[SeedMeans]:
    """Means of runs that differ in nothing but the seed."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        rest = {k: v for k, v in run.settings.items() if k != SEED and not k.startswith(MEASURED)}
        groups.setdefault(json.dumps(rest, sort_keys=True), []).append(run)
    several = [group for group in groups.values() if len(group) > 1]
    labels = run_labels([{k: v for k, v in group[0].settings.items() if k != SEED} for group in several])
    found = []
    for group, label in zip(several, labels, strict=True):
        told = f" ({label})" if len(several) > 1 and label else ""
        for first in group[0].rows:
            same = [r for run in group for r in run.rows if (r.benchmark, r.key) == (first.benchmark, first.key)]
            measured = [row for row in same if row.agreement is not None]
            if len(measured) > 1:
                found.append(SeedMeans.of(measured, f"{first.method}{told}"))
    return found


def merge(pipeline: Pipeline) -> None:
    """Write ``report.html``, ``report.md``, ``metrics.json`` and ``summary.json`` to ``output_dir/reports/NAME``."""
    config, console = pipeline.config, pipeline.console
    if not config.report.name.strip(".") or Path(config.report.name).name != config.report.name:
        raise ConfigError(f"report.name={config.report.name!r}: must be the name of one folder")
    made = pipeline.root / "evaluate"
    if not (runs := config.report.runs or [str(path.parent) for path in sorted(made.glob(f"*/{MANIFEST}"))]):
        told = f"stage=report: {made} holds no finished evaluation"
        raise ConfigError(f"{told}; run stage=evaluate first, or name others in report.runs")
    read = [Run.read(directory) for directory in _directories(runs, Path(config.output_dir))]
    report = merged(read, config.report.name, [Method.parse(text).name for text in config.evaluate.methods])
    target = Path(config.output_dir) / "reports" / config.report.name
    write_json_atomic(target / "metrics.json", [row.to_row() for row in report.rows])
    write_json_atomic(target / "paired.json", [asdict(row) for row in report.paired])
    write_json_atomic(target / "summary.json", report.summary())
    write_text_atomic(target / "report.md", markdown(report))
    write_text_atomic(target / "report.html", html_page(report))
    console.plain(console_tables(report))
    console.line(f"report: {len(read)} evaluations: {target / 'report.html'}")


def _directories(runs: Iterable[str], output: Path) -> Iterable[Path]:
    seen: set[Path] = set()
    for entry in runs:
        if not (paths := named(entry)):
            raise ConfigError(f"report.runs: {entry!r}: no such directory; give evaluations or a sweep of {output}")
        for path in paths:
            found = [path]
            if any(path.glob(f"*/{JOB}")) and not (found := evaluations(read_jobs(path))):
                raise ConfigError(f"report.runs: {str(path)!r}: no job of this sweep made an evaluation")
            for directory in found:
                if directory.resolve() not in seen and (len(paths) == 1 or (directory / MANIFEST).is_file()):
                    seen.add(directory.resolve())
                    yield directory
