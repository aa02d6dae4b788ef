"""The evaluation stage with the real judge code and a scripted engine; every number recomputed from the trees."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet
import pytest

from judgetrain.artifacts import StageRun, read_rows
from judgetrain.config import BenchmarkConfig, Config, EvaluateConfig, SourceConfig, TreeConfig, WorldConfig
from judgetrain.errors import ConfigError, DataError
from judgetrain.evaluate import stage
from judgetrain.evaluate.benchmarks import load_benchmark
from judgetrain.track import Console
from judgetrain.tree.prompts import load_prompt_set
from tests.scripted import ScriptedEngine, noisy


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Config, dict[str, Path]]:
    rows = [
        {
            "id": i,
            "query": f"q{i} <script>",
            "response_1": f"one {i}",
            "response_2": f"two {i}",
            "label": i % 3,
            "scenario": f"s{i % 2}",
        }
        for i in range(30)
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    source = SourceConfig(name="pairs", type="jsonl", path=str(tmp_path / "pairs.jsonl"), format="comparison")
    benchmark = BenchmarkConfig("pairs", source, {"0": "A", "1": "B", "2": "tie"})
    evaluate = EvaluateConfig([benchmark], ["sft", "random", "first"], [1, 3], bootstrap=100)
    model = tmp_path / "sft" / "model"
    model.mkdir(parents=True)
    load_prompt_set("compact").save(model)
    monkeypatch.setattr(stage, "make_engine", lambda *a, **k: ScriptedEngine(noisy))
    config = Config(evaluate=evaluate, tree=TreeConfig(criteria=4, shard_size=4))
    return config, {"sft": tmp_path / "sft"}


def verdict(tree: dict, order: str, k: int) -> str | None:
    votes = []
    for criterion in tree["criteria"][:k]:
        for node in criterion["guidelines"][0]["judgments"]:
            if node["order"] == order and node["score_a"] is not None:
                votes.append((node["score_a"] > node["score_b"]) - (node["score_a"] < node["score_b"]))
    return None if not votes else "A" if sum(votes) > 0 else "B" if sum(votes) < 0 else "tie"


def test_metrics_and_predictions_equal_a_recount(setup: tuple[Config, dict[str, Path]], tmp_path: Path) -> None:
    config, inputs = setup
    out = StageRun(tmp_path / "out", "evaluate", 1, Console())
    stage.run(config, inputs, out)
    rows = {(r["method"], r["branches"]): r for r in json.loads((out.directory / "metrics.json").read_text())}
    assert set(rows) == {("sft", 1), ("sft", 3), ("random", 0), ("first", 0)}
    trees = list(read_rows(out.directory, "trees-pairs-sft"))
    assert [t["comparison"]["label"] for t in trees[:3]] == ["A", "B", "tie"]
    for k in (1, 3):
        verdicts = [(verdict(t, "AB", k), verdict(t, "BA", k), t["comparison"]["label"]) for t in trees]
        row = rows["sft", k]
        assert row["agreement"] == pytest.approx(sum(a == b == y for a, b, y in verdicts) / 30, abs=1e-6)
        assert row["consistency"] == pytest.approx(sum(a == b is not None for a, b, _ in verdicts) / 30, abs=1e-6)
        nodes = [n for t in trees for c in t["criteria"][:k] for n in c["guidelines"][0]["judgments"]]
        assert row["judgments"] == len(nodes) == 30 * k * 2
        assert row["parse_failures"] == sum(n["score_a"] is None for n in nodes)
        low, high = row["agreement_ci"]
        assert low <= row["agreement"] <= high
        assert row["groups"]["s0"]["n"] == 15
    assert rows["first", 0]["consistency"] == 0
    assert rows["first", 0]["position_bias"] == 1
    table = pyarrow.parquet.read_table(out.directory / "predictions.parquet").to_pylist()
    assert len(table) == 4 * 30
    page = (out.directory / "report.html").read_text()
    assert "<script>" not in page
    assert "sft" in page


def test_an_interrupted_evaluation_resumes_to_the_same_predictions(
    setup: tuple[Config, dict[str, Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, inputs = setup
    stage.run(config, inputs, StageRun(tmp_path / "whole", "evaluate", 1, Console()))
    calls = 0
    real = stage.BranchingJudge.sample

    def dying(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return real(self, *args, **kwargs)

    monkeypatch.setattr(stage.BranchingJudge, "sample", dying)
    with pytest.raises(KeyboardInterrupt):
        stage.run(config, inputs, StageRun(tmp_path / "cut", "evaluate", 1, Console()))
    stage.run(config, inputs, StageRun(tmp_path / "cut", "evaluate", 1, Console()))
    assert calls == 5, "shards of 8 comparisons: two before the interruption, one lost, then that one and the last"
    for name in ("predictions.parquet", "trees-pairs-sft-00000-of-00004.jsonl"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_an_unknown_method_lists_what_there_is(setup: tuple[Config, dict[str, Path]], tmp_path: Path) -> None:
    config, inputs = setup
    config.evaluate.methods = ["dpoo"]
    with pytest.raises(ConfigError, match="'dpoo'.*initial, sft, dpo.*longer"):
        stage.run(config, inputs, StageRun(tmp_path / "out", "evaluate", 1, Console()))


def test_an_unknown_label_names_file_line_and_value(setup: tuple[Config, dict[str, Path]], tmp_path: Path) -> None:
    config, _ = setup
    config.evaluate.benchmarks[0].labels = {"0": "A", "1": "B"}
    with pytest.raises(DataError, match=r"pairs\.jsonl:3: label 2 is not one of 0, 1"):
        load_benchmark(config, config.evaluate.benchmarks[0], 0)


def test_limits_are_counted(setup: tuple[Config, dict[str, Path]]) -> None:
    config, _ = setup
    benchmark = config.evaluate.benchmarks[0]
    benchmark.max_chars, benchmark.limit = 22, 5
    loaded = load_benchmark(config, benchmark, 0)
    assert loaded.left_out == {"too_long": 20, "over_limit": 5}
    assert len(loaded.comparisons) == 5
    assert load_benchmark(config, benchmark, 0) == loaded


def test_the_world_is_a_benchmark() -> None:
    config = Config()
    config.dialogues.world = WorldConfig(eval_comparisons=12)
    loaded = load_benchmark(config, BenchmarkConfig("world", SourceConfig(name="world", type="world")), 0)
    assert (loaded.split, len(loaded.comparisons)) == ("heldout", 12)
    assert all(c.label for c in loaded.comparisons)
