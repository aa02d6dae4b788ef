"""The evaluation stage with the real judge code and a scripted engine; every number recomputed from the trees."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet
import pytest

from judgetrain.artifacts.shards import read_rows
from judgetrain.data.benchmarks.benchmark import load_benchmark
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.data.intervals import Resampling
from judgetrain.engines import lazy_model
from judgetrain.errors import ConfigError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.metrics.rows import MetricRow, metric_row
from judgetrain.judges import BranchingJudge
from judgetrain.judges.kinds.baselines import FirstJudge
from judgetrain.judges.trees.config import TreeConfig
from judgetrain.pipeline.config import Config
from tests.builders.evaluate import UNATTACKED, check, judge, run, write_rows
from tests.builders.scripted import ScriptedEngine, noisy
from tests.builders.watched import interrupted

Setup = tuple[Config, dict[str, Path]]


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
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
    path = write_rows(tmp_path / "pairs.jsonl", rows)
    labels = {"0": "A", "1": "B", "2": "tie"}
    source = SourceConfig(name="pairs", type="jsonl", path=path, format="comparison", labels=labels)
    benchmark = BenchmarkConfig("pairs", source)
    evaluate = EvaluateConfig([benchmark], ["sft", "random", "first"], [1, 3], bootstrap=100)
    monkeypatch.setattr(lazy_model, "make_engine", lambda *a, **k: ScriptedEngine(noisy))
    config = Config(evaluate=evaluate, robustness=UNATTACKED, tree=TreeConfig(criteria=4, shard_size=4))
    return config, {"sft": judge(tmp_path / "sft")}


def evaluate(config: Config, inputs: dict[str, Path], directory: Path) -> Path:
    return run("evaluate", config, inputs, directory).directory


def verdict(tree: dict, order: str, k: int) -> str | None:
    votes = []
    for criterion in tree["criteria"][:k]:
        for node in criterion["guidelines"][0]["judgments"]:
            if node["order"] == order and node["score_a"] is not None:
                votes.append((node["score_a"] > node["score_b"]) - (node["score_a"] < node["score_b"]))
    return None if not votes else "A" if sum(votes) > 0 else "B" if sum(votes) < 0 else "tie"


def test_metrics_and_predictions_equal_a_recount(setup: Setup, tmp_path: Path) -> None:
    config, inputs = setup
    out = run("evaluate", config, inputs, tmp_path / "out")
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
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, inputs = setup
    run("evaluate", config, inputs, tmp_path / "apart" / "whole")
    calls = interrupted(monkeypatch, BranchingJudge, "sample", 3)
    with pytest.raises(KeyboardInterrupt):
        run("evaluate", config, inputs, tmp_path / "cut")
    run("evaluate", config, inputs, tmp_path / "cut")
    assert len(calls) == 5, "shards of 8 comparisons: two before the interruption, one lost, then that one and the last"
    for name in ("predictions.parquet", "paired.json", "trees-pairs-sft-00000-of-00004.jsonl"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "apart" / "whole" / name).read_bytes()


def test_metric_rows_keep_what_others_rely_on(setup: Setup, tmp_path: Path) -> None:
    rows = json.loads((evaluate(*setup, tmp_path / "out") / "metrics.json").read_text())
    promised = "method benchmark split branches n agreement agreement_ci consistency consistency_ci parse_failures"
    others = "prompt_tokens generated_tokens seconds agreement_wo_tie consistency_wo_tie single_order_accuracy"
    for row in rows:
        assert {*promised.split(), *others.split(), "conflict_as_tie", "position_bias", "groups"} <= set(row)
        assert row["n_wo_tie"] == 20
    costs = {(r["method"], r["branches"]): (r["generated_tokens"], r["seconds"]) for r in rows}
    assert 0 < costs["sft", 1][0] < costs["sft", 3][0]
    assert 0 < costs["sft", 1][1] < costs["sft", 3][1]
    assert costs["random", 0] == (0, 0)


def test_one_model_is_open_at_a_time_and_loaded_once(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, inputs = setup
    first = config.evaluate.benchmarks[0]
    config.evaluate.benchmarks = [first, replace(first, name="again", limit=5)]
    config.evaluate.methods = ["initial", "random", "sft"]
    events: list[str] = []

    class Engine(ScriptedEngine):
        def close(self) -> None:
            events.append("close")

    def make_engine(*args: object, **options: object) -> Engine:
        events.append(f"open {options['name']}")
        return Engine(noisy)

    monkeypatch.setattr(lazy_model, "make_engine", make_engine)
    inputs |= {"initial": inputs["sft"]}
    out = evaluate(config, inputs, tmp_path / "out")
    assert events == ["open initial", "close", "open sft", "close"]
    rows = json.loads((out / "metrics.json").read_text())
    assert [(r["benchmark"], r["n"]) for r in rows] == [("pairs", 30)] * 5 + [("again", 5)] * 5
    evaluate(config, inputs, out)
    assert len(events) == 4, "with every shard there, no model is loaded"


def test_a_judge_that_says_nothing_readable_is_counted_and_wrong(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, inputs = setup
    monkeypatch.setattr(lazy_model, "make_engine", lambda *a, **k: ScriptedEngine(lambda request, _: ""))
    out = evaluate(config, inputs, tmp_path / "out")
    row = json.loads((out / "metrics.json").read_text())[0]
    assert (row["agreement"], row["consistency"], row["unreadable_verdicts"]) == (0, 0, 60)
    assert (row["judgments"], row["parse_failures"], row["failures"]) == (0, 0, {"criteria:none": 30})
    table = pyarrow.parquet.read_table(out / "predictions.parquet")
    assert str(table.schema.field("verdict_ab").type) == "string"
    assert table.to_pylist()[0]["verdict_ab"] is None


def test_reports_escape_what_comes_from_outside_and_load_nothing(setup: Setup, tmp_path: Path) -> None:
    config, inputs = setup
    config.recipe_name = "<img src=x>|[a](http://x)"
    config.evaluate.benchmarks[0].source.fields = {"group": "query"}
    out = evaluate(config, inputs, tmp_path / "out")
    page = (out / "report.html").read_text()
    text = (out / "report.md").read_text()
    assert "q0 &lt;script&gt;" in page
    for bad in ("<script", "<img", "http:", "https:", "@import", "url("):
        assert bad not in page.replace("(http://x)", "")
    for bad in ("<img", "<script", "](http"):
        assert bad not in text
    for contract in ("over all items, ties included", "same readable verdict", "for one verdict in one order"):
        assert contract in page
        assert contract in text
    assert "sft@3" in page
    assert "prefers-color-scheme:dark" in page


def test_the_console_has_the_way_to_ask_the_last_judge_and_what_a_few_labels_give() -> None:
    from judgetrain.evaluate.metrics.rows import Learned
    from judgetrain.evaluate.report.report import Report, console_tables, headline, that_matter

    rows = [
        MetricRow(method=method, benchmark="b", split="test", branches=k, n=300, agreement=share)
        for method, shares in {
            "initial": {1: 0.28, 3: 0.41, 10: 0.48},
            "sft": {1: 0.68, 3: 0.86, 10: 0.85},
            "dpo": {1: 0.67, 3: 0.83, 10: 0.82},
            "longer": {0: 0.52},
            "random": {0: 0.19},
        }.items()
        for k, share in shares.items()
    ]
    few_labels = [
        replace(rows[-1], method="rubric:70", agreement=0.43, learned=Learned(labels=70)),
        replace(rows[-1], method="fitted_floor:highest", agreement=0.68, learned=Learned(labels=70)),
        replace(rows[-1], method="ceiling:both_alike", agreement=0.89),
    ]
    kept = [(row.method, row.branches) for row in that_matter([*rows, *few_labels])]
    # The next command asks for three criteria: no figure of that is left to the report alone.
    assert kept == [("initial", 10), ("sft", 10), ("dpo", 3), ("dpo", 10), ("longer", 0), ("fitted_floor:highest", 0)]
    table, _ = console_tables(Report(recipe="r", seed=1, rows=[*rows, *few_labels]))
    assert str(table.caption) == "fitted_floor:highest: learned from 70 labels; 8 more rows in the report"
    # A rule that reads every sentence rightly is nobody's: the page does not begin with it.
    assert [headline(few_labels[1:]).method, headline([*few_labels[1:], rows[0]]).method] == [
        *("ceiling:both_alike", "initial")
    ]
    without_labels = [(row.method, row.branches) for row in that_matter(rows)]
    assert without_labels == [("initial", 10), ("sft", 10), ("dpo", 3), ("dpo", 10), ("longer", 0), ("random", 0)]


def test_the_console_has_the_rows_that_matter_and_all_of_them_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from judgetrain.evaluate.report.report import Report, console_tables, that_matter
    from judgetrain.evaluate.report.table import results

    agreed = {"initial+vote": 0.5, "initial": 0.4, "sft": 0.6, "dpo": 0.7, "dpo+one": 0.9, "longer": 0.4, "random": 0.2}
    agreed |= {"rubric:70": 0.65, "ceiling:rule": 1.0}
    rows = [
        MetricRow(method=method, benchmark="b", split="test", branches=k, n=30, agreement=cell + k / 100)
        for method, cell in agreed.items()
        for k in ((1, 3) if method.startswith(("initial", "sft", "dpo")) else (0,))
    ]
    kept = [(row.method, row.branches) for row in that_matter(rows)]
    assert kept == [("initial+vote", 3), ("sft", 3), ("dpo", 3), ("rubric:70", 0), ("longer", 0)]
    # Of several runs every value stands there, and what is the same in all of them as before.
    betas = [f"beta={value}" for value in (0.05, 0.1, 0.2, 0.3, 0.5, 1)]
    swept = [row for row in rows if not row.method.startswith("dpo")]
    for method in ("dpo", "dpo+one"):
        for beta in betas:
            swept += [replace(row, method=f"{method} ({beta})", run=beta) for row in rows if row.method == method]
    shown = [row.method for row in that_matter(swept)]
    assert shown == [*(f"dpo ({beta})" for beta in betas), "rubric:70"]
    two = [row for row in swept if row.run in (None, *betas[:2])]
    assert [row.method for row in that_matter(two)] == [
        *("initial+vote", "sft", f"dpo ({betas[0]})", f"dpo ({betas[1]})", "rubric:70")
    ]
    sampled = [replace(row, method="base+sampled", branches=k) for k in (1, 3, 5) for row in rows[:2]]
    assert [row.method for row in that_matter(sampled)] == ["base+sampled"]
    monkeypatch.setenv("JUDGETRAIN_VERBOSE", "1")
    table, _ = console_tables(Report(recipe="r", seed=1, rows=rows))
    assert table.row_count == len(rows) and table.caption is None
    monkeypatch.delenv("JUDGETRAIN_VERBOSE")
    table, _ = console_tables(Report(recipe="r", seed=1, rows=rows))
    assert table.row_count == 5 and f"{len(rows) - 5} more rows" in str(table.caption)
    ways: tuple[dict[str, str], ...] = ({}, {"asked": "greedy"}, {"asked": "greedy", "plan": "shared"})
    table_of_results = results([replace(rows[0], consistency=1.0, **way) for way in ways])
    column = table_of_results.headers.index("consistency %")
    texts = [cells[column] for cells in table_of_results.cells]
    assert texts == ["100.0", "–", "100.0"], "one that is asked without a plan reads each response by itself"


def test_rows_say_how_each_judge_was_asked_and_charge_each_plan_what_it_costs(setup: Setup, tmp_path: Path) -> None:
    config, inputs = setup
    ways = {
        "sft": ("greedy", "shared"),
        "sft+sampled": ("T=1", "shared"),
        "sft+independent": ("greedy", "independent"),
        "sft+sampled+independent": ("T=1", "independent"),
        "first": (None, None),
    }
    config.evaluate.methods = ["sft", "sft+sampled", "sft+independent", "sft+sampled+independent@1", "first"]
    config.judge.retries = 0
    check(config, "evaluate")
    out = evaluate(config, inputs, tmp_path / "out")
    rows = {(r["method"], r["branches"]): r for r in json.loads((out / "metrics.json").read_text())}
    assert {(m, r.get("asked"), r.get("plan")) for (m, _), r in rows.items()} == {(m, *how) for m, how in ways.items()}
    assert [k for m, k in rows if m == "sft+sampled+independent"] == [1], "asked with one branch alone"
    for k in (1, 3):
        shared = rows["sft", k]
        independent = rows["sft+independent", k]
        assert (shared["calls"], independent["calls"]) == ((1 + 3 * k) / 2, 1 + 2 * k)
        assert shared["judgments"] == independent["judgments"] == 30 * k * 2
    trees = list(read_rows(out, "trees-pairs-sft+independent"))
    for tree in trees:
        orders = [
            {j["order"] for c in part["criteria"] for g in c["guidelines"] for j in g["judgments"]}
            for part in (tree, tree["other"])
        ]
        assert orders == [{"AB"}, {"BA"}]
    verdicts = [(verdict(t, "AB", 3), verdict(t["other"], "BA", 3), t["comparison"]["label"]) for t in trees]
    agreed = sum(a == b == label for a, b, label in verdicts) / 30
    assert rows["sft+independent", 3]["agreement"] == pytest.approx(agreed, abs=1e-6)
    table = pyarrow.parquet.read_table(out / "predictions.parquet").to_pylist()
    assert {(r["method"], r["asked"], r["plan"]) for r in table} == {(m, *how) for m, how in ways.items()}
    for name in ("report.md", "report.html"):
        text = (out / name).read_text()
        assert "independent" in text and "T=1" in text and "greedy" in text
    spent = json.loads((out / "trees-pairs-sft+independent-00000-of-00004.jsonl").read_text().splitlines()[0])
    assert set(spent) == set(trees[0])


def test_results_never_share_a_file(setup: Setup, tmp_path: Path) -> None:
    config, inputs = setup
    first = config.evaluate.benchmarks[0]
    config.evaluate.benchmarks = [first, replace(first, name="pairs-b")]
    config.evaluate.methods = ["sft", "./b-sft"]
    with pytest.raises(ConfigError, match=r"'pairs' by './b-sft' and 'pairs-b' by 'sft' would both|'pairs-b' by 'sft'"):
        evaluate(config, inputs, tmp_path / "out")


def test_predictions_of_other_comparisons_are_refused(setup: Setup) -> None:
    config, _ = setup
    benchmark = load_benchmark(config.evaluate.benchmarks[0], 0, config.seed, config.dialogues.world)
    predictions = FirstJudge().compare_batch(benchmark.comparisons, 1)
    with pytest.raises(ValueError, match="in their order"):
        metric_row(benchmark, predictions[::-1], 0.0, Resampling(100, 1))


def test_limits_are_counted(setup: Setup) -> None:
    config, _ = setup
    benchmark = config.evaluate.benchmarks[0]
    benchmark.max_chars = 22
    benchmark.limit = 5
    loaded = load_benchmark(benchmark, 0, config.seed, config.dialogues.world)
    assert loaded.left_out == {"too_long": 20, "over_limit": 5}
    assert len(loaded.comparisons) == 5
    assert load_benchmark(benchmark, 0, config.seed, config.dialogues.world) == loaded


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("sft@0", r"'sft@0': a judge has at least 1 branch"),
        ("dpoo", "'dpoo'.*initial, sft, dpo.*longer"),
        ("random+expected", r"evaluate\.methods"),
        ("sft+other", r"evaluate\.methods"),
    ],
)
def test_a_method_that_there_is_not_is_refused(setup: Setup, method: str, message: str) -> None:
    config, _ = setup
    config.evaluate.methods = [method]
    with pytest.raises(ConfigError, match=message):
        check(config, "evaluate")
