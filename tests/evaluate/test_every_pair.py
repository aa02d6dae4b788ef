"""A published figure over prompts: a prompt counts where all of its pairs are right, and groups weigh alike."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from judgetrain.data.benchmarks.adapter import load_adapter
from judgetrain.data.benchmarks.benchmark import Benchmark, load_benchmark
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.data.intervals import Resampling
from judgetrain.errors import ConfigError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.metrics.rows import metric_row
from judgetrain.evaluate.report.report import Report, markdown
from judgetrain.judges.predictions import Prediction
from judgetrain.pipeline.config import Config
from tests.builders.data import write_lines
from tests.builders.evaluate import run as run_stage

SIZES = {"Factuality": 8, "Math": 14, "Ties": 3}
"""Prompts of each subset."""


def prompts() -> list[dict[str, Any]]:
    rows = []
    for subset, number in SIZES.items():
        for place in range(number):
            chosen = [f"right {i}" for i in range(2 if subset == "Ties" else 1)]
            rejected = [f"wrong {i}" + "!" * (40 * (place == 0 and i == 2)) for i in range(3)]
            rows.append(
                {"id": f"{subset}{place}", "prompt": f"{subset} {place}", "chosen": chosen, "rejected": rejected}
                | {"subset": subset}
            )
    return rows


def loaded(directory: Path, **limits: Any) -> Benchmark:
    path = write_lines(directory / "rb2.jsonl", prompts())
    source = SourceConfig(name="rb2", path=path, adapter="rewardbench2")
    return load_benchmark(BenchmarkConfig("rb2", source, **limits), 0, 3, None)


def answered(benchmark: Benchmark, right: dict[str, bool]) -> list[Prediction]:
    """Predictions that give the label where ``right`` says so, and nothing elsewhere."""
    predictions = []
    for comparison in benchmark.comparisons:
        verdict = comparison.label if right[comparison.id] else None
        predictions.append(Prediction(comparison_id=comparison.id, method="m", verdict_ab=verdict, verdict_ba=verdict))
    return predictions


def prompt_of(identifier: str) -> str:
    """Return the prompt of a pair's id: all before the numbers of its two responses."""
    return identifier.rsplit(":", 2)[0]


def test_a_prompt_is_right_where_all_its_pairs_are_and_subsets_weigh_alike(tmp_path: Path) -> None:
    benchmark = loaded(tmp_path)
    rng = np.random.default_rng(5)
    right = {comparison.id: bool(rng.random() < 0.8) for comparison in benchmark.comparisons}
    row = metric_row(benchmark, answered(benchmark, right), 0.0, Resampling(4000, 1))

    whole: dict[str, list[bool]] = {}
    for comparison in benchmark.comparisons:
        whole.setdefault(prompt_of(comparison.id), []).append(right[comparison.id])
    of_subset: dict[str, list[bool]] = {}
    for prompt, pairs in whole.items():
        of_subset.setdefault(prompt.partition(":")[2].rstrip("0123456789"), []).append(all(pairs))
    del of_subset["Ties"]
    shares = {subset: float(np.mean(values)) for subset, values in of_subset.items()}
    assert row.every_pair == pytest.approx(np.mean(list(shares.values())), abs=1e-6)
    assert row.every_pair_groups is not None
    assert {name: (group.n, group.agreement) for name, group in row.every_pair_groups.items()} == {
        subset: (SIZES[subset], pytest.approx(share, abs=1e-6)) for subset, share in shares.items()
    }
    # Agreement stays what it is, over all pairs.
    assert row.agreement == pytest.approx(np.mean(list(right.values())), abs=1e-6)

    values = [(subset, value) for subset, of in of_subset.items() for value in of]
    resampled = []
    for _ in range(4000):
        drawn: dict[str, list[bool]] = {}
        for place in rng.integers(len(values), size=len(values)):
            subset, value = values[place]
            drawn.setdefault(subset, []).append(value)
        if len(drawn) == len(of_subset):
            resampled.append(np.mean([np.mean(of) for of in drawn.values()]))
    assert row.every_pair_ci == pytest.approx(np.percentile(resampled, (2.5, 97.5)), abs=0.03)


def test_a_judge_by_chance_is_right_on_half_of_the_pairs_and_an_eighth_of_the_prompts(tmp_path: Path) -> None:
    benchmark = loaded(tmp_path)
    rng = np.random.default_rng(6)
    shares = []
    for _ in range(300):
        right = {comparison.id: bool(rng.random() < 0.5) for comparison in benchmark.comparisons}
        shares.append(metric_row(benchmark, answered(benchmark, right), 0.0, Resampling(10, 1)).every_pair or 0.0)
    assert np.mean(shares) == pytest.approx(1 / 8, abs=0.02)


def test_prompts_are_drawn_whole_and_those_that_lack_a_pair_count_for_none(tmp_path: Path) -> None:
    drawn = loaded(tmp_path, limit=20)
    pairs = Counter(prompt_of(comparison.id) for comparison in drawn.comparisons)
    assert set(pairs.values()) <= {3, 6} and 14 < pairs.total() <= 20
    assert drawn.left_out["over_limit"] == 3 * (8 + 14) + 6 * 3 - pairs.total()
    assert set(drawn.counted.values()) == {prompt for prompt in pairs if "Ties" not in prompt}

    short = loaded(tmp_path, max_chars=40)
    # The first prompt of each subset has a long answer, which is left out: it would be easier without.
    assert short.left_out == {"too_long": 1 + 1 + 2}
    assert set(short.counted.values()) == {f"rb2:{s}{i}" for s in ("Factuality", "Math") for i in range(1, SIZES[s])}


def test_the_published_figure_stands_before_the_agreement_and_says_what_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_lines(tmp_path / "rb2.jsonl", prompts())
    benchmark = BenchmarkConfig("rb2", SourceConfig(name="rb2", path=path, adapter="rewardbench2"))
    plain = [{"query": f"q{i}", "response_a": "a", "response_b": "bb", "label": "B"} for i in range(3)]
    own_rows = BenchmarkConfig("own", SourceConfig(name="own", path=write_lines(tmp_path / "own.jsonl", plain)))
    config = Config(evaluate=EvaluateConfig([benchmark, own_rows], ["longer", "first"], bootstrap=20))
    out = run_stage("evaluate", config, {}, tmp_path / "out")
    of_rb2, of_own = out.path("report.md").read_text().split("## own")
    assert "| method | branches | every pair % | pairs % |" in of_rb2 and "### Every pair by group" in of_rb2
    assert "| method | branches | agreement % |" in of_own and "every pair %" not in of_own
    shown = " ".join(capsys.readouterr().out.split())
    assert "every pair %" in shown and "as is published of this benchmark" in shown
    rows = json.loads((out.directory / "metrics.json").read_text())
    assert {row["benchmark"]: row["every_pair"] is None for row in rows} == {"rb2": False, "own": True}


def test_reports_of_older_versions_have_no_such_column() -> None:
    from judgetrain.evaluate.metrics.rows import MetricRow

    row = MetricRow.from_row(
        {"method": "m", "benchmark": "b", "split": "test", "branches": 0, "n": 3, "agreement": 0.5}
    )
    assert "agreement %" in markdown(Report(recipe="r", seed=1, rows=[row]))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("figure: rows", r"figure='rows': allowed are pairs, prompts"),
        ("figure: prompts", r"figure=prompts: kind pair has no prompts of several pairs"),
    ],
)
def test_a_figure_that_there_is_not_is_refused(lines: str, message: str, tmp_path: Path) -> None:
    fields = "{query: [q], response_a: [a], response_b: [b], label: [l]}"
    path = tmp_path / "mine.yaml"
    path.write_text(f"kind: pair\nfields: {fields}\nlabels: {{a: A}}\n{lines}\n")
    with pytest.raises(ConfigError, match=message):
        load_adapter(str(path))
