"""What is judged next: information as a matrix says it, budgets kept, and a stop in the middle that changes nothing."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import ShardResult
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.errors import DataError, UnansweredError
from judgetrain.schema import Comparison
from judgetrain.serving.items import Item
from judgetrain.serving.leaderboard.adaptive import PRIOR, Belief, plan
from judgetrain.serving.leaderboard.config import LeaderboardConfig
from judgetrain.serving.leaderboard.waves import judge_in_waves
from judgetrain.serving.rows import row_of
from tests.benchmarks.leaderboard_truth import SIX, Truth, drawn

WINS = np.array([[0.0, 8.0, 9.5, 3.0], [2.0, 0.0, 5.0, 0.0], [0.5, 5.0, 0.0, 2.0], [0.0, 0.0, 2.0, 0.0]])


def test_the_belief_is_the_peak_and_the_curvature_of_the_posterior() -> None:
    def loss(theta: np.ndarray) -> float:
        lost = sum(WINS[i, j] * np.logaddexp(0.0, theta[j] - theta[i]) for i, j in itertools.permutations(range(4), 2))
        return float(lost + (theta**2).sum() / (2 * PRIOR**2))

    found = Belief.of(WINS)
    assert found.mean == pytest.approx(minimize(loss, np.zeros(4), options={"gtol": 1e-9}).x, abs=1e-5)
    step, curve = 1e-3, np.zeros((4, 4))
    for i, j in itertools.product(range(4), repeat=2):
        a, b = step * np.eye(4)[i], step * np.eye(4)[j]
        four = [loss(found.mean + x) for x in (a + b, a - b, b - a, -a - b)]
        curve[i, j] = (four[0] - four[1] - four[2] + four[3]) / (4 * step**2)
    assert found.covariance == pytest.approx(np.linalg.inv(curve), rel=1e-4)


def test_the_pair_is_chosen_that_sharpens_the_uncertain_signs_most() -> None:
    """Every pair tried by inverting the whole information matrix."""
    belief, pairs = Belief.of(WINS), list(itertools.combinations(range(4), 2))
    gains = {}
    for i, j in pairs:
        along = np.eye(4)[i] - np.eye(4)[j]
        chance = 1 / (1 + np.exp(-(along @ belief.mean)))
        after = np.linalg.inv(np.linalg.inv(belief.covariance) + chance * (1 - chance) * np.outer(along, along))
        gains[i, j] = 0.0
        for k, m in pairs:
            other = np.eye(4)[k] - np.eye(4)[m]
            old, new = other @ belief.covariance @ other, other @ after @ other
            gains[i, j] += norm.cdf(-abs(other @ belief.mean) / np.sqrt(old)) * (old - new) / old
    best = max(gains, key=lambda pair: gains[pair])
    left = np.triu(np.full((4, 4), 9), 1)
    assert np.argwhere(plan(WINS, left, 1, np.random.default_rng(0))).tolist() == [list(best)]
    left[best] = 0
    second = max(gains.keys() - {best}, key=lambda pair: gains[pair])
    assert np.argwhere(plan(WINS, left, 1, np.random.default_rng(0))).tolist() == [list(second)]


def test_a_plan_takes_what_is_there_and_no_more() -> None:
    left = np.triu(np.array([[0, 3, 0, 1], [0, 0, 2, 40], [0, 0, 0, 5], [0, 0, 0, 0]]))
    for games in (1, 7, 33, 51, 80):
        chosen = plan(WINS, left, games, np.random.default_rng(1))
        assert (chosen <= left).all() and chosen.sum() == min(games, 51)


def test_nothing_known_gives_every_pair_its_part() -> None:
    chosen = plan(np.zeros((4, 4)), np.triu(np.full((4, 4), 99), 1), 48, np.random.default_rng(2))
    assert chosen.sum() == 48 and (chosen[np.triu_indices(4, 1)] >= 3).all()


class Asked:
    """Judges by the world's truth and counts what it was asked; stops once at a wave."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.asked: list[Comparison] = []
        self.waves, self._stop_at = 0, stop_at

    def __call__(self, index: int, items: Sequence[Item]) -> ShardResult:
        self.waves += 1
        if self.waves == self._stop_at:
            raise UnansweredError(len(items), "the server went away")
        shown = [item.comparison for item in items]
        self.asked += shown
        found = Truth(0.2, unreadable=0.1).compare_all(shown, 3)
        rows = [row_of(c, p, "truth") for c, p in zip(shown, found, strict=True)]
        return ShardResult(rows, len(rows))


def out(directory: Path) -> StageRun:
    return StageRun(directory / "artifacts" / "leaderboard" / "x", "leaderboard", 1, Console())


BUDGET = LeaderboardConfig(budget=90, wave=40)
ITEMS = [Item(c) for c in drawn(SIX, 20, 0)]


def spent(directory: Path, judge: Asked, config: LeaderboardConfig = BUDGET) -> list[dict[str, Any]]:
    return list(judge_in_waves(ITEMS, judge, config, out(directory)))


def test_the_budget_is_kept_and_no_comparison_is_judged_twice(tmp_path: Path) -> None:
    judge = Asked()
    rows = spent(tmp_path, judge)
    assert [row["id"] for row in rows] == [c.id for c in judge.asked]
    assert len(rows) == 90 == len({row["id"] for row in rows}) and judge.waves == 3
    used = Counter(row["dialogue_id"] for row in rows)
    assert len(used) == 20 and max(used.values()) - min(used.values()) <= 4, "prompts take turns"
    everything = spent(tmp_path / "all", Asked(), replace(BUDGET, budget=1000))
    assert len(everything) == len(ITEMS) == len({row["id"] for row in everything})


def test_a_run_that_was_stopped_goes_on_with_its_wave(tmp_path: Path) -> None:
    whole, stopped, again = Asked(), Asked(stop_at=2), Asked()
    rows = spent(tmp_path / "whole", whole)
    with pytest.raises(UnansweredError):
        spent(tmp_path / "stopped", stopped)
    assert spent(tmp_path / "stopped", again) == rows
    assert [*stopped.asked, *again.asked] == whole.asked, "nothing is judged twice"


def test_what_cannot_be_judged_is_in_the_rows_and_costs_nothing(tmp_path: Path) -> None:
    broken = [Item(ITEMS[0].comparison, "empty_response: response_a holds no text"), *ITEMS[1:]]
    rows = list(judge_in_waves(broken, Asked(), BUDGET, out(tmp_path)))
    assert len(rows) == 91 and rows[0]["failure"].startswith("empty_response") and rows[0]["verdict"] is None
    assert ITEMS[0].comparison.id not in [row["id"] for row in rows[1:]]


def test_comparisons_without_systems_are_refused(tmp_path: Path) -> None:
    nameless = [Item(replace(ITEMS[0].comparison, model_b=""))]
    with pytest.raises(DataError, match="a leaderboard needs two systems.*verdicts.systems"):
        list(judge_in_waves(nameless, Asked(), BUDGET, out(tmp_path)))
