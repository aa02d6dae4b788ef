"""Run stage ``scenarios``: compare the scenarios of training dialogues and benchmarks (branching paper, figure 4)."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from judgetrain.amounts import agree, amount
from judgetrain.artifacts.files import named
from judgetrain.artifacts.integrity import MANIFEST, checked
from judgetrain.artifacts.pages import Chart, Point
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.benchmarks.adapter import load_adapter
from judgetrain.data.benchmarks.benchmark import load_benchmark
from judgetrain.data.benchmarks.responses import holds_single_responses, load_responses
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.data.rows.reader import RowReader
from judgetrain.data.sources import read
from judgetrain.errors import DataError
from judgetrain.evaluate.report.report import write_report
from judgetrain.evaluate.report.table import Columns, Table, percent
from judgetrain.extras.scenarios.stages import ScenariosSettings
from judgetrain.schema import Dialogue

REST = "Others"
"""The group of all scenarios that are in no other, where a benchmark has one of that name."""


@dataclass(frozen=True)
class Distribution:
    """The distribution of a set's queries.

    Args:
        name: of the set.
        scenarios: numbers of queries by scenario.
        domains: numbers of queries by domain, which is a coarse group of scenarios.
    """

    name: str
    scenarios: Mapping[str, int]
    domains: Mapping[str, int]

    @property
    def n(self) -> int:
        """Return the number of queries of the set."""
        return sum(self.domains.values())

    def share(self, domain: str) -> float:
        """Return the share of a domain in the queries; 0 where there are none."""
        if not self.n:
            return 0.0
        return self.domains.get(domain, 0) / self.n


def run(settings: ScenariosSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``metrics.json``, ``report.md`` and ``report.html``: training dialogues, those of other runs, benchmarks.

    Training dialogues have the scenario that the classifier finds, and so have benchmarks whose rows name none that it
    knows: categories of a benchmark's own (MT-Bench's) could not be set beside them.
    """
    classifier = train_classifier(labelled_queries(settings.queries, "scenarios.queries"), settings.seed)
    dialogues = [Dialogue.from_row(row) for row in read_rows(inputs["cluster"], "sample")]
    benchmarks = []
    for number, config in enumerate(settings.benchmarks):
        # Only their queries are looked at, which both kinds of benchmarks have.
        if holds_single_responses(config, f"evaluate.benchmarks[{number}]"):
            benchmarks.append(load_responses(config, number, settings.seed).asked)
        else:
            benchmarks.append(load_benchmark(config, number, settings.seed, settings.world))
    # A benchmark's own groups come last: where they name a scenario's domain, that is the one its paper means.
    domains = _domains(map(str, classifier.model.classes_), settings.benchmarks)
    for benchmark in benchmarks:
        domains |= benchmark.domains

    predicted = classifier.model.predict([dialogue.query for dialogue in dialogues])
    sets = [_distribution(f"training: {out.recipe}", predicted, domains)]
    sets += _other_runs(settings.runs, out.directory)
    for benchmark in benchmarks:
        predicted = classifier.model.predict([comparison.dialogue.query for comparison in benchmark.comparisons])
        scenarios = []
        for comparison, scenario in zip(benchmark.comparisons, predicted, strict=True):
            # What the benchmark says itself is better than a guess.
            if comparison.group in domains:
                scenario = comparison.group
            scenarios.append(scenario)
        sets.append(_distribution(benchmark.name, scenarios, domains))
    # The fitted model is no JSON; its figures say how far its guesses can be trusted.
    facts = classifier._asdict()
    del facts["model"]
    out.write_json("metrics", {"sets": [asdict(distribution) for distribution in sets], "classifier": facts})
    write_report(out, "Scenarios", [_table(sets)], "metrics.json", [_chart(sets)])
    out.note("scenarios", facts)
    out.count(in_=len(dialogues), out=len(dialogues))


def _domains(scenarios: Iterable[str], benchmarks: Sequence[BenchmarkConfig]) -> dict[str, str]:
    """Return the domain of every scenario: itself, where no benchmark has groups of scenarios.

    Auto-J's queries have scenarios that are in none of its groups: they are the rest, as its own others are.

    Args:
        scenarios: that the classifier knows.
        benchmarks: whose adapters group scenarios.
    """
    adapters = [load_adapter(config.source.adapter) for config in benchmarks if config.source.adapter]
    has_rest = any(REST in adapter.domains for adapter in adapters)
    domains = {}
    for scenario in scenarios:
        groups = [adapter.domain(scenario) for adapter in adapters]
        own_group = scenario
        if has_rest:
            own_group = REST
        domains[scenario] = next((group for group in groups if group), own_group)
    return domains


def _distribution(name: str, scenarios: Iterable[Any], domains: Mapping[str, str]) -> Distribution:
    """Return the distribution of a set, the most common first.

    Args:
        name: of the set.
        scenarios: of its queries.
        domains: of all scenarios.
    """
    counts = Counter(map(str, scenarios))
    coarse = Counter(domains[scenario] for scenario in counts.elements())
    return Distribution(name, dict(counts.most_common()), dict(coarse.most_common()))


def _other_runs(patterns: Sequence[str], directory: Path) -> list[Distribution]:
    """Return the training sets of other runs.

    Args:
        patterns: directories of their stages scenarios, or globs.
        directory: of this stage, which a glob may match.

    Raises:
        DataError: a directory holds no finished stage.
    """
    sets = []
    for pattern in patterns:
        # A pattern that matches nothing stays, so that the error names it.
        for path in named(pattern) or [Path(pattern)]:
            if path.resolve() == directory.resolve():
                continue
            if checked(path) is None:
                raise DataError(f"scenarios.runs: {path}: holds no finished stage scenarios (no {MANIFEST})")
            metrics = json.loads((path / "metrics.json").read_text(encoding="utf-8"))

            # The first set of a run is its training dialogues; the others are benchmarks.
            sets.append(Distribution(**metrics["sets"][0]))
    return sets


def _names(sets: Sequence[Distribution]) -> list[str]:
    """Return all domains, those that are frequent in some set first."""
    domains: set[str] = set()
    for distribution in sets:
        domains |= distribution.domains.keys()

    def most_frequent_first(domain: str) -> tuple[float, str]:
        return -max(distribution.share(domain) for distribution in sets), domain

    return sorted(domains, key=most_frequent_first)


def _table(sets: Sequence[Distribution]) -> Table:
    """Return the sets as rows and the domains as columns."""
    columns: Columns = {"set": attrgetter("name"), "queries": attrgetter("n")}
    for domain in _names(sets):
        columns[f"{domain} %"] = partial(_percent_of, domain=domain)
    return Table.of("Scenarios by set", sets, columns)


def _percent_of(distribution: Distribution, domain: str) -> str:
    """Return a domain's share of a set."""
    return percent(distribution.share(domain))


def _chart(sets: Sequence[Distribution]) -> Chart:
    """Return the sets as lines over the domains."""
    names = _names(sets)
    series = {}
    for distribution in sets:
        points = []
        for place, name in enumerate(names):
            share = distribution.share(name)
            points.append(Point(float(place), share, f"{distribution.name}: {name} {percent(share)}%"))
        series[distribution.name] = points
    short_names = []
    for name in names:
        # Longer ones would overlap.
        if len(name) > 12:
            name = f"{name[:11]}…"
        short_names.append(name)
    return Chart(title="Share of queries by scenario", x_label="scenario", series=series, names=short_names)


FOLDS = 5
"""Parts of the cross-validation, and so the fewest queries of a category."""


class ScenarioClassifier(NamedTuple):
    """A fitted classifier of queries.

    Args:
        model: a scikit-learn pipeline.
        queries: number of queries that it learned from.
        scenarios: number of their scenarios.
        accuracy: cross-validated share of queries whose scenario it finds.
        most_common: share that always naming the most common scenario would find.
    """

    model: Any
    queries: int
    scenarios: int
    accuracy: float
    most_common: float


def check_here(settings: ScenariosSettings) -> None:
    """Read the labelled queries before anything runs."""
    labelled_queries(settings.queries, "scenarios.queries")


def labelled_queries(source: SourceConfig, key: str) -> list[tuple[str, str]]:
    """Return the queries and categories of a source, of categories that have at least :data:`FOLDS` queries.

    Raises:
        DataError: fewer than two categories have so many.
    """
    reader = RowReader(replace(source, name=source.name or "scenarios"), key=key)
    dialogues = list(read(source, key, reader.dialogue))
    # Rare categories are left out: cross-validation needs one query of each in every part.
    counts = Counter(dialogue.category for dialogue in dialogues if dialogue.category is not None)
    labelled = []
    for dialogue in dialogues:
        if dialogue.category is not None and counts[dialogue.category] >= FOLDS:
            labelled.append((dialogue.query, str(dialogue.category)))
    if len({category for _, category in labelled}) < 2:
        raise DataError(
            f"{key}.path={source.path!r}: {counts.total()} of {amount(len(dialogues), 'row')} "
            f"{agree(counts.total(), 'have')} a category, "
            "fewer than two "
            f"categories {FOLDS} queries; name the column in fields, as in {{category: scenario}}"
        )
    return labelled


def train_classifier(labelled: Sequence[tuple[str, str]], seed: int) -> ScenarioClassifier:
    """Return a linear SVM on TF-IDF of words and word pairs.

    Args:
        labelled: queries and scenarios, which have :data:`FOLDS` queries each at least.
        seed: of the cross-validation and the SVM.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    queries, scenarios = zip(*labelled, strict=True)

    # A fresh one for each use: the words that count are part of what is fitted.
    def pipeline() -> Any:
        words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), max_features=50_000)
        return make_pipeline(words, LinearSVC(random_state=seed))

    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    accuracy = float(cross_val_score(pipeline(), queries, scenarios, cv=folds).mean())
    ((_, count),) = Counter(scenarios).most_common(1)
    most_common = count / len(scenarios)
    fitted = pipeline().fit(queries, scenarios)
    return ScenarioClassifier(fitted, len(queries), len(set(scenarios)), accuracy, most_common)
