"""The measures of leaderboards: the world's writers are as they are taken to be, and ranks and intervals hold."""

from __future__ import annotations

import numpy as np
import pytest

from judgetrain.serving.leaderboard.config import LeaderboardConfig
from judgetrain.serving.leaderboard.standings import leaderboard
from tests.benchmarks.leaderboard_truth import (
    SIX,
    Truth,
    battles_of,
    coverage,
    drawn,
    names_of,
    quality,
    spearman,
    true_ratings,
    true_wins,
    written,
)


def test_responses_have_the_qualities_that_are_drawn() -> None:
    """Of every writer, the share of each quality among written responses, against the chances of two properties."""
    skills = (0.3, 0.8)
    found = {name: [] for name in names_of(skills)}
    for c in written(skills, 250, 1):
        for name, response in ((c.model_a, c.response_a), (c.model_b, c.response_b)):
            found[name].append(quality(c.dialogue.query, response))
    for s, qualities in zip(skills, found.values(), strict=True):
        shares = [np.mean([q == each for q in qualities]) for each in (0, 2, 4, 6)]
        assert shares == pytest.approx([(1 - s) ** 2, s * (1 - s), s * (1 - s), s * s], abs=0.09)


def test_the_true_wins_are_those_of_many_draws() -> None:
    battles = battles_of(drawn((0.3, 0.8), 4000, 2), Truth(0.2), 0)
    config = LeaderboardConfig(scores="orders")
    won = np.mean([s if b.system_a == "writer 0.3" else 1 - s for b in battles if (s := b.share(config)) is not None])
    assert won == pytest.approx(true_wins((0.3, 0.8), 0.2)[0, 1], abs=0.02)
    apart = true_ratings((0.3, 0.8), 0.2)
    assert 1 / (1 + 10 ** ((apart[1] - apart[0]) / 400)) == pytest.approx(true_wins((0.3, 0.8), 0.2)[0, 1])


@pytest.mark.parametrize(("error", "unreadable"), [(0.0, 0.0), (0.2, 0.3)])
def test_the_ranks_are_those_of_the_skills(error: float, unreadable: float) -> None:
    comparisons = written(SIX, 150, 3)
    board = leaderboard(battles_of(comparisons, Truth(error, unreadable), 0), LeaderboardConfig(bootstrap=100), 0)
    assert spearman(board, SIX) >= (0.95 if not unreadable else 0.9)
    lost = board.outcomes.get("unreadable", 0)
    assert lost / len(comparisons) == pytest.approx(unreadable, abs=0.04)
    assert (board.comparisons, board.counted) == (len(comparisons), len(comparisons) - lost)


def test_intervals_hold_the_truth() -> None:
    """60 simulations of 6 writers: 93% in 200 (the script's figure) is more than 90% here."""
    of_ratings, of_differences = coverage(SIX, 100, 0.2, 60, 300)
    assert of_ratings > 0.9 and of_differences > 0.9
