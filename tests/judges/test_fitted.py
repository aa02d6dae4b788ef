"""Weights fitted to labels: what they are, how sure they may be, and the verdict that follows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from judgetrain.errors import ConfigError, DataError
from judgetrain.judges import BranchingJudge
from judgetrain.judges.config import JudgeConfig, JudgeOptions
from judgetrain.judges.kinds import aggregation
from judgetrain.judges.kinds.aggregation import Fitted, calibration_error, fit
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judging.stage import PARTS
from judgetrain.schema import Verdict
from tests.builders.judging import judge_stage, lines
from tests.builders.scripted import ScriptedEngine
from tests.judges.test_reads_one import RUBRIC, scored

TRUTH = {"#1": 6.0, "#2": 1.5, "#3": 0.0}


def drawn(n: int, seed: int = 0) -> tuple[list[dict[str, float]], list[Verdict]]:
    rng = np.random.default_rng(seed)
    margins = [dict(zip(TRUTH, rng.uniform(-1, 1, 3).round(2).tolist(), strict=True)) for _ in range(n)]
    chances = [1 / (1 + np.exp(-sum(TRUTH[k] * m for k, m in each.items()))) for each in margins]
    return margins, ["A" if rng.random() < p else "B" for p in chances]


def test_weights_are_those_of_scikit_learn_where_none_of_them_is_below_0() -> None:
    margins, labels = drawn(400, 4)
    found = fit(margins, labels, [(str(i),) for i in range(400)])
    x = np.array([[m[name] for name in TRUTH] for m in margins])
    other = LogisticRegression(C=1 / found.ridge, fit_intercept=False, tol=1e-8).fit(x, [v == "A" for v in labels])
    assert [found.weights[name] for name in TRUTH] == pytest.approx(other.coef_[0], abs=2e-3)


def test_a_hundred_labels_make_probabilities_that_come_true_and_beat_the_plain_mean() -> None:
    errors, gains = [], []
    for seed in range(5):
        margins, labels = drawn(100, seed)
        found = fit(margins, labels, [(str(i),) for i in range(100)])
        assert all(weight >= 0 for weight in found.weights.values()) and found.weights["#1"] > found.weights["#3"]
        fresh, right = drawn(2000, 100 + seed)
        logits = [found.logit(m) or 0.0 for m in fresh]
        targets = np.array([float(v == "A") for v in right])
        errors.append(calibration_error(1 / (1 + np.exp(-np.array(logits))), targets))
        said = np.mean([found.verdict(x) == v for x, v in zip(logits, right, strict=True)])
        mean = np.mean([(sum(m.values()) > 0) == (v == "A") for m, v in zip(fresh, right, strict=True)])
        gains.append(said - mean)
    assert np.mean(errors) < 0.05 and min(gains) > 0.05


def test_calibration_error_by_hand() -> None:
    probabilities, targets = np.array([0.9, 0.9, 0.1, 0.6]), np.array([1.0, 0.0, 0.0, 0.5])
    # Confidence 0.9 three times, right twice: |0.9 - 2/3| * 3/4; 0.6 once, a tie is half right: 0.1 * 1/4.
    assert calibration_error(probabilities, targets) == pytest.approx(0.9 * 0.75 - 0.5 + 0.025)


def test_ties_have_a_width_and_exchanging_the_responses_exchanges_the_verdict() -> None:
    margins = [{"#1": m} for m in np.linspace(-1, 1, 101)]
    labels: list[Verdict] = ["tie" if abs(m["#1"]) < 0.3 else "A" if m["#1"] > 0 else "B" for m in margins]
    found = fit(margins, labels, [(str(i),) for i in range(101)])
    assert found.tie > 0 and found.after["agreement"] > 0.9 > found.before["agreement"]
    for m in (0.05, 0.6, 1.0):
        one, other = (found.verdict(found.logit({"#1": sign * m})) for sign in (1, -1))
        assert (one, other) in (("tie", "tie"), ("A", "B"))
    assert found.verdict(found.logit({})) is None


def test_labels_that_follow_nothing_are_met_no_more_often_than_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance is a third. Were a tie's width chosen on what it is measured on, it would be right in 40% of these."""
    monkeypatch.setattr(aggregation, "FOLDS", 3)
    monkeypatch.setattr(aggregation, "STRENGTHS", (1.0,))
    found = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        margins = [{"#1": m} for m in rng.uniform(-1, 1, 30).round(2).tolist()]
        labels: list[Verdict] = rng.choice(["A", "B", "tie"], 30).tolist()
        found.append(fit(margins, labels, [(str(i),) for i in range(30)]).after["agreement"])
    assert abs(np.mean(found) - 1 / 3) < 0.026, "three standard errors"


def test_a_criterion_that_was_not_fitted_counts_as_the_mean_one() -> None:
    found = Fitted(weights={"a": 3.0, "b": 1.0}, tie=0.0, n=1, ridge=1.0, before={}, after={})
    assert found.logit({"a": 0.5, "new": -0.25}) == 1.0


@pytest.mark.parametrize("n", [3, 19])
def test_too_few_labels_are_refused(n: int) -> None:
    with pytest.raises(DataError, match=f"at least 20 labelled comparisons.*found {n}"):
        fit(*drawn(n), [(str(i),) for i in range(n)])


def test_a_judge_decides_by_its_weights(tmp_path: Path) -> None:
    weights = {"Facts": 0.1, "Tone": 2.0, "Slang": 0.0}
    Fitted(weights=weights, tie=0.0, n=50, ridge=1.0, before={}, after={}).save(tmp_path)
    settings = JudgeConfig(reads="one", score="parsed", aggregation="fitted", fitted=str(tmp_path / "fitted.json"))
    options = JudgeOptions.of(settings, 3)
    judge = BranchingJudge(ScriptedEngine(scored), load_prompt_set("compact"), options)
    said = judge("q", "good", "bad", criteria=RUBRIC)
    # Facts 5 against 2, tone 3 against 5: 0.1 * 3/4 - 2 * 2/4.
    assert said.margin == pytest.approx(0.075 - 1.0) and said.verdict == "B"
    assert (said.score_a or 0) > (said.score_b or 0), "scores are the rubric's"
    beside = JudgeOptions.of(replace(settings, fitted=None), 3, tmp_path)
    assert beside.fitted == options.fitted, "the weights that lie in the judge's directory"
    with pytest.raises(ConfigError, match="go together"):
        replace(options, fitted=None)
    with pytest.raises(ConfigError, match=r"judge.fitted=none.json: expected the fitted.json"):
        JudgeOptions.of(replace(settings, fitted="none.json"), 3)


def test_stage_calibrate_fits_what_a_judge_says_of_labelled_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from judgetrain.artifacts.console import Console
    from judgetrain.engines import lazy_model
    from judgetrain.pipeline.run import Pipeline
    from tests.builders.pipeline import configured

    monkeypatch.setattr(lazy_model, "make_engine", lambda *args, **kwargs: ScriptedEngine(scored))
    rows = [
        {"query": f"q{i}", "response_a": "a " * (1 + i % 5), "response_b": "b " * (1 + i % 3), "label": label}
        for i in range(60)
        for label in [("A", "B", "tie")[(i % 5 < i % 3) + 2 * (i % 5 == i % 3)]]
    ]
    source = f"verdicts.source.path={lines(tmp_path / 'mine.jsonl', rows)}"
    words = ["recipe=debug", f"output_dir={tmp_path / 'out'}", "track.tracker=none", "verdicts.judge=base@2", source]
    directory = Pipeline(configured(*words), Console()).run("calibrate")
    found = json.loads((directory / "fitted.json").read_text())
    assert found["n"] == 60 and set(found["weights"]) == {"#1", "#2"} and found["after"]["agreement"] > 0.9
    assert "fitted, held out: agreement" in capsys.readouterr().out
    (card,) = (tell(directory, "base") for tell in PARTS.values())
    assert "on 60 labelled comparisons" in card and f"#1 {found['weights']['#1']:.2f}" in card
    assert f"calibration error {found['before']['ece']:.3f}; " in card and f"{found['after']['ece']:.3f}. W" in card
    assert [tell(tmp_path, "base") for tell in PARTS.values()] == [""], "another stage's artifact"
    with pytest.raises(ConfigError, match="branching judges alone"):
        Pipeline(configured(*words[:3], "verdicts.judge=longer", source), Console()).run("calibrate")
    used = judge_stage(
        tmp_path / "out", source, "judge.aggregation=fitted", f"judge.fitted={directory}/fitted.json", judge="base@2"
    )
    told = [json.loads(line) for line in (used / "verdicts.jsonl").read_text().splitlines()]
    assert sum(row["verdict"] == row["label"] for row in told) > 50
