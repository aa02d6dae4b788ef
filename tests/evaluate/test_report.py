"""Choosing branches on a development split, disagreements, lineage, and what a report shows of them."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.tracker import StageFacts, TrackConfig, tracked
from judgetrain.data.intervals import Resampling
from judgetrain.engines import lazy_model
from judgetrain.errors import DataError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.metrics.paired import paired_comparisons, split
from judgetrain.evaluate.metrics.rows import metric_row
from judgetrain.evaluate.objective import objective_value
from judgetrain.evaluate.report.report import Report, lineage, markdown, track_report
from judgetrain.judges.trees.config import TreeConfig
from judgetrain.pipeline.config import Config
from tests.builders.evaluate import answers, benchmark, judge, manifest, pairs, run
from tests.builders.scripted import ScriptedEngine, noisy
from tests.builders.wandb_files import read_runs


@settings(deadline=None)
@given(st.integers(8, 60), st.integers(2, 12), st.floats(0.05, 0.6))
def test_a_query_is_on_one_side_only_and_the_share_is_kept(n: int, queries: int, share: float) -> None:
    whole = benchmark(n, queries)
    try:
        dev, test = split(whole, share)
    except DataError:
        assert queries < 4
        return
    assert dev is not None
    assert sorted(c.id for c in (*dev.comparisons, *test.comparisons)) == sorted(c.id for c in whole.comparisons)
    assert not {c.dialogue.query for c in dev.comparisons} & {c.dialogue.query for c in test.comparisons}
    largest = max(Counter(c.dialogue.query for c in whole.comparisons).values())
    assert share * n <= len(dev.comparisons) < share * n + largest
    assert split(whole, share) == (dev, test)


def test_without_a_share_nothing_is_set_aside_and_too_few_queries_are_an_error() -> None:
    whole = benchmark(6)
    assert split(whole, 0) == (None, whole)
    with pytest.raises(DataError, match=r"dev_share=0\.5: benchmark b has 1 different queries"):
        split(benchmark(6, 1), 0.5)


def test_lineage_is_everything_upstream_once_and_inputs_first(tmp_path: Path) -> None:
    manifest(tmp_path, "tree", "t1", {})
    manifest(tmp_path, "label", "l1", {"tree": "t1"})
    sft = manifest(tmp_path, "sft", "s1", {"label": "l1"})
    dpo = manifest(tmp_path, "dpo", "d1", {"sft": "s1", "label": "l1"})
    ancestors = [(row["stage"], row["fingerprint"]) for row in lineage([sft, dpo, tmp_path / "nowhere"])]
    assert ancestors == [("tree", "t1"), ("label", "l1"), ("sft", "s1"), ("dpo", "d1")]


@pytest.fixture
def evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(lazy_model, "make_engine", lambda *a, **k: ScriptedEngine(noisy))
    manifest(tmp_path / "artifacts", "label", "l1", {})
    sft = manifest(tmp_path / "artifacts", "sft", "s1", {"label": "l1"})
    judge(sft)
    evaluate = EvaluateConfig([pairs(tmp_path, 60)], ["sft", "first"], [1, 3], bootstrap=50, dev_share=0.25)
    config = Config(evaluate=evaluate, tree=TreeConfig(criteria=4, shard_size=8))
    return run("evaluate", config, {"sft": sft}, tmp_path / "out").directory


def test_an_objective_is_of_items_that_are_not_reported(evaluated: Path) -> None:
    metrics = json.loads((evaluated / "metrics.json").read_text())
    predictions = pyarrow.parquet.read_table(evaluated / "predictions.parquet").to_pylist()
    sides = Counter((r["method"], r["branches"], r["split"]) for r in predictions)
    assert sides["sft", 1, "development"] == 15 and sides["sft", 1, "test"] == 45
    development = json.loads((evaluated / "development.json").read_text())
    for k in (1, 3):
        for side, rows in (("development", development), ("test", metrics)):
            expected = next(r["agreement"] for r in rows if (r["method"], r["branches"]) == ("sft", k))
            mine = [r for r in predictions if (r["method"], r["branches"], r["split"]) == ("sft", k, side)]
            share = sum(r["verdict_ab"] == r["verdict_ba"] == r["label"] for r in mine) / len(mine)
            assert share == pytest.approx(expected, abs=1e-6)
        of = next(r["agreement"] for r in development if (r["method"], r["branches"]) == ("sft", k))
        assert objective_value(evaluated, f"pairs/sft@{k}/agreement") == of
    assert objective_value(evaluated, "pairs/sft/agreement") == objective_value(evaluated, "pairs/sft@3/agreement")
    assert {r["split"] for r in development} == {"development"}
    for name in ("report.html", "report.md"):
        text = (evaluated / name).read_text()
        assert "s1" in text and "l1" in text, "the lineage"


def test_comparisons_on_one_query_are_resampled_together_and_the_report_says_so() -> None:
    whole = benchmark(30, 3)
    apart = benchmark(30)
    together, alone = (metric_row(b, answers("a", 0, b, 10), 0.0, Resampling(500, 1)) for b in (whole, apart))
    assert (together.n, together.n_prompts) == (30, 3)
    assert (alone.n_prompts, alone.agreement) == (30, together.agreement)
    assert "over the 3 prompts that the 30 comparisons share" in markdown(Report(recipe="r", seed=1, rows=[together]))
    assert "bootstrap interval over comparisons" in markdown(Report(recipe="r", seed=1, rows=[alone]))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (
            [("dpo", 1), ("dpo", 3), ("pairwise:base", 0), ("scorer:sentprob", 0), ("longer", 0)],
            {(("dpo", 3), ("dpo", 1))} | {(("dpo", 3), (n, 0)) for n in ("pairwise:base", "scorer:sentprob", "longer")},
        ),
        (
            [("pointwise:m", 0), ("stored:x", 0), ("first", 0)],
            {(("pointwise:m", 0), ("stored:x", 0)), (("pointwise:m", 0), ("first", 0))},
        ),
        ([("random", 0)], set()),
        (
            [
                *((name, k) for name in ("initial", "sft") for k in (1, 3)),
                *(("initial+sampled", k) for k in (1, 3)),
                *(("sft+sampled", 1), ("first", 0)),
            ],
            {
                *((("sft", k), ("initial", k)) for k in (1, 3)),
                *(((name, 3), (name, 1)) for name in ("initial", "sft", "initial+sampled")),
                *((("sft", 1), ("initial", 3)), (("sft", 3), ("first", 0))),
                *((("sft+sampled", 1), ("initial+sampled", k)) for k in (1, 3)),
                *((("initial+sampled", k), ("initial", k)) for k in (1, 3)),
                (("sft+sampled", 1), ("sft", 1)),
            },
        ),
    ],
)
def test_every_method_is_set_against_another_on_the_same_items(names: list[Any], expected: set[Any]) -> None:
    whole = benchmark(40)
    results = [answers(name, k, whole, 4 * i) for i, (name, k) in enumerate(names, 2)]
    by_pair = {
        tuple((side.method, side.branches) for side in (row.first, row.second)): row
        for row in paired_comparisons(whole, results, Resampling(200, 1))
    }
    assert set(by_pair) == expected
    right = {key: 4 * i / 40 for i, key in enumerate(names, 2)}
    for (first, second), row in by_pair.items():
        assert row.agreement_difference == pytest.approx(right[first] - right[second])
    rows = [metric_row(whole, result, 0.0, Resampling(50, 1)) for result in results]
    assert (
        "| bootstrap p |" in markdown(Report(recipe="r", seed=1, rows=rows, paired=list(by_pair.values())))
    ) == bool(by_pair)


def test_numbers_and_tables_of_an_evaluation_are_in_the_run(tmp_path: Path) -> None:
    # What W&B is sent is read back from an offline run's files.
    whole = benchmark(60)
    judged = (("sft", 1, 30), ("sft", 3, 40), ("dpo", 1, 45), ("dpo", 3, 50), ("random", 0, 20))
    rows = [metric_row(whole, answers(name, k, whole, right), 0.1, Resampling(50, 0)) for name, k, right in judged]
    report = Report(recipe="mine", seed=1, rows=rows)
    stage_facts = {"stage": "evaluate", "fingerprint": "0" * 16}
    how: dict[str, Any] = {**stage_facts, "recipe": "mine", "settings": {}, "directory": tmp_path, "console": Console()}
    with tracked(TrackConfig("wandb"), StageFacts(**how)) as run:
        track_report(report, run)
    [tracked_run] = read_runs(tmp_path)
    assert tracked_run.logged("b/dpo@3/agreement") == pytest.approx(report.rows[3].agreement)
    table = tracked_run.table("b/metrics")
    balanced = table["columns"].index("length_balanced")
    high = table["columns"].index("agreement_ci_high")
    assert [row[balanced] for row in table["data"]] == pytest.approx([row.length_balanced for row in report.rows])
    assert [row[high] for row in table["data"]] == pytest.approx([row.agreement_ci[1] for row in report.rows])
