"""What the quickstart is to show over several seeds, and whether it does: targets on its greedy rows.

Differences are tested on the seeds' held-out comparisons pooled: no two have a query in common, within a seed or
between those that differ by less than the world has test sets, so that every comparison is a prompt of its own.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from judgetrain.evaluate.metrics.intervals import bootstrap_interval
from judgetrain.evaluate.metrics.statistics import Difference, paired_difference

Key = tuple[str, int]
Rows = dict[Key, dict[str, Any]]
STAGES = ("initial", "sft", "dpo", "rl")
EPSILON = 1e-9
"""Room for rounding: a target that is reached exactly is met."""
RESAMPLES = 2000


@dataclass(frozen=True, kw_only=True)
class Seed:
    """One seed's run: its rows of ``metrics.json``, which comparisons each row got right (strict agreement), and the
    agreement of perfect readers of one criterion and of both, where the benchmark is the world."""

    rows: Rows
    right: Mapping[Key, Sequence[bool]]
    one: float | None = None
    both: float | None = None


@dataclass(frozen=True)
class Claim:
    """A target with its figures, and whether it holds over all seeds and on each."""

    text: str
    met: bool
    by_seed: tuple[bool, ...]

    def __str__(self) -> str:
        seeds = f"{sum(self.by_seed)} of {len(self.by_seed)} seeds"
        return f"- {self.text}: **{'met' if self.met else 'not met'}** ({seeds})"


def claims(seeds: Sequence[Seed]) -> list[Claim]:
    """Every target whose rows are there; those of ``rl`` only where it was evaluated."""
    counts = sorted({k for method, k in seeds[0].rows if method in STAGES})
    present = [s for s in STAGES if all((s, k) in seed.rows for seed in seeds for k in counts)]
    if not counts or not {*STAGES[:3]} <= {*present}:
        return []
    return [
        *_steps(seeds, present, counts[0], counts[-1]),
        *_readable(seeds, present, counts),
        *_ceilings(seeds, present, counts),
        *_branches(seeds, present, counts),
        *_floors(seeds, present, counts[0]),
        _spread(seeds, present, counts),
    ]


def mean(seeds: Sequence[Seed], key: Key, name: str = "agreement") -> float:
    """The mean of a figure over seeds."""
    return statistics.mean(seed.rows[key][name] for seed in seeds)


def _claim(text: str, seeds: Sequence[Seed], holds: Callable[[Sequence[Seed]], bool]) -> Claim:
    return Claim(text, holds(seeds), tuple(holds([seed]) for seed in seeds))


def _at(key: Key) -> str:
    return f"{key[0]}@{key[1]}"


def _steps(seeds: Sequence[Seed], present: Sequence[str], few: int, most: int) -> Iterator[Claim]:
    """Each stage above the one before, pooled, with a test; and on no seed below it."""
    pairs: list[tuple[Key, Key, float]] = [(("initial", most), ("initial", few), 0.0)]
    least = {"sft": 0.0, "dpo": 0.12, "rl": 0.04}
    pairs += [((b, few), (a, few), least[b]) for a, b in pairwise(present)]
    for first, second, points in pairs:
        found, told = _pooled(seeds, first, second)
        text = (
            f"{_at(first)} above {_at(second)}"
            + (f" by at least {100 * points:.0f} points" if points else "")
            + f": {told}, McNemar p = {found.p_value:.2g}"
        )
        gains = [seed.rows[first]["agreement"] - seed.rows[second]["agreement"] for seed in seeds]
        met = found.mean >= points - EPSILON and found.mean > 0 and found.p_value < 0.05
        yield Claim(text, met, tuple(gain >= points - EPSILON for gain in gains))
    falls = [
        all(seed.rows[b, few]["agreement"] >= seed.rows[a, few]["agreement"] - EPSILON for a, b in pairwise(present))
        for seed in seeds
    ]
    yield Claim(f"no seed where a stage at {few} is below the one before", all(falls), tuple(falls))


def _pooled(seeds: Sequence[Seed], first: Key, second: Key) -> tuple[Difference, str]:
    """By how much one row agrees more often than another, on the seeds' comparisons pooled, and that in words."""
    a, b = ([right for seed in seeds for right in seed.right[key]] for key in (first, second))
    found = paired_difference(a, b, RESAMPLES, 0)
    assert found is not None
    low, high = found.interval or (found.mean, found.mean)
    ends = f"[{100 * low:.1f}, {100 * high:.1f}]"
    return found, f"{100 * found.mean:+.1f} {ends} points on {len(a)} comparisons"


def differences(seeds: Sequence[Seed]) -> list[str]:
    """Each judge against the one before it with as many branches, and trained ones against the Initial judge with the
    most, pooled: a line each."""
    counts = sorted({k for method, k in seeds[0].rows if method in STAGES})
    present = [s for s in STAGES if all((s, k) in seed.rows for seed in seeds for k in counts)]
    pairs = [((b, k), (a, k)) for a, b in pairwise(present) for k in counts]
    if "initial" in present:
        pairs += [((judge, k), ("initial", counts[-1])) for judge in present[1:] for k in counts]
    return [f"- {_at(a)} less {_at(b)}: {_pooled(seeds, a, b)[1]}" for a, b in dict.fromkeys(pairs)]


def _readable(seeds: Sequence[Seed], present: Sequence[str], counts: Sequence[int]) -> Iterator[Claim]:
    def worst(some: Sequence[Seed]) -> float:
        keys = [(judge, k) for judge in present[1:] for k in counts]
        return max(
            statistics.mean(s.rows[key]["unreadable_verdicts"] / (2 * s.rows[key]["n"]) for s in some) for key in keys
        )

    text = f"unreadable verdicts of trained judges at most 0.5%: {100 * worst(seeds):.2f}% in the worst row"
    yield _claim(text, seeds, lambda some: worst(some) <= 0.005 + EPSILON)
    for judge, least in (("dpo", 0.93), ("rl", 0.97)):
        key = (judge, counts[0])
        if judge in present:
            found = f"{100 * mean(seeds, key, 'consistency'):.1f}"
            yield _claim(
                f"consistency of {_at(key)} at least {100 * least:.0f}%: {found}",
                seeds,
                lambda some, key=key, least=least: mean(some, key, "consistency") >= least - EPSILON,
            )


def _ceilings(seeds: Sequence[Seed], present: Sequence[str], counts: Sequence[int]) -> Iterator[Claim]:
    """Shares of what perfect readers reach."""
    if any(seed.one is None or seed.both is None for seed in seeds):
        return
    wanted = [("dpo", counts[:1], "one", 0.80), ("rl", counts[:1], "one", 0.90), ("rl", counts, "both", 0.85)]
    for judge, among, ceiling, least in wanted:
        if judge not in present:
            continue

        def share(some: Sequence[Seed], judge: str = judge, among: Any = among, ceiling: str = ceiling) -> float:
            best = max(mean(some, (judge, k)) for k in among)
            return best / statistics.mean(getattr(seed, ceiling) for seed in some)

        who = _at((judge, among[0])) if len(among) == 1 else f"the best k of {judge}"
        criteria = {"one": "one criterion", "both": "both criteria"}[ceiling]
        text = f"{who} at least {100 * least:.0f}% of a perfect reader of {criteria}: {100 * share(seeds):.1f}%"
        yield _claim(text, seeds, lambda some, share=share, least=least: share(some) >= least - EPSILON)


def _branches(seeds: Sequence[Seed], present: Sequence[str], counts: Sequence[int]) -> Iterator[Claim]:
    """What more branches may cost, and what one branch of a trained judge saves."""
    few, most = counts[0], counts[-1]
    for judge in present:

        def loss(some: Sequence[Seed], judge: str = judge) -> float:
            return max(mean(some, (judge, k)) for k in counts) - mean(some, (judge, most))

        text = f"{judge} loses at most 2 points from its best k to {most}: {100 * loss(seeds):.1f}"
        yield _claim(text, seeds, lambda some, loss=loss: loss(some) <= 0.02 + EPSILON)

    def cheaper(some: Sequence[Seed]) -> tuple[float, float, int]:
        best = max(counts, key=lambda k: mean(some, ("initial", k)))
        gain = mean(some, ("dpo", few)) - mean(some, ("initial", best))
        tokens = [mean(some, key, "generated_tokens") for key in (("dpo", few), ("initial", best))]
        return gain, tokens[0] / tokens[1], best

    gain, share, best = cheaper(seeds)
    text = (
        f"dpo@{few} at least the best of initial (@{best}) with at most 15% of its tokens: {100 * gain:+.1f} points, "
        f"{share:.1%}"
    )
    yield _claim(text, seeds, lambda some: cheaper(some)[0] >= -EPSILON and cheaper(some)[1] <= 0.15 + EPSILON)


def _floors(seeds: Sequence[Seed], present: Sequence[str], few: int) -> Iterator[Claim]:
    """Every trained judge above every floor, with 95% intervals that do not touch."""
    floors = [key for key in seeds[0].rows if not key[1] and all(key in seed.rows for seed in seeds)]
    for judge in present[1:] if floors else ():

        def apart(some: Sequence[Seed], judge: str = judge) -> bool:
            low = _interval(some, (judge, few))[0]
            return all(low > _interval(some, floor)[1] for floor in floors)

        highest = max(floors, key=lambda floor: mean(seeds, floor))
        own, other = (
            " to ".join(f"{100 * end:.1f}" for end in _interval(seeds, key)) for key in ((judge, few), highest)
        )
        text = f"{judge}@{few} above every floor, intervals apart: {own} against {other} of {highest[0]}"
        yield _claim(text, seeds, apart)


def _interval(seeds: Sequence[Seed], key: Key) -> tuple[float, float]:
    right = np.array([value for seed in seeds for value in seed.right[key]], dtype=float)
    low, high = bootstrap_interval(right, RESAMPLES, 0) or (float(right.mean()),) * 2
    return low, high


def _spread(seeds: Sequence[Seed], present: Sequence[str], counts: Sequence[int]) -> Claim:
    keys = [(judge, k) for judge in present for k in counts]
    found = {key: statistics.stdev(s.rows[key]["agreement"] for s in seeds) if len(seeds) > 1 else 0.0 for key in keys}
    worst = max(keys, key=lambda key: found[key])
    means = {key: mean(seeds, key) for key in keys}
    text = (
        f"standard deviation over seeds at most 4 points (a seed: as far from the mean): {100 * found[worst]:.1f} in "
        f"the worst row, {_at(worst)}"
    )
    within = tuple(all(abs(s.rows[key]["agreement"] - means[key]) <= 0.04 + EPSILON for key in keys) for s in seeds)
    return Claim(text, found[worst] <= 0.04 + EPSILON, within)
