"""Thresholds with a promise: exact bounds, how often the promise holds, and what a judge with thresholds says."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.engines import lazy_model
from judgetrain.engines.base import Request
from judgetrain.errors import ConfigError, DataError
from judgetrain.extras.calibrate.deciding import one_of_each_prompt
from judgetrain.extras.calibrate.promise import Promise, pair_thresholds, score_thresholds, upper_bound
from judgetrain.extras.calibrate.stage import PARTS
from judgetrain.judges.config import JudgeConfig
from judgetrain.judges.deciding import Thresholds
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.predictions import Prediction, Score
from judgetrain.judges.saved import save_settings
from judgetrain.pipeline.run import Pipeline
from tests.builders.judging import judge_stage, lines
from tests.builders.pipeline import configured
from tests.builders.scripted import ScriptedEngine
from tests.judges.test_reads_one import scored

RESAMPLES = 1000
ERROR = 0.1
DELTA = 0.1
MOST = DELTA + 2 * np.sqrt(DELTA * (1 - DELTA) / RESAMPLES)
"""The most resamples whose error may be above the wanted one: two standard errors."""


@pytest.mark.parametrize(("wrong", "n"), [(0, 22), (1, 40), (7, 90), (3, 3)])
def test_the_bound_is_the_error_under_which_so_few_wrong_ones_have_a_chance_of_delta(wrong: int, n: int) -> None:
    bound = upper_bound(wrong, n, DELTA)
    if wrong == n:
        assert bound == 1
    else:
        assert binom.cdf(wrong, n, bound) == pytest.approx(DELTA)


def test_fewest_labels_are_those_of_which_none_may_be_wrong() -> None:
    for error, delta in ((0.1, 0.1), (0.05, 0.1), (0.2, 0.05), (0.5, 0.5)):
        n = Promise(error, delta).fewest
        assert (1 - error) ** n <= delta + 1e-12
        assert (1 - error) ** (n - 1) > delta


def test_a_promise_on_pairs_holds() -> None:
    """Margins are even over 0 to 4 and the chance to be right rises with them: the error beyond one is an integral."""
    rng = np.random.default_rng(7)
    broken = 0
    shares = []
    for _ in range(RESAMPLES):
        size = rng.uniform(0, 4, 200)
        right = rng.random(200) < 0.5 + size / 8
        margins = (size * rng.choice([-1, 1], 200)).tolist()
        margin = pair_thresholds(margins, right.tolist(), "points", Promise(ERROR, DELTA)).margin
        if margin is not None:
            # The mean of 1/2 - m/8 over m from the threshold to 4.
            error = 0.5 - (margin + 4) / 16
            broken += error > ERROR
            shares.append(1 - margin / 4)
    assert broken / RESAMPLES <= MOST
    assert len(shares) > 0.5 * RESAMPLES and np.mean(shares) > 0.1, "a promise that decides nothing is none"


def test_a_promise_on_single_responses_holds_for_passes_and_fails() -> None:
    """Scores are the chance of a pass, but for a judge that flatters: it is so much lower in the upper half."""
    rng = np.random.default_rng(8)
    broken = 0
    decided = 0
    for _ in range(RESAMPLES):
        scores = rng.random(300)
        chances = np.where(scores > 0.5, scores - 0.05, scores)
        passed = rng.random(300) < chances
        thresholds = score_thresholds(scores.tolist(), passed.tolist(), 0.5, Promise(2 * ERROR, DELTA), "pass")
        wrong_passes = wrong_fails = 0.0
        if thresholds.high is not None:
            wrong_passes = 1 - ((1 + thresholds.high) / 2 - 0.05)
        if thresholds.low is not None:
            wrong_fails = thresholds.low / 2
        broken += max(wrong_passes, wrong_fails) > 2 * ERROR
        decided += thresholds.decided > 0
    assert broken / RESAMPLES <= MOST
    assert decided > 0.5 * RESAMPLES


def test_a_promise_is_kept_by_a_judge_that_is_wrong_where_it_is_surest() -> None:
    """Of the surest tenth 30% are wrong, and of no others: only beyond the first ninth of the rest is it below 10%."""
    rng = np.random.default_rng(9)
    broken = 0
    for _ in range(RESAMPLES):
        size = rng.uniform(0, 4, 300)
        right = (size < 3.6) | (rng.random(300) < 0.7)
        margin = pair_thresholds(size.tolist(), right.tolist(), "points", Promise(ERROR, DELTA)).margin
        if margin is not None:
            broken += 0.3 * 0.4 / (4 - min(margin, 3.6)) > ERROR
    assert broken / RESAMPLES <= MOST


@pytest.mark.parametrize(("error", "delta", "n"), [(0.1, 0.1, 60), (0.3, 0.05, 40), (0.5, 0.5, 8)])
def test_a_promise_is_kept_where_scores_tie_and_all_are_just_worse_than_wanted(
    error: float, delta: float, n: int
) -> None:
    """Five margins and no others, of each of which a little more than the wanted share is wrong: all that is decided
    is too much, so that anything may be decided in a share of delta at most.
    """
    rng = np.random.default_rng(11)
    decided = 0
    for _ in range(RESAMPLES):
        margins = rng.integers(0, 5, n).astype(float)
        right = rng.random(n) >= error + 0.001
        thresholds = pair_thresholds(margins.tolist(), right.tolist(), "points", Promise(error, delta))
        decided += thresholds.decided > 0
    assert decided / RESAMPLES <= delta + 2 * np.sqrt(delta * (1 - delta) / RESAMPLES)


def test_log_odds_are_thresholds_in_nats() -> None:
    margins = [float(m) for m in np.linspace(-6, 6, 200)]
    right = [abs(m) > 2 for m in margins]
    thresholds = pair_thresholds(margins, right, "log_odds", Promise(ERROR, DELTA))
    assert thresholds.margin is not None and 1 < thresholds.margin < 2.2
    decided = [m for m in margins if thresholds.of_margin(m) == "decided"]
    assert len(decided) == thresholds.decided
    assert sum(abs(m) <= 2 for m in decided) == thresholds.wrong


def test_what_is_counted_as_decided_is_what_a_judge_decides() -> None:
    """Margins on the grid's lines, with what rounding takes off them, and log-odds so large that rounding makes 1."""
    margins = [0.01 * step for step in range(1, 401)]
    right = [margin > 2.2 for margin in margins]
    thresholds = pair_thresholds(margins, right, "points", Promise(ERROR, DELTA))
    decided = [place for place, margin in enumerate(margins) if thresholds.of_margin(margin) == "decided"]
    assert len(decided) == thresholds.decided
    assert sum(not right[place] for place in decided) == thresholds.wrong
    assert thresholds.of_margin(2.5) == "decided"

    # Of 50 nats the certainty is 1 but for what rounding takes off, and 6.5 nats are the next step below.
    surest = pair_thresholds([50.0, -50.0, 6.5] * 40, [True, True, False] * 40, "log_odds", Promise(ERROR, DELTA))
    assert surest.margin is not None and 6.5 < surest.margin < 50
    assert (surest.decided, surest.wrong) == (80, 0)
    assert (surest.of_margin(-50.0), surest.of_margin(6.5)) == ("decided", "undecided")

    # Of scores the middle passes, and what lies below it does not.
    scores = [0.5] * 60 + [0.5 - 1e-10] * 60
    halves = score_thresholds(scores, [True] * 60 + [False] * 60, 0.5, Promise(ERROR, DELTA), "pass")
    assert (halves.decided, halves.wrong) == (120, 0)
    assert (halves.passed(0.5), halves.passed(0.5 - 1e-10)) == (True, False)


def one_row(prompt: int, place: int, label: float) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"q{prompt}"}]
    return {"id": f"{prompt}-{place}", "messages": messages, "response": f"answer {prompt} {place}", "label": label}


def test_which_row_of_a_prompt_counts_follows_neither_from_its_place_nor_from_its_label() -> None:
    """Files often name the better response of a prompt first: of first rows alone all would pass."""
    rows = [one_row(prompt, place, 1.0 - place) for prompt in range(400) for place in range(2)]
    drawn = one_of_each_prompt(rows)
    assert len(drawn) == 400 and len({row["id"].split("-")[0] for row in drawn}) == 400
    # Half of 400 draws, with four standard errors.
    assert abs(sum(row["label"] for row in drawn) - 200) < 40
    # In another order of the file, with other labels and ids, the same responses are drawn.
    turned = [{**row, "label": 0.5, "id": "x"} for row in reversed(rows)]
    assert {row["response"] for row in one_of_each_prompt(turned)} == {row["response"] for row in drawn}
    pair = {"messages": rows[0]["messages"], "response_a": "one", "response_b": "two"}
    other = {**pair, "response_a": "three"}
    reversed_pair = {**pair, "response_a": "two", "response_b": "one"}
    assert (one_of_each_prompt([pair, other]) == [pair]) == (one_of_each_prompt([other, reversed_pair]) != [other])


def test_too_few_labels_say_how_many_are_needed() -> None:
    with pytest.raises(DataError, match="needs at least 22 labelled comparisons .*; found 3"):
        pair_thresholds([1.0, 2.0, 3.0, None], [True] * 4, "points", Promise(ERROR, DELTA))
    with pytest.raises(DataError, match="needs at least 29 .* 0.5 or higher, or as many lower ones.*found 2 and 1"):
        score_thresholds([0.6, 0.7, 0.1], [True, False, False], 0.5, Promise(ERROR, DELTA), "pass")
    with pytest.raises(DataError, match="all 40 labels are a pass, .* label others, too"):
        score_thresholds([0.6] * 40, [True] * 40, 0.5, Promise(ERROR, DELTA), "pass")


def test_thresholds_of_another_judge_are_refused(tmp_path: Path) -> None:
    thresholds = pair_thresholds([3.0] * 40, [True] * 40, "log_odds", Promise(ERROR, DELTA))
    with pytest.raises(ConfigError, match="judge.decided: its thresholds are of margins in log_odds"):
        JudgeOptions(thresholds=thresholds)
    (tmp_path / "decided.json").write_text('{"weights": {}}')
    with pytest.raises(ConfigError, match="judge.decided=.*expected the decided.json of stage calibrate"):
        Thresholds.load(tmp_path)


def test_a_promise_is_of_one_judge(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of another model, and of one that is asked otherwise, nothing was promised; old files say nothing of either."""
    thresholds = pair_thresholds([3.0] * 40, [True] * 40, "points", Promise(ERROR, DELTA))
    asked = JudgeOptions(model="gpt-5.4").way
    replace(thresholds, asked=asked).save(tmp_path)
    by_file = replace(JudgeConfig(), decided=str(tmp_path))
    assert JudgeOptions.of(by_file, 10, model="gpt-5.4").thresholds is not None
    longer = replace(by_file, judgment_tokens=9, retries=0)
    assert JudgeOptions.of(longer, 10, model="gpt-5.4").thresholds is not None, "no score depends on these"
    for changes, model, message in (
        ({}, "gpt-4.1", "model was gpt-5.4, and is gpt-4.1"),
        ({"temperature": 1.0}, "gpt-5.4", "judge.temperature was 0, and is 1"),
        ({"tie": 0.1, "aggregation": "mean"}, "gpt-5.4", "judge.aggregation was vote.*; judge.tie was 0, and is 0.1"),
    ):
        with pytest.raises(ConfigError, match=f"judge.decided=.* asked otherwise .{message}"):
            JudgeOptions.of(replace(by_file, **changes), 10, model=model)
    # A model that nobody can tell from others is taken at the user's word.
    assert JudgeOptions.of(by_file, 10).thresholds is not None
    thresholds.save(tmp_path)
    assert JudgeOptions.of(replace(by_file, temperature=1.0), 10, model="gpt-4.1").thresholds is not None

    # Beside a judge the file lies for whoever asks it so: nobody asked for it now.
    replace(thresholds, asked=asked).save(tmp_path)
    save_settings(JudgeConfig(), tmp_path, criteria=10)
    assert JudgeOptions.of(JudgeConfig(), 10, tmp_path).thresholds is not None
    assert JudgeOptions.of(JudgeConfig(temperature=1.0), 10, tmp_path).thresholds is None
    assert "it decides nothing" in caplog.text


def test_a_decision_stands_on_the_first_line() -> None:
    prediction = Prediction(
        comparison_id="c", method="m", verdict_ab="A", verdict_ba="A", margin=2.0, decision="decided"
    )
    assert str(prediction) == "A (margin +2.00), decided"
    assert str(Score(value=0.9, decision="decided", passes=True)) == "score 0.90, decided: pass"
    assert str(Score(value=0.5, decision="undecided")) == "score 0.50, undecided"


def pairs(n: int) -> list[dict[str, Any]]:
    """Return rows whose longer response is the better one, but for those of about one length, whose labels change."""
    rows = []
    for place in range(n):
        a, b = 1 + place % 5, 1 + place // 5 % 5
        label = "A" if a > b else "B"
        if abs(a - b) <= 1:
            label = "AB"[place % 2]
        rows.append({"query": f"q{place}", "response_a": "a " * a, "response_b": "b " * b, "label": label})
    return rows


def test_the_stage_writes_thresholds_and_the_judge_decides_by_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lazy_model, "make_engine", lambda *args, **kwargs: ScriptedEngine(scored))
    source = f"verdicts.source.path={lines(tmp_path / 'mine.jsonl', pairs(150))}"
    words = ["recipe=debug", f"output_dir={tmp_path / 'out'}", "track.tracker=none", "verdicts.judge=base@2", source]
    directory = Pipeline(configured(*words, "calibrate.error=0.1"), Console()).run("calibrate")
    thresholds = Thresholds.load(directory)
    assert thresholds.units == "points" and thresholds.n == 150 and thresholds.margin is not None
    assert 1 < thresholds.margin <= 2 and thresholds.wrong == 0
    assert not (directory / "fitted.json").exists()
    output = " ".join(capsys.readouterr().out.split())
    assert f"left to a person or a stronger judge: {thresholds.undecided:.1%}" in output
    promised = "ith a chance of 0.9 at most 10% of what is decided is wrong"
    assert promised in output and promised in PARTS["Decided or undecided"](directory, "base")

    used = judge_stage(tmp_path / "out", source, f"judge.decided={directory}/decided.json", judge="base@2")
    rows = list(read_rows(used, "verdicts"))
    decided = [row for row in rows if row["decision"] == "decided"]
    assert len(decided) == thresholds.decided < len(rows)
    assert all(row["verdict"] == row["label"] for row in decided)
    summary = json.loads((used / "summary.json").read_text())
    assert summary["decisions"] == {
        "decided": len(decided), "undecided": 150 - len(decided), "labelled": len(decided), "wrong": 0,
    }  # fmt: skip
    assert f"decided: {len(decided)} of 150" in " ".join(capsys.readouterr().out.split())

    # What was promised of one judge is promised of no other: another number of branches decides nothing, and what is
    # asked otherwise is refused.
    assert thresholds.asked["branches"] == "2" and thresholds.asked["criteria"] == "none"
    with pytest.raises(ConfigError, match="judge.score was parsed, and is expected.*run stage calibrate with the"):
        judge_stage(
            tmp_path / "out", source, f"judge.decided={directory}/decided.json", "judge.score=expected", judge="base@2"
        )
    rubric = tmp_path / "r.yaml"
    rubric.write_text("- {name: Length, text: it is long, guideline: g}\n")
    with pytest.raises(ConfigError, match="criteria was none, and is "):
        judge_stage(
            tmp_path / "out", source, f"judge.decided={directory}/decided.json", f"criteria={rubric}", judge="base@2"
        )
    used = judge_stage(tmp_path / "out", source, f"judge.decided={directory}/decided.json", judge="base@1")
    assert {row["decision"] for row in read_rows(used, "verdicts")} == {None}

    few = f"verdicts.source.path={lines(tmp_path / 'few.jsonl', pairs(3))}"
    with pytest.raises(DataError, match="needs at least 22 labelled comparisons .*found"):
        Pipeline(configured(*words[:-1], few, "calibrate.error=0.1"), Console()).run("calibrate")
    with pytest.raises(ConfigError, match="verdicts without a margin"):
        Pipeline(configured(*words[:3], "verdicts.judge=longer", source, "calibrate.error=0.1"), Console()).run(
            "calibrate"
        )


def by_words(request: Request, occurrence: int) -> str:
    """Score a response by its number of words."""
    return f"Score: {len(request.slots['response'].split())}\nAnalysis: x"


def test_single_responses_pass_fail_or_are_left_undecided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lazy_model, "make_engine", lambda *args, **kwargs: ScriptedEngine(by_words))
    (tmp_path / "r.yaml").write_text("- {name: Length, text: it is long, guideline: g}\n")
    rows = []
    for place in range(200):
        words = 1 + place % 5
        label = words
        # Those of the middle are 2 or 4 to people, as chance has it.
        if words == 3:
            label = (2, 4)[place % 2]
        rows.append({"query": f"q{place}", "response": "a " * words, "label": label})
    settings = [
        f"criteria={tmp_path / 'r.yaml'}", "judge.score=parsed", "judge.reads=one",
        f"verdicts.source.path={lines(tmp_path / 'mine.jsonl', rows)}",
    ]  # fmt: skip
    words_of_run = [
        "recipe=debug", f"output_dir={tmp_path / 'out'}", "track.tracker=none", "verdicts.judge=base",
        "calibrate.error=0.1", *settings,
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="name the lowest level that passes with calibrate.passes"):
        Pipeline(configured(*words_of_run), Console()).run("calibrate")
    with pytest.raises(ConfigError, match="calibrate.passes='1': allowed are 2, 3, 4, 5"):
        Pipeline(configured(*words_of_run, "calibrate.passes='1'"), Console()).run("calibrate")
    directory = Pipeline(configured(*words_of_run, "calibrate.passes='4'"), Console()).run("calibrate")
    # Other rows: a 4 for a 5 passes as well, and of those with one word five are labelled 4.
    others = [{**row, "label": 4 if row["label"] == 5 else row["label"]} for row in rows]
    for row in others[0:25:5]:
        row["label"] = 4
    settings[-1] = f"verdicts.source.path={lines(tmp_path / 'others.jsonl', others)}"
    judged = judge_stage(tmp_path / "out", *settings, f"judge.decided={directory}", judge="base")
    for row in read_rows(judged, "scores"):
        expected = {0.0: False, 0.25: False, 0.75: True, 1.0: True}.get(row["score"])
        assert row["passes"] is expected
        assert row["decision"] == ("undecided" if expected is None else "decided")
    output = " ".join(capsys.readouterr().out.split())
    assert "decided: 160 of 200 (80.0%); the others are undecided; 5 of 160 decided labels are missed" in output
