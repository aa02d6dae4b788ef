"""What can be relied on, in ``metrics.json`` and on the report's page: one line a judge in front, the rest folded."""

import json
import random
import re
from pathlib import Path

import pytest

from judgetrain.data.benchmarks.benchmark import load_benchmark
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.errors import DataError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.extras.stored.config import StoredConfig, StoredVerdictsConfig
from judgetrain.pipeline.config import Config
from tests.builders.evaluate import refused, run, write_rows

PAGE = Path(__file__).parents[3] / "docs" / "guarantees.md"


def test_predictions_on_partly_labelled_rows_are_what_ppi_python_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The page's example, as it is written: A wins 70%, of which 100 labels alone would tell 9 points either way.
    rng = random.Random(1)
    rows = []
    for i in range(1100):
        label = "A" if rng.random() < 0.7 else "B"
        row = {"id": i, "query": f"q{i}", "response_a": "1", "response_b": "2"}
        verdict = label if rng.random() < 0.9 else "tie"
        rows.append(row | {"label": label if i % 11 == 0 else None, "verdict_ab": verdict, "verdict_ba": verdict})
    source = SourceConfig(name="mine", path=write_rows(tmp_path / "rows.jsonl", rows), format="comparison")
    stored = StoredConfig(name="judge", benchmark="mine", verdict_ba="verdict_ba", ba_mirrored=True)
    entry = BenchmarkConfig("mine", source, unlabelled=True)
    settings = EvaluateConfig([entry], ["stored:judge", "first"], bootstrap=50)
    out = run(
        "evaluate", Config(evaluate=settings, stored=StoredVerdictsConfig([stored])), {}, tmp_path / "out"
    ).directory
    assert [row["n"] for row in json.loads((out / "metrics.json").read_text())] == [100, 100], "of the labelled"
    assert "1000 left out: no_label" in (out / "report.md").read_text().replace("\\", "")
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(out)
    exec(block, {})
    low, high = (float(end) for end in re.findall(r"0\.\d+", capsys.readouterr().out)[-2:])
    assert low < 0.7 < high and high - low < 0.75 * 2 * 1.96 * (0.21 / 100) ** 0.5


def test_rows_without_a_label_are_read_where_the_benchmark_says_so_and_adapters_bring_theirs(tmp_path: Path) -> None:
    rows = [
        {"id": i, "query": f"q{i}", "response_a": "1", "response_b": "2"}
        | ({} if label == "none" else {"label": label})
        for i, label in enumerate(["A", None, "none", "", "tie"])
    ]
    source = SourceConfig(name="b", path=write_rows(tmp_path / "rows.jsonl", rows), format="comparison")
    loaded = load_benchmark(BenchmarkConfig("b", source, unlabelled=True), 0, 1, None)
    assert [c.label for c in loaded.comparisons] == ["A", None, None, None, "tie"]
    assert loaded.left_out == {"no_label": 3}
    with pytest.raises(DataError, match="label None is not one of A, B, tie"):
        load_benchmark(BenchmarkConfig("b", source), 0, 1, None)
    published = BenchmarkConfig("p", SourceConfig(path="x", adapter="pandalm"), unlabelled=True)
    config = Config(evaluate=EvaluateConfig([published], ["longer", "random"]))
    assert "evaluate.benchmarks[0].unlabelled" in refused(config, "evaluate")
