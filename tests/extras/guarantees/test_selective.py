"""Selective judging: bounds against SciPy's exact ones, cascades against loops, and the guarantee in simulations."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.extras.guarantees.cascade import Selective, selective
from judgetrain.extras.guarantees.config import GuaranteesConfig
from judgetrain.extras.guarantees.selective import (
    NEVER,
    Tiers,
    certified,
    fewest,
    in_full,
    lower_bound,
    passes,
    reliabilities,
    thresholds,
    within_budget,
)
from judgetrain.judges.base import Cost, Prediction
from judgetrain.schema import Comparison, Dialogue, Message
from tests.benchmarks.selective_guarantee import broken, simulated


@pytest.fixture(scope="module")
def population() -> Tiers:
    return simulated(3)


def some(population: Tiers, n: int, seed: int) -> Tiers:
    mask = np.zeros(population.right.shape[1], dtype=bool)
    mask[np.random.default_rng(seed).choice(len(mask), n, replace=False)] = True
    return population.part(mask)


def test_the_test_is_the_exact_binomial_one_and_the_bound_clopper_and_pearsons() -> None:
    for right, answered in ((0, 5), (22, 22), (40, 44), (70, 80), (79, 80)):
        test = stats.binomtest(right, answered, 0.85, alternative="greater")
        assert passes(right, answered, 0.85, 0.1) == (test.pvalue <= 0.1)
        bound = test.proportion_ci(0.9, method="exact").low
        assert lower_bound(right, answered, 0.1) == pytest.approx(bound, abs=1e-9)
        assert passes(right, answered, 0.85, 0.1) == (bound >= 0.85)
    assert not passes(0, 0, 0.8, 0.1)
    for agreement in (0.7, 0.8, 0.9, 0.95):
        n = fewest(agreement, 0.1)
        assert passes(n, n, agreement, 0.1) and not passes(n - 1, n - 1, agreement, 0.1)


def test_a_cascade_is_asked_tier_by_tier(population: Tiers) -> None:
    tiers = some(population, 60, 1)
    asked = tiers.ask(0.7)
    for i in range(60):
        sure = [j for j in range(3) if tiers.confidence[j, i] >= 0.7]
        expected = sure[0] if sure else -1
        assert asked.tier[i] == expected
        assert asked.tokens[i] == tiers.tokens[expected if sure else 2, i], "an abstention has asked every tier"
        assert asked.right[i] == (bool(sure) and bool(tiers.right[expected, i]))
    right, tokens = in_full(tiers.first(2), 0.7)
    for i in range(60):
        tier = 0 if tiers.confidence[0, i] >= 0.7 else 1
        assert (right[i], tokens[i]) == (tiers.right[tier, i], tiers.tokens[tier, i])


def test_the_guarantee_is_broken_no_more_often_than_was_risked(population: Tiers) -> None:
    for agreement, of in ((0.8, population), (0.72, simulated(4, 0.5))):
        worse, found, covered = broken(of, 200, agreement, 0.1, 300)
        assert worse <= 0.1 + 2 * math.sqrt(0.1 * 0.9 / 300)
        assert found > 0.7 and covered > 0.3, "and it is no guarantee of nothing"
    worse, found, _ = broken(population, 200, 0.97, 0.1, 100)
    assert worse <= 0.16 and found < 0.2, "nobody is as sure as that"


def test_the_threshold_is_the_last_before_the_first_that_fails(population: Tiers) -> None:
    tiers, others = some(population, 400, 2), some(population, 400, 9)
    sequence = thresholds(others.confidence, 400, 0.8, 0.1)
    assert sequence == sorted(sequence, reverse=True) and len(sequence) <= 100
    found, expected = certified(tiers, sequence, 0.8, 0.1), None
    for threshold in sequence:
        asked = tiers.ask(threshold)
        n, right = int(asked.answered.sum()), int(asked.right.sum())
        if stats.binomtest(right, n, 0.8, alternative="greater").pvalue > 0.1:
            break
        expected = threshold
    assert found == expected is not None
    assert others.ask(sequence[0]).answered.sum() == 33, "three times the 11 that would pass without an error"
    assert thresholds(tiers.confidence, 20, 0.9, 0.1) == [], "20 items cannot show an agreement of 90%"
    assert thresholds(np.full((2, 30), NEVER), 400, 0.8, 0.1) == []


def test_within_the_budget_no_cascade_is_right_more_often(population: Tiers) -> None:
    tiers = some(population, 150, 5)
    levels = [0.9, 0.7, 0.5, 0.3]
    count, threshold, fits = within_budget(tiers, levels, 0.3)
    assert fits
    best, tokens = in_full(tiers.first(count), threshold)
    assert tokens.mean() <= 0.3 * 600
    for other in (1, 2, 3):
        for level in [math.inf, *levels]:
            right, spent = in_full(tiers.first(other), level)
            assert spent.mean() > 180 or (right.mean(), -spent.mean()) <= (best.mean(), -tokens.mean())
    assert within_budget(tiers, levels, 0.01) == (1, math.inf, False), "nothing is so cheap: the first tier"


def judged(n: int, seed: int, group: bool = False) -> tuple[Benchmark, list[list[Prediction]]]:
    """A benchmark and a judge with 1 and 3 branches whose margins tell how often it is right, but not in group g1."""
    rng, comparisons = np.random.default_rng(seed), []
    tiers: list[list[Prediction]] = [[], []]
    for i in range(n):
        dialogue = Dialogue(f"b:{i}", "b", (Message("user", f"query {i}"),))
        hard = group and i % 2 == 1
        comparisons.append(Comparison(f"b:{i}", dialogue, "x", "y", label="A", group=f"g{i % 2}" if group else None))
        for tier, k in zip(tiers, (1, 3), strict=True):
            margin = float(rng.choice([0.0, 1.0, 2.0, 3.0]))
            right = rng.random() < (0.3 if hard else min(0.97, 0.3 + 0.25 * margin + 0.05 * k))
            verdict = "A" if right else "B"
            found = Prediction(
                comparison_id=f"b:{i}",
                method="m",
                branches=k,
                verdict_ab=verdict,  # type: ignore[arg-type]
                verdict_ba=verdict if rng.random() < 0.9 else "tie",  # type: ignore[arg-type]
                margin=margin if right else -margin,
                spread=None if k == 1 else float(rng.random()),
                cost=Cost(generated_tokens=50.0 * k),
            )
            tier.append(found)
    return Benchmark(name="b", split="test", comparisons=comparisons), tiers


def measured(benchmark: Benchmark, tiers: list[list[Prediction]], **keys: object) -> Selective:
    config = replace(GuaranteesConfig(), **keys)  # type: ignore[arg-type]
    calibrating = np.arange(len(benchmark.comparisons)) % 4 < 2
    found = selective(benchmark, tiers, calibrating, config, 100, 1)
    assert found is not None
    return found


def test_figures_are_of_the_comparisons_that_set_no_threshold() -> None:
    benchmark, tiers = judged(800, 1)
    found = measured(benchmark, tiers)
    whole = found.whole
    assert (whole.n, whole.calibrated, found.tiers) == (400, 400, ("m@1", "m@3")) and whole.threshold is not None
    answered = right = spent = 0
    by_tier = [0, 0]
    for i in (i for i in range(800) if i % 4 >= 2):
        for j, tier in enumerate(tiers):
            p = tier[i]
            if p.verdict_ab == p.verdict_ba and abs(p.margin or 0) >= whole.threshold:
                answered, right, spent = answered + 1, right + (p.verdict_ab == "A"), spent + 50 * p.branches
                by_tier[j] += 1
                break
        else:
            spent += 150
    assert whole.coverage == pytest.approx(answered / 400) and whole.tokens == pytest.approx(spent / 400)
    assert whole.agreement == pytest.approx(right / answered, abs=1e-6)
    assert whole.tiers == pytest.approx((by_tier[0] / 400, by_tier[1] / 400))
    assert whole.bound == pytest.approx(lower_bound(right, answered, 0.1), abs=1e-6)
    assert f"answers {100 * answered / 400:.0f}% of the comparisons; of these at least 80% agree" in found.told
    assert [p.coverage for p in found.curve] == sorted(p.coverage for p in found.curve)
    last = found.curve[-1]
    consistent = sum(any(t[i].verdict_ab == t[i].verdict_ba for t in tiers) for i in range(800) if i % 4 >= 2)
    assert last.coverage == pytest.approx(consistent / 400), "the laxest answers wherever the orders agree"


def test_a_group_has_a_threshold_of_its_own_and_where_none_passes_the_judge_abstains() -> None:
    found = measured(*judged(1200, 2, group=True))
    assert found.groups["g0"].threshold is not None and found.groups["g0"].agreement is not None
    assert found.groups["g0"].agreement > 0.75
    assert found.groups["g1"].threshold is None and found.groups["g1"].coverage == 0
    benchmark, tiers = judged(200, 3)
    assert "abstains: no threshold passes for 99% on 100 comparisons" in measured(benchmark, tiers, agreement=0.99).told


def test_one_comparison_of_a_prompt_calibrates_and_too_few_say_nothing() -> None:
    benchmark, tiers = judged(400, 5)
    shared = replace(benchmark, prompts={c.id: f"p{i // 4}" for i, c in enumerate(benchmark.comparisons)})
    calibrating = np.arange(400) < 200
    found = selective(shared, tiers, calibrating, GuaranteesConfig(), 100, 1)
    assert found is not None and (found.whole.calibrated, found.whole.n) == (50, 200)
    few = shared.part(shared.comparisons[:60], "test")
    assert selective(few, [t[:60] for t in tiers], calibrating[:60], GuaranteesConfig(), 100, 1) is None


def test_the_bound_of_what_is_seen_counts_a_prompt_once() -> None:
    """Five comparisons of a prompt that are right or wrong together: 400 answers are 80 that are independent."""
    benchmark, tiers = judged(800, 6)
    shared = replace(benchmark, prompts={c.id: f"p{i // 5}" for i, c in enumerate(benchmark.comparisons)})
    same = [replace(tiers[0][i - i % 5], comparison_id=f"b:{i}") for i in range(800)]
    calibrating = np.arange(800) < 400
    found = selective(shared, [same], calibrating, replace(GuaranteesConfig(), agreement=0.5), 100, 1)
    assert found is not None and found.whole.threshold is not None and found.whole.agreement is not None
    answers = round(found.whole.coverage * 80)
    assert found.whole.bound == pytest.approx(
        lower_bound(round(found.whole.agreement * answers), answers, 0.1), abs=1e-6
    )


def test_chances_are_those_of_a_logistic_regression_on_the_items_that_set_no_threshold() -> None:
    from scipy.optimize import minimize

    rng = np.random.default_rng(7)
    n = 300
    confidence = rng.gamma(2.0, 3.0, (3, n))
    confidence[:, ::10] = NEVER
    right = rng.random((3, n)) < np.array([expit(0.4 * confidence[0].clip(0) - 1), expit(-confidence[1]), np.ones(n)])
    right &= confidence > NEVER
    fits = np.arange(n) < 100
    found = reliabilities(Tiers(confidence, right, np.zeros((3, n))), fits).confidence
    assert (found[:, ::10] == NEVER).all()
    known = fits & (confidence[0] > NEVER)
    x, y = confidence[0, known], right[0, known]
    scaled = (x - x.mean()) / x.std()

    def loss(w: np.ndarray) -> float:
        return float(np.logaddexp(0, -np.where(y, 1, -1) * (w[0] + w[1] * scaled)).sum() + w[1] ** 2 / 2)

    intercept, slope = minimize(loss, np.zeros(2)).x
    others = ~fits & (confidence[0] > NEVER)
    expected = expit(intercept + slope * (confidence[0, others] - x.mean()) / x.std())
    assert found[0, others] == pytest.approx(expected, abs=1e-3) and slope > 0
    falling = fits & (confidence[1] > NEVER)
    laplace = [(right[i, falling].sum() + 1) / (falling.sum() + 2) for i in (1, 2)]
    assert {*found[1, others].tolist()} == {laplace[0]}, "surer where it is wrong: one chance for all"
    assert {*found[2, others].tolist()} == {laplace[1]} != {1.0}, "right wherever it was looked at"


def at_once(tier: list[Prediction], scale: float, useful: bool) -> list[Prediction]:
    """A verdict at once on each comparison, on a scale of its own, right where its margin is large, or anywhere."""
    rng, found = np.random.default_rng(11), []
    for p in tier:
        margin = float(rng.random())
        right = rng.random() < (0.4 + 0.6 * margin if useful else 0.5)
        verdict = "A" if right else "B"
        found.append(
            Prediction(
                comparison_id=p.comparison_id,
                method="quick",
                verdict_ab=verdict,  # type: ignore[arg-type]
                verdict_ba=verdict,  # type: ignore[arg-type]
                margin=scale * (margin if right else -margin),
                cost=Cost(generated_tokens=2.0),
            )
        )
    return found


@pytest.mark.parametrize("scale", [0.01, 100.0])
def test_a_verdict_at_once_stands_where_it_is_worth_as_much_whatever_its_scale(scale: float) -> None:
    benchmark, tiers = judged(1200, 8)
    config, calibrating = replace(GuaranteesConfig(), agreement=0.75), np.arange(1200) % 4 < 2

    def asked(useful: bool) -> Selective:
        quick = at_once(tiers[0], scale, useful)
        found = selective(benchmark, [quick, *tiers], calibrating, config, 100, 1, "m")
        assert found is not None
        return found

    alone = selective(benchmark, tiers, calibrating, config, 100, 1)
    useful, useless = asked(True), asked(False)
    assert alone is not None and alone.whole.tokens is not None and useful.whole.tokens is not None
    assert useful.tiers == ("quick", "m@1", "m@3") and useful.whole.calibrated == 400
    assert useful.whole.tiers[0] > 0.2 and useful.whole.tokens < alone.whole.tokens
    assert useful.whole.agreement is not None and useful.whole.agreement > 0.75
    assert useless.whole.tiers[0] < 0.05, "right half of the time: never so sure"
    assert useful.in_full is not None and alone.in_full is not None
    assert useful.in_full.full_agreement == alone.in_full.full_agreement
    assert useful.in_full.share == pytest.approx(useful.in_full.tokens / 150, abs=1e-5), "the full judge is asked alone"


def test_the_guarantee_holds_with_a_verdict_at_once_in_front() -> None:
    worse, found, covered = broken(simulated(5, front=True), 300, 0.8, 0.1, 200, fitted=True)
    assert worse <= 0.1 + 2 * math.sqrt(0.1 * 0.9 / 200)
    assert found > 0.7 and covered > 0.3
