"""Bradley-Terry ratings by ``evalica`` with intervals over prompts, finite whatever the data.

``evalica.bootstrap`` resamples comparisons. Those of one prompt stand and fall together, so that here prompts are
resampled whole (the cluster bootstrap), and ``evalica`` fits every resample.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np
from numpy.typing import NDArray

from judgetrain.data.cells import RowError
from judgetrain.data.rows import Asked, asked_in, clusters
from judgetrain.judges.base import SHARES, BothOrders
from judgetrain.judging.rows import read_verdicts

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

MEAN, SCALE = 1000.0, 400.0 / np.log(10.0)
"""Elo's scale: ratings have mean 1000, and 400 points are odds of 10 to 1."""
ENDS = (2.5, 97.5)
"""The percentiles that 95% of the resamples lie between."""
LEAST = 1e-3
"""The weight of a prompt that is not drawn: what it links stays linked, and decides nothing else."""


class Sweep(NamedTuple):
    """Systems that won every comparison with others, so that no finite rating fits, and on how many prompts."""

    winners: Ints
    losers: Ints
    prompts: int


@dataclass(frozen=True)
class Games:
    """Comparisons that count: the systems of each, its prompt (numbers [n]) and the first system's share [n]."""

    a: Ints
    b: Ints
    prompt: Ints
    share: Floats
    systems: int

    @property
    def prompts(self) -> int:
        """How many prompts there are."""
        return int(self.prompt.max()) + 1

    def wins(self, weights: Floats) -> Floats:
        """Shares that one system (row) won from another (column), under weights of the prompts [systems, systems]."""
        k, weight = self.systems, weights[self.prompt]
        found = np.bincount(self.a * k + self.b, weight * self.share, k * k)
        found = found + np.bincount(self.b * k + self.a, weight * (1.0 - self.share), k * k)
        return np.asarray(found, dtype=np.float64).reshape(k, k)

    def resampled(self, resamples: int, seed: int) -> Floats:
        """:meth:`wins` of the data and, after that, of resamples of the prompts [1 + resamples, systems, systems]."""
        rng, n = np.random.default_rng(seed), self.prompts
        drawn = (np.maximum(rng.multinomial(n, np.full(n, 1.0 / n)), LEAST) for _ in range(resamples))
        return np.array([self.wins(np.ones(n)), *map(self.wins, drawn)])

    def between(self, first: Sequence[int] | Ints, second: Sequence[int] | Ints) -> Ints:
        """The prompts [n] of all comparisons between one of the first systems and one of the second."""
        one, other = np.isin(self.a, first) & np.isin(self.b, second), np.isin(self.b, first) & np.isin(self.a, second)
        return self.prompt[one | other]


def linked(wins: Floats, mutual: bool) -> list[Ints]:
    """Systems linked by comparisons, or if ``mutual`` by wins both ways; the largest group first.

    Within a group that is linked by wins both ways ratings are finite (Ford, American Mathematical Monthly 64, 1957).
    """
    from scipy.sparse.csgraph import connected_components

    labels = connected_components(wins > 0, directed=True, connection="strong" if mutual else "weak")[1]
    return sorted((np.flatnonzero(labels == label) for label in np.unique(labels)), key=len, reverse=True)


def bradley_terry(wins: Floats) -> Floats:
    """Log ratings [systems] by evalica, of mean 0 in every part that comparisons link; NaN without any comparison.

    ``wins``: shares that one system won from another [systems, systems]; within a part, wins both ways.
    """
    import evalica

    found = np.full(len(wins), np.nan)
    for members in linked(wins, mutual=False):
        if len(members) > 1:
            i, j = np.nonzero(wins[np.ix_(members, members)])
            x, y, won = members[i], members[j], [evalica.Winner.X] * len(i)
            how = {"weights": wins[x, y].tolist(), "tolerance": 1e-10, "limit": 100_000}
            scores = evalica.bradley_terry(x.tolist(), y.tolist(), won, **how).scores.loc[members].to_numpy(float)
            found[members] = np.log(scores) - np.log(scores).mean()
    return found


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Ratings of the data and, after that, of its resamples [1 + resamples, systems] (NaN without any comparison).

    ``won``: the wins behind them (:meth:`Games.resampled`). ``sweeps``: where the data bounds no rating. The ratings
    take half of one more prompt to have gone the other way (Haldane, Annals of Human Genetics 20, 1956), and resamples
    a share between 0 and what Clopper and Pearson (Biometrika 26, 1934) allow: Beta(1, prompts). So do they where all
    prompts of a pair came out alike without a sweep, as where all are ties: to either side.
    """

    games: Games
    won: Floats
    sweeps: list[Sweep]
    ratings: Floats

    def prompts_of(self, system: int) -> int:
        """On how many prompts a system was compared with others."""
        return len(np.unique(self.games.prompt[(self.games.a == system) | (self.games.b == system)]))

    @cached_property
    def parts(self) -> list[Ints]:
        """Two or more systems linked by comparisons: only within a part can ratings be set against each other."""
        return [members for members in linked(self.won[0], mutual=False) if len(members) > 1]

    @cached_property
    def bounded(self) -> set[int]:
        """The systems whose distance to most others is not in the data, since they won or lost everything."""
        return {int(i) for members in self.parts for i in set(members) - set(_anchors(self.won[0], members))}


def fit(games: Games, resamples: int, seed: int) -> Fit:
    """The ratings and their resamples; the same for a seed."""
    won, rng = games.resampled(resamples, seed), np.random.default_rng([seed, 1])
    groups, even = linked(won[0], mutual=True), list(_alike(games))
    pairs = ((x, y) for x in groups for y in groups if x is not y and won[0][np.ix_(x, y)].any())
    sweeps = [Sweep(x, y, len(np.unique(games.between(x, y)))) for x, y in pairs]
    logs = []
    for number, wins in enumerate(won):
        soft = wins.copy()
        for pair, prompts in even if number else ():
            better, worse = pair if rng.random() < 0.5 else pair[::-1]
            turned = rng.beta(1.0, prompts) * soft[worse, better]
            soft[worse, better] -= turned
            soft[better, worse] += turned
        for winners, losers, prompts in sweeps:
            share = rng.beta(1.0, prompts) if number else 0.5 / (prompts + 1.0)
            turned = share * wins[np.ix_(winners, losers)]
            soft[np.ix_(winners, losers)] -= turned
            soft[np.ix_(losers, winners)] += turned.T
        logs.append(bradley_terry(soft))
    return Fit(games=games, won=won, sweeps=sweeps, ratings=points(np.array(logs), won[0]))


def points(logs: Floats, wins: Floats) -> Floats:
    """Rating points of log ratings [..., systems], by the wins of the data [systems, systems]."""
    found = np.full(logs.shape, np.nan)
    for members in linked(wins, mutual=False):
        if len(members) > 1:
            held = _anchors(wins, members)
            middle = logs[..., held if len(held) else members].mean(-1, keepdims=True)
            found[..., members] = MEAN + SCALE * (logs[..., members] - middle)
    return found


def _anchors(wins: Floats, members: Ints) -> Ints:
    """The systems of a part whose mean is 1000: the largest group linked by wins both ways; none where all are swept.

    So a rating which the data does not bound moves no other one.
    """
    held = next(group for group in linked(wins, mutual=True) if np.isin(group, members).all())
    return held if len(held) > 1 else held[:0]


def _alike(games: Games) -> Iterator[tuple[tuple[int, int], int]]:
    """The pairs whose comparisons all have one share that is no sweep, and on how many prompts."""
    low, high = np.minimum(games.a, games.b), np.maximum(games.a, games.b)
    share = np.where(games.a == low, games.share, 1.0 - games.share)
    for i, j in np.unique(np.stack([low, high], axis=1), axis=0).tolist():
        own = (low == i) & (high == j)
        if 0.0 < share[own][0] < 1.0 and np.ptp(share[own]) == 0.0:
            yield (i, j), len(np.unique(games.prompt[own]))


def ends(values: Floats) -> Floats:
    """The 95% percentile interval along the first axis: [2, ...]."""
    return np.percentile(values, ENDS, axis=0)


Outcome = BothOrders | Literal["missing"]
"""What both orders say together; ``missing``: the row has no verdict at all."""
WINNERS: dict[str, Outcome] = {
    **{name: cast("Outcome", name) for name in get_args(BothOrders)},
    **dict.fromkeys(("a", "model_a", "left"), "A"),
    **dict.fromkeys(("b", "model_b", "right"), "B"),
    **dict.fromkeys(("tie (bothbad)", "both_bad", "bothbad", "draw"), "tie"),
    "tie (inconsistent)": "inconsistent",
    **dict.fromkeys(("", "null", "none", "error"), "missing"),
}
"""How outcomes are written in published rows, in lower case where there are no capitals."""
COUNTED: dict[str, float] = SHARES | {"inconsistent": 0.5}
"""The first system's part of a comparison: different verdicts in the two orders are half a win. A verdict that is
missing, or could not be read in an order, counts for nothing, and is never replaced."""


@dataclass(frozen=True, kw_only=True)
class Battle:
    """One comparison of two systems, whose names are empty where the row could not be read.

    ``prompt``: what tells it from others; None where the row does not say, and counts as a prompt of its own.
    """

    prompt: Asked | None
    system_a: str
    system_b: str
    outcome: Outcome
    judge: str | None = None


class Battles:
    """Comparisons, read one by one: ``games`` are those that count, as numbers, systems as ``names`` has them.

    ``outcomes`` counts all by their two systems and outcome, ``unnamed`` those that do not say their prompt.
    """

    def __init__(self, battles: Iterable[Battle]) -> None:
        self.outcomes, self.unnamed, judges = Counter[tuple[str, str, Outcome]](), 0, set[str | None]()
        systems, prompts, columns = dict[str, int](), dict[Asked, int](), array("d")
        for battle in battles:
            self.outcomes[battle.system_a, battle.system_b, battle.outcome] += 1
            judges.add(battle.judge)
            fresh = len(prompts) + self.unnamed
            prompt = fresh if battle.prompt is None else prompts.setdefault(battle.prompt, fresh)
            self.unnamed += battle.prompt is None
            if battle.outcome in COUNTED:
                sides = (systems.setdefault(name, len(systems)) for name in (battle.system_a, battle.system_b))
                columns.extend((*sides, prompt, COUNTED[battle.outcome]))
        self.judges = sorted(filter(None, judges))
        self.names = sorted({name for *pair, _ in self.outcomes for name in pair if name})
        whole = np.arange(len(prompts) + self.unnamed)
        whole[[*prompts.values()]] = [prompts[first] for first in clusters([*prompts])]
        place = np.array([self.names.index(name) for name in systems], dtype=np.intp)
        a, b, of = np.reshape(columns, (-1, 4)).T[:3].astype(np.intp)
        _, first, number = np.unique(whole[of], return_index=True, return_inverse=True)
        turn, share = first.argsort().argsort(), np.array(columns[3::4])  # prompts are numbered as they first count
        self.games = Games(place[a], place[b], turn[number], share, len(self.names))


def read_battles(files: Sequence[str | Path], column: str | None = None) -> Iterator[Battle]:
    """The comparisons of files, globs, and directories of stage judge, in order; ``column``: of the prompt."""
    return read_verdicts(files, "leaderboard.files", partial(battle_of, column=column))


def battle_of(row: Any, column: str | None = None) -> Battle:
    """A row of stage judge, or one with ``model_a``, ``model_b`` and ``winner``."""
    if not isinstance(row, Mapping):
        raise RowError("no_object", f"expected an object with model_a, model_b and a verdict, found {row!r:.60}")
    a, b = (row.get(name) if isinstance(row.get(name), str) else "" for name in ("model_a", "model_b"))
    if row.get("failure") is None and not (a and b):
        raise RowError("no_systems", f"expected two systems' names in model_a and model_b, found {a!r} and {b!r}")
    if a == b and a:
        raise RowError("one_system", f"model_a and model_b are both {a!r}; expected two systems")
    judge = row.get("judge") if isinstance(row.get("judge"), str) else None
    outcome = _outcome(row, (a, b))
    if outcome in COUNTED and not (a and b):  # whatever it says, of a row that could not be read
        outcome = "missing"
    return Battle(prompt=asked_in(row, column), system_a=str(a), system_b=str(b), outcome=outcome, judge=judge)


def _outcome(row: Mapping[str, Any], systems: Sequence[Any]) -> Outcome:
    name = next((name for name in ("verdict", "winner") if name in row), None)
    if name is None:
        raise RowError("no_verdict", "expected a verdict or winner (A, B, tie, model_a, model_b), found neither")
    text = "" if row[name] is None else str(row[name]).strip()
    if name == "winner" and text and text in systems:
        return "A" if text == systems[0] else "B"
    if found := WINNERS.get(text) or WINNERS.get(text.lower()):
        return found
    allowed = "A, B, tie, inconsistent, unreadable, model_a, model_b, a system's name or null"
    raise RowError("no_verdict", f"{name}={row[name]!r}: expected {allowed}")
