"""Judging within a budget, in waves: what is judged next depends on the verdicts so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from judgetrain.artifacts.shards import ShardResult, read_rows
from judgetrain.artifacts.stage_run import StageRun, derive_seed
from judgetrain.errors import DataError
from judgetrain.schema import Comparison
from judgetrain.serving.items import Item
from judgetrain.serving.leaderboard.adaptive import plan
from judgetrain.serving.leaderboard.battles import Battle, battle_of
from judgetrain.serving.leaderboard.config import LeaderboardConfig
from judgetrain.serving.leaderboard.rates import games_of
from judgetrain.serving.rows import Row, row_of


class Pool:
    """Comparisons to choose from, by their two systems.

    Of two systems those on the prompts that were used least are taken first, in an order that the seed draws.
    """

    def __init__(self, comparisons: Sequence[Comparison], seed: int) -> None:
        self.names = sorted({name for c in comparisons for name in (c.model_a, c.model_b)})
        place = {name: i for i, name in enumerate(self.names)}
        self._waiting: dict[tuple[int, int], list[Comparison]] = {}
        self._used: Counter[str] = Counter()
        for c in sorted(comparisons, key=lambda c: derive_seed(seed, "pool", c.id)):
            i, j = sorted((place[c.model_a], place[c.model_b]))
            if i == j or not c.model_a or not c.model_b:
                raise DataError(
                    f"comparison {c.id}: a leaderboard needs two systems, found model_a {c.model_a!r} and model_b "
                    f"{c.model_b!r}; name them in the rows (model_a, model_b), or judge verdicts.systems"
                )
            self._waiting.setdefault((i, j), []).append(c)

    @property
    def left(self) -> np.ndarray:
        """How many comparisons of every pair are left [systems, systems], in the upper triangle."""
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
    pool: Pool, budget: int, seed: int, config: LeaderboardConfig
) -> Iterator[tuple[list[Comparison], list[Battle]]]:
    """Waves of comparisons to judge, up to a budget; each with an empty list that takes what they came out as."""
    battles: list[Battle] = []
    while budget > 0:
        shares = [(b, share) for b in battles if (share := b.share(config)) is not None]
        rng = np.random.default_rng(derive_seed(seed, "wave", budget))
        taken = pool.take(plan(games_of(shares, pool.names).wins, pool.left, min(config.wave, budget), rng))
        if not taken:
            return
        came: list[Battle] = []
        yield taken, came
        battles += came
        budget -= len(taken)


def judge_in_waves(
    items: Sequence[Item],
    process: Callable[[int, Sequence[Item]], ShardResult],
    config: LeaderboardConfig,
    out: StageRun,
) -> Iterator[Row]:
    """The rows of ``leaderboard.budget`` comparisons, chosen wave by wave, after those of what cannot be judged.

    A wave is a shard: a run that was stopped goes on with the wave that it was in. A verdict that could not be read
    tells nothing, but is paid from the budget.
    """
    yield from (row_of(item.comparison, None, "", item.failure) for item in items if item.failure)
    comparisons = [item.comparison for item in items if item.failure is None]
    budget = min(config.budget or len(comparisons), len(comparisons))
    done = 0
    for number, (wave, came) in enumerate(chosen(Pool(comparisons, out.seed), budget, out.seed, config)):
        name = f"wave-{number}"
        out.sharded(name, [Item(c) for c in wave], len(wave), process, "comparisons")
        rows = list(read_rows(out.directory, name))
        came += [battle_of(row, f"{name}:{n}") for n, row in enumerate(rows, start=1)]
        done += len(wave)
        out.log(f"leaderboard: {done} of {budget} comparisons judged, in {number + 1} waves")
        yield from rows
