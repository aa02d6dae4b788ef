"""Weights of criteria fitted to labels of single responses, and the scores that they make."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.data.labelled import Scale
from judgetrain.engines import lazy_model
from judgetrain.engines.base import Request
from judgetrain.errors import ConfigError, DataError
from judgetrain.extras.calibrate.stage import PARTS
from judgetrain.judges.deciding import Thresholds
from judgetrain.judges.fitting import fit_scores
from judgetrain.judges.kinds.aggregation import Fitted
from judgetrain.pipeline.run import Pipeline
from tests.builders.judging import judge_stage, lines
from tests.builders.pipeline import configured
from tests.builders.scripted import ScriptedEngine

TWO = Scale((0.0, 1.0), ("fail", "pass"))
FIVE = Scale((0.0, 0.25, 0.5, 0.75, 1.0), ("1", "2", "3", "4", "5"))
TRUTH = np.array([4.0, 1.0, 0.0])
INTERCEPT = -1.0


def drawn(n: int, scale: Scale, seed: int) -> tuple[np.ndarray, list[float]]:
    """Shares by three criteria, and labels that follow from them with a known chance."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 3)).round(3)
    chances = 1 / (1 + np.exp(-(x @ TRUTH + INTERCEPT)))
    steps = len(scale.scores) - 1
    return x, [float(rng.binomial(steps, chance) / steps) for chance in chances]


def fitted(x: np.ndarray, labels: list[float], scale: Scale) -> Fitted:
    shares = [{f"#{place}": float(value) for place, value in enumerate(row, 1)} for row in x]
    scores: list[float | None] = [float((1 + row.mean()) / 2) for row in x]
    return fit_scores(shares, labels, scale, [(str(place),) for place in range(len(x))], scores)


@pytest.mark.parametrize("scale", [TWO, FIVE])
def test_weights_and_intercept_are_those_of_scikit_learn(scale: Scale) -> None:
    x, labels = drawn(400, scale, 4)
    result = fitted(x, labels, scale)
    # A label between 0 and 1 is so much of a pass and so much of a fail. The ridge hardly holds the weights' mean.
    turned, _ = np.linalg.qr(np.column_stack([np.ones(3), [1, -1, 0], [1, 1, -2]]))
    turned[:, 0] *= np.sqrt(3 * result.ridge / 0.01)
    other = LogisticRegression(C=1 / result.ridge, tol=1e-8)
    weights = np.concatenate([labels, 1 - np.array(labels)])
    other.fit(np.concatenate([x, x]) @ turned, [1] * len(x) + [0] * len(x), sample_weight=weights)
    assert [result.weights[f"#{place}"] for place in (1, 2, 3)] == pytest.approx(turned @ other.coef_[0], abs=1e-2)
    assert result.intercept == pytest.approx(other.intercept_[0], abs=1e-2)
    assert result.single and result.n == 400


def test_a_score_is_then_a_probability_that_comes_true() -> None:
    gains = []
    for seed in range(3):
        result = fitted(*drawn(150, TWO, seed), TWO)
        x, labels = drawn(3000, TWO, 100 + seed)
        scores = [result.score({f"#{place}": float(value) for place, value in enumerate(row, 1)}) or 0.0 for row in x]
        values, targets = np.array(scores), np.array(labels)
        # In every fifth of the scores as many pass as the scores say.
        for part in np.array_split(np.argsort(values), 5):
            assert values[part].mean() == pytest.approx(targets[part].mean(), abs=0.12)
        gains.append(((values >= 0.5) == targets).mean() - ((x.mean(axis=1) >= 0) == targets).mean())
        assert result.after["agreement"] > result.before["agreement"]
        assert result.after["ece"] < result.before["ece"]
    assert min(gains) > 0.03


def test_over_more_than_two_levels_a_score_is_the_expected_label() -> None:
    result = fitted(*drawn(300, FIVE, 1), FIVE)
    assert set(result.before) == {"agreement", "error"}
    assert result.after["error"] < result.before["error"]
    assert result.score({}) is None
    logit = result.intercept + result.weights["#1"] * 0.5
    assert result.score({"#1": 0.5}) == pytest.approx(1 / (1 + math.exp(-logit)))


@pytest.mark.parametrize(
    ("n", "labels", "told"),
    [
        (30, [1.0], "all 30 labels of responses that could be read are pass: .* label others, too"),
        (3, [0.0, 1.0], "expected at least 20 labelled responses that the judge could read, .*; found 3"),
    ],
)
def test_what_nothing_can_be_fitted_to_is_one_sentence(n: int, labels: list[float], told: str) -> None:
    x = np.linspace(-1, 1, 3 * n).reshape(n, 3)
    with pytest.raises(DataError, match=told):
        fitted(x, [labels[place % len(labels)] for place in range(n)], TWO)


RUBRIC = """
- {name: Length, text: it is long, guideline: g}
- {name: Noise, text: it is loud, guideline: g, weight: 3}
"""


def answer(request: Request, occurrence: int) -> str:
    """Scores the length by the number of words, and the noise by a letter that says nothing of the label."""
    words = request.slots["response"].split()
    score = len(words) if "long" in request.messages[-1]["content"] else ord(words[0][0]) % 5 + 1
    return f"Score: {score}\nAnalysis: x"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> ScriptedEngine:
    scripted = ScriptedEngine(answer)
    monkeypatch.setattr(lazy_model, "make_engine", lambda *args, **kwargs: scripted)
    return scripted


def overrides(tmp_path: Path, rows: list[dict[str, Any]]) -> tuple[str, ...]:
    (tmp_path / "r.yaml").write_text(RUBRIC)
    return (
        f"verdicts.source.path={lines(tmp_path / 'mine.jsonl', rows)}", f"criteria={tmp_path / 'r.yaml'}",
        "judge.score=parsed", "judge.reads=one", "verdicts.judge=base",
    )  # fmt: skip


def calibrated(tmp_path: Path, *settings: str) -> Path:
    config = configured("recipe=debug", "track.tracker=none", f"output_dir={tmp_path / 'out'}", *settings)
    return Pipeline(config, Console()).run("calibrate")


def row(place: int, label: Any) -> dict[str, Any]:
    letter = "abcde"[place * 7 // 3 % 5]
    return {"id": place, "query": f"q{place}", "response": " ".join([letter] * (place % 5 + 1)), "label": label}


def test_labelled_responses_weigh_the_criteria_and_scores_become_probabilities(
    tmp_path: Path, engine: ScriptedEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row(place, "pass" if place % 5 > 2 else "fail") for place in range(40)] + [row(40, None)]
    settings = overrides(tmp_path, rows)
    directory = calibrated(tmp_path, *settings)
    result = Fitted.load(directory)
    assert result.single and result.n == 40
    # By its rubric's weights the noise counts three times as much; labels follow the length alone.
    assert result.weights["Length"] > 3 * result.weights["Noise"]
    assert result.after["agreement"] > 0.9 and result.before["agreement"] < 0.7
    output = " ".join(capsys.readouterr().out.split())
    assert f"fitted, held out: agreement {100 * result.after['agreement']:.1f}%, calibration error" in output
    assert "on 40 labelled single responses" in PARTS["Fitted weights"](directory, "dpo")

    def judged(*more: str) -> list[dict[str, Any]]:
        return list(read_rows(judge_stage(tmp_path / "judge", *settings[:-1], *more, judge="base"), "scores"))

    scores = judged("judge.aggregation=fitted", f"judge.fitted={directory}")
    margins = {r["id"]: r["shares"] for r in read_rows(directory, "margins")}
    for scored in scores[:-1]:
        assert scored["score"] == pytest.approx(result.score(margins[scored["id"]]))
    right = [(scored["score"] >= 0.5) == (scored["label"] == 1.0) for scored in scores[:-1]]
    assert sum(right) >= 36
    by_mean = judged()
    assert [s["score"] for s in by_mean] != [s["score"] for s in scores]
    assert by_mean[3]["score"] == pytest.approx((3 / 4 + 3 * (ord(rows[3]["response"][0]) % 5) / 4) / 4)


def test_weights_of_single_responses_leave_comparisons_to_the_mean(tmp_path: Path, engine: ScriptedEngine) -> None:
    settings = overrides(tmp_path, [row(place, int(place % 5 > 2)) for place in range(40)])
    directory = calibrated(tmp_path, *settings)
    pair = {"query": "q", "response_a": "a a a a a", "response_b": "b"}
    path = f"verdicts.source.path={lines(tmp_path / 'pairs.jsonl', [pair])}"
    mean, by_weights = (
        list(read_rows(judge_stage(tmp_path / name, path, *settings[1:-1], *more, judge="base"), "verdicts"))
        for name, more in (
            ("mean", ("judge.aggregation=mean",)),
            ("fitted", ("judge.aggregation=fitted", f"judge.fitted={directory}")),
        )
    )
    assert (by_weights[0]["verdict"], by_weights[0]["margin"]) == (mean[0]["verdict"], mean[0]["margin"])


def test_what_lacks_for_calibration_is_one_sentence(tmp_path: Path, engine: ScriptedEngine) -> None:
    rows = [row(place, {"length": 1}) for place in range(30)]
    with pytest.raises(DataError, match="none of the 30 rows .* has a label of the response as a whole"):
        calibrated(tmp_path, *overrides(tmp_path, [*rows[:29], row(29, {"length": 0})]))
    rows = [row(place, place % 2) for place in range(30)]
    with pytest.raises(ConfigError, match="30 of 30 rows hold one response.* set judge.reads=one"):
        calibrated(tmp_path, *overrides(tmp_path, rows), "judge.reads=two")
    # A column that is there is not said to be missing.
    words = [row(place, ("bronze", "silver", "gold")[place % 3]) for place in range(30)]
    tied = [row(place, ["pass", "fail"]) for place in range(30)]
    unlabelled = [{"query": f"q{place}", "response": "a"} for place in range(30)]
    for rows, told in (
        (words, "none of the 30 rows .* or say what its words mean with verdicts.source.labels={poor: 0, fair: 0.5, "),
        (tied, "none of the 30 rows .* that counts: of each response as many annotators say one as say the other"),
        (unlabelled, "none of the 30 rows of verdicts.source has a label that counts; name its column"),
    ):
        for promise in ((), ("calibrate.error=0.1",)):
            with pytest.raises(DataError, match=told):
                calibrated(tmp_path, *overrides(tmp_path, rows), *promise)


def test_rows_that_label_one_response_are_one_label_of_it(
    tmp_path: Path, engine: ScriptedEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each annotator has a row: what counts is what they say together, as in stages judge and evaluate."""
    rows = []
    for place in range(40):
        good = place % 5 > 2
        # The first row is always wrong, and the two others outvote it.
        for annotator, is_right in enumerate((False, True, True)):
            label = "pass" if good == is_right else "fail"
            rows.append({**row(place, label), "id": f"{place}-{annotator}"})
    # Two who differ give no label.
    rows += [{**row(41, label), "id": f"41-{label}"} for label in ("pass", "fail")]
    settings = overrides(tmp_path, rows)
    result = Fitted.load(calibrated(tmp_path, *settings))
    assert result.n == 40 and result.after["agreement"] > 0.9
    output = " ".join(capsys.readouterr().out.split())
    assert "41 responses stand in several rows with labels, 122 in all" in output

    directory = calibrated(tmp_path, *settings, "calibrate.error=0.3", "calibrate.delta=0.3")
    assert Thresholds.load(directory).n == 40
    labels = {judged["id"]: judged["label"] for judged in read_rows(directory, "judged")}
    # The mean of the three, as several annotators' label is.
    means = {f"mine:{place}-0": (1 + (place % 5 > 2)) / 3 for place in range(40)}
    assert labels == pytest.approx(means)


def test_an_empty_response_is_no_evidence_of_a_promise(tmp_path: Path, engine: ScriptedEngine) -> None:
    """It loses by rule, so that however many there are, thresholds and counts are those without them."""
    rows = []
    for place in range(60):
        # A quarter of the responses that the judge finds worst pass.
        good = place % 5 > 2 or place % 20 == 0
        rows.append(row(place, "pass" if good else "fail"))
    empty = [{"id": f"e{place}", "query": f"other {place}", "response": " ", "label": "fail"} for place in range(60)]
    adapter = tmp_path / "adapter.yaml"
    adapter.write_text(
        "kind: single\nfields: {id: [id], query: [query], response: [response], label: [label]}\n"
        "labels: {fail: 0, pass: 1}\n"
    )
    more = (f"verdicts.source.adapter={adapter}", "calibrate.error=0.3", "calibrate.delta=0.3")
    without = Thresholds.load(calibrated(tmp_path, *overrides(tmp_path, rows), *more))
    directory = calibrated(tmp_path, *overrides(tmp_path, [*rows, *empty]), *more)
    assert Thresholds.load(directory) == without
    assert without.n == 60 and 0 < without.decided < 60
    assert len(list(read_rows(directory, "judged"))) == 60, "what is empty is not asked about either"

    with pytest.raises(DataError, match="all 60 labelled responses of verdicts.source are empty"):
        calibrated(tmp_path, *overrides(tmp_path, empty), *more)


def test_nothing_is_promised_of_prompts_that_the_weights_were_fitted_to(tmp_path: Path, engine: ScriptedEngine) -> None:
    settings = overrides(tmp_path, [row(place, int(place % 5 > 2)) for place in range(60)])
    weights = calibrated(tmp_path, *settings)
    by_weights = ("judge.aggregation=fitted", f"judge.fitted={weights}", "calibrate.error=0.3", "calibrate.delta=0.3")
    # Of the 60 prompts ten are new; white space and case make no new prompt.
    rows = [row(place, int(place % 5 > 2)) for place in range(10, 70)]
    rows[0]["query"] = " Q10 "
    file = f"verdicts.source.path={lines(tmp_path / 'more.jsonl', rows)}"
    with pytest.raises(DataError, match="50 of 60 labelled prompts are among those that the weights of judge.fitted"):
        calibrated(tmp_path, file, *settings[1:], *by_weights)
    new = f"verdicts.source.path={lines(tmp_path / 'new.jsonl', rows[50:])}"
    thresholds = Thresholds.load(calibrated(tmp_path, new, *settings[1:], *by_weights))
    assert thresholds.n == 10
