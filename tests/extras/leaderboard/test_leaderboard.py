"""Leaderboards: ratings against evalica and closed forms, intervals, and what is said of data that bounds nothing."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial

import evalica
import numpy as np
import pytest

from judgetrain.errors import DataError
from judgetrain.extras.leaderboard import standings
from judgetrain.extras.leaderboard.ratings import Battle, Battles, fit
from judgetrain.extras.leaderboard.stage import console, page, remarks
from judgetrain.extras.leaderboard.standings import APART, Leaderboard, Standing

leaderboard = partial(standings.leaderboard, resamples=200)


def battle(a: str, b: str, outcome: str, prompt: object = None, **more: object) -> Battle:
    fields = {"prompt": (str(next(NUMBERS) if prompt is None else prompt),), **more}
    return Battle(system_a=a, system_b=b, outcome=outcome, **fields)  # type: ignore[arg-type]


NUMBERS = iter(range(10**9))
WINNERS = {"A": evalica.Winner.X, "B": evalica.Winner.Y, "tie": evalica.Winner.Draw}


def by_evalica(battles: Sequence[Battle], weights: list[float] | None = None) -> list[float]:
    """Rating points of the systems, by their names, out of evalica's own reading of rows."""
    result = evalica.bradley_terry(
        [b.system_a for b in battles],
        [b.system_b for b in battles],
        [WINNERS[b.outcome] for b in battles],
        weights=weights,
        tolerance=1e-12,
        limit=10_000,
    )
    logs = np.log(result.scores.sort_index().to_numpy())
    return (1000 + 400 / math.log(10) * (logs - logs.mean())).tolist()


def battles(record: str) -> list[Battle]:
    """Comparisons written ``x>y*3 x=y``: x beats y three times, then a tie; every one on a prompt of its own."""
    rows = []
    for result in record.split():
        pair, _, times = result.partition("*")
        a = pair[0]
        b = pair[2]
        for k in range(int(times or 1)):
            outcome = "tie" if pair[1] == "=" else "A" if k % 2 else "B"  # either side first, by turns
            rows.append(battle(*((a, b) if outcome != "B" else (b, a)), outcome))
    return rows


def rated(board: Leaderboard) -> dict[str, float]:
    return {s.system: s.rating.points for s in board.systems if s.rating}


def standing(board: Leaderboard, name: str) -> Standing:
    return next(s for s in board.systems if s.system == name)


@pytest.fixture(scope="module")
def many() -> list[Battle]:
    """Five systems of known strength on 120 prompts, with ties."""
    rng = np.random.default_rng(3)
    strength = dict(zip("abcde", (1.0, 0.5, 0.0, -0.4, -1.1), strict=True))
    rows = []
    for prompt in range(120):
        for _ in range(4):
            a, b = rng.choice(list(strength), 2, replace=False)
            won = rng.random() < 1 / (1 + math.exp(strength[b] - strength[a]))
            rows.append(battle(str(a), str(b), "tie" if rng.random() < 0.2 else "A" if won else "B", prompt))
    return rows


@pytest.mark.parametrize(("record", "apart"), [("x=y*23 x>y", False), ("x=y*20 x>y*2", False), ("x=y*12 x>y*12", True)])
def test_an_order_that_hangs_on_a_prompt_or_two_is_not_told_apart(record: str, apart: bool) -> None:
    """Without the one prompt, as in a third of resamples, there is no order; of twelve, 2e-7 of them lack all.

    Ratings of two are a closed form: their odds.
    """
    rows = battles(record)
    board = leaderboard(rows, 0)
    share = sum(0.5 if b.outcome == "tie" else (b.outcome == "A") == (b.system_a == "x") for b in rows) / len(rows)
    points = 400 * math.log10(share / (1 - share))
    [pair] = board.pairs
    assert (pair.first, pair.second, pair.decided, board.separability) == ("x", "y", apart, float(apart))
    assert pair.difference == pytest.approx(points) and pair.rate and pair.rate.share == pytest.approx(share)
    assert rated(board) == pytest.approx({"x": 1000 + points / 2, "y": 1000 - points / 2}, abs=1e-6)


def test_ratings_and_win_rates_are_evalicas_to_a_millionth(many: list[Battle]) -> None:
    board = leaderboard(many, 0)
    assert [rated(board)[name] for name in "abcde"] == pytest.approx(by_evalica(many), abs=1e-6)
    sides = [b.system_a for b in many], [b.system_b for b in many], [WINNERS[b.outcome] for b in many]
    shares = evalica.average_win_rate(*sides).scores
    assert {s.system: s.win_rate.share for s in board.systems if s.win_rate} == pytest.approx(shares.to_dict())


def test_resamples_are_what_evalica_makes_of_the_weighted_rows(many: list[Battle]) -> None:
    # One resample, made again row by row: each row weighs what its prompt does.
    games = Battles(many).games
    result = fit(games, 3, seed=5)
    rng = np.random.default_rng(5)
    for k in range(3):
        weights = np.maximum(rng.multinomial(120, np.full(120, 1 / 120)), 1e-3)
        expected = by_evalica(many, [float(weights[p]) for p in games.prompt.tolist()])
        assert result.ratings[1 + k] == pytest.approx(expected, abs=1e-6)


def test_unreadable_verdicts_are_counted_and_nothing_else(many: list[Battle]) -> None:
    lost = [replace(b, outcome="unreadable" if k % 10 < 3 else b.outcome) for k, b in enumerate(many)]
    board = leaderboard([*lost, battle("z", "a", "missing")], 0)
    kept = [b for b in lost if b.outcome != "unreadable"]
    assert rated(board) == pytest.approx(rated(leaderboard(kept, 0)))
    assert board.outcomes["unreadable"] == 144 == 0.3 * len(many) and board.outcomes["missing"] == 1
    assert (board.comparisons, board.counted) == (481, 336)
    assert sum(s.unreadable for s in board.systems) == 2 * 144
    last = board.systems[-1]
    assert last.system == "z" and last.rating is last.ranks is last.win_rate is None and last.missing == 1


def test_a_system_that_always_wins_has_a_finite_rating_which_is_said_to_be_bounded() -> None:
    board = leaderboard([*battles("x>y*10 x>z*10 y>z*5 z>y*5")], 0)
    top = standing(board, "x")
    assert top.bounded and not standing(board, "y").bounded
    # Half of a 21st prompt is taken to have gone the other way: odds of 20.5 to 0.5 against the others' mean.
    assert top.rating and top.rating.points == pytest.approx(1000 + 400 * math.log10(20.5 / 0.5), abs=1e-6)
    assert top.rating.interval and top.rating.interval[0] == pytest.approx(
        1000 + 400 * math.log10((1 - 0.168) / 0.168), abs=45
    ), "Clopper and Pearson: at most 16.8% of 20 prompts are lost"
    assert rated(board)["y"] == pytest.approx(1000, abs=1e-6) == rated(board)["z"], "it moves no other one"
    assert top.win_rate and top.win_rate.share == 1.0
    assert top.win_rate.interval == pytest.approx((0.025 ** (1 / 10), 1.0)), "ten prompts against each of the two"
    one = leaderboard([battle("x", "y", "A")], 0)
    assert rated(one)["x"] - rated(one)["y"] == pytest.approx(400 * math.log10(1.5 / 0.5), abs=1e-6)
    for one_board in (board, one):
        json.dumps(asdict(one_board), allow_nan=False)


@pytest.mark.parametrize("outcome", ["tie", "inconsistent"])
@pytest.mark.parametrize("prompts", [10, 40])
def test_where_all_is_alike_the_interval_is_as_wide_as_the_number_allows(outcome: str, prompts: int) -> None:
    # Of n ties a share of 1 - 0.025 ** (1 / n) may have gone to either side (Clopper and Pearson).
    board = leaderboard([battle(*("xy" if k % 2 else "yx"), outcome) for k in range(prompts)], 0)
    unseen = 1 - 0.025 ** (1 / prompts)
    [pair] = board.pairs
    assert pair.rate and pair.rate.interval == pytest.approx((0.5 - unseen / 2, 0.5 + unseen / 2))
    assert pair.interval and not pair.decided
    reach = 400 * math.log10((0.5 + unseen / 2) / (0.5 - unseen / 2))  # with 95% on both sides together, some less
    assert 0.6 * reach < pair.interval[1] <= 1.2 * reach and -1.2 * reach <= pair.interval[0] < -0.6 * reach


@pytest.mark.parametrize(
    ("record", "interval"),
    [
        # The mean over opponents rests on one prompt for the second, which tells nothing.
        ("a>b*30 a>c", None),
        ("a=b*30 a>c*9", None),
        # Clopper and Pearson's ends for the prompts against each, whose mean is the win rate's.
        ("a>b*30 a>c*10", ((0.025 ** (1 / 30) + 0.025 ** (1 / 10)) / 2, 1.0)),
        ("b>a*20 c>a*40", (0.0, 1 - (0.025 ** (1 / 20) + 0.025 ** (1 / 40)) / 2)),
        ("a=b*30 a>c*10", ((0.5 * 0.025 ** (1 / 30) + 0.025 ** (1 / 10)) / 2, (0.5 * (2 - 0.025 ** (1 / 30)) + 1) / 2)),
    ],
)
def test_a_win_rate_is_as_uncertain_as_that_against_each_opponent(
    record: str, interval: tuple[float, float] | None
) -> None:
    found = standing(leaderboard(battles(record), 0), "a").win_rate
    assert found and (found.interval is None) == (interval is None)
    if interval is not None:
        assert found.interval == pytest.approx(interval)


def test_a_win_rate_s_interval_holds_the_truth_where_one_opponent_always_lost() -> None:
    """Against c, met on twelve prompts, a has a chance of 0.85 and often wins all; against b results vary."""
    held = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        rows = [battle("a", "b", str(rng.choice(["A", "B"]))) for _ in range(200)]
        against_c = rng.random(12) < 0.85
        if not against_c.all():
            continue
        rows += [battle("a", "c", "A") for _ in range(12)]
        found = standing(leaderboard(rows, seed, resamples=100), "a").win_rate
        assert found and found.interval
        held.append(found.interval[0] <= (0.5 + 0.85) / 2 <= found.interval[1])
    assert len(held) > 5 and np.mean(held) > 0.9


@pytest.mark.parametrize("prompts", [12, 40])
@pytest.mark.parametrize("turned", [False, True])
def test_judges_that_differ_alike_on_every_prompt_leave_the_interval_its_width(prompts: int, turned: bool) -> None:
    """Two of three judges prefer x on each prompt: a share of unseen prompts may have gone wholly to either side."""
    outcomes = {"j1": "A", "j2": "A", "j3": "B"}
    rows = []
    for prompt in range(prompts):
        for judge, outcome in outcomes.items():
            # Either system first, by turns, which is the same comparison.
            if turned and prompt % 2:
                rows.append(battle("y", "x", {"A": "B", "B": "A"}[outcome], prompt, judge=judge))
            else:
                rows.append(battle("x", "y", outcome, prompt, judge=judge))
    board = leaderboard(rows, 0, resamples=2000)
    unseen = 1 - 0.025 ** (1 / prompts)
    least = 2 / 3 * (1 - unseen)
    most = 2 / 3 + 1 / 3 * unseen
    [pair] = board.pairs
    assert pair.difference == pytest.approx(400 * math.log10(2))
    assert pair.rate and pair.rate.interval == pytest.approx((least, most))
    expected = [400 * math.log10(share / (1 - share)) for share in (least, most)]
    assert pair.interval == pytest.approx(tuple(expected), abs=0.15 * (expected[1] - expected[0]))
    # Twelve prompts leave less than a half possible, forty do not.
    assert pair.decided == (prompts == 40)


PARTS = [battle(*pair, "AB"[place % 7 % 2], f"{pair}{place}") for pair in ("ab", "cd") for place in range(60)]
"""Two parts of two systems each, on 60 prompts a part."""


@pytest.mark.parametrize(
    "link",
    [
        # Three judges on one prompt.
        [("b", "c", "A"), ("b", "c", "A"), ("b", "c", "B")],
        # One judge on one prompt that all four systems answer: wins both ways, though each pair's go one way.
        [("b", "c", "A"), ("d", "a", "A")],
        # Nearly all of many judges.
        [("b", "c", "A")] * 99 + [("b", "c", "B")],
    ],
)
def test_parts_that_one_prompt_links_are_not_told_apart(link: list[tuple[str, str, str]]) -> None:
    rows = [battle(*of_judge, "link", judge=f"j{number}") for number, of_judge in enumerate(link)]
    board = leaderboard([*PARTS, *rows], 0)
    across = [pair for pair in board.pairs if {pair.first, pair.second} not in ({"a", "b"}, {"c", "d"})]
    assert len(across) == 4
    for pair in across:
        assert pair.interval and pair.interval[0] < 0 < pair.interval[1] and not pair.decided
        assert pair.interval[1] - pair.interval[0] > 400, "one prompt tells less than odds of 10 to 1"


def test_intervals_hold_the_truth_where_each_pair_has_one_prompt() -> None:
    """Little is known of each pair then, and resamples that shrink towards each other would miss the truth."""
    strength = dict(zip("abcdefghijk", np.linspace(1.0, -1.0, 11), strict=True))
    held = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        rows = []
        for first, second in itertools.combinations(strength, 2):
            chance = 1 / (1 + math.exp(strength[second] - strength[first]))
            for judge in range(3):
                outcome = "A" if rng.random() < chance else "B"
                rows.append(battle(first, second, outcome, f"{first}{second}", judge=f"j{judge}"))
        for pair in leaderboard(rows, seed).pairs:
            truth = 400 / math.log(10) * (strength[pair.first] - strength[pair.second])
            assert pair.interval, "ten prompts a system"
            held.append(pair.interval[0] <= truth <= pair.interval[1])
    assert len(held) == 2 * 55 and np.mean(held) > 0.93


@pytest.mark.parametrize("rows", [[1], [1] * 300, [*range(9)] * 4])
def test_below_ten_prompts_there_is_no_interval_and_nothing_is_told_apart(rows: list[int]) -> None:
    board = leaderboard([battle("x", "y", "A", prompt) for prompt in rows], 0)
    [pair] = board.pairs
    assert (pair.interval, pair.decided, pair.rate and pair.rate.interval, board.separability) == (
        None,
        False,
        None,
        None,
    )
    assert {s.rating and s.rating.interval for s in board.systems} == {None}
    assert [s.ranks for s in board.systems] == [(1, 2)] * 2
    assert any(remark.startswith("Fewer than 10 prompts") for remark in remarks(board))
    assert page(board, "few") and console(board)


def test_systems_that_no_comparison_links_are_ranked_apart() -> None:
    board = leaderboard(battles("a>b*3 b>a*2 b>c*2 c>b x>y*2 y>x"), 0)
    assert board.parts == [["a", "b", "c"], ["x", "y"]]
    assert [(s.system, s.part, s.rating and s.rating.rank) for s in board.systems] == [
        ("a", 0, 1), ("b", 0, 2), ("c", 0, 3), ("x", 1, 1), ("y", 1, 2),
    ]  # fmt: skip
    alone = leaderboard(battles("x>y*2 y>x"), 0)
    assert {k: v for k, v in rated(board).items() if k in "xy"} == pytest.approx(rated(alone))
    assert {(p.first, p.second) for p in board.pairs} == {("a", "b"), ("a", "c"), ("b", "c"), ("x", "y")}


def test_pairs_are_told_apart_where_the_interval_of_the_difference_excludes_nothing_else(many: list[Battle]) -> None:
    board = leaderboard(many, 0)
    assert board == leaderboard(many, 0) and board.pairs != leaderboard(many, 5).pairs, "a seed's own"
    assert board.separability == sum(p.interval[0] > APART for p in board.pairs) / 10
    for s in board.systems:
        assert s.ranks and s.rating
        above = sum(p.second == s.system and p.decided for p in board.pairs)
        below = sum(p.first == s.system and p.decided for p in board.pairs)
        assert s.ranks == (1 + above, 5 - below) and s.ranks[0] <= s.rating.rank <= s.ranks[1]


def test_intervals_take_prompts_whole() -> None:
    # Each comparison eight times over is no more evidence where the prompt is the same.
    once = [battle("x", "y", "A" if k % 3 else "B", prompt=k) for k in range(60)]
    again = [b for b in once for _ in range(8)]
    apart = [replace(b, prompt=(f"{k}",)) for k, b in enumerate(again)]
    width = {
        name: board.pairs[0].interval[1] - board.pairs[0].interval[0]
        for name, rows in (("once", once), ("again", again), ("apart", apart))
        for board in [leaderboard(rows, 1, resamples=1000)]
    }
    assert width["again"] == pytest.approx(width["once"], rel=1e-6)
    assert width["apart"] == pytest.approx(width["once"] / math.sqrt(8), rel=0.1)
    # The normal interval of a log odds: 1.96 / sqrt(n p q), in rating points.
    assert width["once"] == pytest.approx(2 * 1.96 / math.sqrt(60 * 2 / 9) * 400 / math.log(10), rel=0.1)


def test_nothing_that_can_be_counted_is_an_error_that_says_what_there_is() -> None:
    with pytest.raises(DataError, match=r"of 2 comparisons \(2 unreadable\) none counts"):
        leaderboard([battle("x", "y", "unreadable")] * 2, 0)


@pytest.mark.parametrize("seed", range(3))
def test_systems_with_the_same_record_share_a_rank(seed: int) -> None:
    """Of three systems and three that mirror them in all that they won and lost, each is as good as its mirror."""
    rng = np.random.default_rng(seed)
    mirror = dict(zip("abcdef", "defabc", strict=True))
    record = []
    for winner in "abcdef":
        for loser in "abcdef":
            # Both of a mirrored pair at once.
            if winner in (loser, mirror[loser]) or winner in "def":
                continue
            times = int(rng.integers(1, 9))
            record += [f"{winner}>{loser}*{times}", f"{mirror[winner]}>{mirror[loser]}*{times}"]
    rng.shuffle(record)
    board = leaderboard(battles(" ".join(record)), 1)
    ranks = {system.system: system.rating.rank for system in board.systems if system.rating}
    assert len(ranks) == 6
    for name, other in mirror.items():
        assert ranks[name] == ranks[other]
    assert sorted(ranks.values()) == [1, 1, 3, 3, 5, 5]
