"""Selective judging: bounds against SciPy's exact ones, cascades against loops, and the guarantee in simulations."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.extras.guarantees.selective import (
    NEVER,
    Selective,
    Tiers,
    certified,
    fewest,
    lower_bound,
    passes,
    selective,
    thresholds,
)
from judgetrain.judges.base import Cost, Prediction
from judgetrain.schema import Comparison, Dialogue, Message

POPULATION = 50_000


def simulated(seed: int, noise: float = 0.0) -> Tiers:
    """A population judged by 1, 3 and 10 branches: the more, the more often right.

    The confidence of a tier is its true chance to be right, of which a share is ``noise``. In a tenth of the items the
    orders differ.
    """
    rng = np.random.default_rng(seed)
    ease = rng.normal(0.6, 1.3, POPULATION)
    confidence, right = [], []
    for skill in (0.0, 0.4, 0.8):
        chance = 1 / (1 + np.exp(-(ease + skill + rng.normal(0, 0.5, POPULATION))))
        right.append(rng.random(POPULATION) < chance)
        sure = (1 - noise) * chance + noise * rng.random(POPULATION)
        confidence.append(np.where(rng.random(POPULATION) < 0.1, NEVER, sure))
    known = np.array(confidence)
    tokens = np.repeat([[60.0], [180.0], [600.0]], POPULATION, axis=1)
    return Tiers(known, np.array(right) & (known > NEVER), tokens)


def broken(
    population: Tiers, items: int, agreement: float, risk: float, resamples: int, seed: int = 0
) -> tuple[float, float, float]:
    """The share of resamples whose threshold agrees less often than asked for over the whole population, the share that
    had a threshold at all, and the mean share answered."""
    rng, n = np.random.default_rng(seed), population.right.shape[1]
    worse, found, covered = [], [], []
    for _ in range(resamples):
        calibration, others = (rng.integers(n, size=items) for _ in range(2))
        drawn = Tiers(*(a[:, calibration] for a in (population.confidence, population.right, population.tokens)))
        sequence = thresholds(population.confidence[:, others], items, agreement, risk)
        threshold = certified(drawn, sequence, agreement, risk)
        found.append(threshold is not None)
        if threshold is None:
            worse.append(False)
            covered.append(0.0)
            continue
        asked = population.ask(threshold)
        worse.append(asked.agreement is not None and asked.agreement < agreement)
        covered.append(asked.coverage)
    return float(np.mean(worse)), float(np.mean(found)), float(np.mean(covered))


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


def judged(n: int, seed: int) -> tuple[Benchmark, list[list[Prediction]]]:
    """A benchmark and a judge with 1 and 3 branches whose margins tell how often it is right."""
    rng, comparisons = np.random.default_rng(seed), []
    tiers: list[list[Prediction]] = [[], []]
    for i in range(n):
        dialogue = Dialogue(f"b:{i}", "b", (Message("user", f"query {i}"),))
        comparisons.append(Comparison(f"b:{i}", dialogue, "x", "y", label="A"))
        for tier, k in zip(tiers, (1, 3), strict=True):
            margin = float(rng.choice([0.0, 1.0, 2.0, 3.0]))
            right = rng.random() < min(0.97, 0.3 + 0.25 * margin + 0.05 * k)
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


def measured(benchmark: Benchmark, tiers: list[list[Prediction]], wanted: float = 0.8) -> Selective:
    calibrating = np.arange(len(benchmark.comparisons)) % 4 < 2
    found = selective(benchmark, tiers, calibrating, wanted, 1)
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


def test_where_no_threshold_passes_the_judge_abstains() -> None:
    benchmark, tiers = judged(200, 3)
    assert "abstains: no threshold passes for 99% on 100 comparisons" in measured(benchmark, tiers, 0.99).told


def test_one_comparison_of_a_prompt_calibrates_and_too_few_say_nothing() -> None:
    benchmark, tiers = judged(400, 5)
    shared = replace(benchmark, prompts={c.id: f"p{i // 4}" for i, c in enumerate(benchmark.comparisons)})
    calibrating = np.arange(400) < 200
    found = selective(shared, tiers, calibrating, 0.8, 1)
    assert found is not None and (found.whole.calibrated, found.whole.n) == (50, 200)
    few = shared.part(shared.comparisons[:60], "test")
    assert selective(few, [t[:60] for t in tiers], calibrating[:60], 0.8, 1) is None


def test_the_bound_of_what_is_seen_counts_a_prompt_once() -> None:
    """Five comparisons of a prompt that are right or wrong together: 400 answers are 80 that are independent."""
    benchmark, tiers = judged(800, 6)
    shared = replace(benchmark, prompts={c.id: f"p{i // 5}" for i, c in enumerate(benchmark.comparisons)})
    same = [replace(tiers[0][i - i % 5], comparison_id=f"b:{i}") for i in range(800)]
    calibrating = np.arange(800) < 400
    found = selective(shared, [same], calibrating, 0.5, 1)
    assert found is not None and found.whole.threshold is not None and found.whole.agreement is not None
    answers = round(found.whole.coverage * 80)
    assert found.whole.bound == pytest.approx(
        lower_bound(round(found.whole.agreement * answers), answers, 0.1), abs=1e-6
    )
