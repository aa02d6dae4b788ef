"""Leaderboards of the world's writers against what is true of them.

    python -m tests.benchmarks.leaderboard_truth             # ranks, coverage
    python -m tests.benchmarks.leaderboard_truth --judge outputs/artifacts/dpo/FINGERPRINT/model --prompts 60

A writer of the world shows each of the two properties that decide with a chance that is its skill, so that the chance
with which one writer's response beats another's is known, and so are the Bradley-Terry ratings of all writers. Judged
is by the world's truth, an order of which errs in a stated share of its verdicts (for the first or the second response
at random), or by a trained judge. Simulations draw the responses' qualities as the writers do, without their words.
Measured are

- ranks: Spearman's correlation of the ratings with the writers' skills, with verdicts missing too;
- coverage: how often 95% intervals hold the true ratings, and those of differences the true differences.

Prints Markdown.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np

from judgetrain.data.world.language import load_language
from judgetrain.data.world.splits import queries
from judgetrain.data.world.writers import write_response
from judgetrain.extras.leaderboard.battles import Battle
from judgetrain.extras.leaderboard.config import LeaderboardConfig
from judgetrain.extras.leaderboard.ratings import bradley_terry, ends, fit, points
from judgetrain.extras.leaderboard.records import Leaderboard
from judgetrain.extras.leaderboard.standings import counted, games_of, leaderboard
from judgetrain.judges.base import Judge, Prediction
from judgetrain.schema import Comparison, Dialogue, Message, Verdict
from tests.benchmarks.common import parser_of

SIX = (0.2, 0.35, 0.5, 0.65, 0.8, 0.95)
"""Skills of writers."""


def names_of(skills: Sequence[float]) -> list[str]:
    """The writers' names, in the order of their skills."""
    return [f"writer {skill:g}" for skill in skills]


def true_wins(skills: Sequence[float], error: float) -> np.ndarray:
    """The chance that one writer's response is better than another's, a tie as half [writers, writers].

    The quality of a response is 4 with chance ``skill``, plus 2 with the same chance; in a share of ``error`` the
    verdict is A or B by chance.
    """
    chances = np.array([[(1 - s) ** 2, s * (1 - s), s * (1 - s), s * s] for s in skills])
    above = np.tril(np.ones((4, 4)), -1) + 0.5 * np.eye(4)
    wins = (1 - error) * chances @ above @ chances.T + error / 2
    np.fill_diagonal(wins, 0.0)
    return wins


def true_ratings(skills: Sequence[float], error: float = 0.0) -> np.ndarray:
    """The Bradley-Terry ratings of endless comparisons of all pairs alike."""
    wins = true_wins(skills, error)
    return points(bradley_terry(wins), wins)


def written(skills: Sequence[float], prompts: int, seed: int) -> list[Comparison]:
    """Every pair of the writers' responses to so many queries of the world; A and B are drawn."""
    language, rng = load_language(), random.Random(f"leaderboard {seed}")
    found = []
    for q, query in enumerate(rng.sample(queries("heldout"), prompts)):
        responses = {
            name: write_response(language, query, skill, rng)
            for name, skill in zip(names_of(skills), skills, strict=True)
        }
        for pair in combinations(responses, 2):
            a, b = rng.sample(pair, 2)
            c = Comparison.of(query, responses[a], responses[b], id=f"{q}:{a}:{b}", model_a=a, model_b=b)
            found.append(replace(c, dialogue=replace(c.dialogue, id=f"q{q}")))
    return found


@cache
def quality(query: str, response: str) -> int:
    """The quality of a response by the world's hidden rule, or as :func:`drawn` says it."""
    return int(response) if response.isdigit() else load_language().quality(query, response)


def drawn(skills: Sequence[float], prompts: int, seed: int) -> list[Comparison]:
    """As :func:`written`, with a response's quality in the place of its words."""
    rng, names = np.random.default_rng(seed), names_of(skills)
    shown = rng.random((2, prompts, len(skills))) < np.asarray(skills)
    texts = (4 * shown[0] + 2 * shown[1]).astype(str).tolist()
    turned = rng.random((prompts, len(skills), len(skills))) < 0.5
    found = []
    for q in range(prompts):
        asked = Dialogue(f"q{q}", "drawn", (Message("user", f"q{q}"),))
        for i, j in combinations(range(len(skills)), 2):
            a, b = (j, i) if turned[q, i, j] else (i, j)
            found.append(Comparison(f"{q}:{a}:{b}", asked, texts[q][a], texts[q][b], names[a], names[b]))
    return found


class Truth(Judge):
    """The world's truth, of which each order errs in a share of ``error``, and cannot be read in ``unreadable``."""

    name = "truth"

    def __init__(self, error: float = 0.0, unreadable: float = 0.0) -> None:
        self._error, self._unreadable = error, unreadable

    def compare_all(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        """Both orders of each comparison, on their own."""
        return [self._one(c, random.Random(f"{seed} {c.id}")) for c in comparisons]

    def _one(self, c: Comparison, rng: random.Random) -> Prediction:
        a, b = (quality(c.dialogue.query, r) for r in (c.response_a, c.response_b))
        truth: Verdict = "tie" if a == b else "A" if a > b else "B"
        orders: list[Verdict] = [rng.choice(("A", "B")) if rng.random() < self._error else truth for _ in "12"]
        ab = None if rng.random() < self._unreadable else orders[0]
        return Prediction(comparison_id=c.id, method=self.name, verdict_ab=ab, verdict_ba=orders[1])


def battles_of(comparisons: Sequence[Comparison], judge: Judge, seed: int) -> list[Battle]:
    """What the comparisons came out as."""
    return [
        Battle(
            prompt=c.dialogue.id,
            system_a=c.model_a,
            system_b=c.model_b,
            outcome=p.verdict,
            ab=p.verdict_ab,
            ba=p.verdict_ba,
            margin=p.margin,
        )
        for c, p in zip(comparisons, judge.compare_all(comparisons, seed), strict=True)
    ]


def spearman(board: Leaderboard, skills: Sequence[float]) -> float:
    """The correlation of the ranks with those of the skills."""
    from scipy.stats import spearmanr

    rated = {s.system: s.rating.points for s in board.systems if s.rating}
    return float(spearmanr([rated[name] for name in names_of(skills)], skills).statistic)


def coverage(
    skills: Sequence[float], prompts: int, error: float, simulations: int, resamples: int
) -> tuple[float, float]:
    """How often intervals hold the true rating of a writer, and the true difference of two, over simulations."""
    truth, config, judge = true_ratings(skills, error), LeaderboardConfig(scores="orders"), Truth(error)
    i, j = np.triu_indices(len(skills), 1)
    held, apart = [], []
    for seed in range(simulations):
        battles = battles_of(drawn(skills, prompts, seed), judge, seed)
        found = fit(games_of(counted(battles, config), names_of(skills)), resamples, seed).ratings[1:]
        for hits, resampled, true in ((held, found, truth), (apart, found[:, i] - found[:, j], truth[i] - truth[j])):
            low, high = ends(resampled)
            hits += ((low <= true) & (true <= high)).tolist()
    return float(np.mean(held)), float(np.mean(apart))


def main() -> None:
    """Measure and print the tables."""
    parser = parser_of(__doc__)
    parser.add_argument("--simulations", type=int, default=200)
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--resamples", type=int, default=500)
    parser.add_argument("--judge", help="a judge's directory: ranks by it alone")
    arguments = parser.parse_args()
    config = LeaderboardConfig()
    if arguments.judge:
        from judgetrain.judges import load_judge

        judge = load_judge(arguments.judge)
        board = leaderboard(battles_of(written(SIX, arguments.prompts, 0), judge, 0), config, 0, arguments.resamples)
        print(f"{arguments.judge}: Spearman {spearman(board, SIX):.3f}, {board.outcomes}")
        for s in board.systems:
            print(s.system, s.rating)
        return
    print(f"| judge, {arguments.prompts} prompts | Spearman | counted |\n| --- | --- | --- |")
    for error, unreadable in ((0.0, 0.0), (0.2, 0.0), (0.4, 0.0), (0.2, 0.3)):
        found = [
            leaderboard(
                battles_of(written(SIX, arguments.prompts, s), Truth(error, unreadable), s),
                config,
                s,
                arguments.resamples,
            )
            for s in range(10)
        ]
        said = f"errs in {error:.0%} of orders, {unreadable:.0%} unreadable"
        shares = [b.counted / b.comparisons for b in found]
        print(f"| {said} | {min(spearman(b, SIX) for b in found):.3f} at least in 10 | {np.mean(shares):.1%} |")
    print("\n| 95% intervals | of ratings | of differences |\n| --- | --- | --- |")
    for error in (0.0, 0.2):
        held = coverage(SIX, arguments.prompts, error, arguments.simulations, arguments.resamples)
        print(f"| {arguments.simulations} simulations, errs in {error:.0%} of orders | {held[0]:.1%} | {held[1]:.1%} |")


if __name__ == "__main__":
    main()
