"""One report of several evaluations: what runs are called, and which stand in it."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.benchmarks.responses import ResponseBenchmark
from judgetrain.data.intervals import Resampling
from judgetrain.data.labelled import OVERALL, LabelledResponse, Scale
from judgetrain.errors import ConfigError
from judgetrain.evaluate.metrics.rating_rows import Measuring
from judgetrain.evaluate.metrics.rows import metric_row
from judgetrain.evaluate.report.naming import run_labels
from judgetrain.evaluate.runners.responses import ScoreResult
from judgetrain.extras.reports.config import ReportConfig
from judgetrain.extras.reports.merged import merge
from judgetrain.judges.predictions import Score
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.run import Pipeline
from judgetrain.pipeline.sweeps import write_job
from judgetrain.schema import Candidates, Dialogue, Message
from tests.builders.evaluate import answers, benchmark, manifest


def evaluation(root: Path, mark: str, beta: float, seed: int, right: int, whole: Benchmark) -> Path:
    """Return a finished evaluation of a judge that is right on ``right`` comparisons, and the stage before it."""
    dpo = manifest(root, "dpo", f"d{mark}", {})
    directory = manifest(root, "evaluate", mark, {"dpo": f"d{mark}"})
    for path, config in ((dpo, {"train.dpo": {"beta": beta}}), (directory, {"evaluate": {"methods": [mark]}})):
        new_manifest = json.loads((path / "manifest.json").read_text()) | {
            "seed": seed,
            "config": config,
            "versions": {"x": "1"},
        }
        (path / "manifest.json").write_text(json.dumps(new_manifest))
    rows = [metric_row(whole, answers("dpo", 1, whole, right), 0.0, Resampling(20, 1))]
    rows.append(metric_row(whole, answers("first", 0, whole, 3), float(seed), Resampling(20, 1)))
    (directory / "metrics.json").write_text(json.dumps([row.to_row() for row in rows]))
    return directory


def reporting(tmp_path: Path, **report: Any) -> Pipeline:
    return Pipeline(Config(output_dir=str(tmp_path), report=ReportConfig(**report)))


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    whole = benchmark(12)
    root = tmp_path / "artifacts"
    settings = [("a", 0.1, 1, 4), ("b", 0.1, 2, 8), ("c", 0.5, 1, 5), ("d", 0.5, 2, 6)]
    return [evaluation(root, mark, beta, seed, right, whole) for mark, beta, seed, right in settings]


def test_runs_are_called_by_what_differs_and_equal_rows_stand_once(tmp_path: Path, runs: list[Path]) -> None:
    merge(reporting(tmp_path))
    rows = json.loads((tmp_path / "reports" / "all" / "metrics.json").read_text())
    assert {r["method"]: r["agreement"] for r in rows} == {
        "dpo (seed=1, beta=0.1)": pytest.approx(4 / 12, abs=1e-6),
        "dpo (seed=2, beta=0.1)": pytest.approx(8 / 12, abs=1e-6),
        "dpo (seed=1, beta=0.5)": pytest.approx(5 / 12, abs=1e-6),
        "dpo (seed=2, beta=0.5)": pytest.approx(6 / 12, abs=1e-6),
        "first": 0.25,
    }
    page = (tmp_path / "reports" / "all" / "report.html").read_text()
    assert "dpo (seed=1, beta=0.5)" in page and "<summary>Runs (4 rows)</summary>" in page


def test_judges_of_other_settings_stand_apart_though_their_figures_are_the_same(tmp_path: Path) -> None:
    whole = benchmark(12)
    root = tmp_path / "artifacts"
    for mark, beta in (("a", 0.05), ("b", 0.1), ("c", 0.5)):
        evaluation(root, mark, beta, 1, 6, whole)
    merge(reporting(tmp_path))
    rows = json.loads((tmp_path / "reports" / "all" / "metrics.json").read_text())
    names = [row["method"] for row in rows]
    assert names == ["dpo (beta=0.05)", "dpo (beta=0.1)", "dpo (beta=0.5)", "first"]


def test_means_over_seeds(tmp_path: Path, runs: list[Path]) -> None:
    merge(reporting(tmp_path, name="seeds"))
    summary = json.loads((tmp_path / "reports" / "seeds" / "summary.json").read_text())["seeds"]
    of = {r["method"]: r for r in summary}
    for label, agreements in (("beta=0.1", [4 / 12, 8 / 12]), ("beta=0.5", [5 / 12, 6 / 12])):
        row = of[f"dpo ({label})"]
        assert row["seeds"] == 2
        assert row["agreement"] == pytest.approx(statistics.mean(agreements), abs=1e-6)
        assert row["agreement_std"] == pytest.approx(statistics.stdev(agreements), abs=1e-6)
    text = (tmp_path / "reports" / "seeds" / "report.md").read_text()
    assert "| dpo (beta=0.1) | 1 | 2 | 50.0 ± 23.6 |" in text


def test_a_seed_that_was_evaluated_twice_is_one_seed(tmp_path: Path) -> None:
    root = tmp_path / "artifacts"
    whole = benchmark(12)
    # Once more with another method beside it, and once more after a label of the file was mended.
    for mark, seed, right, of in (("a", 1, 4, whole), ("b", 1, 4, whole), ("c", 2, 8, whole)):
        evaluation(root, mark, 0.1, seed, right, of)
    evaluation(root, "d", 0.1, 1, 6, relabelled(whole, 7, label="A"))
    merge(reporting(tmp_path))
    means = json.loads((tmp_path / "reports" / "all" / "summary.json").read_text())["seeds"]
    (of_dpo,) = [mean for mean in means if mean["method"] == "dpo"]
    assert (of_dpo["seeds"], len(set(of_dpo["data"]))) == (2, 1)
    assert of_dpo["agreement"] == pytest.approx((4 + 8) / 24, abs=1e-6)


def test_means_over_two_and_over_three_seeds_stand_in_one_table(tmp_path: Path, runs: list[Path]) -> None:
    evaluation(tmp_path / "artifacts", "e", 0.5, 3, 7, benchmark(12))
    merge(reporting(tmp_path))
    text = (tmp_path / "reports" / "all" / "report.md").read_text()
    assert "| dpo (beta=0.1) | 1 | 2 | 50.0 ±" in text and "| dpo (beta=0.5) | 1 | 3 | 50.0 ±" in text


def test_one_seed_on_several_data_has_no_mean_over_seeds(tmp_path: Path) -> None:
    root = tmp_path / "artifacts"
    evaluation(root, "a", 0.1, 1, 4, benchmark(12))
    evaluation(root, "b", 0.1, 1, 5, relabelled(benchmark(12), 7, label="A"))
    merge(reporting(tmp_path))
    assert json.loads((tmp_path / "reports" / "all" / "summary.json").read_text())["seeds"] == []


@pytest.mark.parametrize("changed", ["position_bias", "every_pair", "generated_tokens", "parse_failures"])
def test_a_row_stands_for_others_only_where_all_figures_are_the_same(changed: str, tmp_path: Path) -> None:
    root = tmp_path / "artifacts"
    whole = benchmark(12)
    evaluation(root, "a", 0.1, 1, 4, whole)
    directory = evaluation(root, "b", 0.5, 1, 4, whole)
    rows = json.loads((directory / "metrics.json").read_text())
    rows[0][changed] = 7
    rows[1] |= {"seconds": 99.0, "agreement_ci": [0.0, 1.0]}
    (directory / "metrics.json").write_text(json.dumps(rows))
    # Neither how long it took nor what was drawn for an interval is a figure of a judge.
    assert sorted(figures(tmp_path)["b"]) == ["dpo (beta=0.1)", "dpo (beta=0.5)", "first"]


def test_a_sweep_is_the_evaluations_of_its_jobs(tmp_path: Path, runs: list[Path]) -> None:
    sweep = tmp_path / "sweeps" / "day" / "time"
    for number, run in enumerate(runs[1:3]):
        write_job(sweep / str(number), [], {"state": "done", "directory": str(run)})
    write_job(sweep / "2", [], {"state": "failed", "error": "x"})
    merge(reporting(tmp_path, runs=[str(sweep), str(runs[1])]))
    rows = json.loads((tmp_path / "reports" / "all" / "metrics.json").read_text())
    assert [r["method"] for r in rows] == ["dpo (seed=2, beta=0.1)", "dpo (seed=1, beta=0.5)", "first"]


def test_runs_that_are_not_there_or_not_finished_are_named(tmp_path: Path, runs: list[Path]) -> None:
    with pytest.raises(ConfigError, match=r"report\.runs: .*nowhere': no such directory"):
        merge(reporting(tmp_path, runs=[str(tmp_path / "nowhere")]))
    (runs[0] / "manifest.json").unlink()
    with pytest.raises(ConfigError, match=r"artifacts/evaluate/a' is no finished evaluation"):
        merge(reporting(tmp_path, runs=[str(runs[0])]))
    sweep = tmp_path / "sweep"
    write_job(sweep / "0", [], {"state": "done", "directory": "artifacts/dpo/d1"})
    with pytest.raises(ConfigError, match="no job of this sweep made an evaluation"):
        merge(reporting(tmp_path, runs=[str(sweep)]))


def test_labels_use_the_shortest_name_that_is_not_ambiguous() -> None:
    labels = run_labels(
        [{"train.sft.rate": "1", "train.dpo.rate": "1"}, {"train.sft.rate": "2", "train.dpo.rate": "3"}]
    )
    assert labels == ["train.dpo.rate=1, train.sft.rate=1", "train.dpo.rate=3, train.sft.rate=2"]
    assert run_labels([{"a": "1"}]) == [""]
    assert run_labels([{"a": "1"}, {"a": "1"}]) == ["run 1", "run 2"]
    assert run_labels([{"evaluate.methods": "x"}, {"evaluate.methods": "y"}]) == ["run 1", "run 2"]
    assert run_labels([{"a": "1", "scorer.x": "1"}, {"a": "1"}, {"a": "2"}]) == ["a=1, run 1", "a=1, run 2", "a=2"]


def test_methods_stand_in_the_configurations_order_whatever_the_files_are_called(tmp_path: Path) -> None:
    whole = benchmark(12)
    root = tmp_path / "artifacts"
    for mark, beta in (("z", 0.05), ("m", 0.5), ("a", 10.0)):
        evaluation(root, mark, beta, 1, 4 + len(mark) + (beta > 1), whole)
    settings = reporting(tmp_path)
    settings.config.evaluate.methods = ["first", "dpo"]
    merge(settings)
    rows = json.loads((tmp_path / "reports" / "all" / "metrics.json").read_text())
    assert [r["method"] for r in rows] == ["first", "dpo (beta=0.05)", "dpo (beta=0.5)", "dpo (beta=10.0)"]
    settings.config.evaluate.methods = ["dpo"]
    merge(settings)
    rows = json.loads((tmp_path / "reports" / "all" / "metrics.json").read_text())
    assert [r["method"] for r in rows] == ["dpo (beta=0.05)", "dpo (beta=0.5)", "dpo (beta=10.0)", "first"]


def figures(tmp_path: Path) -> dict[str, dict[str, float]]:
    """Merge all runs; the agreement by benchmark, as the report calls it, and by method."""
    merge(reporting(tmp_path))
    found: dict[str, dict[str, float]] = {}
    for row in json.loads((tmp_path / "reports" / "all" / "metrics.json").read_text()):
        assert row["method"] not in found.setdefault(row["benchmark"], {})
        found[row["benchmark"]][row["method"]] = row["agreement"]
    return found


def relabelled(whole: Benchmark, place: int, **changes: Any) -> Benchmark:
    """Return the same benchmark with one comparison changed."""
    comparisons = [*whole.comparisons]
    comparisons[place] = replace(comparisons[place], **changes)
    return replace(whole, comparisons=comparisons)


@pytest.mark.parametrize(
    "other",
    [
        relabelled(benchmark(12), 7, label="A"),
        relabelled(benchmark(12), 7, label=None),
        relabelled(benchmark(12), 7, response_b="yyy"),
        relabelled(benchmark(12), 7, group="g7"),
        replace(benchmark(12), comparisons=benchmark(12).comparisons[:11]),
        replace(benchmark(12), prompts={f"b:{i}": str(i // 2) for i in range(12)}),
    ],
    ids=["label", "no label", "text", "group", "fewer", "prompts"],
)
def test_figures_of_other_data_under_one_name_stand_apart(tmp_path: Path, other: Benchmark) -> None:
    root = tmp_path / "artifacts"
    evaluation(root, "a", 0.1, 1, 4, benchmark(12))
    evaluation(root, "b", 0.5, 1, 4, other)
    found = figures(tmp_path)
    assert len(found) == 2 and not any(name == "b" for name in found)
    # Each by its own name in its own table: nothing tells the two rows apart but their data.
    assert [sorted(methods) for methods in found.values()] == [["dpo", "first"]] * 2
    text = (tmp_path / "reports" / "all" / "report.md").read_text()
    assert all(f"## {name} (test, n = " in text for name in found)


def test_the_same_data_in_another_order_under_other_ids_stand_side_by_side(tmp_path: Path) -> None:
    root = tmp_path / "artifacts"
    whole = benchmark(12)
    renamed = []
    for comparison in reversed(whole.comparisons):
        dialogue = replace(comparison.dialogue, id=f"z{comparison.id}")
        renamed.append(replace(comparison, id=f"z{comparison.id}", dialogue=dialogue))
    evaluation(root, "a", 0.1, 1, 4, whole)
    evaluation(root, "b", 0.5, 1, 8, replace(whole, comparisons=renamed))
    (of_benchmark,) = figures(tmp_path).values()
    assert {"dpo (beta=0.1)", "dpo (beta=0.5)"} < set(of_benchmark)


def test_data_are_called_by_the_settings_that_chose_them(tmp_path: Path) -> None:
    root = tmp_path / "artifacts"
    worlds = {seed: relabelled(benchmark(12), seed, label="tie", group="g0") for seed in (3, 6)}
    for mark, beta, seed in (("a", 0.1, 3), ("b", 0.1, 6), ("c", 0.5, 3), ("d", 0.5, 6)):
        evaluation(root, mark, beta, seed, 4 + (beta > 0.2), worlds[seed])
    found = figures(tmp_path)
    assert set(found) == {"b (seed=3)", "b (seed=6)"}
    assert found["b (seed=3)"]["dpo (seed=3, beta=0.1)"] == pytest.approx(4 / 12, abs=1e-6)
    assert found["b (seed=6)"]["dpo (seed=6, beta=0.5)"] == pytest.approx(5 / 12, abs=1e-6)

    # A mean over seeds is over the data of each seed, the same for both values of beta: they stand side by side.
    text = (tmp_path / "reports" / "all" / "report.md").read_text()
    heading = "## b, each seed on data of its own"
    assert text.count(heading) == 1
    table = text.partition(heading)[2]
    assert "| dpo (beta=0.1) | 1 | 2 | 33.3 ± 0.0 |" in table and "| dpo (beta=0.5) | 1 | 2 | 41.7 ± 0.0 |" in table
    assert heading[3:] in (tmp_path / "reports" / "all" / "report.html").read_text()


def test_means_over_other_data_stand_in_tables_of_their_own(tmp_path: Path) -> None:
    root = tmp_path / "artifacts"
    whole = benchmark(12)
    # beta 0.1 is measured on one file, beta 0.5 on a file that was changed before its second seed.
    for mark, beta, seed, of in (("a", 0.1, 1, whole), ("b", 0.1, 2, whole), ("c", 0.5, 1, whole)):
        evaluation(root, mark, beta, seed, 4, of)
    evaluation(root, "d", 0.5, 2, 4, relabelled(whole, 1, label="A"))
    merge(reporting(tmp_path))
    means = json.loads((tmp_path / "reports" / "all" / "summary.json").read_text())["seeds"]
    data = {mean["method"]: set(mean["data"]) for mean in means if mean["method"].startswith("dpo")}
    assert len(data["dpo (beta=0.1)"]) == 1 and len(data["dpo (beta=0.5)"]) == 2
    before, _, after = (
        (tmp_path / "reports" / "all" / "report.md").read_text().partition("each seed on data of its own")
    )
    assert "| dpo (beta=0.1) | 1 | 2 |" in before and "| dpo (beta=0.1) | 1 | 2 |" not in after
    assert "| dpo (beta=0.5) | 1 | 2 |" in after and "| dpo (beta=0.5) | 1 | 2 |" not in before


def test_differences_and_counts_go_with_their_data(tmp_path: Path) -> None:
    root = tmp_path / "artifacts"
    pair = {"first": {"method": "dpo", "branches": 1}, "second": {"method": "first", "branches": 0}}
    for number, other in enumerate((benchmark(12), relabelled(benchmark(12), 7, label="A"))):
        directory = evaluation(root, f"e{number}", 0.1, 1, 4, other)
        difference = {"benchmark": "b", **pair, "agreement_difference": number / 10}
        (directory / "paired.json").write_text(json.dumps([difference]))
        (directory / "summary.json").write_text(json.dumps({"left_out": {"b": {"too_long": number + 1}}}))
    merge(reporting(tmp_path))
    directory = tmp_path / "reports" / "all"
    paired = json.loads((directory / "paired.json").read_text())
    left_out = json.loads((directory / "summary.json").read_text())["left_out"]
    assert sorted(row["agreement_difference"] for row in paired) == [0.0, 0.1]
    assert {row["benchmark"]: row["agreement_difference"] * 10 + 1 for row in paired} == {
        name: counts["too_long"] for name, counts in left_out.items()
    }


def test_evaluations_that_did_not_note_their_data_stand_by_themselves(tmp_path: Path) -> None:
    root = tmp_path / "artifacts"
    for mark in ("old", "older", "new"):
        directory = evaluation(root, mark, 0.1, 1, 4, benchmark(12))
        if mark != "new":
            rows = json.loads((directory / "metrics.json").read_text())
            for row in rows:
                del row["data"]
            (directory / "metrics.json").write_text(json.dumps(rows))
    found = figures(tmp_path)
    assert len(found) == 3
    assert {"b (data not noted: old)", "b (data not noted: older)"} < set(found)


TWO_LEVELS = Scale((0.0, 1.0), ("fail", "pass"))


def responses(passes: Sequence[int], **changes: Any) -> ResponseBenchmark:
    """Return a benchmark of single responses, of which those with these numbers pass."""
    labelled = []
    for place in range(12):
        dialogue = Dialogue(f"r:{place}", "r", (Message("user", f"query {place}"),))
        group = Candidates(f"r:{place}", dialogue, ("x",))
        labelled.append(LabelledResponse(candidates=group, votes={OVERALL: (float(place in passes),)}))
    fields: dict[str, Any] = {"responses": labelled, "scales": {OVERALL: TWO_LEVELS}} | changes
    return ResponseBenchmark(name="r", split="test", **fields)


def rating(root: Path, mark: str, beta: float, passes: Sequence[int], of: ResponseBenchmark) -> Path:
    """Return a finished evaluation of a judge that passes these responses."""
    directory = evaluation(root, mark, beta, 1, 4, benchmark(12))
    scores = [Score(value=float(place in passes)) for place in range(12)]
    rows = Measuring(of, "test", [True] * 12, Resampling(20, 1)).rows(
        [ScoreResult(method="dpo", branches=1, scores=scores, seconds=0.0)]
    )
    (directory / "ratings.json").write_text(json.dumps([row.to_row() for row in rows]))
    return directory


def ratings(tmp_path: Path) -> dict[str, dict[str, float]]:
    """Merge all runs; the agreement on single responses by benchmark, as the report calls it, and by method."""
    merge(reporting(tmp_path))
    agreements: dict[str, dict[str, float]] = {}
    for row in json.loads((tmp_path / "reports" / "all" / "ratings.json").read_text()):
        agreements.setdefault(row["benchmark"], {})[row["method"]] = row["agreement"]
    return agreements


def test_single_responses_stand_in_the_report_of_several_runs(tmp_path: Path) -> None:
    root = tmp_path / "artifacts"
    rating(root, "a", 0.1, range(6), responses(range(6)))
    rating(root, "b", 0.5, range(3), responses(range(6)))
    expected = {"dpo (beta=0.1)": 1.0, "dpo (beta=0.5)": 0.75, "always pass": 0.5}
    assert ratings(tmp_path) == {"r": expected}
    text = (tmp_path / "reports" / "all" / "report.md").read_text()
    assert "## r (test, single responses, n = 12)" in text and "| dpo (beta=0.5) | 1 | 75.0 (" in text


def referring(to: str) -> ResponseBenchmark:
    """Return a benchmark whose first response is judged beside a reference."""
    whole = responses(range(6))
    first, *others = whole.responses
    group = replace(first.candidates, dialogue=replace(first.dialogue, reference=to))
    return replace(whole, responses=[replace(first, candidates=group), *others])


@pytest.mark.parametrize(
    "other",
    [
        responses(range(7)),
        responses(range(6), scales={OVERALL: Scale((0.0, 0.5, 1.0), ("fail", "half", "pass"))}),
        referring("y"),
    ],
    ids=["label", "scale", "reference"],
)
def test_single_responses_with_other_labels_or_references_stand_apart(tmp_path: Path, other: ResponseBenchmark) -> None:
    root = tmp_path / "artifacts"
    rating(root, "a", 0.1, range(6), responses(range(6)))
    rating(root, "b", 0.5, range(6), other)
    merged_ratings = ratings(tmp_path)
    assert [len(of_benchmark) for of_benchmark in merged_ratings.values()] == [2, 2]
