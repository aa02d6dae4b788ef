"""The scenario classifier: how good it says it is, what it groups, and what it needs."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.benchmarks.scenarios import load_classifier, train_classifier
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.errors import DataError
from judgetrain.evaluate import stage
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.pipeline.config import Config
from tests.builders.data import write_lines

WORDS = {"code": "python function loop bug".split(), "cooking": "soup oven salt recipe".split()}


def query(scenario: str, rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS[scenario]) for _ in range(6))


def labelled(path: Path, n: int = 30) -> SourceConfig:
    rng = random.Random(1)
    rows = [{"instruction": query(s, rng), "category": s} for s in WORDS for _ in range(n)]
    return SourceConfig(path=write_lines(path, rows))


def test_accuracy_is_that_of_unseen_queries() -> None:
    rng = random.Random(2)
    scenarios = [s for s in WORDS for _ in range(40)]
    assert train_classifier([query(s, rng) for s in scenarios], scenarios, 0).accuracy > 0.95
    # Labels that say nothing about the words: a classifier that was measured on its own training data would shine.
    drawn = [rng.choice(scenarios) for _ in scenarios]
    found = train_classifier([f"{query(s, rng)} unique{i}" for i, s in enumerate(scenarios)], drawn, 0)
    assert abs(found.accuracy - 0.5) < 0.2
    assert found.most_common == max(drawn.count(s) for s in WORDS) / 80


def test_comparisons_without_a_group_get_one_and_the_report_says_whose(tmp_path: Path) -> None:
    rng = random.Random(3)
    rows = [
        {"query": query(s, rng), "response_a": "x", "response_b": "y", "label": "A", "group": None if i % 4 else "mine"}
        for i, s in enumerate(["code", "cooking"] * 10)
    ]
    path = write_lines(tmp_path / "pairs.jsonl", rows)
    entry = BenchmarkConfig("pairs", SourceConfig(name="pairs", path=path, format="comparison"))
    evaluate = EvaluateConfig([entry], ["random"], bootstrap=20, scenarios=labelled(tmp_path / "queries.jsonl"))
    out = StageRun(tmp_path / "out", "evaluate", 1, Console())
    stage.run(EvaluateSettings.of(Config(evaluate=evaluate)), {}, out)
    groups = json.loads((out.directory / "metrics.json").read_text())[0]["groups"]
    assert {name: found["n"] for name, found in groups.items()} == {"mine": 5, "code": 5, "cooking": 10}
    assert "Scenario classifier" in (out.directory / "report.md").read_text()
    assert out.notes["scenarios"]["queries"] == 60


def test_too_few_labelled_queries_are_an_error(tmp_path: Path) -> None:
    source = labelled(tmp_path / "queries.jsonl", 3)
    with pytest.raises(DataError, match=r"queries\.jsonl': 6 of 6 rows have a category, and fewer than two"):
        load_classifier(source, "evaluate.scenarios", 1)
