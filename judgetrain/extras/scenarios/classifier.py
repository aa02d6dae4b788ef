"""A classifier of queries by scenario, trained on labelled ones (branching paper, 5.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from judgetrain.data.config import SourceConfig
from judgetrain.data.rows import RowReader
from judgetrain.data.sources import read
from judgetrain.errors import DataError

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


def labelled_queries(source: SourceConfig, key: str) -> list[tuple[str, str]]:
    """The queries and categories of a source, of categories that have at least :data:`FOLDS` queries."""
    reader = RowReader(replace(source, name=source.name or "scenarios"), key=key)
    dialogues = list(read(source, key, reader.dialogue))
    labelled = [(d.query, d.category) for d in dialogues if d.category is not None]
    counts = Counter(category for _, category in labelled)
    kept = [(query, str(category)) for query, category in labelled if counts[category] >= FOLDS]
    if len({category for _, category in kept}) < 2:
        raise DataError(
            f"{key}.path={source.path!r}: {len(labelled)} of {len(dialogues)} rows have a category, and fewer than two "
            f"categories have {FOLDS} queries; name the column in fields, as in {{category: scenario}}"
        )
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
