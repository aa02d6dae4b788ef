"""The gate on single responses: the same rules, on whether scores are at the labels' levels."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from judgetrain.data.intervals import Resampling
from judgetrain.engines import lazy_model
from judgetrain.errors import ConfigError
from judgetrain.evaluate.metrics.intervals import paired_difference
from judgetrain.extras.guarantees.config import GuaranteesConfig
from judgetrain.extras.guarantees.gate import GateError, require_passed
from judgetrain.pipeline.config import Config
from tests.builders.evaluate import pairs
from tests.builders.scripted import ScriptedEngine
from tests.evaluate.test_single_responses import config, evaluated, look, rated, row
from tests.judging.test_judging import answer

N = 40


def gate_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labels: list[Any], rules: list[str]) -> dict[str, Any]:
    monkeypatch.setattr(lazy_model, "make_engine", lambda *args, **kwargs: ScriptedEngine(answer))
    rows = [row(place, label, query=f"q{place}") for place, label in enumerate(labels)]
    settings = config(rated(tmp_path, rows)).changed(guarantees=GuaranteesConfig(rules))
    directory, _ = evaluated(tmp_path, settings)
    gate: dict[str, Any] = json.loads((directory / "gate.json").read_text())
    if not gate["passed"]:
        with pytest.raises(GateError):
            require_passed(directory)
    return gate


def test_a_judge_has_to_be_better_than_the_commonest_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The judge passes three words and more; two labels are otherwise.
    labels = [int(place % 5 > 1) for place in range(N)]
    labels[0], labels[5] = 1, 1
    gate = gate_of(tmp_path, monkeypatch, labels, ["sft beats commonest", "sft matches commonest"])
    assert gate["passed"]
    beats, matches = gate["checks"]
    judge = np.array([place not in (0, 5) for place in range(N)])
    always = np.array(labels) == 1
    expected = paired_difference(judge, always, Resampling(100, Config().seed))
    assert expected is not None and expected.interval is not None
    assert (beats["first"], beats["second"], beats["n"]) == ("sft@2", "always 1", N)
    assert beats["difference"] == pytest.approx(expected.mean) and beats["p"] == expected.p
    assert matches["difference_ci"] == list(expected.interval)
    assert beats["told"].startswith("sft@2 is better than always 1 on mine: +30.0 (")
    report = (tmp_path / "out" / "report.md").read_text()
    assert "### Gate" in report and "sft beats commonest" in report


def test_a_judge_that_knows_nothing_fails_and_a_rule_without_scores_is_untested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = ["pass" if place % 7 else "fail" for place in range(N)]
    gate = gate_of(tmp_path, monkeypatch, labels, ["sft beats commonest", "sft@1 beats commonest"])
    assert not gate["passed"] and gate["untested"] == ["sft@1 beats commonest"]
    (check,) = gate["checks"]
    assert not check["passed"] and "is not better than always pass" in check["told"]


def test_labels_by_criterion_alone_are_tested_criterion_by_criterion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge's scores by either criterion follow the number of words: one label does, and one follows nothing."""
    monkeypatch.setattr(lazy_model, "make_engine", lambda *args, **kwargs: ScriptedEngine(answer))
    criteria = [{"name": name, "text": f"it has {name}", "guideline": "g"} for name in ("length", "taste")]
    rows = []
    for place in range(N):
        labels = {"length": int(place % 5 > 1), "taste": int(place % 3 > 0), "smell": "pass"}
        rows.append(row(place, labels, query=f"q{place}", criteria=criteria))
    settings = config(rated(tmp_path, rows), methods=("sft+given",))
    settings = settings.changed(guarantees=GuaranteesConfig(["sft+given beats commonest"]))
    directory, _ = evaluated(tmp_path, settings)
    gate = json.loads((directory / "gate.json").read_text())
    assert not gate["passed"] and gate["untested"] == []
    # Of the smell the judge says nothing.
    assert [(check["benchmark"], check["passed"]) for check in gate["checks"]] == [
        ("mine: length", True), ("mine: taste", False),
    ]  # fmt: skip
    # Three of five responses pass by their length, which the judge always sees.
    assert gate["checks"][0]["difference"] == pytest.approx(2 / 5)
    with pytest.raises(GateError, match="is not better than always 1 on mine: taste"):
        require_passed(directory)


def test_the_commonest_label_is_refused_before_anything_runs_where_nothing_can_be_tested(tmp_path: Path) -> None:
    of_pairs = config(pairs(tmp_path, 4)).changed(guarantees=GuaranteesConfig(["sft beats commonest"]))
    with pytest.raises(ConfigError, match=r"sft beats commonest: .* the rows of pairs .* are pairs; expected floors"):
        look(of_pairs)
    responses = rated(tmp_path, [row(place, place % 2) for place in range(4)])
    # Beside single responses a file of pairs is no hindrance, but the judge named has to score them.
    both = config(responses, pairs(tmp_path, 4), methods=("sft", "longer"))
    look(both.changed(guarantees=GuaranteesConfig(["sft beats commonest"])))
    with pytest.raises(ConfigError, match="longer gives a single response no score; expected a branching judge"):
        look(both.changed(guarantees=GuaranteesConfig(["longer beats commonest"])))
