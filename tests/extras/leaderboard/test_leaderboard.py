"""Leaderboards: ratings against evalica and closed forms, intervals, and what is said of data that bounds nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace

import evalica
import numpy as np
import pytest
from scipy.optimize import minimize

from judgetrain.errors import DataError
from judgetrain.extras.leaderboard.battles import Battle
from judgetrain.extras.leaderboard.config import LeaderboardConfig
from judgetrain.extras.leaderboard.ratings import fit
from judgetrain.extras.leaderboard.records import Leaderboard, Standing
from judgetrain.extras.leaderboard.standings import APART, games_of
from judgetrain.extras.leaderboard.standings import leaderboard as leaderboard_of
from judgetrain.extras.leaderboard.style import Style, style_of

FEW = LeaderboardConfig()


def leaderboard(battles: Sequence[Battle], config: LeaderboardConfig, seed: int, resamples: int = 200) -> Leaderboard:
    return leaderboard_of(battles, config, seed, resamples)


def battle(a: str, b: str, outcome: str, prompt: object = None, **more: object) -> Battle:
    fields = {"prompt": str(next(NUMBERS) if prompt is None else prompt), **more}
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
    found = []
    for each in record.split():
        pair, _, times = each.partition("*")
        a, b = pair[0], pair[2]
        for k in range(int(times or 1)):
            outcome = "tie" if pair[1] == "=" else "A" if k % 2 else "B"  # either side first, by turns
            found.append(battle(*((a, b) if outcome != "B" else (b, a)), outcome))
    return found


def rated(board: Leaderboard) -> dict[str, float]:
    return {s.system: s.rating.points for s in board.systems if s.rating}


def standing(board: Leaderboard, name: str) -> Standing:
    return next(s for s in board.systems if s.system == name)


@pytest.fixture(scope="module")
def many() -> list[Battle]:
    """Five systems of known strength on 120 prompts, with ties."""
    rng, strength = np.random.default_rng(3), dict(zip("abcde", (1.0, 0.5, 0.0, -0.4, -1.1), strict=True))
    found = []
    for prompt in range(120):
        for _ in range(4):
            a, b = rng.choice(list(strength), 2, replace=False)
            won = rng.random() < 1 / (1 + math.exp(strength[b] - strength[a]))
            found.append(battle(str(a), str(b), "tie" if rng.random() < 0.2 else "A" if won else "B", prompt))
    return found


@pytest.mark.parametrize(("record", "apart"), [("x=y*23 x>y", False), ("x=y*20 x>y*2", False), ("x=y*12 x>y*12", True)])
def test_an_order_that_hangs_on_a_prompt_or_two_is_not_told_apart(record: str, apart: bool) -> None:
    """Without the one prompt, as in a third of resamples, there is no order; of twelve, 2e-7 of them lack all.

    Ratings of two are a closed form: their odds.
    """
    board = leaderboard(rows := battles(record), FEW, 0)
    share = sum(0.5 if b.outcome == "tie" else (b.outcome == "A") == (b.system_a == "x") for b in rows) / len(rows)
    points = 400 * math.log10(share / (1 - share))
    [pair] = board.pairs
    assert (pair.first, pair.second, pair.decided, board.separability) == ("x", "y", apart, float(apart))
    assert pair.difference == pytest.approx(points) and pair.rate and pair.rate.share == pytest.approx(share)
    assert rated(board) == pytest.approx({"x": 1000 + points / 2, "y": 1000 - points / 2}, abs=1e-6)


def test_ratings_and_win_rates_are_evalicas_to_a_millionth(many: list[Battle]) -> None:
    board = leaderboard(many, FEW, 0)
    assert [rated(board)[name] for name in "abcde"] == pytest.approx(by_evalica(many), abs=1e-6)
    sides = [b.system_a for b in many], [b.system_b for b in many], [WINNERS[b.outcome] for b in many]
    shares = evalica.average_win_rate(*sides).scores
    assert {s.system: s.win_rate.share for s in board.systems if s.win_rate} == pytest.approx(shares.to_dict())


def test_resamples_are_what_evalica_makes_of_the_weighted_rows(many: list[Battle]) -> None:
    """One resample, made again row by row: each row weighs what its prompt does."""
    games = games_of([(b, {"A": 1.0, "B": 0.0}.get(b.outcome, 0.5)) for b in many], list("abcde"))
    found, rng = fit(games, 3, seed=5), np.random.default_rng(5)
    for k in range(3):
        weights = np.maximum(rng.multinomial(120, np.full(120, 1 / 120)), 1e-3)
        expected = by_evalica(many, [float(weights[p]) for p in games.prompt.tolist()])
        assert found.ratings[1 + k] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("scores", "share"),
    [("verdicts", 0.5), ("orders", 0.75), ("margins", 1 / (1 + math.exp(-1.0))), ("consistent", None)],
)
def test_what_a_comparison_counts(scores: str, share: float | None) -> None:
    one = battle("x", "y", "inconsistent", ab="A", ba="tie", margin=1.0)
    config = replace(FEW, scores=scores)
    assert one.share(config) == (None if share is None else pytest.approx(share))
    for lost in ("unreadable", "missing"):
        assert replace(one, outcome=lost).share(config) is None
    assert battle("x", "y", "A").share(replace(config, scores="margins")) is None


def test_unreadable_verdicts_are_counted_and_nothing_else(many: list[Battle]) -> None:
    lost = [replace(b, outcome="unreadable" if k % 10 < 3 else b.outcome) for k, b in enumerate(many)]
    board = leaderboard([*lost, battle("z", "a", "missing")], FEW, 0)
    kept = [b for b in lost if b.outcome != "unreadable"]
    assert rated(board) == pytest.approx(rated(leaderboard(kept, FEW, 0)))
    assert board.outcomes["unreadable"] == 144 == 0.3 * len(many) and board.outcomes["missing"] == 1
    assert (board.comparisons, board.counted) == (481, 336)
    assert sum(s.unreadable for s in board.systems) == 2 * 144
    last = board.systems[-1]
    assert last.system == "z" and last.rating is last.ranks is last.win_rate is None and last.missing == 1


def test_a_system_that_always_wins_has_a_finite_rating_which_is_said_to_be_bounded() -> None:
    board = leaderboard([*battles("x>y*10 x>z*10 y>z*5 z>y*5")], FEW, 0)
    top = standing(board, "x")
    assert top.bounded and not standing(board, "y").bounded
    # Half of a 21st prompt is taken to have gone the other way: odds of 20.5 to 0.5 against the others' mean.
    assert top.rating and top.rating.points == pytest.approx(1000 + 400 * math.log10(20.5 / 0.5), abs=1e-6)
    assert top.rating.interval and top.rating.interval[0] == pytest.approx(
        1000 + 400 * math.log10((1 - 0.168) / 0.168), abs=45
    ), "Clopper and Pearson: at most 16.8% of 20 prompts are lost"
    assert rated(board)["y"] == pytest.approx(1000, abs=1e-6) == rated(board)["z"], "it moves no other one"
    assert top.win_rate and top.win_rate.share == 1.0
    assert top.win_rate.interval == pytest.approx((0.025 ** (1 / 20), 1.0))
    one = leaderboard([battle("x", "y", "A")], FEW, 0)
    assert rated(one)["x"] - rated(one)["y"] == pytest.approx(400 * math.log10(1.5 / 0.5), abs=1e-6)
    for each in (board, one):
        json.dumps(asdict(each), allow_nan=False)


def test_systems_that_no_comparison_links_are_ranked_apart() -> None:
    board = leaderboard(battles("a>b*3 b>a*2 b>c*2 c>b x>y*2 y>x"), FEW, 0)
    assert board.parts == [["a", "b", "c"], ["x", "y"]]
    assert [(s.system, s.part, s.rating and s.rating.rank) for s in board.systems] == [
        ("a", 0, 1), ("b", 0, 2), ("c", 0, 3), ("x", 1, 1), ("y", 1, 2),
    ]  # fmt: skip
    alone = leaderboard(battles("x>y*2 y>x"), FEW, 0)
    assert {k: v for k, v in rated(board).items() if k in "xy"} == pytest.approx(rated(alone))
    assert {(p.first, p.second) for p in board.pairs} == {("a", "b"), ("a", "c"), ("b", "c"), ("x", "y")}


def test_the_baselines_win_rates_and_groups() -> None:
    rows = [replace(b, group="code" if b.system_a == "x" else "prose") for b in battles("x>y*8 y>x*2 z>y*4 y>z*6")]
    board = leaderboard(rows, replace(FEW, baseline="y"), 0)
    against = {s.system: s.against and s.against.share for s in board.systems}
    assert against == {"x": pytest.approx(0.8), "y": None, "z": pytest.approx(0.4)}
    found = standing(board, "z").against
    assert found and found.games == 10 and found.interval[0] < 0.4 < found.interval[1]
    for group, sign in (("code", True), ("prose", False)):
        own = [b for b in rows if (b.system_a == "x") == sign and "y" in (b.system_a, b.system_b)]
        shares = []
        for other in ({b.system_a for b in own} | {b.system_b for b in own}) - {"y"}:
            met = [b for b in own if other in (b.system_a, b.system_b)]
            shares.append(sum((b.outcome == "A") == (b.system_a == "y") for b in met) / len(met))
        assert board.by_group[group]["y"].share == pytest.approx(np.mean(shares))
    with pytest.raises(DataError, match=r"leaderboard.baseline='w'.*there are x, y, z"):
        leaderboard(rows, replace(FEW, baseline="w"), 0)


def test_pairs_are_told_apart_where_the_interval_of_the_difference_excludes_nothing_else(many: list[Battle]) -> None:
    board = leaderboard(many, FEW, 0)
    assert board == leaderboard(many, FEW, 0) and board.pairs != leaderboard(many, FEW, 5).pairs, "a seed's own"
    assert board.separability == sum(p.interval[0] > APART for p in board.pairs) / 10
    for s in board.systems:
        assert s.ranks and s.rating
        above = sum(p.second == s.system and p.decided for p in board.pairs)
        below = sum(p.first == s.system and p.decided for p in board.pairs)
        assert s.ranks == (1 + above, 5 - below) and s.ranks[0] <= s.rating.rank <= s.ranks[1]


def test_intervals_take_prompts_whole() -> None:
    """Each comparison eight times over is no more evidence where the prompt is the same."""
    once = [battle("x", "y", "A" if k % 3 else "B", prompt=k) for k in range(60)]
    again = [b for b in once for _ in range(8)]
    apart = [replace(b, prompt=f"{k}") for k, b in enumerate(again)]
    width = {
        name: board.pairs[0].interval[1] - board.pairs[0].interval[0]
        for name, rows in (("once", once), ("again", again), ("apart", apart))
        for board in [leaderboard(rows, FEW, 1, 1000)]
    }
    assert width["again"] == pytest.approx(width["once"], rel=1e-6)
    assert width["apart"] == pytest.approx(width["once"] / math.sqrt(8), rel=0.1)
    # The normal interval of a log odds: 1.96 / sqrt(n p q), in rating points.
    assert width["once"] == pytest.approx(2 * 1.96 / math.sqrt(60 * 2 / 9) * 400 / math.log(10), rel=0.1)


def test_nothing_that_can_be_counted_is_an_error_that_says_what_there_is() -> None:
    with pytest.raises(DataError, match=r"of 2 comparisons \(2 unreadable\) none counts"):
        leaderboard([battle("x", "y", "unreadable")] * 2, FEW, 0)
    with pytest.raises(DataError, match="scores=verdicts for rows without margins"):
        leaderboard([battle("x", "y", "A")], replace(FEW, scores="margins"), 0)


def test_style_is_counted_outside_of_code() -> None:
    text = "# One\n\n- a\n* b\n2. c\n**bold** and __more__\n```\n# no\n- no\n```\n"
    assert style_of(text) == Style(len(text), headers=1, lists=3, bold=2)
    assert style_of("2 * 3 * 4 - 5 #no") == Style(17, 0, 0, 0)


def _styled(n: int) -> tuple[list[Battle], Sequence[float]]:
    """Two systems equally good and a better one, under a judge that likes length; one of the two writes more."""
    rng = np.random.default_rng(0)
    skill, length = {"x": 0.0, "long": 0.0, "good": 1.0}, {"x": 1000, "long": 2000, "good": 1000}
    rows = []
    for k in range(n):
        a, b = rng.choice(list(skill), 2, replace=False).tolist()
        sizes = [int(length[s] * rng.lognormal(0, 0.4)) for s in (a, b)]
        more = (sizes[0] - sizes[1]) / sum(sizes)
        won = rng.random() < 1 / (1 + math.exp(-(skill[a] - skill[b] + 3 * more)))
        rows.append(
            battle(a, b, "A" if won else "B", prompt=k // 3, style=tuple(Style(size, 0, 0, 0) for size in sizes))
        )
    return rows, [
        (r.style[0].length - r.style[1].length) / (r.style[0].length + r.style[1].length) for r in rows if r.style
    ]


def test_style_control_gives_a_long_winded_system_its_due() -> None:
    rows, more = _styled(3000)
    board = leaderboard(rows, FEW, 0)
    points = {s.system: s.styled.points for s in board.systems if s.styled}
    assert rated(board)["long"] - rated(board)["x"] > 100
    assert abs(points["long"] - points["x"]) < 40 and points["good"] - points["x"] == pytest.approx(174, abs=40)
    for s in board.systems:
        assert s.styled and s.styled.interval and s.styled.interval[0] < s.styled.points < s.styled.interval[1]
    # An independent fit: the same likelihood, by SciPy.
    names, z = ["good", "long", "x"], np.asarray(more) / np.sqrt(np.mean(np.square(more)))
    a, b = ([names.index(n) for n in side] for side in zip(*((r.system_a, r.system_b) for r in rows), strict=True))
    won = np.array([r.outcome == "A" for r in rows])

    def loss(theta: np.ndarray) -> float:
        x = theta[a] - theta[b] + theta[3] * z
        return float(np.logaddexp(0, np.where(won, -x, x)).sum() + 1e-6 * (theta[:3] ** 2).sum())

    best = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-6}).x
    scale = 400 / math.log(10)
    assert [points[n] for n in names] == pytest.approx((1000 + scale * (best[:3] - best[:3].mean())).tolist(), abs=0.05)
    worth, (low, high) = board.style["length"]
    assert worth == pytest.approx(scale * best[3], abs=0.05)
    # The sandwich's interval, prompts as clusters.
    x = np.zeros((len(rows), 4))
    x[np.arange(len(rows)), a], x[np.arange(len(rows)), b], x[:, 3] = 1, -1, z
    p = 1 / (1 + np.exp(-(x @ best)))
    bread = np.linalg.pinv((x * (p * (1 - p))[:, None]).T @ x)
    scores = np.array([(x * (won - p)[:, None])[k : k + 3].sum(0) for k in range(0, len(rows), 3)])
    error = scale * math.sqrt((bread @ scores.T @ scores @ bread)[3, 3])
    assert (low, high) == pytest.approx((worth - 1.96 * error, worth + 1.96 * error), abs=0.25 * error)


def test_what_style_is_worth_does_not_hang_on_which_system_a_row_names_first() -> None:
    rows, _ = _styled(600)
    turned = [
        battle(r.system_b, r.system_a, "B" if r.outcome == "A" else "A", prompt=r.prompt, style=r.style[::-1])
        if r.style and r.style[0].length < r.style[1].length
        else r
        for r in rows
    ]
    one, other = leaderboard(rows, FEW, 0), leaderboard(turned, FEW, 0)
    assert other.style["length"][0] == pytest.approx(one.style["length"][0], abs=0.05), "the longer one always first"
    assert rated(other) == pytest.approx(rated(one), abs=0.01)
    unknown = leaderboard([*rows, *battles("x>good good>x")], FEW, 0)
    assert unknown.style == {} and all(s.styled is None for s in unknown.systems), "a response is not known"
