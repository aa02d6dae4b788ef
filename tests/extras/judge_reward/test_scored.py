"""Rewards of single completions: what each is worth by itself, and what that costs."""

from typing import Any

import numpy as np
import pytest

from judgetrain.errors import ConfigError, DataError
from judgetrain.extras.judge_reward import JudgeReward, best_of_n, verl
from tests.judges.test_reads_one import RUBRIC, asked, judge

GOOD = 3.25 / 4
BAD = 0.75 / 4
"""What the two are worth by RUBRIC: tests/judges/test_reads_one.py."""


def test_a_group_of_eight_takes_eight_judgments_a_criterion() -> None:
    scored_judge = judge()
    logged_means = dict[str, float]()
    completions = [f"{'good' if i % 2 else 'bad'} {i}" for i in range(7)] + [" "]
    rewards = JudgeReward(scored_judge, "score", criteria=RUBRIC)(
        ["q"] * 8, completions, log_metric=logged_means.__setitem__
    )
    assert rewards == pytest.approx([BAD, GOOD, BAD, GOOD, BAD, GOOD, BAD, 0.0])
    assert asked(scored_judge).count("score") == 7 * 3, "what is empty is worth nothing, and is not asked about"
    assert logged_means == {"judge/judgments": 21.0, "judge/unreadable": 0.0}


def test_equal_completions_are_judged_once_and_rows_bring_their_own_criteria_and_references() -> None:
    scored_judge = judge()
    reward = JudgeReward(scored_judge, "score", rubrics="criteria", reference="gold")
    columns = {"criteria": [["Facts: x"], ["Facts: x"], None], "gold": ["yes", "yes", None]}
    rewards = reward(["q", "q", "q"], ["good", "good", "one two three"], **columns)
    assert rewards == pytest.approx([1.0, 1.0, 0.5]), "facts are worth 5; three words are 3 of 5"
    requests = [r for r in scored_judge.engine.requests if r.step == "score"]  # type: ignore[attr-defined]
    assert ["Reference: yes" in r.messages[-1]["content"] for r in requests] == [True, False]


def test_the_best_of_several_by_their_scores() -> None:
    best = best_of_n(judge(), "q", ["bad", "good", "bad", "good"], "score", criteria=RUBRIC)
    assert best.index == 1 and best.scores == pytest.approx((BAD, GOOD, BAD, GOOD))


@pytest.mark.parametrize("given", [list, lambda rows: np.array(rows, dtype=object)])  # as Parquet gives them
def test_verl_needs_no_reference_where_one_response_is_read(monkeypatch: pytest.MonkeyPatch, given: Any) -> None:
    monkeypatch.setattr("judgetrain.judges.load_judge", lambda name, **how: judge())
    extra: dict[str, Any] = {"prompt": "q", "criteria": given([{"name": "Facts", "text": "x"}])}
    assert verl.compute_score("d", "good", 7, extra, judge="j", reads="one") == {"score": 1.0, "unreadable": 0.0}


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: JudgeReward("x", "round_robin", criteria=["a"]), "criteria are for mode='score'"),
        (lambda: JudgeReward("x", "score", criteria=["a", "a"]), "two criteria"),
        (lambda: JudgeReward("x", "scores"), "expected one of round_robin, anchor, score"),
        (lambda: JudgeReward(judge("two"), "score")(["q"], ["a"]), "reads='one'"),
        (lambda: JudgeReward(judge(), "score", rubrics="r")(["q"], ["a"]), "rubrics='r': no such column"),
    ],
)
def test_what_has_no_use_is_refused(made: Any, message: str) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        made()
