"""What an evaluation sends to W&B, read back from an offline run's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.tracker import TrackConfig, tracked
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.evaluate.metrics.rows import metric_row
from judgetrain.evaluate.report.report import Report, track_report
from judgetrain.judges.base import Prediction
from judgetrain.schema import Comparison, Dialogue, Message
from tests.builders.wandb_files import read_runs


@pytest.fixture
def report() -> Report:
    """Two branching judges with 1 and 3 branches and a baseline, on 60 comparisons."""
    labels = ["AB"[i % 3 == 0] for i in range(60)]
    comparisons = [
        Comparison(f"b:{i}", Dialogue(f"b:{i}", "b", (Message("user", f"query {i}"),)), "x", "yy", label=y)  # type: ignore[arg-type]
        for i, y in enumerate(labels)
    ]
    benchmark = Benchmark(name="b", split="test", comparisons=comparisons)
    rows = []
    for name, k, right in (("sft", 1, 30), ("sft", 3, 40), ("dpo", 1, 45), ("dpo", 3, 50), ("random", 0, 20)):
        predictions = [
            Prediction(
                comparison_id=c.id,
                method=name,
                branches=k,
                verdict_ab=v,  # type: ignore[arg-type]
                verdict_ba=v,  # type: ignore[arg-type]
                margin=(2.0 if v == "A" else -1.0 - i % 5) if k else None,
            )
            for i, c in enumerate(comparisons)
            for v in ["BA"[c.label == "A"] if i < right else "AB"[c.label == "A"]]
        ]
        rows.append(metric_row(benchmark, predictions, 0.1, 50, 0))
    return Report(recipe="mine", seed=1, rows=rows)


def test_numbers_and_tables_of_an_evaluation_are_in_the_run(report: Report, tmp_path: Path) -> None:
    with tracked(
        TrackConfig("wandb"),
        stage="evaluate",
        fingerprint="0" * 16,
        recipe="mine",
        settings={},
        directory=tmp_path,
        console=Console(),
    ) as run:
        track_report(report, run)
    [found] = read_runs(tmp_path)
    assert found.logged("b/dpo@3/agreement") == pytest.approx(report.rows[3].agreement)
    headline = found.table("b/headline")
    assert headline["columns"][:3] == ["method", "branches", "agreement %"]
    agreement = [f"{100 * row.agreement:.1f}" for row in report.rows]
    assert [row[2].split()[0] for row in headline["data"]] == agreement
    table = found.table("b/metrics")
    kappa, high = table["columns"].index("kappa"), table["columns"].index("agreement_ci_high")
    assert [row[kappa] for row in table["data"]] == pytest.approx([row.kappa for row in report.rows])
    assert [row[high] for row in table["data"]] == pytest.approx([row.agreement_ci[1] for row in report.rows])
