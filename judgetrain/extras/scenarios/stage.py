"""Stage ``scenarios``: the scenarios of training dialogues and benchmarks side by side (branching paper, figure 4)."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from judgetrain.artifacts.files import named
from judgetrain.artifacts.integrity import MANIFEST, checked
from judgetrain.artifacts.pages import Chart, Point
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.benchmarks.adapter import load_adapter
from judgetrain.data.benchmarks.benchmark import load_benchmark
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.data.rows import RowReader
from judgetrain.data.sources import read
from judgetrain.errors import DataError
from judgetrain.evaluate.report.report import write_report
from judgetrain.evaluate.report.table import Columns, Table, percent
from judgetrain.extras.scenarios.stages import ScenariosSettings
from judgetrain.schema import Dialogue

REST = "Others"
"""The group of what is in no group, where a benchmark has one of that name."""


@dataclass(frozen=True)
class Distribution:
    """How many of a set's queries are of each scenario, and of each domain: a coarse group of scenarios."""

    name: str
    scenarios: Mapping[str, int]
    domains: Mapping[str, int]

    @property
    def n(self) -> int:
        """Queries of the set."""
        return sum(self.domains.values())

    def share(self, domain: str) -> float:
        """Of its queries those of a domain."""
        return self.domains.get(domain, 0) / self.n if self.n else 0.0


def run(settings: ScenariosSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``metrics.json``, ``report.md`` and ``report.html``: training dialogues, those of other runs, benchmarks.

    Training dialogues have the scenario that the classifier finds, and so have benchmarks whose rows name none that it
    knows: categories of a benchmark's own (MT-Bench's) could not be set beside them.
    """
    classifier = train_classifier(labelled_queries(settings.queries, "scenarios.queries"), settings.seed)
    dialogues = [Dialogue.from_row(row) for row in read_rows(inputs["cluster"], "sample")]
    benchmarks = [load_benchmark(b, i, settings.seed, settings.world) for i, b in enumerate(settings.benchmarks)]
    domains = _domains(map(str, classifier.model.classes_), settings.benchmarks)
    domains |= {group: domain for benchmark in benchmarks for group, domain in benchmark.domains.items()}
    found = [_distribution(f"training: {out.recipe}", classifier.model.predict([d.query for d in dialogues]), domains)]
    found += _others(settings.runs, out.directory)
    for benchmark in benchmarks:
        queries = [c.dialogue.query for c in benchmark.comparisons]
        predicted = classifier.model.predict(queries)
        named = [c.group if c.group in domains else p for c, p in zip(benchmark.comparisons, predicted, strict=True)]
        found.append(_distribution(benchmark.name, named, domains))
    facts = {name: value for name, value in classifier._asdict().items() if name != "model"}
    out.write_json("metrics", {"sets": [asdict(each) for each in found], "classifier": facts})
    write_report(out, "Scenarios", [_table(found)], "metrics.json", [_chart(found)])
    out.note("scenarios", facts)
    out.count(in_=len(dialogues), out=len(dialogues))


def _domains(scenarios: Iterable[str], benchmarks: Sequence[BenchmarkConfig]) -> dict[str, str]:
    """The domain of every scenario that the classifier knows: itself, where no benchmark has groups of scenarios.

    Auto-J's queries have scenarios that are in none of its groups: they are the rest, as its own others are.
    """
    adapters = [load_adapter(b.source.adapter) for b in benchmarks if b.source.adapter]
    rest = REST if any(REST in adapter.domains for adapter in adapters) else None
    return {s: next((d for adapter in adapters if (d := adapter.domain(s))), rest or s) for s in scenarios}


def _distribution(name: str, scenarios: Iterable[Any], domains: Mapping[str, str]) -> Distribution:
    counts = Counter(map(str, scenarios))
    coarse = Counter(domains[scenario] for scenario in counts.elements())
    return Distribution(name, dict(counts.most_common()), dict(coarse.most_common()))


def _others(patterns: Sequence[str], own: Path) -> list[Distribution]:
    result = []
    paths = (path for pattern in patterns for path in named(pattern) or [Path(pattern)])
    for path in (path for path in paths if path.resolve() != own.resolve()):
        if checked(path) is None:
            raise DataError(f"scenarios.runs: {path}: holds no finished stage scenarios (no {MANIFEST})")
        sets = json.loads((path / "metrics.json").read_text(encoding="utf-8"))["sets"]
        result.append(Distribution(**sets[0]))
    return result


def _names(found: Sequence[Distribution]) -> list[str]:
    """All domains, those that are frequent in some set first."""
    return sorted({d for each in found for d in each.domains}, key=lambda d: (-max(f.share(d) for f in found), d))


def _table(found: Sequence[Distribution]) -> Table:
    columns: Columns = {"set": attrgetter("name"), "queries": attrgetter("n")}
    for domain in _names(found):
        columns[f"{domain} %"] = lambda each, domain=domain: percent(each.share(domain))  # type: ignore[misc]
    return Table.of("Scenarios by set", found, columns)


def _chart(found: Sequence[Distribution]) -> Chart:
    names = _names(found)

    def points(each: Distribution) -> list[Point]:
        shares = ((i, name, each.share(name)) for i, name in enumerate(names))
        return [Point(float(i), share, f"{each.name}: {name} {percent(share)}%") for i, name, share in shares]

    series = {each.name: points(each) for each in found}
    short = [name if len(name) <= 12 else f"{name[:11]}…" for name in names]
    return Chart(title="Share of queries by scenario", x_label="scenario", series=series, names=short)


FOLDS = 5


class ScenarioClassifier(NamedTuple):
    """A fitted scikit-learn pipeline, how many queries and scenarios it learned from, and how good it is.

    ``accuracy``: cross-validated share of queries whose scenario it finds; ``most_common``: the share that always
    naming the most common scenario would find.
    """

    model: Any
    queries: int
    scenarios: int
    accuracy: float
    most_common: float


def check_here(settings: ScenariosSettings) -> None:
    """Read the labelled queries."""
    labelled_queries(settings.queries, "scenarios.queries")


def labelled_queries(source: SourceConfig, key: str) -> list[tuple[str, str]]:
    """The queries and categories of a source, of categories that have at least :data:`FOLDS` queries."""
    reader = RowReader(replace(source, name=source.name or "scenarios"), key=key)
    dialogues = list(read(source, key, reader.dialogue))
    labelled = [(d.query, d.category) for d in dialogues if d.category is not None]
    counts = Counter(category for _, category in labelled)
    kept = [(query, str(category)) for query, category in labelled if counts[category] >= FOLDS]
    if len({category for _, category in kept}) < 2:
        told = f"{len(labelled)} of {len(dialogues)} rows have a category, fewer than two categories {FOLDS} queries"
        raise DataError(f"{key}.path={source.path!r}: {told}; name the column in fields, as in {{category: scenario}}")
    return kept


def train_classifier(labelled: Sequence[tuple[str, str]], seed: int) -> ScenarioClassifier:
    """A linear SVM on TF-IDF of words and word pairs, of queries and scenarios that have :data:`FOLDS` at least."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    queries, scenarios = zip(*labelled, strict=True)

    def pipeline() -> Any:
        words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), max_features=50_000)
        return make_pipeline(words, LinearSVC(random_state=seed))

    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    accuracy = float(cross_val_score(pipeline(), queries, scenarios, cv=folds).mean())
    most_common = Counter(scenarios).most_common(1)[0][1] / len(scenarios)
    fitted = pipeline().fit(queries, scenarios)
    return ScenarioClassifier(fitted, len(queries), len(set(scenarios)), accuracy, most_common)
