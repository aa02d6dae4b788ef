"""Stage evaluate on single responses with labels, with the real judge code and a scripted engine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.shards import read_rows
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.data.intervals import Resampling
from judgetrain.data.labelled import Scale
from judgetrain.engines import lazy_model
from judgetrain.errors import ConfigError, DataError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.metrics.ratings import Scored, metrics_of
from judgetrain.evaluate.objective import objective_value
from judgetrain.evaluate.report.ratings import PARTS
from judgetrain.evaluate.stages import EVALUATE
from judgetrain.judges.config import JudgeConfig
from judgetrain.judges.trees.config import TreeConfig
from judgetrain.judging.config import VerdictsConfig
from judgetrain.pipeline.config import STAGES, Config
from tests.builders.evaluate import UNATTACKED, judge, pairs, run, write_rows
from tests.builders.scripted import ScriptedEngine
from tests.judging.test_judging import answer

N = 24


def rated(directory: Path, rows: list[dict[str, Any]], name: str = "mine", **source: Any) -> BenchmarkConfig:
    path = write_rows(directory / f"{name}.jsonl", rows)
    return BenchmarkConfig(name, SourceConfig(path=path, **source))


def row(place: int, label: Any, **more: Any) -> dict[str, Any]:
    """A response of one to five words, which the judge scores by their number."""
    words = " ".join(["word"] * (place % 5 + 1))
    return {"id": place, "query": f"q{place // 2}", "response": words, "label": label, **more}


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> ScriptedEngine:
    scripted = ScriptedEngine(answer)
    monkeypatch.setattr(lazy_model, "make_engine", lambda *args, **kwargs: scripted)
    return scripted


def config(*benchmarks: BenchmarkConfig, methods: tuple[str, ...] = ("sft",), **evaluate: Any) -> Config:
    return Config(
        evaluate=EvaluateConfig([*benchmarks], [*methods], [1, 2], bootstrap=100, **evaluate),
        judge=JudgeConfig(reads="one", score="parsed"),
        robustness=UNATTACKED,
        tree=TreeConfig(criteria=4, shard_size=4),
    )


def look(settings: Config) -> None:
    """Look at what is on this machine, as a run does before its first stage."""
    EVALUATE.check_here(STAGES["evaluate"].settings.of(settings))


def evaluated(tmp_path: Path, settings: Config, name: str = "out") -> tuple[Path, list[dict[str, Any]]]:
    home = tmp_path / "sft"
    inputs = {"sft": home if home.is_dir() else judge(home)}
    directory = run("evaluate", settings, inputs, tmp_path / name).directory
    return directory, json.loads((directory / "ratings.json").read_text())


def test_a_file_of_labelled_responses_is_a_benchmark(
    tmp_path: Path, engine: ScriptedEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = ["pass" if place % 5 > 1 else "fail" for place in range(N)]
    labels[0] = "pass"
    settings = config(rated(tmp_path, [row(place, label) for place, label in enumerate(labels)]))
    directory, rows = evaluated(tmp_path, settings)
    assert [(r["method"], r["branches"], r["n"], r["n_prompts"]) for r in rows] == [
        ("sft", 2, N, N // 2), ("always pass", 0, N, N // 2)
    ]  # fmt: skip
    scores = [place % 5 / 4 for place in range(N)]
    scale = Scale((0.0, 1.0), ("fail", "pass"))
    prompts = [f"q{place // 2}" for place in range(N)]
    truth: list[float | None] = [1.0 if label == "pass" else 0.0 for label in labels]
    expected = metrics_of(Scored.of(truth, scores, scale, prompts), Resampling(100, Config().seed))
    for name, value in expected.items():
        assert rows[0][name] == (list(value) if isinstance(value, tuple) else value), name
    assert rows[0]["agreement"] == pytest.approx((N - 1) / N, abs=1e-6)
    share = labels.count("pass") / N
    assert rows[1]["agreement"] == pytest.approx(share, abs=1e-6)
    assert rows[0]["prevalence"] == pytest.approx({"fail": 1 - share, "pass": share}, abs=1e-6)
    assert (rows[1]["kappa"], rows[1]["people"], rows[0]["unread"]) == (0.0, None, 0.0)
    assert rows[0]["generated_tokens"] > 0 and rows[0]["calls"] > 0

    scored = list(read_rows(directory, "scored"))
    assert [(r["id"], r["label"], r["score"]) for r in scored[:3]] == [
        ("mine:0", 1.0, 0.0), ("mine:1", 0.0, 0.25), ("mine:2", 1.0, 0.5)
    ]  # fmt: skip
    output = " ".join(capsys.readouterr().out.split())
    assert "mine (test, single responses, n = 24)" in output and "always pass" in output
    report = (directory / "report.md").read_text()
    assert "### Single responses" in report and "### All metrics" in report and "Labels are fail 37.5%" in report
    assert "single responses, n = 24" in (directory / "report.html").read_text()
    assert not (directory / "predictions.parquet").exists()
    assert objective_value(directory, "mine/sft/kappa") == rows[0]["kappa"]
    card = PARTS["Single responses"](directory, "sft")
    assert card.startswith("- mine: `sft` gives the label of 95.8% (") and "`always pass`" in card
    assert PARTS["Single responses"](directory, "dpo") == ""


def asked(engine: ScriptedEngine, step: str) -> int:
    """Return how often a step was asked for, and forget all that was."""
    number = sum(request.step == step for request in engine.requests)
    engine.requests.clear()
    return number


def test_a_number_behind_the_name_is_the_criteria_of_a_score_in_all_stages(
    tmp_path: Path, engine: ScriptedEngine
) -> None:
    """Also one that is not among evaluate.branches, of which there are rows of pairs alone."""
    benchmark = rated(tmp_path, [row(place, "pass" if place % 5 > 1 else "fail") for place in range(N)])
    settings = config(benchmark, methods=("sft@3",))
    look(settings)
    _, rows = evaluated(tmp_path, settings)
    assert (rows[0]["method"], rows[0]["branches"]) == ("sft", 3)
    assert asked(engine, "score") == 3 * N
    verdicts = VerdictsConfig(judge="sft@3", source=benchmark.source)
    for stage in ("judge", "calibrate"):
        run(stage, settings.changed(verdicts=verdicts), {"sft": tmp_path / "sft"}, tmp_path / stage)
        assert asked(engine, "score") == 3 * N, stage
    with pytest.raises(ConfigError, match=r"evaluate.methods='sft@5': 5 branches; allowed are 1 to tree.criteria=4"):
        look(config(benchmark, methods=("sft@5",)))


def test_people_stand_beside_the_judge_on_a_scale_of_five(
    tmp_path: Path, engine: ScriptedEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row(place, None, ann=place % 5 + 1, bo=min(5, place % 5 + 1 + place % 2)) for place in range(N)]
    settings = config(rated(tmp_path, rows, fields={"label": ["ann", "bo"]}))
    directory, (first, always) = evaluated(tmp_path, settings)
    # The judge is Ann; of each left out the other is the level to give.
    people = first["people"]
    same = sum(min(5, place % 5 + 1 + place % 2) == place % 5 + 1 for place in range(N))
    assert (people["n"], people["annotators"]) == (N, 2)
    assert people["person"] == pytest.approx(same / N, abs=1e-6)
    assert people["judge"] == pytest.approx((N + same) / 2 / N, abs=1e-6)
    assert always["people"] is None
    assert {"within_one", "mean_error", "pearson", "spearman", "kendall", "order_accuracy"} <= set(first)
    assert "### People" in (directory / "report.md").read_text()
    assert "agrees more than another person" in " ".join(capsys.readouterr().out.split())


def test_labels_by_criterion_are_measured_by_criterion_and_what_lacks_one_side_is_said(
    tmp_path: Path, engine: ScriptedEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    criteria = [{"name": "Length", "text": "it is long", "guideline": "g"},
                {"name": "Tone", "text": "it is kind", "guideline": "g"}]  # fmt: skip
    rows = [row(p, {"length": p % 5 + 1, "taste": p % 2}, criteria=criteria) for p in range(N)]
    settings = config(rated(tmp_path, rows), methods=("sft+given",))
    directory, measured = evaluated(tmp_path, settings)
    assert (measured[0]["method"], measured[0]["agreement"]) == ("sft+given", 1.0)
    assert [r["criterion"] for r in measured] == ["length", "length"]
    assert measured[0]["kappa"] == 1.0
    assert next(read_rows(directory, "scored"))["criteria"]["length"] == {"label": 0.0, "score": 0.0}
    output = " ".join(capsys.readouterr().out.split())
    assert "mine: taste: no judge went by a criterion of this name" in output
    assert "mine: criterion 'Tone' has no label, so that nothing is measured of it alone" in output


def test_labels_measure_a_criterion_that_has_their_name_in_its_text_alone(
    tmp_path: Path, engine: ScriptedEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    criteria = ["Length: it is long", "it is kind"]
    rows = [row(place, {"length": place % 5 + 1}, criteria=criteria) for place in range(N)]
    directory, measured = evaluated(tmp_path, config(rated(tmp_path, rows), methods=("sft+given",)))
    assert (measured[0]["method"], measured[0]["criterion"]) == ("sft+given", "length")
    assert (measured[0]["agreement"], measured[0]["unread"]) == (1.0, 0.0)
    assert next(read_rows(directory, "scored"))["criteria"]["length"] == {"label": 0.0, "score": 0.0}
    output = " ".join(capsys.readouterr().out.split())
    assert "criterion 'it is kind' has no label" in output and "'Length: it is long' has no label" not in output


def test_pairs_and_single_responses_stand_in_one_evaluation(tmp_path: Path, engine: ScriptedEngine) -> None:
    singles = rated(tmp_path, [row(place, place % 2) for place in range(N)])
    settings = config(pairs(tmp_path, 12), singles, methods=("sft", "longer"), dev_share=0.5)
    directory, rows = evaluated(tmp_path, settings)
    metrics = json.loads((directory / "metrics.json").read_text())
    assert {(r["benchmark"], r["method"]) for r in metrics} == {("pairs", "sft"), ("pairs", "longer")}
    # Methods that compare two responses are no row there.
    assert [r["method"].partition(" ")[0] for r in rows] == ["sft", "always"]
    development = json.loads((directory / "development_ratings.json").read_text())
    assert rows[0]["n"] + development[0]["n"] == N and development[0]["split"] == "development"
    assert objective_value(directory, "mine/sft@2/agreement") == development[0]["agreement"]


def test_kept_scores_are_taken_over_and_a_corrected_label_asks_nobody(tmp_path: Path, engine: ScriptedEngine) -> None:
    rows = [row(place, place % 2) for place in range(N)]
    _, before = evaluated(tmp_path, config(rated(tmp_path, rows)), "artifacts/evaluation/a")
    asked = len(engine.requests)
    assert asked > 0
    rows[0]["label"] = 1
    _, after = evaluated(tmp_path, config(rated(tmp_path, rows)), "artifacts/evaluation/b")
    assert len(engine.requests) == asked
    assert after[0]["agreement"] != before[0]["agreement"]


def test_what_cannot_be_read_agrees_with_nothing_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreadable(request: Any, occurrence: int) -> str:
        words = request.slots.get("response", "").split()
        return "nothing" if request.step == "score" and len(words) == 5 else answer(request, occurrence)

    monkeypatch.setattr(lazy_model, "make_engine", lambda *args, **kwargs: ScriptedEngine(unreadable))
    settings = config(rated(tmp_path, [row(place, 1 if place % 5 > 1 else 0) for place in range(20)]))
    settings = settings.changed(judge=JudgeConfig(reads="one", score="parsed", retries=0))
    _, (first, _) = evaluated(tmp_path, settings)
    assert (first["unread"], first["agreement"], first["sensitivity"]) == (0.2, 0.8, pytest.approx(2 / 3, abs=1e-6))
    # Two criteria each of the four responses of five words.
    assert "evaluate: mine: sft: judgments not read: 8 " in " ".join(capsys.readouterr().out.split())


def test_few_labels_and_one_class_are_said(
    tmp_path: Path, engine: ScriptedEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    _, (first, _) = evaluated(tmp_path, config(rated(tmp_path, [row(place, "pass") for place in range(3)])))
    output = " ".join(capsys.readouterr().out.split())
    assert "mine: all 3 labels are pass, so that whoever always says so is right; label others, too" in output
    assert "mine: 3 labels on 2 prompts are too few for intervals, which need 10 prompts" in output
    assert (first["agreement_ci"], first["auroc"]) == (None, None)


def test_a_judge_that_compares_two_is_refused_with_the_remedy(tmp_path: Path, engine: ScriptedEngine) -> None:
    singles = rated(tmp_path, [row(place, place % 2) for place in range(4)])
    settings = config(singles, methods=("longer",))
    with pytest.raises(ConfigError, match=r"the rows of mine hold one response, and none of .*'longer'.* as dpo\+one"):
        look(settings)
    look(config(singles, methods=("sft+one",)))
    broken = rated(tmp_path, [row(0, "pass"), row(1, "perhaps")], name="broken")
    with pytest.raises(DataError, match=r"broken\.jsonl:2: label 'perhaps' of one response is not one of pass"):
        look(config(broken, methods=("sft+one",)))
    with pytest.raises(ConfigError, match="both called mine-sft"):
        evaluated(tmp_path, replace(config(singles, singles)))
