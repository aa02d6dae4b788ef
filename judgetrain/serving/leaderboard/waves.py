"""Judging within a budget, in waves: what is judged next depends on the verdicts so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from judgetrain.artifacts.shards import ShardResult, read_rows
from judgetrain.artifacts.stage_run import StageRun, derive_seed
from judgetrain.errors import DataError, UnansweredError
from judgetrain.schema import Comparison
from judgetrain.serving.leaderboard.adaptive import plan
from judgetrain.serving.leaderboard.battles import Battle, battle_of
from judgetrain.serving.leaderboard.config import LeaderboardConfig
from judgetrain.serving.leaderboard.rates import games_of

Judging = Callable[[Sequence[Comparison], int], list[dict[str, Any]]]
"""Given comparisons and a seed: a verdict's row for each."""


class Pool:
    """Comparisons to choose from, by their two systems; each system's are taken from prompts used least, in an order
    that the seed draws."""

    def __init__(self, comparisons: Sequence[Comparison], seed: int) -> None:
        self.names = sorted({name for c in comparisons for name in (c.model_a, c.model_b)})
        place = {name: i for i, name in enumerate(self.names)}
        self._waiting: dict[tuple[int, int], list[Comparison]] = {}
        self._used: Counter[str] = Counter()
        for c in sorted(comparisons, key=lambda c: derive_seed(seed, "pool", c.id)):
            i, j = sorted((place[c.model_a], place[c.model_b]))
            if i == j:
                raise DataError(f"comparison {c.id}: both responses are by {c.model_a!r}; expected two systems' names")
            self._waiting.setdefault((i, j), []).append(c)

    @property
    def left(self) -> np.ndarray:
        """How many comparisons of every pair are left [systems, systems]."""
        found = np.zeros((len(self.names), len(self.names)), dtype=np.intp)
        for pair, waiting in self._waiting.items():
            found[pair] = len(waiting)
        return found

    def take(self, numbers: np.ndarray) -> list[Comparison]:
        """So many comparisons of every pair [systems, systems], which are left no more."""
        taken = []
        for i, j in np.argwhere(numbers):
            waiting = self._waiting[int(i), int(j)]
            for _ in range(int(numbers[i, j])):
                taken.append(min(waiting, key=lambda c: self._used[c.dialogue.id]))  # the first of those used least
                waiting.remove(taken[-1])
                self._used[taken[-1].dialogue.id] += 1
        return taken


def chosen(
    pool: Pool, budget: int, wave: int, seed: int, config: LeaderboardConfig
) -> Iterator[tuple[list[Comparison], list[Battle]]]:
    """Waves of comparisons to judge, up to a budget; each with an empty list that takes what they came out as."""
    battles: list[Battle] = []
    for index in range(-(-budget // wave)):
        shares = [(b, share) for b in battles if (share := b.share(config)) is not None]
        games = games_of(shares, pool.names)
        wins = games.wins if shares else np.zeros((len(pool.names),) * 2)
        rng = np.random.default_rng(derive_seed(seed, "wave", index))
        comparisons = pool.take(plan(wins, pool.left, min(wave, budget - index * wave), rng))
        if not comparisons:
            return
        came: list[Battle] = []
        yield comparisons, came
        battles += came


def judge_in_waves(
    comparisons: Sequence[Comparison], judge: Judging, config: LeaderboardConfig, out: StageRun
) -> Iterator[Battle]:
    """Judge ``leaderboard.budget`` comparisons, chosen wave by wave, and give what they came out as.

    A wave is a shard: a run that was stopped goes on with the wave that it was in. A verdict that could not be read
    tells nothing, but is paid from the budget.
    """
    assert config.budget is not None
    budget = min(config.budget, len(comparisons))
    waves = chosen(Pool(comparisons, out.seed), budget, config.wave, out.seed, config)
    names = [f"verdicts-wave-{i}" for i in range(-(-budget // config.wave))]
    with out.console.progress("leaderboard: waves", budget, "comparisons") as advance:
        for name, (wave, came) in zip(names, waves, strict=False):
            out.sharded(
                name,
                wave,
                config.wave,
                lambda index, part, name=name: _judged(judge(part, derive_seed(out.seed, name)), len(part)),
                "comparisons",
            )
            came += [battle_of(row, f"{name}:{n}") for n, row in enumerate(read_rows(out.directory, name), start=1)]
            yield from came
            advance(len(wave))


def _judged(rows: list[dict[str, Any]], number: int) -> ShardResult:
    return ShardResult(rows, number)
