"""Merge several evaluations into one report."""

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Self

from judgetrain.amounts import amount
from judgetrain.artifacts.files import named, write_json_atomic, write_text_atomic
from judgetrain.artifacts.integrity import MANIFEST, checked
from judgetrain.errors import ConfigError
from judgetrain.evaluate.metrics.paired import PairedComparison
from judgetrain.evaluate.metrics.rating_rows import RatingRow
from judgetrain.evaluate.metrics.rows import MethodKey, MetricRow, read_record
from judgetrain.evaluate.report.naming import MEASURED, SEED, flat, natural, run_labels, shared_labels, swept_keys
from judgetrain.evaluate.report.report import Report, console_tables, html_page, lineage, markdown
from judgetrain.evaluate.report.table import NAME, Columns, Table, percent
from judgetrain.judges.method import Method
from judgetrain.pipeline.run import Pipeline
from judgetrain.pipeline.sweeps import JOB, evaluations, read_jobs

UNKNOWN = "unknown"
"""The beginning of the data of evaluations that did not note theirs."""
DIGITS = 8
"""The digits of data that stand in a name where no setting tells them apart."""


@dataclass(frozen=True, kw_only=True)
class FinishedEvaluation:
    """A finished evaluation: its manifest, its files, and every setting of it and of the stages before it."""

    directory: Path
    manifest: Mapping[str, Any]
    rows: Sequence[MetricRow]
    paired: Sequence[PairedComparison]
    ratings: Sequence[RatingRow]
    left_out: Mapping[str, Mapping[str, int]]
    labelled_differently: Mapping[str, int]
    settings: Mapping[str, str]

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Return the finished evaluation of a directory.

        Raises:
            ConfigError: there is none.
            DataError: it is damaged.
        """
        if not (directory / MANIFEST).is_file() or not (directory / "metrics.json").is_file():
            raise ConfigError(f"report.runs: {str(directory)!r} is no finished evaluation; run stage=evaluate first")
        # Damage is refused here: a report must not show what a manifest no longer vouches for.
        checked(directory)
        contents: dict[str, Any] = {}
        for name in ("manifest", "metrics", "paired", "ratings", "summary"):
            path = directory / f"{name}.json"
            contents[name] = {}
            if path.is_file():
                contents[name] = json.loads(path.read_text(encoding="utf-8"))
        manifest = contents["manifest"]
        # Of older versions' evaluations it is not known whether their data are another's: they stand by themselves.
        unknown = {"data": f"{UNKNOWN}:{directory.resolve()}"}
        settings: dict[str, str] = {}
        # Later stages come last and win where two say the same key.
        for stage in lineage([directory]):
            settings |= flat(stage["config"] or {})
        # The settings may name a variable in the seed's place.
        settings |= {SEED: str(manifest["seed"]), "recipe": str(manifest["recipe"])}
        return cls(
            directory=directory,
            manifest=manifest,
            rows=[MetricRow.from_row(unknown | row) for row in contents["metrics"]],
            paired=read_record(tuple[PairedComparison, ...], contents["paired"]),
            ratings=[RatingRow.from_row(unknown | row) for row in contents["ratings"]],
            left_out=contents["summary"].get("left_out", {}),
            labelled_differently=contents["summary"].get("labelled_differently", {}),
            settings=settings,
        )

    @property
    def every_row(self) -> Sequence[MetricRow | RatingRow]:
        """Return the rows of comparisons and of single responses."""
        return [*self.rows, *self.ratings]


@dataclass(frozen=True, kw_only=True)
class SeedMeans:
    """A method's mean agreement and consistency over several ``seeds``, and their sample standard deviations.

    ``data`` are the data of each seed, as in ``metrics.json``.
    """

    benchmark: str
    branches: int
    seeds: int
    method: str
    agreement: float
    agreement_std: float | None
    consistency: float | None
    consistency_std: float | None
    data: tuple[str | None, ...]

    @classmethod
    def of(cls, rows: Sequence[MetricRow], method: str) -> Self:
        """Return the means of the rows of one method with one number of branches on one benchmark, a row a seed."""
        agreement, agreement_std = _mean_and_deviation([row.agreement for row in rows])
        consistency, consistency_std = _mean_and_deviation([row.consistency for row in rows])
        assert agreement is not None, "rows without an agreement were left out"
        return cls(
            benchmark=rows[0].benchmark,
            branches=rows[0].branches,
            seeds=len(rows),
            method=method,
            agreement=agreement,
            agreement_std=agreement_std,
            consistency=consistency,
            consistency_std=consistency_std,
            data=tuple(row.data for row in rows),
        )

    @property
    def is_of_one_data(self) -> bool:
        """Return whether all seeds are measured on the same data."""
        return len(set(self.data)) == 1


def _mean_and_deviation(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Return the mean and the sample standard deviation; None where a value is missing."""
    # A mean over fewer seeds than the row says would be another figure.
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        return None, None
    return fmean(numbers), stdev(numbers)


def seed_means(means: Sequence[SeedMeans]) -> Table:
    """Return a table of means with their deviations over runs that differ in nothing but the seed."""
    columns: Columns = NAME | {
        "seeds": attrgetter("seeds"),
        "agreement %": lambda row: f"{percent(row.agreement)} ± {percent(row.agreement_std)}",
        "consistency %": lambda row: f"{percent(row.consistency)} ± {percent(row.consistency_std)}",
    }
    return Table.of("Over seeds", means, columns)


@dataclass
class _Merging:
    """The parts of a report that its runs have brought so far, each of a name once.

    Args:
        titles: of benchmarks, by their names and data.
        differing: methods whose figures are not the same in all runs, so that their names say the run.
    """

    titles: Mapping[tuple[str, str | None], str]
    differing: Set[str]
    rows: dict[Hashable, tuple[str, MetricRow]] = field(default_factory=dict)
    """Each with the name that its method has in its run."""
    paired: dict[Hashable, PairedComparison] = field(default_factory=dict)
    ratings: dict[Hashable, RatingRow] = field(default_factory=dict)
    left_out: dict[str, Mapping[str, int]] = field(default_factory=dict)
    labelled_differently: dict[str, int] = field(default_factory=dict)
    stages: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Manifests by their fingerprints."""
    facts: list[Mapping[str, Any]] = field(default_factory=list)
    """The facts of each run."""

    def add(self, run: FinishedEvaluation, label: str) -> None:
        """Add a run under its label."""
        names = {row.method: row.method for row in run.every_row}
        for method in names.keys() & self.differing:
            names[method] = f"{method} ({label})"
        title_of = {row.benchmark: self.titles[row.benchmark, row.data] for row in run.every_row}
        self._add_figures(run, label, names, title_of)
        for benchmark, counts in run.left_out.items():
            self.left_out[title_of.get(benchmark, benchmark)] = counts
        for benchmark, number in run.labelled_differently.items():
            self.labelled_differently[title_of.get(benchmark, benchmark)] = number
        for stage in lineage([run.directory]):
            # Runs of a sweep share most of their stages, and each stands once.
            self.stages[stage["fingerprint"]] = stage
        facts = {fact: run.manifest[fact] for fact in ("recipe", "seed", "fingerprint")}
        self.facts.append({"run": label} | facts)

    def _add_figures(
        self, run: FinishedEvaluation, label: str, names: Mapping[str, str], title_of: Mapping[str, str]
    ) -> None:
        """Add a run's rows, differences and ratings under the names of its methods and the titles of its benchmarks."""
        for row in run.rows:
            named_row = replace(row, benchmark=title_of[row.benchmark], method=names[row.method], run=label)

            # Under one name figures are the same in all runs, or the name would say the run: the first row stands for
            # all.
            self.rows.setdefault((named_row.benchmark, named_row.key), (row.method, named_row))
        for pair in run.paired:
            title = title_of[pair.benchmark]
            first = MethodKey(names[pair.first.method], pair.first.branches)
            second = MethodKey(names[pair.second.method], pair.second.branches)
            named_pair = replace(pair, benchmark=title, first=first, second=second)
            self.paired.setdefault((title, first, second), named_pair)
        for rating in run.ratings:
            named_rating = replace(rating, benchmark=title_of[rating.benchmark], method=names[rating.method])
            place = (named_rating.benchmark, named_rating.key, rating.criterion)
            self.ratings.setdefault(place, named_rating)


def merged(runs: Sequence[FinishedEvaluation], name: str, methods: Sequence[str] = ()) -> Report:
    """Return one report of several runs, in the order of the settings that differ.

    A method is called by its run, as in ``dpo (beta=0.1)``, where its figures are not the same in all; rows of one name
    stand once. Runs that differ in nothing but their seed are also put together as mean and standard deviation. A
    benchmark of which runs have different comparisons or labels stands there once for each, as ``world (seed=1)``.

    Args:
        runs: to put together.
        name: of the report.
        methods: names in the order in which they stand; others come after them, in the order of the runs.
    """
    # The seed comes last, so that the seeds of one setting stand together.
    keys = [*swept_keys([run.settings for run in runs]), SEED]
    runs = sorted(runs, key=lambda run: [natural(run.settings[key]) for key in keys])
    labels = run_labels([run.settings for run in runs])
    titles = benchmark_titles(runs)
    merging = _Merging(titles=titles, differing=_differing_methods(runs, titles))
    for run, label in zip(runs, labels, strict=True):
        merging.add(run, label)

    seeds = {run.manifest["seed"] for run in runs}
    only_seed = None
    if len(seeds) == 1:
        (only_seed,) = seeds
    over_seeds = _over_seeds(runs)
    tables: dict[str, list[Table]] = {}
    across: list[tuple[str, Table]] = []
    for means in _by_data(over_seeds):
        first_mean = means[0]
        if first_mean.is_of_one_data:
            tables[titles[first_mean.benchmark, first_mean.data[0]]] = [seed_means(means)]
        else:
            # No benchmark's section is about the data of all these seeds, so the means stand behind all sections.
            across.append((f"{first_mean.benchmark}, each seed on data of its own", seed_means(means)))
    return Report(
        recipe=name,
        seed=only_seed,
        rows=_by_method(merging.rows, runs, methods),
        paired=list(merging.paired.values()),
        ratings=list(merging.ratings.values()),
        left_out=merging.left_out,
        labelled_differently=merging.labelled_differently,
        lineage=list(merging.stages.values()),
        versions=runs[0].manifest["versions"],
        runs=merging.facts,
        seeds=over_seeds,
        more=tables,
        across=across,
    )


def benchmark_titles(runs: Sequence[FinishedEvaluation]) -> dict[tuple[str, str | None], str]:
    """Return what a benchmark is called in the report, by its name and its data.

    It is the name alone where all runs have the same data under it, whatever the runs call them: figures on other
    comparisons, other labels or another split are not comparable, and stand apart.
    """
    # By name and then by data, in the order in which they first stand in a run.
    runs_of: dict[str, dict[str | None, list[FinishedEvaluation]]] = {}
    for run in runs:
        for benchmark, data in dict.fromkeys((row.benchmark, row.data) for row in run.every_row):
            runs_of.setdefault(benchmark, {}).setdefault(data, []).append(run)

    titles = {}
    for benchmark, by_data in runs_of.items():
        # What all runs with these data have in common and others have not, such as a seed or a limit.
        labels = shared_labels([[run.settings for run in of_data] for of_data in by_data.values()])
        counts = Counter(labels)
        for (data, of_data), label in zip(by_data.items(), labels, strict=True):
            if len(by_data) == 1:
                title = benchmark
            elif str(data).startswith(UNKNOWN):
                title = f"{benchmark} (data not noted: {of_data[0].directory.name})"
            elif label and counts[label] == 1:
                title = f"{benchmark} ({label})"
            else:
                # No setting tells these data apart, or several sets of data share the label.
                title = f"{benchmark} (data {str(data)[:DIGITS]})"
            titles[benchmark, data] = title
    return titles


def _by_data(over_seeds: Sequence[SeedMeans]) -> list[list[SeedMeans]]:
    """Return the means in groups that are over the same data, whose figures may stand side by side."""
    groups: dict[Hashable, list[SeedMeans]] = {}
    for means in over_seeds:
        # On one set of data the number of seeds plays no part: means over two and over three are in one table.
        data = means.data[:1] if means.is_of_one_data else means.data
        groups.setdefault((means.benchmark, data), []).append(means)
    return list(groups.values())


def _by_method(
    rows: Mapping[Hashable, tuple[str, MetricRow]], runs: Sequence[FinishedEvaluation], methods: Sequence[str]
) -> list[MetricRow]:
    """Return the rows by benchmark and method.

    Args:
        rows: each with the name that its method has in its run.
        runs: where methods stand in an order; the run with the most methods comes first.
        methods: names that come before all others.
    """
    # A dictionary keeps the place of a key that is added again, so that earlier names keep theirs.
    order = dict.fromkeys(methods)
    for run in sorted(runs, key=lambda run: -len({row.method for row in run.rows})):
        order |= dict.fromkeys(row.method for row in run.rows)
    places = list(order)
    benchmarks = list(dict.fromkeys(row.benchmark for _, row in rows.values()))

    def place(item: tuple[str, MetricRow]) -> tuple[int, int]:
        method, row = item
        return benchmarks.index(row.benchmark), places.index(method)

    return [row for _, row in sorted(rows.values(), key=place)]


def _differing_methods(runs: Sequence[FinishedEvaluation], titles: Mapping[tuple[str, str | None], str]) -> set[str]:
    """Return the methods whose figures on the same data, or whose judges, are not the same in all runs."""
    figures: dict[Hashable, set[Hashable]] = {}
    differing = set()
    for run in runs:
        for row in run.every_row:
            criterion = row.criterion if isinstance(row, RatingRow) else None
            seen = figures.setdefault((titles[row.benchmark, row.data], row.key, criterion), set())
            # Two judges may have the same figures; a sweep shows both all the same.
            judge = run.manifest["upstream"].get(row.method.partition("+")[0])
            seen.add(json.dumps([judge, _figures(row.to_row())], sort_keys=True))
            if len(seen) > 1:
                differing.add(row.method)
    return differing


NO_FIGURES = ("method", "benchmark", "run", "data", "seconds", "money")
"""Columns that are no figures of a judge: names, and what depends on the machine or on what a server takes."""


def _figures(value: Any) -> Any:
    """Return the figures of a row, or of a part of one, without intervals, which depend on what is drawn for them."""
    if not isinstance(value, Mapping):
        return value
    return {name: _figures(part) for name, part in value.items() if name not in NO_FIGURES and not name.endswith("_ci")}


def _over_seeds(runs: Sequence[FinishedEvaluation]) -> list[SeedMeans]:
    """Return means of runs that differ in nothing but the seed."""
    groups: dict[str, list[FinishedEvaluation]] = {}
    for run in runs:
        # What is measured changes no judge: runs that differ in it alone are seeds of one setting all the same.
        others = {key: value for key, value in run.settings.items() if key != SEED and not key.startswith(MEASURED)}
        groups.setdefault(json.dumps(others, sort_keys=True), []).append(run)
    several = [group for group in groups.values() if len(group) > 1]

    # A label tells groups apart. Within a group only the seed differs, which is no part of the label.
    without_seed = []
    for group in several:
        without_seed.append({key: value for key, value in group[0].settings.items() if key != SEED})
    means = []
    for group, label in zip(several, run_labels(without_seed), strict=True):
        suffix = ""
        if len(several) > 1 and label:
            suffix = f" ({label})"
        names = dict.fromkeys((row.benchmark, row.key) for run in group for row in run.rows)
        for benchmark, key in names:
            for measured in _seeds_of(group, benchmark, key):
                means.append(SeedMeans.of(measured, f"{key.method}{suffix}"))
    return means


def _seeds_of(group: Sequence[FinishedEvaluation], benchmark: str, key: MethodKey) -> Iterator[list[MetricRow]]:
    """Yield the rows of a method on a benchmark over which a mean over seeds is taken, a row a seed.

    A seed that was evaluated several times counts once. Where one was evaluated on several data, the rows of each data
    are apart: its own figures on them are no repetition.

    Args:
        group: runs that differ in nothing but the seed.
        benchmark: the benchmark's name.
        key: the method with its number of branches.
    """
    of_seed: dict[Any, dict[str | None, MetricRow]] = {}
    for run in group:
        for row in run.rows:
            if row.benchmark == benchmark and row.key == key and row.agreement is not None:
                of_seed.setdefault(run.manifest["seed"], {}).setdefault(row.data, row)

    if all(len(by_data) == 1 for by_data in of_seed.values()):
        samples = [[row for by_data in of_seed.values() for row in by_data.values()]]
    else:
        every_data = dict.fromkeys(data for by_data in of_seed.values() for data in by_data)
        samples = [[by_data[data] for by_data in of_seed.values() if data in by_data] for data in every_data]
    yield from (rows for rows in samples if len(rows) > 1)


def merge(pipeline: Pipeline) -> None:
    """Write ``report.html``, ``report.md`` and the files of figures to ``output_dir/reports/NAME``."""
    config = pipeline.config
    name = config.report.name

    # The name becomes a folder of output_dir/reports. One such as .. or a/b would lead out of it.
    if not name.strip(".") or Path(name).name != name:
        raise ConfigError(f"report.name={name!r}: must be the name of one folder")
    directory = pipeline.root / "evaluate"
    runs = config.report.runs or [str(path.parent) for path in sorted(directory.glob(f"*/{MANIFEST}"))]
    if not runs:
        raise ConfigError(
            f"stage=report: {directory} holds no finished evaluation; run stage=evaluate first, or name others in "
            "report.runs"
        )
    output = Path(config.output_dir)
    # All are read before anything is written: one damaged run leaves an earlier report as it was.
    finished = [FinishedEvaluation.read(path) for path in _directories(runs, output)]
    report = merged(finished, name, [Method.parse(text).name for text in config.evaluate.methods])
    target = output / "reports" / name
    write_json_atomic(target / "metrics.json", [row.to_row() for row in report.rows])
    if report.ratings:
        write_json_atomic(target / "ratings.json", [row.to_row() for row in report.ratings])
    write_json_atomic(target / "paired.json", [asdict(row) for row in report.paired])
    write_json_atomic(target / "summary.json", report.summary())
    write_text_atomic(target / "report.md", markdown(report))
    write_text_atomic(target / "report.html", html_page(report))
    pipeline.console.plain(console_tables(report))
    for benchmark, number in _data_apart(finished):
        pipeline.console.line(
            f"report: {benchmark}: the runs have {number} sets of comparisons or labels under this name, which are not "
            "comparable: their figures stand apart"
        )
    pipeline.console.line(f"report: {amount(len(finished), 'evaluation')}: {target / 'report.html'}")


def _data_apart(runs: Sequence[FinishedEvaluation]) -> Iterator[tuple[str, int]]:
    """Yield the benchmarks of which runs have different data, with how many."""
    names = Counter(benchmark for benchmark, _ in benchmark_titles(runs))
    yield from ((benchmark, number) for benchmark, number in names.items() if number > 1)


def _directories(runs: Iterable[str], output: Path) -> Iterator[Path]:
    """Yield the directories of evaluations, each once.

    Args:
        runs: directories of evaluations or sweeps, or globs of them.
        output: the run's directory, for errors.

    Raises:
        ConfigError: an entry names nothing, or a sweep without an evaluation.
    """
    seen: set[Path] = set()
    for entry in runs:
        paths = named(entry)
        if not paths:
            raise ConfigError(f"report.runs: {entry!r}: no such directory; give evaluations or a sweep of {output}")
        for path in paths:
            directories = [path]
            # A sweep's directory holds a folder for each of its jobs.
            if any(path.glob(f"*/{JOB}")):
                directories = evaluations(read_jobs(path))
                if not directories:
                    raise ConfigError(f"report.runs: {str(path)!r}: no job of this sweep made an evaluation")
            for directory in directories:
                # A glob may match what is no evaluation; a single name that is none is an error where it is read.
                is_meant = len(paths) == 1 or (directory / MANIFEST).is_file()
                if is_meant and directory.resolve() not in seen:
                    seen.add(directory.resolve())
                    yield directory
