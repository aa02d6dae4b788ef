"""The scenario classifier: how good it says it is, and what it needs."""

import json
import random
from pathlib import Path

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.files import write_json_atomic, write_rows_atomic
from judgetrain.artifacts.stage_run import RunOptions, StageRun
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.errors import ConfigError, DataError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.extras.scenarios.stage import labelled_queries, train_classifier
from judgetrain.extras.scenarios.stages import SCENARIOS, ScenariosSettings
from judgetrain.pipeline.config import Config
from judgetrain.schema import Dialogue, Message
from tests.builders.data import write_lines
from tests.builders.pipeline import check_stage

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
    assert train_classifier([(query(s, rng), s) for s in scenarios], 0).accuracy > 0.95
    # Labels that say nothing about the words: a classifier that was measured on its own training data would shine.
    drawn = [rng.choice(scenarios) for _ in scenarios]
    texts = [f"{query(s, rng)} unique{i}" for i, s in enumerate(scenarios)]
    classifier = train_classifier(list(zip(texts, drawn, strict=True)), 0)
    assert abs(classifier.accuracy - 0.5) < 0.2
    assert classifier.most_common == max(drawn.count(s) for s in WORDS) / 80


def test_too_few_labelled_queries_are_an_error(tmp_path: Path) -> None:
    source = labelled(tmp_path / "queries.jsonl", 3)
    with pytest.raises(DataError, match=r"queries\.jsonl': 6 of 6 rows have a category, fewer than two"):
        labelled_queries(source, "scenarios.queries")


def test_training_dialogues_and_benchmarks_side_by_side(tmp_path: Path) -> None:
    rng = random.Random(4)
    queries = [query("code" if i % 4 else "cooking", rng) for i in range(20)]
    rows = [Dialogue(f"d:{i}", "d", (Message("user", text),)).to_row() for i, text in enumerate(queries)]
    write_rows_atomic(tmp_path / "cluster" / "sample.jsonl", rows)
    compared = [
        {"query": query("code", rng), "response_a": "a", "response_b": "b", "label": "A", "group": "cooking"},
        {"query": query("cooking", rng), "response_a": "a", "response_b": "b", "label": "A"},
        {"query": query("code", rng), "response_a": "a", "response_b": "b", "label": "A"},
    ]
    source = SourceConfig(type="comparisons", path=write_lines(tmp_path / "test.jsonl", compared), format="comparison")
    config = Config(evaluate=EvaluateConfig(benchmarks=[BenchmarkConfig(name="mine", source=source)]))
    config.scenarios.queries = labelled(tmp_path / "labelled.jsonl")
    check_stage("scenarios", config)
    for name in ("one", "two"):
        out = StageRun(tmp_path / name, "scenarios", 0, Console(), RunOptions(recipe=name))
        config.scenarios.runs = [str(tmp_path / "one")] if name == "two" else []
        SCENARIOS.run(ScenariosSettings.of(config), {"cluster": tmp_path / "cluster"}, out)
        write_json_atomic(tmp_path / name / "manifest.json", {"config": {}})
    domains_of = {s["name"]: s["domains"] for s in json.loads((tmp_path / "two" / "metrics.json").read_text())["sets"]}
    training = {"code": 15, "cooking": 5}
    assert domains_of == {"training: two": training, "training: one": training, "mine": {"cooking": 2, "code": 1}}
    page = (tmp_path / "two" / "report.html").read_text()
    assert "Share of queries by scenario" in page and page.count("<polyline") == 3
    config.scenarios.queries = SourceConfig()
    with pytest.raises(ConfigError, match=r"scenarios\.queries\.path is empty"):
        check_stage("scenarios", config)


def test_every_set_is_shown_in_the_groups_of_the_classifiers_scenarios(tmp_path: Path) -> None:
    """MT-Bench has categories of its own (math), and Auto-J's queries scenarios of no group (peer_review)."""
    rng = random.Random(5)
    scenarios = {"code_generation": "code", "peer_review": "cooking"}
    taught = [{"instruction": query(word, rng), "category": s} for s, word in scenarios.items() for _ in range(30)]
    rows = [Dialogue(f"d:{i}", "d", (Message("user", query("cooking", rng)),)).to_row() for i in range(3)]
    write_rows_atomic(tmp_path / "cluster" / "sample.jsonl", rows)
    eval_p = [
        {"prompt": query("code", rng), "response 1": "a", "response 2": "b", "label": 0, "scenario": "chitchat"},
        {"prompt": query("code", rng), "response 1": "a", "response 2": "b", "label": 0, "scenario": "code_generation"},
    ]
    mine = [{"query": query("code", rng), "response_a": "a", "response_b": "b", "label": "A", "group": "math"}]
    sources = [
        SourceConfig(adapter="eval_p", path=write_lines(tmp_path / "eval_p.jsonl", eval_p)),
        SourceConfig(type="comparisons", path=write_lines(tmp_path / "mine.jsonl", mine), format="comparison"),
    ]
    benchmarks = [BenchmarkConfig("eval_p", sources[0]), BenchmarkConfig("mine", sources[1])]
    config = Config(evaluate=EvaluateConfig(benchmarks=benchmarks))
    config.scenarios.queries = SourceConfig(path=write_lines(tmp_path / "taught.jsonl", taught))
    out = StageRun(tmp_path / "out", "scenarios", 0, Console(), RunOptions(recipe="r"))
    SCENARIOS.run(ScenariosSettings.of(config), {"cluster": tmp_path / "cluster"}, out)
    sets = json.loads((tmp_path / "out" / "metrics.json").read_text())["sets"]
    assert [s["domains"] for s in sets] == [{"Others": 3}, {"General Communication": 1, "Code": 1}, {"Code": 1}]
