"""Fit Bradley-Terry ratings by ``evalica``, with intervals over prompts, finite whatever the data.

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

from judgetrain.data.cells import EMPTY, RowError, name_text
from judgetrain.data.prompt_keys import PromptKey, conversation_starts, prompt_key
from judgetrain.extras.leaderboard.repeats import NO_KEY, CountedRows, key_of, repeats_of
from judgetrain.judges.predictions import SHARES, BothOrders
from judgetrain.judging.rows import read_verdicts

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

MEAN = 1000.0
"""The mean of the ratings."""
SCALE = 400.0 / np.log(10.0)
"""Rating points for each unit of a log rating, on Elo's scale: 400 points are odds of 10 to 1."""
ENDS = (2.5, 97.5)
"""The percentiles that 95% of the resamples lie between."""
LEAST = 1e-3
"""The weight of a prompt that is not drawn: what it links stays linked, and decides nothing else."""
ALIKE = 1e-12
"""Shares that differ by less are alike: a mean of thirds is rounded."""
LEAST_CHANCE = 0.05
"""The least chance that a pair's share is moved to a side. An end of an interval lies between the outermost fortieth of
the resamples and the others: with a twentieth, both ends are among those that were moved to their side."""


class Sweep(NamedTuple):
    """Systems that won every comparison with others, so that no finite rating fits, and on how many prompts."""

    winners: Ints
    losers: Ints
    prompts: int


class EvenPairs(NamedTuple):
    """Pairs of systems [n], all prompts of which came out alike without a sweep, and on how many prompts [n]."""

    first: Ints
    second: Ints
    prompts: Ints


@dataclass(frozen=True)
class Games:
    """The comparisons that count.

    Args:
        a: the first system of each [n].
        b: the second system of each [n].
        prompt: its prompt [n].
        share: the first system's part of it [n], 0 to 1.
        systems: how many systems there are.
    """

    a: Ints
    b: Ints
    prompt: Ints
    share: Floats
    systems: int

    @property
    def prompts(self) -> int:
        """Return the number of prompts."""
        return int(self.prompt.max()) + 1

    @cached_property
    def comparisons_between(self) -> Ints:
        """Return how many comparisons there are between every two systems [systems, systems]."""
        return self._between(self.pair)

    @cached_property
    def prompts_between(self) -> Ints:
        """Return on how many prompts every two systems were compared [systems, systems]."""
        prompts_of_pairs = np.unique(self.pair * self.prompts + self.prompt)
        return self._between(prompts_of_pairs // self.prompts)

    @property
    def pair(self) -> Ints:
        """Return the number of each comparison's pair [n], whichever of the two systems stands first."""
        return np.minimum(self.a, self.b) * self.systems + np.maximum(self.a, self.b)

    def _between(self, pairs: Ints) -> Ints:
        """Return how often each pair is among ``pairs``, both ways round [systems, systems]."""
        counts = np.bincount(pairs, minlength=self.systems**2).reshape(self.systems, self.systems)
        return counts + counts.T

    def wins(self, weights: Floats) -> Floats:
        """Return the shares that one system (row) won from another (column) [systems, systems].

        Args:
            weights: of the prompts [prompts].
        """
        cells = self.systems**2
        weight = weights[self.prompt]
        # A pair of systems is a cell of the matrix, written out in one row: bincount then sums millions of comparisons
        # at once.
        won = np.bincount(self.a * self.systems + self.b, weight * self.share, cells)
        won = won + np.bincount(self.b * self.systems + self.a, weight * (1.0 - self.share), cells)
        return np.asarray(won, dtype=np.float64).reshape(self.systems, self.systems)

    def resampled(self, resamples: int, seed: int) -> Floats:
        """Return :meth:`wins` of the data, and after that of resamples of prompts [1 + resamples, systems, systems]."""
        rng = np.random.default_rng(seed)
        count = self.prompts
        wins = [self.wins(np.ones(count))]
        for _ in range(resamples):
            # As many prompts as there are, drawn with replacement: how often each was drawn is its weight.
            weights = rng.multinomial(count, np.full(count, 1.0 / count))
            wins.append(self.wins(np.maximum(weights, LEAST)))
        return np.array(wins)

    def between(self, first: Sequence[int] | Ints, second: Sequence[int] | Ints) -> Ints:
        """Return the prompts [n] of all comparisons between one of the first systems and one of the second."""
        in_order = np.isin(self.a, first) & np.isin(self.b, second)
        turned = np.isin(self.b, first) & np.isin(self.a, second)
        return self.prompt[in_order | turned]


def linked(wins: Floats, mutual: bool) -> list[Ints]:
    """Return the groups of systems that are linked, the largest first.

    Within a group that is linked by wins both ways ratings are finite (Ford, American Mathematical Monthly 64, 1957).

    Args:
        wins: shares that one system won from another [systems, systems].
        mutual: whether wins both ways link systems; else comparisons do.
    """
    from scipy.sparse.csgraph import connected_components

    connection = "weak"
    if mutual:
        connection = "strong"
    _, labels = connected_components(wins > 0, directed=True, connection=connection)
    groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    return sorted(groups, key=len, reverse=True)


def bradley_terry(wins: Floats) -> Floats:
    """Return log ratings [systems] by evalica, of mean 0 in every part that comparisons link; NaN without a comparison.

    Args:
        wins: shares that one system won from another [systems, systems]; within a part there are wins both ways.
    """
    import evalica

    ratings = np.full(len(wins), np.nan)
    # Ratings of systems that no chain of comparisons links have no common scale, so that each part is fitted by itself.
    for members in linked(wins, mutual=False):
        if len(members) < 2:
            continue
        rows, columns = np.nonzero(wins[np.ix_(members, members)])
        winners = members[rows]
        losers = members[columns]
        result = evalica.bradley_terry(
            winners.tolist(),
            losers.tolist(),
            # Every cell is a win of its row's system, and its weight says how much was won.
            [evalica.Winner.X] * len(rows),
            weights=wins[winners, losers].tolist(),
            # Far below what a page shows; the limit ends a fit that does not come to rest.
            tolerance=1e-10,
            limit=100_000,
        )

        # evalica sorts by score; loc gives the members' own order back.
        scores = result.scores.loc[members].to_numpy(float)
        ratings[members] = np.log(scores) - np.log(scores).mean()
    return ratings


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Ratings of the data and of its resamples.

    Where the data bounds no rating, the ratings take half of one more prompt to have gone the other way (Haldane,
    Annals of Human Genetics 20, 1956), and resamples a share between 0 and what Clopper and Pearson (Biometrika 26,
    1934) allow: Beta(1, prompts).

    Where all prompts of a pair came out alike without a sweep, as where all are ties, or where of several judges as
    many say the same of each, every resample would have the pair's share. Each moves it instead, to either side as far
    as Clopper and Pearson allow at a level drawn evenly: any share of the prompts that is not ruled out may have gone
    wholly to one of the two. The levels of 2.5% on either side are the interval's ends. Which side it is has the chance
    that the ratings give (:data:`LEAST_CHANCE` at least): with even chances, resamples would come nearer to each other
    than the ratings are where many pairs have one prompt each.

    Args:
        games: the comparisons.
        won: the wins behind the ratings (:meth:`Games.resampled`).
        sweeps: where the data bounds no rating.
        ratings: points of the data and, after that, of its resamples [1 + resamples, systems]; NaN without a
            comparison.
    """

    games: Games
    won: Floats
    sweeps: list[Sweep]
    ratings: Floats

    def prompts_of(self, system: int) -> int:
        """Return the number of prompts on which a system was compared with others."""
        takes_part = (self.games.a == system) | (self.games.b == system)
        return len(np.unique(self.games.prompt[takes_part]))

    @cached_property
    def parts(self) -> list[Ints]:
        """Return the parts of two or more systems linked by comparisons: only within a part can ratings be compared."""
        return [members for members in linked(self.won[0], mutual=False) if len(members) > 1]

    @cached_property
    def bounded(self) -> set[int]:
        """Return the systems whose distance to most others is not in the data, since they won or lost everything."""
        systems: set[int] = set()
        for members in self.parts:
            systems |= {int(system) for system in np.setdiff1d(members, _anchors(self.won[0], members))}
        return systems


def fit(games: Games, resamples: int, seed: int) -> Fit:
    """Return the ratings and their resamples; the same for a seed."""
    won = games.resampled(resamples, seed)

    # A stream beside the one that drew the resamples, which began with the seed alone.
    rng = np.random.default_rng([seed, 1])
    sweeps = _sweeps(games, won[0])
    even_pairs = _even_pairs(games, won[0])
    logs: list[Floats] = []
    for number, wins in enumerate(won):
        # ``wins`` stays as it was drawn: what is reported as won must not hold the correction.
        bounded = wins.copy()
        is_resample = number > 0
        if is_resample:
            _move(bounded, even_pairs, logs[0], rng)
        for winners, losers, prompts in sweeps:
            # Half of one more prompt, as a share of all of them.
            share = 0.5 / (prompts + 1.0)
            if is_resample:
                share = rng.beta(1.0, prompts)
            # Taken from each of the winners' wins in proportion, so that who won more of them keeps the lead.
            turned = share * wins[np.ix_(winners, losers)]
            bounded[np.ix_(winners, losers)] -= turned
            bounded[np.ix_(losers, winners)] += turned.T
        logs.append(bradley_terry(bounded))
    return Fit(games=games, won=won, sweeps=sweeps, ratings=points(np.array(logs), won[0]))


def _sweeps(games: Games, wins: Floats) -> list[Sweep]:
    """Return the groups of which one won every comparison with another."""
    groups = linked(wins, mutual=True)
    sweeps = []
    for winners in groups:
        for losers in groups:
            # Between two groups wins go one way, or they were one group.
            if winners is not losers and wins[np.ix_(winners, losers)].any():
                prompts = len(np.unique(games.between(winners, losers)))
                sweeps.append(Sweep(winners, losers, prompts))
    return sweeps


def points(logs: Floats, wins: Floats) -> Floats:
    """Return the rating points of log ratings.

    Args:
        logs: log ratings [..., systems].
        wins: of the data [systems, systems].
    """
    ratings = np.full(logs.shape, np.nan)
    for members in linked(wins, mutual=False):
        if len(members) < 2:
            continue
        centre = _anchors(wins, members)
        if not len(centre):
            centre = members
        middle = logs[..., centre].mean(-1, keepdims=True)
        ratings[..., members] = MEAN + SCALE * (logs[..., members] - middle)
    return ratings


def _anchors(wins: Floats, members: Ints) -> Ints:
    """Return the systems of a part whose mean is 1000: its largest group linked by wins both ways.

    So a rating that the data does not bound moves no other one. Empty where all systems are swept.
    """
    # Groups come with the largest first.
    group = next(group for group in linked(wins, mutual=True) if np.isin(group, members).all())
    # A group of one is linked to nobody by wins both ways: no system of the part has a finite rating.
    if len(group) == 1:
        return group[:0]
    return group


def _even_pairs(games: Games, wins: Floats) -> EvenPairs:
    """Return the pairs, all prompts of which have one mean share, but for those between two groups of a sweep.

    Args:
        games: the comparisons.
        wins: of the data [systems, systems].
    """
    # A pair may stand either way round in the rows; its shares are compared as of the system with the lower number.
    share = np.where(games.a < games.b, games.share, 1.0 - games.share)

    # By prompt, as several judges' verdicts on one prompt may differ and yet be the same on each prompt.
    prompts_of_pairs, number = np.unique(games.pair * games.prompts + games.prompt, return_inverse=True)
    means = np.bincount(number, share) / np.bincount(number)
    # Prompts of one pair stand side by side, since the numbers above are sorted.
    pairs, starts, counts = np.unique(prompts_of_pairs // games.prompts, return_index=True, return_counts=True)
    ranges = np.maximum.reduceat(means, starts) - np.minimum.reduceat(means, starts)
    first = pairs // games.systems
    second = pairs % games.systems

    group = np.zeros(games.systems, dtype=np.intp)
    for place, members in enumerate(linked(wins, mutual=True)):
        group[members] = place
    even = (ranges < ALIKE) & (group[first] == group[second])
    return EvenPairs(first[even], second[even], counts[even])


def _move(wins: Floats, pairs: EvenPairs, logs: Floats, rng: np.random.Generator) -> None:
    """Move the shares of pairs in place, each to either side, as far as so many prompts that are alike allow.

    Args:
        wins: shares that one system won from another [systems, systems]; changed.
        pairs: to change.
        logs: log ratings of the data [systems], which say to which side.
        rng: draws the side and how far.
    """
    chance = 1.0 / (1.0 + np.exp(logs[pairs.second] - logs[pairs.first]))
    chance = chance.clip(LEAST_CHANCE, 1.0 - LEAST_CHANCE)
    drawn = rng.random(len(chance))
    to_first = drawn < chance
    # One number is both the side and the level, so that a fortieth of it is the end of an interval on either side.
    level = np.where(to_first, drawn, 1.0 - drawn)
    # Of a share this large, so many prompts would all miss with the chance ``level``.
    reach = 1.0 - level ** (1.0 / pairs.prompts)
    better = np.where(to_first, pairs.first, pairs.second)
    worse = np.where(to_first, pairs.second, pairs.first)
    moved = reach * wins[worse, better]
    # No pair is there twice, so that each cell is changed once.
    wins[worse, better] -= moved
    wins[better, worse] += moved


def ends(values: Floats) -> Floats:
    """Return the 95% percentile interval along the first axis: [2, ...]."""
    return np.percentile(values, ENDS, axis=0)


Outcome = BothOrders | Literal["missing"]
"""The verdict of both orders together; ``missing``: the row has no verdict at all."""
OUTCOMES: tuple[Outcome, ...] = (*get_args(BothOrders), "missing")
"""All outcomes; comparisons are kept with an outcome's place here."""
WINNERS: dict[str, Outcome] = {
    **{name: cast("Outcome", name) for name in get_args(BothOrders)},
    **dict.fromkeys(("a", "model_a", "left"), "A"),
    **dict.fromkeys(("b", "model_b", "right"), "B"),
    **dict.fromkeys(("tie (bothbad)", "both_bad", "bothbad", "draw"), "tie"),
    "tie (inconsistent)": "inconsistent",
    **dict.fromkeys(("", "null", "none", "error"), "missing"),
}
"""Outcomes as published rows write them, in lower case but for names that have capitals here."""
COUNTED: dict[str, float] = SHARES | {"inconsistent": 0.5}
"""The first system's part of a comparison: different verdicts in the two orders are half a win. A verdict that is
missing, or could not be read in an order, counts for nothing, and is never replaced."""


@dataclass(frozen=True, kw_only=True)
class Battle:
    """One comparison of two systems.

    Args:
        prompt: tells the prompt from others; None where the row does not say, which counts as a prompt of its own.
        system_a: empty where the row could not be read.
        system_b: likewise.
        outcome: of both orders.
        judge: who judged, if the row says so.
        key: of the comparison, whoever judged it (:func:`~judgetrain.extras.leaderboard.repeats.key_of`).
    """

    prompt: PromptKey | None
    system_a: str
    system_b: str
    outcome: Outcome
    judge: str | None = None
    key: int = NO_KEY


class Battles:
    """Comparisons, read one by one and kept as numbers; what one judge says of a comparison again counts once.

    Args:
        battles: gone through once.
    """

    games: Games
    """The comparisons that count, systems numbered as in ``names``."""
    names: list[str]
    """All systems."""
    judges: list[str]
    """Who judged."""
    outcomes: Counter[tuple[str, str, Outcome]]
    """Numbers of comparisons by their two systems and outcome."""
    unnamed: int
    """Number of comparisons that do not say their prompt."""
    repeats: CountedRows
    """Comparisons that were judged more than once."""

    def __init__(self, battles: Iterable[Battle]) -> None:
        judges: dict[str | None, int] = {}
        systems: dict[str, int] = {}
        prompts: dict[PromptKey, int] = {}
        # Numbers, one array a column: a list of rows would take ten times the memory.
        keys = array("Q")
        columns = array("l")
        for battle in battles:
            prompt = -1
            if battle.prompt is not None:
                prompt = prompts.setdefault(battle.prompt, len(prompts))
            keys.append(battle.key)
            judge = judges.setdefault(battle.judge, len(judges))
            system_a = systems.setdefault(battle.system_a, len(systems))
            system_b = systems.setdefault(battle.system_b, len(systems))
            columns.extend((judge, system_a, system_b, prompt, OUTCOMES.index(battle.outcome)))

        rows = np.reshape(columns, (-1, 5)).astype(np.intp)
        # Repeats are found among all rows, since a later verdict replaces one that could not be read.
        counts = np.isin(rows[:, 4], [OUTCOMES.index(name) for name in COUNTED])
        self.repeats = repeats_of(np.array(keys, dtype=np.uint64), rows[:, 0], rows[:, 4], counts)
        rows = rows[self.repeats.kept]
        counts = counts[self.repeats.kept]
        self.judges = sorted(judge for judge in judges if judge)
        self.unnamed = int((rows[:, 3] < 0).sum())

        names = list(systems)
        self.outcomes = Counter()
        # Outcomes of all rows that are kept, unreadable ones among them: they stand in the table, though they rate
        # nobody.
        of_pairs, numbers_of_rows = np.unique(rows[:, [1, 2, 4]], axis=0, return_counts=True)
        for (system_a, system_b, outcome), number in zip(of_pairs.tolist(), numbers_of_rows.tolist(), strict=True):
            self.outcomes[names[system_a], names[system_b], OUTCOMES[outcome]] += number
        self.names = sorted(set(names) - {""})
        self.games = self._games(names, prompts, rows[counts])

    def _games(self, names: Sequence[str], prompts: Mapping[PromptKey, int], rows: Ints) -> Games:
        """Return the comparisons that count.

        Args:
            names: of the systems, by number.
            prompts: numbers of the prompts that rows name.
            rows: judge, both systems, prompt (-1: it names none) and outcome of each comparison, as numbers [rows, 5].
        """
        # Turns of a conversation stand and fall together, so they count as one prompt.
        same_as = np.arange(len(prompts) + len(rows))
        same_as[[*prompts.values()]] = [prompts[first] for first in conversation_starts([*prompts])]
        # A comparison that names no prompt has one of its own.
        prompt = np.where(rows[:, 3] < 0, len(prompts) + np.arange(len(rows)), rows[:, 3])
        # The empty name is that of rows that could not be read, none of which counts.
        places = {name: place for place, name in enumerate(self.names)}
        place = np.array([places.get(name, -1) for name in names], dtype=np.intp)
        # Prompts are numbered in the order in which they first count.
        _, first_at, number = np.unique(same_as[prompt], return_index=True, return_inverse=True)
        rank = first_at.argsort().argsort()
        shares = np.array([COUNTED.get(name, np.nan) for name in OUTCOMES])
        return Games(place[rows[:, 1]], place[rows[:, 2]], rank[number], shares[rows[:, 4]], len(self.names))


def read_battles(files: Sequence[str | Path], column: str | None = None) -> Iterator[Battle]:
    """Return the comparisons of files, globs, and directories of stage judge, in order.

    Args:
        files: to read.
        column: of the prompt.
    """
    return read_verdicts(files, "leaderboard.files", partial(battle_of, column=column))


def battle_of(row: Any, column: str | None = None) -> Battle:
    """Return the comparison of a row of stage judge, or of one with ``model_a``, ``model_b`` and ``winner``.

    Raises:
        RowError: it names no two systems, or no verdict.
    """
    if not isinstance(row, Mapping):
        raise RowError("no_object", f"expected an object with model_a, model_b and a verdict, found {row!r:.60}")
    system_a = _text(row, "model_a")
    system_b = _text(row, "model_b")
    has_systems = bool(system_a and system_b)
    # A row that stage judge could not read has a failure in their place.
    if row.get("failure") is None and not has_systems:
        raise RowError(
            "no_systems", f"expected two systems' names in model_a and model_b, found {system_a!r} and {system_b!r}"
        )
    if has_systems and system_a == system_b:
        raise RowError("one_system", f"model_a and model_b are both {system_a!r}; expected two systems")
    outcome = _outcome(row, (system_a, system_b))
    if outcome in COUNTED and not has_systems:
        # Whatever it says, the row could not be read.
        outcome = "missing"
    prompt = prompt_key(row, column)
    return Battle(
        prompt=prompt,
        system_a=system_a,
        system_b=system_b,
        outcome=outcome,
        judge=_text(row, "judge") or None,
        key=key_of(row, prompt),
    )


def _text(row: Mapping[str, Any], name: str) -> str:
    """Return the name in a column; empty where it holds none."""
    value = row.get(name)
    if isinstance(value, (str, int, float)):
        return name_text(value)
    return ""


def _outcome(row: Mapping[str, Any], systems: Sequence[str]) -> Outcome:
    """Return what a row says of its two systems.

    Raises:
        RowError: it has no verdict, one that is none of those known, or two that differ.
    """
    # Stage judge writes a verdict, published battles a winner.
    names = [name for name in ("verdict", "winner") if name in row]
    if not names:
        raise RowError("no_verdict", "expected a verdict or winner (A, B, tie, model_a, model_b), found neither")
    filled = [name for name in names if row[name] not in EMPTY]
    outcomes = [_outcome_in(row, name, systems) for name in filled or names[:1]]
    if len(set(outcomes)) > 1:
        # One may be people's and the other a judge's: a rank by either is another rank.
        raise RowError(
            "two_verdicts",
            f"verdict={row['verdict']!r} and winner={row['winner']!r} say two things; leave one of the columns out",
        )
    return outcomes[0]


def _outcome_in(row: Mapping[str, Any], name: str, systems: Sequence[str]) -> Outcome:
    """Return what a row's column of this name says of its two systems; raises as :func:`_outcome`."""
    text = ""
    if row[name] is not None:
        text = str(row[name]).strip()
    # "B" is an outcome and "b" another spelling of it, so that capitals are tried first.
    outcome = WINNERS.get(text) or WINNERS.get(text.lower())
    if name == "winner" and text and name_text(text) in systems:
        outcome_by_name: Outcome = "A" if name_text(text) == systems[0] else "B"
        # A system may be called as an outcome is; the two mean the same where A is the first system's name.
        if outcome not in (None, outcome_by_name):
            raise RowError(
                "two_meanings",
                f"winner={row[name]!r} is the name of a system, and means {outcome} by itself: expected model_a, "
                f"model_b, or names of systems that mean nothing else",
            )
        outcome = outcome_by_name
    if outcome is None:
        raise RowError(
            "no_verdict",
            f"{name}={row[name]!r}: expected A, B, tie, inconsistent, unreadable, model_a, model_b, a system's name or "
            "null",
        )
    return outcome
