"""Weights of criteria fitted to labels, and stage calibrate."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from judgetrain.artifacts.console import Console
from judgetrain.engines import lazy_model
from judgetrain.engines.base import Request
from judgetrain.errors import ConfigError, DataError
from judgetrain.extras.calibrate.stage import PARTS
from judgetrain.judges import fitting
from judgetrain.judges.fitting import calibration_error, fit
from judgetrain.judges.kinds.aggregation import Fitted
from judgetrain.judges.predictions import verdict_of
from judgetrain.pipeline.run import Pipeline
from judgetrain.schema import Verdict
from tests.builders.judging import judge_stage, lines
from tests.builders.pipeline import configured
from tests.builders.scripted import ScriptedEngine, noisy
from tests.judges.test_reads_one import scored

TRUTH = {"#1": 6.0, "#2": 1.5, "#3": 0.0}


def drawn(n: int, seed: int = 0) -> tuple[list[dict[str, float]], list[Verdict]]:
    rng = np.random.default_rng(seed)
    margins = [dict(zip(TRUTH, rng.uniform(-1, 1, 3).round(2).tolist(), strict=True)) for _ in range(n)]
    chances = [1 / (1 + np.exp(-sum(TRUTH[k] * m for k, m in margin.items()))) for margin in margins]
    return margins, ["A" if rng.random() < p else "B" for p in chances]


def fitted(margins: list[dict[str, float]], labels: list[Verdict], prompts: int | None = None) -> Fitted:
    """Return weights fitted to comparisons of so many prompts, by default one each; the plain mean knows no tie."""
    prompt_keys = [(str(i % (prompts or len(margins))),) for i in range(len(margins))]
    return fit(margins, labels, prompt_keys, [verdict_of(sum(margin.values())) or "unreadable" for margin in margins])


def test_weights_are_those_of_scikit_learn_where_none_of_them_is_below_0() -> None:
    margins, labels = drawn(400, 4)
    result = fitted(margins, labels)
    x = np.array([[m[name] for name in TRUTH] for m in margins])
    # All alike is one direction, with a ridge of 0.01 on the weights' mean: its feature is so many times as large.
    turned, _ = np.linalg.qr(np.column_stack([np.ones(3), [1, -1, 0], [1, 1, -2]]))
    turned[:, 0] *= np.sqrt(3 * result.ridge / 0.01)
    other = LogisticRegression(C=1 / result.ridge, fit_intercept=False, tol=1e-8)
    other.fit(x @ turned, [v == "A" for v in labels])
    assert [result.weights[name] for name in TRUTH] == pytest.approx(turned @ other.coef_[0], abs=5e-3)


def test_few_labels_leave_the_ratios_of_the_mean_and_many_find_others() -> None:
    """Ten places of which the first two matter: of 60 labels the weights are near thirds, of 3,000 the true ones."""
    truth = np.array([3.0, 6.0, *[0.0] * 8])
    thirds = (1 / 3) ** np.arange(10)
    rng = np.random.default_rng(3)

    def found(n: int) -> np.ndarray:
        x = rng.uniform(-1, 1, (n, 10))
        labels: list[Verdict] = ["A" if rng.random() < 1 / (1 + np.exp(-row @ truth)) else "B" for row in x]
        margins = [{f"#{i}": float(m) for i, m in enumerate(row * thirds, 1)} for row in x]
        weights = fitted(margins, labels).weights
        return thirds * [weights[f"#{i}"] for i in range(1, 11)]

    few = found(60)
    many = found(3000)
    assert few[4:].sum() < 0.15 * few.sum(), "late places count little, whatever chance says of them"
    assert many[:2] == pytest.approx(truth[:2], abs=0.8) and many[2:].max() < 0.5


def test_a_hundred_labels_make_probabilities_that_come_true_and_beat_the_plain_mean() -> None:
    errors = []
    gains = []
    for seed in range(5):
        margins, labels = drawn(100, seed)
        result = fitted(margins, labels)
        assert all(weight >= 0 for weight in result.weights.values()) and result.weights["#1"] > result.weights["#3"]
        fresh, right = drawn(2000, 100 + seed)
        logits = [result.logit(m) or 0.0 for m in fresh]
        targets = np.array([float(v == "A") for v in right])
        errors.append(calibration_error(1 / (1 + np.exp(-np.array(logits))), targets))
        agreement = np.mean([result.verdict(x) == v for x, v in zip(logits, right, strict=True)])
        mean = np.mean([(sum(m.values()) > 0) == (v == "A") for m, v in zip(fresh, right, strict=True)])
        gains.append(agreement - mean)
    assert np.mean(errors) < 0.05 and min(gains) > 0.05


def test_calibration_error_by_hand() -> None:
    probabilities = np.array([0.9, 0.9, 0.1, 0.6])
    targets = np.array([1.0, 0.0, 0.0, 0.5])
    # Confidence 0.9 three times, right twice: |0.9 - 2/3| * 3/4; 0.6 once, a tie is half right: 0.1 * 1/4.
    assert calibration_error(probabilities, targets) == pytest.approx(0.9 * 0.75 - 0.5 + 0.025)


def test_ties_have_a_width_and_exchanging_the_responses_exchanges_the_verdict() -> None:
    margins = [{"#1": m} for m in np.linspace(-1, 1, 101)]
    labels: list[Verdict] = ["tie" if abs(m["#1"]) < 0.3 else "A" if m["#1"] > 0 else "B" for m in margins]
    result = fitted(margins, labels)
    assert result.tie > 0 and result.after["agreement"] > 0.9 > result.before["agreement"]
    for m in (0.05, 0.6, 1.0):
        one, other = (result.verdict(result.logit({"#1": sign * m})) for sign in (1, -1))
        assert (one, other) in (("tie", "tie"), ("A", "B"))
    assert result.verdict(result.logit({})) is None


def test_labels_that_follow_nothing_are_met_no_more_often_than_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance is a third. Were a tie's width chosen on what it is measured on, it would be right in 40% of these."""
    monkeypatch.setattr(fitting, "FOLDS", 3)
    monkeypatch.setattr(fitting, "STRENGTHS", (1.0,))
    agreements = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        margins = [{"#1": m} for m in rng.uniform(-1, 1, 30).round(2).tolist()]
        labels: list[Verdict] = rng.choice(["A", "B", "tie"], 30).tolist()
        agreements.append(fitted(margins, labels).after["agreement"])
    assert abs(np.mean(agreements) - 1 / 3) < 0.026, "three standard errors"


@pytest.mark.parametrize(("n", "prompts"), [(3, 3), (19, 19), (40, 1)])
def test_too_few_labels_or_prompts_are_refused(n: int, prompts: int) -> None:
    with pytest.raises(DataError, match=f"at least 20 labelled comparisons.*found {n}"):
        fitted(*drawn(n), prompts)


def test_stage_calibrate_fits_what_a_judge_says_of_labelled_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lazy_model, "make_engine", lambda *args, **kwargs: ScriptedEngine(scored))
    rows = [
        {"query": f"q{i}", "response_a": "a " * (1 + i % 5), "response_b": "b " * (1 + i % 3), "label": label}
        for i in range(60)
        for label in [("A", "B", "tie")[(i % 5 < i % 3) + 2 * (i % 5 == i % 3)]]
    ]
    source = f"verdicts.source.path={lines(tmp_path / 'mine.jsonl', rows)}"
    words = ["recipe=debug", f"output_dir={tmp_path / 'out'}", "track.tracker=none", "verdicts.judge=base@2", source]
    directory = Pipeline(configured(*words), Console()).run("calibrate")
    weights_file = json.loads((directory / "fitted.json").read_text())
    assert (
        weights_file["n"] == 60
        and set(weights_file["weights"]) == {"#1", "#2"}
        and weights_file["after"]["agreement"] > 0.9
    )
    assert "fitted, held out: agreement" in capsys.readouterr().out
    card = PARTS["Fitted weights"](directory, "base")
    assert "on 60 labelled comparisons" in card and f"#1 {weights_file['weights']['#1']:.2f}" in card
    assert (
        f"calibration error {weights_file['before']['ece']:.3f}; " in card
        and f"{weights_file['after']['ece']:.3f}. W" in card
    )
    assert {tell(tmp_path, "base") for tell in PARTS.values()} == {""}, "another stage's artifact"
    with pytest.raises(ConfigError, match="branching judges alone"):
        Pipeline(configured(*words[:3], "verdicts.judge=longer", source), Console()).run("calibrate")
    used = judge_stage(
        tmp_path / "out", source, "judge.aggregation=fitted", f"judge.fitted={directory}/fitted.json", judge="base@2"
    )
    verdicts = [json.loads(line) for line in (used / "verdicts.jsonl").read_text().splitlines()]
    assert sum(row["verdict"] == row["label"] for row in verdicts) > 50


def test_rows_that_label_a_pair_differently_are_votes_as_in_stage_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lazy_model, "make_engine", lambda *args, **kwargs: ScriptedEngine(scored))
    rows = [
        {"query": f"q{i}", "response_a": "a " * (1 + i % 5), "response_b": "b " * (1 + i % 3), "label": "AB"[i % 2]}
        for i in range(24)
    ]
    # The first pair gets a second vote and a third for what it says, the second one a tie that has no majority.
    first, second = rows[0], rows[1]
    turned = {"response_a": first["response_b"], "response_b": first["response_a"]}
    rows += [first | {"label": "B"}, first | turned | {"label": "B"}, second | {"label": "A"}]
    source = f"verdicts.source.path={lines(tmp_path / 'mine.jsonl', rows)}"
    words = ["recipe=debug", f"output_dir={tmp_path / 'out'}", "track.tracker=none", "verdicts.judge=base@2", source]
    calibrated = json.loads((Pipeline(configured(*words), Console()).run("calibrate") / "fitted.json").read_text())
    assert "2 pairs of responses stand in several rows with different labels" in capsys.readouterr().out
    summary = json.loads((judge_stage(tmp_path / "judge", source, judge="base@2") / "summary.json").read_text())
    assert calibrated["n"] == summary["labelled"] == 23
    assert calibrated["before"]["agreement"] == pytest.approx(summary["agreed"] / 23, abs=1e-6)


def test_spellings_of_one_prompt_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one would stand in the fold that the weights are fitted to, and the other in the one they are tried on."""
    monkeypatch.setattr(lazy_model, "make_engine", lambda *args, **kwargs: ScriptedEngine(scored))
    spelled = ("Which one?", "which  one?", "WHICH ONE?")
    rows = [
        {"query": spelled[i % 3], "response_a": "a " * (1 + i % 7), "response_b": "b" * (1 + i), "label": "AB"[i % 2]}
        for i in range(40)
    ]
    source = f"verdicts.source.path={lines(tmp_path / 'mine.jsonl', rows)}"
    words = ["recipe=debug", f"output_dir={tmp_path / 'out'}", "track.tracker=none", "verdicts.judge=base@2", source]
    with pytest.raises(DataError, match="nor all of one prompt"):
        Pipeline(configured(*words), Console()).run("calibrate")


def unsure(request: Request, occurrence: int) -> str:
    """Judgments that vary, an eighth of them unreadable: of query "half" all in one order; of "mute" none is given."""
    query = request.slots.get("query")
    if query == "mute":
        return "!error"
    if query == "half" and request.slots.get("response_a") == "two":
        return "I like both."
    return noisy(request, occurrence)


@pytest.mark.parametrize(
    "how",
    [
        ["judge.tie=0.25"],
        ["judge.tie=0.2", "judge.early_stop=true"],
        ["judge.tie=0.2", "judge.aggregation=mean", "judge.early_stop=true"],
    ],
)
def test_agreement_of_the_mean_is_that_of_the_judge_as_it_is_asked(
    how: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Stages judge and evaluate agree on these rows: ties, empty responses and what is unreadable count.
    monkeypatch.setattr(lazy_model, "make_engine", lambda *args, **kwargs: ScriptedEngine(unsure))
    rng = np.random.default_rng(2)
    rows = [
        {"query": f"q{i}", "response_a": f"one {i}", "response_b": f"two {i}", "label": str(rng.choice(["A", "tie"]))}
        for i in range(60)
    ]
    rows += [
        {"query": f"q{i}", "response_a": f"one {i}", "response_b": " ", "label": label}
        for i, label in ((60, "A"), (61, "B"))
    ]
    rows += [
        {"query": query, "response_a": f"one {label}", "response_b": "two", "label": label}
        for query in ("half", "mute")
        for label in ("A", "B")
    ]
    file = lines(tmp_path / "mine.jsonl", rows)
    source = f"verdicts.source.path={file}"
    words = ["recipe=debug", f"output_dir={tmp_path / 'out'}", "track.tracker=none", *how]
    directory = Pipeline(configured(*words, "verdicts.judge=base@3", source), Console()).run("calibrate")
    calibrated = json.loads((directory / "fitted.json").read_text())
    printed = capsys.readouterr().out

    place = judge_stage(tmp_path / "judge", source, *how, "judge.aggregation=mean", judge="base@3")
    summary = json.loads((place / "summary.json").read_text())
    assert summary["labelled"] == len(rows) and summary["verdicts"]["tie"] > 5
    agreement = summary["agreed"] / summary["labelled"]
    assert calibrated["before"]["agreement"] == pytest.approx(agreement, abs=1e-6)
    assert f"mean: agreement {100 * agreement:.1f}%" in printed
    card = PARTS["Fitted weights"](directory, "base")
    assert f"Plain mean: agreement {100 * agreement:.1f}%" in card

    verdicts = Counter(json.loads(line)["verdict"] for line in (place / "verdicts.jsonl").read_text().splitlines())
    assert verdicts[None] == 2 and verdicts["unreadable"] == 2
    assert f"fitted to 62 of {len(rows)} labelled comparisons" in printed, "two are empty, of two nothing was read"
    assert calibrated["n"] == 62
    assert calibrated["after"]["agreement"] <= 1 - 5 / len(rows), "four have no verdict, and one that is empty lost"

    benchmark = f"evaluate.benchmarks=[{{name: mine, source: {{path: '{file}'}}}}]"
    evaluation = ["judge.aggregation=mean", "evaluate.methods=[base]", "evaluate.branches=[3]", benchmark]
    evaluated = Pipeline(configured(*words, *evaluation, "robustness.sample=0"), Console()).run("evaluate")
    (row,) = json.loads((evaluated / "metrics.json").read_text())
    assert row["n"] == len(rows) and row["agreement"] == pytest.approx(agreement, abs=1e-6)

    exact = judge_stage(tmp_path / "exact", source, "judge.aggregation=mean", "judge.tie=0", judge="base@3")
    without_tie = json.loads((exact / "summary.json").read_text())
    assert without_tie["agreed"] != summary["agreed"], "the tie's width matters on these rows"
