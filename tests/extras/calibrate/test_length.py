"""Weights of criteria that know which response is longer (``calibrate.length``)."""

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from judgetrain.artifacts.console import Console
from judgetrain.engines import lazy_model
from judgetrain.errors import ConfigError
from judgetrain.extras.calibrate.stage import PARTS
from judgetrain.judges.fitting import fit
from judgetrain.judges.kinds.aggregation import Fitted
from judgetrain.judges.options import _mark
from judgetrain.pipeline.run import Pipeline
from judgetrain.schema import Comparison, Dialogue, Message, Verdict
from tests.builders.judging import judge_stage, lines
from tests.builders.pipeline import configured
from tests.builders.scripted import ScriptedEngine
from tests.judges.test_reads_one import scored


def comparison(response_a: str, response_b: str) -> Comparison:
    return Comparison("c", Dialogue("d", "test", (Message("user", "q"),)), response_a, response_b)


def test_the_ratio_of_lengths_is_a_logarithm_that_changes_its_sign_with_the_responses() -> None:
    one = comparison(" abc ", "abcdefg\n")
    assert one.length_ratio == pytest.approx(np.log(4 / 8))
    assert one.swapped().length_ratio == -one.length_ratio
    assert comparison("abc", "xyz").length_ratio == 0.0


@pytest.mark.parametrize("of_length", [1.2, -0.8])
def test_length_has_the_weight_of_a_regression_of_its_own(of_length: float) -> None:
    rng = np.random.default_rng(3)
    criteria = rng.uniform(-1, 1, (500, 2))
    ratios = rng.normal(0, 0.7, 500)
    chances = 1 / (1 + np.exp(-(criteria @ [4.0, 1.0] + of_length * ratios)))
    is_a = rng.random(500) < chances
    labels: list[Verdict] = ["A" if right else "B" for right in is_a]
    margins = [{"#1": float(first), "#2": float(second)} for first, second in criteria]
    result = fit(margins, labels, [(str(i),) for i in range(500)], ["A"] * 500, ratios.tolist())

    def loss(weights: np.ndarray) -> float:
        logits = criteria @ weights[:2] + weights[2] * ratios
        likelihood = np.log1p(np.exp(np.where(is_a, -logits, logits))).sum()
        mean = weights[:2].mean()
        apart = ((weights[:2] - mean) ** 2).sum()
        return float(likelihood + result.ridge / 2 * apart + 0.01 / 2 * mean**2 + 0.01 / 2 * weights[2] ** 2)

    expected = minimize(loss, [1.0, 1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-10}).x
    assert [result.weights["#1"], result.weights["#2"], result.length] == pytest.approx(expected, abs=2e-3)
    assert result.length == pytest.approx(of_length, abs=0.5), "as the labels were drawn, but for chance"
    assert result.by_length is not None and result.by_length["agreement"] < result.after["agreement"]


def test_length_adds_to_what_criteria_say_and_says_nothing_alone() -> None:
    weights = Fitted(weights={"#1": 2.0}, tie=0.0, n=30, ridge=1.0, before={}, after={}, length=0.5)
    assert weights.logit({"#1": -0.25}, 2.0) == pytest.approx(-0.5 + 1.0)
    assert weights.logit({}, 2.0) is None, "nothing could be read"
    without = Fitted(weights={"#1": 2.0}, tie=0.0, n=30, ridge=1.0, before={}, after={})
    assert without.logit({"#1": -0.25}, 2.0) == pytest.approx(-0.5)


def rows_by_length(n: int) -> list[dict[str, str]]:
    """Return rows whose responses the scripted judge scores alike, and of which the longer is the better one."""
    rows = []
    for i in range(n):
        long = "c" * (20 + i % 7)
        row = {"query": f"q{i}", "response_a": "c", "response_b": long, "label": "B"}
        if i % 2:
            row = {"query": f"q{i}", "response_a": long, "response_b": "c", "label": "A"}
        rows.append(row)
    return rows


def test_the_stage_fits_length_says_what_it_has_alone_and_judges_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lazy_model, "make_engine", lambda *args, **kwargs: ScriptedEngine(scored))
    source = f"verdicts.source.path={lines(tmp_path / 'mine.jsonl', rows_by_length(40))}"
    words = ["recipe=debug", f"output_dir={tmp_path / 'out'}", "track.tracker=none", "verdicts.judge=base@2", source]
    plain = Pipeline(configured(*words), Console()).run("calibrate")
    assert "length alone" not in capsys.readouterr().out
    assert json.loads((plain / "fitted.json").read_text())["length"] is None

    directory = Pipeline(configured(*words, "calibrate.length=true"), Console()).run("calibrate")
    printed = capsys.readouterr().out
    assert "length alone, held out: agreement 100.0%" in printed
    assert json.loads((directory / "fitted.json").read_text())["length"] > 0
    assert "so that longer answers gain" in PARTS["Fitted weights"](directory, "base")

    fitted = ["judge.aggregation=fitted", f"judge.fitted={directory}/fitted.json"]
    judged = judge_stage(tmp_path / "out", source, *fitted, judge="base@2")
    verdicts = [json.loads(line) for line in (judged / "verdicts.jsonl").read_text().splitlines()]
    assert all(row["verdict"] == row["label"] for row in verdicts)


@pytest.mark.parametrize(
    ("row", "words", "says"),
    [
        (
            {"response_a": "a", "response_b": "bb", "label": "A"},
            ["calibrate.error=0.1"],
            "calibrate.length=true and calibrate.error",
        ),
        ({"response": "a", "label": "good"}, ["+verdicts.source.labels={poor: 0, good: 1}"], "are of single responses"),
    ],
)
def test_length_where_no_pair_is_weighed_is_refused(
    row: dict[str, object], words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy_model, "make_engine", lambda *args, **kwargs: ScriptedEngine(scored))
    file = lines(tmp_path / "mine.jsonl", [{**row, "query": f"q{i}"} for i in range(24)])
    overrides = [f"verdicts.source.path={file}", "verdicts.judge=base@2", "judge.reads=one"]
    config = configured(
        "recipe=debug",
        f"output_dir={tmp_path / 'out'}",
        "track.tracker=none",
        *overrides,
        "calibrate.length=true",
        *words,
    )
    with pytest.raises(ConfigError, match=says):
        Pipeline(config, Console()).run("calibrate")


def test_weights_without_length_have_the_mark_that_thresholds_remember() -> None:
    """Thresholds name the weights that they were chosen with; both files may be from before there was a length."""
    weights = Fitted(weights={"#1": 2.0}, tie=0.0, n=30, ridge=1.0, before={"ece": 0.1}, after={"ece": 0.1})
    as_written = {key: value for key, value in asdict(weights).items() if key not in ("length", "by_length")}
    digest = hashlib.sha256(json.dumps(as_written, sort_keys=True).encode()).hexdigest()
    assert _mark(weights) == digest[:8]
    assert _mark(replace(weights, length=0.5)) != _mark(weights)
