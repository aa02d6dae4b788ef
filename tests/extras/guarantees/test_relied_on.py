"""What can be relied on, in ``metrics.json`` and on the report's page: one line a judge in front, the rest folded."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from judgetrain.data.benchmarks.benchmark import Benchmark, load_benchmark
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.errors import DataError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.metrics.paired import split
from judgetrain.evaluate.metrics.rows import MethodKey, MetricRow, metric_row
from judgetrain.evaluate.report.report import Report, html_page, markdown
from judgetrain.extras.guarantees.config import GuaranteesConfig
from judgetrain.extras.guarantees.measure import Guarantees, guarantees
from judgetrain.extras.stored.config import StoredConfig, StoredVerdictsConfig
from judgetrain.judges.base import Cost, Prediction
from judgetrain.pipeline.config import Config
from tests.builders.evaluate import benchmark, prediction, refused, run, write_rows


def judged(of: Benchmark, name: str, skill: float, seed: int) -> list[list[Prediction]]:
    """A judge with 1, 3 and 10 branches whose margins tell how often it is right."""
    rng = random.Random(seed)
    tiers = []
    for k in (1, 3, 10):
        tier = []
        for c in of.comparisons:
            margin = rng.choice([0.5, 1.5, 3.0])
            said = c.label if rng.random() < min(0.98, skill + 0.15 * margin + 0.01 * k) else "A"
            cost = Cost(generated_tokens=60.0 * k)
            tier.append(prediction(c, name, k, said, said, margin, cost=cost))
        tiers.append(tier)
    return tiers


@pytest.fixture(scope="module")
def evaluated() -> tuple[Benchmark, list[list[Prediction]], GuaranteesConfig]:
    whole = benchmark(300)
    settings = GuaranteesConfig()
    floors = [Prediction(comparison_id=c.id, method="first", verdict_ab="A", verdict_ba="B") for c in whole.comparisons]
    return whole, [*judged(whole, "dpo", 0.55, 1), *judged(whole, "sft", 0.3, 2), floors], settings


@pytest.fixture(scope="module")
def rows(evaluated: tuple[Benchmark, list[list[Prediction]], GuaranteesConfig]) -> list[MetricRow]:
    whole, results, settings = evaluated
    found = guarantees(None, whole, results, settings, 1)
    made = [metric_row(whole, predictions, 0.1, 50, 1) for predictions in results]
    return [relied(row, found) for row in made]


def relied(row: MetricRow, found: dict[MethodKey, Guarantees]) -> MetricRow:
    return replace(row, extras={"guarantees": found[row.key]} if row.key in found else {})


def test_the_row_with_the_most_branches_carries_it_and_is_read_back(rows: list[MetricRow]) -> None:
    assert [str(row.key) for row in rows if row.extras] == ["dpo@10", "sft@10"], "no baseline"
    for row in rows:
        written = json.loads(json.dumps(row.to_row(), allow_nan=False))
        assert MetricRow.from_row(written) == row
        assert ("guarantees" in written) == ("guarantees" in row.extras)


def test_a_line_a_judge_stands_in_front_and_the_rest_is_folded(rows: list[MetricRow]) -> None:
    report = Report(recipe="r", seed=1, rows=rows)
    page, text = html_page(report), markdown(report)
    front = text[text.index("### What can be relied on") :].split("###")[1].splitlines()
    lines = [line for line in front if line.startswith(("| dpo", "| sft"))]
    assert len(lines) == 2
    [dpo] = [row.extras["guarantees"] for row in rows if row.extras and row.method == "dpo"]
    assert dpo.selective
    whole = dpo.selective.whole
    assert whole.agreement is not None
    assert f"{100 * whole.coverage:.1f}% answered, {100 * whole.agreement:.1f}% agree (≥ 80.0%)" in lines[0]
    folded = re.findall(r"<details><summary>(.*?)</summary>", page)
    assert "Selective judging (2 rows)" in folded
    assert "<h3>What can be relied on</h3>" in page
    plain = html_page(Report(recipe="r", seed=1, rows=[replace(row, extras={}) for row in rows]))
    assert "relied on" not in plain and "<details><summary>Agreement of what" not in plain


def test_the_development_split_sets_thresholds_where_there_is_one(
    evaluated: tuple[Benchmark, list[list[Prediction]], GuaranteesConfig],
) -> None:
    whole, results, settings = evaluated
    dev, test = split(whole, 0.3)
    assert dev is not None
    found = guarantees(dev, test, results, settings, 1)[MethodKey("dpo", 10)].selective
    assert found is not None and (found.whole.calibrated, found.whole.n) == (90, 210)
    half = guarantees(None, whole, results, settings, 1)[MethodKey("dpo", 10)].selective
    assert half is not None and (half.whole.calibrated, half.whole.n) == (150, 150)


PAGE = Path(__file__).parents[3] / "docs" / "guarantees.md"


def test_predictions_on_partly_labelled_rows_are_what_ppi_python_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page's example, as it is written: A wins 70%, of which 100 labels alone would tell 9 points either way."""
    rng, rows = random.Random(1), []
    for i in range(1100):
        label = "A" if rng.random() < 0.7 else "B"
        row = {"id": i, "query": f"q{i}", "response_a": "1", "response_b": "2"}
        said = label if rng.random() < 0.9 else "tie"
        rows.append(row | {"label": label if i % 11 == 0 else None, "verdict_ab": said, "verdict_ba": said})
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
