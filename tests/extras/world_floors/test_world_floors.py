"""Floors, bounds and ceilings of the world as methods of stage evaluate, beside an independent reading of the texts."""

import json
from pathlib import Path
from typing import Any

import pytest

from judgetrain.data.config import BenchmarkConfig, SourceConfig, WorldConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.data.world.rule import load_world
from judgetrain.errors import ConfigError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.pipeline.config import Config
from tests.builders.data import RAW, independent_grade
from tests.builders.evaluate import check
from tests.builders.evaluate import run as run_stage

RULE = 6


def config_of(methods: list[str], rule: int | None = RULE) -> Config:
    """Return a configuration that evaluates methods on the world of a rule."""
    benchmark = BenchmarkConfig(name="world", source=SourceConfig(name="world", type="world", rule=rule))
    config = Config(evaluate=EvaluateConfig([benchmark], methods, bootstrap=50))
    config.dialogues.world = WorldConfig(eval_comparisons=120)
    return config


def rows_of(config: Config, tmp_path: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of metrics.json by method."""
    check(config, "evaluate")
    out = run_stage("evaluate", config, {}, tmp_path / "out")
    return {row["method"]: row for row in json.loads((out.directory / "metrics.json").read_text())}


def test_rules_are_right_as_often_as_an_independent_reading_says(tmp_path: Path) -> None:
    methods = [
        "floor:sum_of_all",
        "ceiling:primary",
        "ceiling:rule",
        "floor:only_cost",
        "floor:highest",
        "fitted_floor:highest",
    ]
    config = config_of(methods)
    rows = rows_of(config, tmp_path)
    deciding = load_world(RULE).deciding
    comparisons = eval_comparisons(WorldConfig(eval_comparisons=120, rule=RULE), config.seed)

    def agreement(weights_of: Any) -> float:
        right = 0
        for c in comparisons:
            weights = weights_of(c.group)
            lead = sum(
                w * (independent_grade(c.response_a, n) - independent_grade(c.response_b, n)) for n, w in weights
            )
            right += c.label == ("tie" if lead == 0 else "A" if lead > 0 else "B")
        return right / len(comparisons)

    everything = [(name, 1) for name in RAW["properties"]]
    assert rows["floor:sum_of_all"]["agreement"] == pytest.approx(agreement(lambda kind: everything))
    assert rows["ceiling:primary"]["agreement"] == pytest.approx(agreement(lambda kind: [(deciding[kind].primary, 1)]))
    assert rows["floor:only_cost"]["agreement"] == pytest.approx(agreement(lambda kind: [("cost", 1)]))
    assert rows["ceiling:rule"]["agreement"] == 1.0
    assert rows["floor:sum_of_all"]["agreement"] <= rows["floor:highest"]["agreement"] < 0.8
    assert rows["fitted_floor:highest"]["agreement"] < 0.9
    # Only what is fitted says how many labels it took.
    labels = {method: row.get("learned", {}).get("labels") for method, row in rows.items()}
    assert labels == dict.fromkeys(methods) | {"fitted_floor:highest": 70}
    assert all(row["consistency"] == 1.0 and row["generated_tokens"] == 0 for row in rows.values())


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("floor:sum_all", "there is no such rule.*did you mean sum_of_all"),
        ("floor:only_humor", "there is no such rule"),
    ],
)
def test_a_rule_that_there_is_not_is_refused(method: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(config_of([method]), "evaluate")


def test_without_a_benchmark_of_the_world_there_is_nothing_to_be_a_floor_of(tmp_path: Path) -> None:
    config = config_of(["ceiling:rule"])
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"query": "q", "response_a": "a", "response_b": "b", "label": "A"}) + "\n")
    config.evaluate.benchmarks = [BenchmarkConfig(name="mine", source=SourceConfig(path=str(file)))]
    with pytest.raises(ConfigError, match="knows the generated world alone"):
        check(config, "evaluate")
