"""Prediction-powered means against the package ppi-python, a loop over clusters, closed forms and simulations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import ppi_py
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from judgetrain.extras.guarantees.corrected import PoweredMean, powered_mean

SCORES = (0.0, 0.5, 1.0)


@dataclass(frozen=True)
class Setting:
    """A judge who repeats the label with a chance, so many labels and verdicts, comparisons that share a prompt, and
    the chances that the model wins and ties."""

    repeats: float
    labels: int
    verdicts: int
    shared: int = 1
    win: float = 0.45
    tie: float = 0.2

    @property
    def share(self) -> float:
        """The true win rate; a tie is half a win."""
        return self.win + self.tie / 2


class Coverage(NamedTuple):
    """Shares of intervals that hold the truth (reported, normal), mean widths (reported, of the labels alone), and the
    share of simulations with an interval by both."""

    held: float
    normal: float
    width: float
    alone: float
    told: float


def drawn_world(setting: Setting, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, verdicts and prompts of the labelled comparisons and then the others, all [labels + verdicts].

    Comparisons of one prompt have the same label with a chance of one half.
    """
    n = setting.labels + setting.verdicts
    prompts = np.arange(n) // setting.shared
    chances = [setting.win, setting.tie, 1 - setting.win - setting.tie]
    drawn, of_prompt = (rng.choice([1.0, 0.5, 0.0], size=n, p=chances) for _ in range(2))
    same = (rng.random(n) < 0.5) & (setting.shared > 1)
    labels = np.where(same, of_prompt[prompts * setting.shared], drawn)
    anything = rng.choice([1.0, 0.5, 0.0], size=n, p=[0.6, 0.1, 0.3])  # a judge who is wrong is biased
    return labels, np.where(rng.random(n) < setting.repeats, labels, anything), prompts


def coverage(setting: Setting, simulations: int, level: float, seed: int = 0) -> Coverage:
    """What came of so many simulations; those whose labels are all the same, which are told otherwise, are left out."""
    rng, rows, z = np.random.default_rng(seed), [], float(stats.norm.ppf((1 + level) / 2))
    for _ in range(simulations):
        labels, verdicts, prompts = drawn_world(setting, rng)
        known = np.arange(len(labels)) < setting.labels
        if np.ptp(labels[known]) == 0:
            continue
        found = powered_mean(
            labels[known],
            verdicts[known],
            verdicts[~known],
            clusters=prompts[known].tolist() if setting.shared > 1 else None,
            unlabelled_clusters=prompts[~known].tolist() if setting.shared > 1 else None,
        )
        (low, high), alone = found.bounded(z)
        by_normal = abs(setting.share - found.estimate) <= z * found.variance**0.5
        rows.append([low <= setting.share <= high, by_normal, high - low, alone[1] - alone[0]])
    return Coverage(*np.mean(rows, axis=0).tolist(), told=len(rows) / simulations)


def drawn(seed: int, n: int, others: int, repeats: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, what a judge says of them, and of the others."""
    rng = np.random.default_rng(seed)
    labels, anything = rng.choice(SCORES, size=(2, n + others), p=[0.3, 0.1, 0.6])
    judged = np.where(rng.random(n + others) < repeats, labels, anything)
    return labels[:n], judged[:n], judged[n:]


def normal(found: PoweredMean) -> tuple[float, float]:
    """The normal 95% interval of the estimate."""
    half = float(stats.norm.ppf(0.975)) * found.variance**0.5
    return found.estimate - half, found.estimate + half


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), n=st.integers(20, 200), others=st.integers(20, 900), repeats=st.floats(0, 1))
def test_estimate_and_variance_are_those_of_ppi_python(seed: int, n: int, others: int, repeats: float) -> None:
    labels, judged, unlabelled = drawn(seed, n, others, repeats)
    found = powered_mean(labels, judged, unlabelled)
    low, high = ppi_py.ppi_mean_ci(labels, judged, unlabelled, alpha=0.05)
    assert normal(found) == pytest.approx((float(low[0]), float(high[0])), abs=1e-8)
    estimate = ppi_py.ppi_mean_pointestimate(labels, judged, unlabelled, lam=found.power)
    assert found.estimate == pytest.approx(float(np.ravel(estimate)[0]), abs=1e-8)
    low, high = ppi_py.ppi_mean_ci(labels, judged, unlabelled, alpha=0.05, lam=0.0)
    assert found.variance_alone == pytest.approx(((float(high[0]) - float(low[0])) / 2 / 1.959964) ** 2, rel=1e-6)
    assert found.alone == pytest.approx(float(labels.mean())) and 0 <= found.power <= 1


def test_items_of_a_prompt_are_summed_before_they_are_squared() -> None:
    labels, judged, unlabelled = drawn(3, 40, 100, 0.7)
    clusters, others = [i // 4 for i in range(40)], [i // 5 for i in range(100)]  # prompts 0 to 9 have both
    found = powered_mean(labels, judged, unlabelled, clusters=clusters, unlabelled_clusters=others)
    rest, by_prompt = labels - found.power * judged, dict.fromkeys(range(20), 0.0)
    for r, prompt in zip(rest, clusters, strict=True):
        by_prompt[prompt] += (r - rest.mean()) / 40
    for f, prompt in zip(unlabelled, others, strict=True):
        by_prompt[prompt] += found.power * (f - unlabelled.mean()) / 100
    assert found.variance == pytest.approx(sum(v**2 for v in by_prompt.values()))
    apart = powered_mean(labels, judged, unlabelled)
    assert found.estimate == apart.estimate and found.variance != apart.variance


def test_ninety_percent_intervals_hold_the_truth_nine_times_in_ten() -> None:
    for setting in (Setting(0.8, 200, 1000), Setting(0.7, 200, 1000, shared=4)):
        found = coverage(setting, 600, 0.9)
        assert 0.865 <= found.held <= 0.935, "three standard errors of 600 simulations"
        assert found.width < 0.85 * found.alone, "the verdicts add something"
    found = coverage(Setting(0.0, 200, 1000), 300, 0.9)
    assert found.held > 0.85 and found.width == pytest.approx(found.alone, rel=0.03), "who says anything adds nothing"


def test_intervals_of_high_shares_hold_the_truth_as_often_as_they_say() -> None:
    """Normal ones do not: of 0.9 with 60 labels and 0.95 with 100, some 90% of those that say 95%."""
    for win, labels in ((0.9, 60), (0.95, 100)):
        found = coverage(Setting(0.9, labels, 1000, win=win, tie=0.0), 1000, 0.95)
        assert found.told > 0.99 and found.held >= 0.935 > 0.92 > found.normal


def test_reported_intervals_are_wilsons_of_as_many_trials_as_tell_as_much_and_never_pass_one() -> None:
    rng = np.random.default_rng(5)
    for wins, n, wrong, others in ((57, 60, 2, 400), (95, 100, 5, 400), (33, 60, 20, 90)):
        labels = np.array([1.0] * wins + [0.0] * (n - wins))
        judged = labels.copy()
        judged[:wrong] = 1 - judged[:wrong]
        unlabelled = (rng.random(others) < 0.97).astype(float)
        found = powered_mean(labels, judged, unlabelled)
        (low, high), alone = found.bounded()
        classical = stats.binomtest(wins, n).proportion_ci(method="wilson")
        assert alone == pytest.approx((classical.low, classical.high))
        assert 0 <= low < min(1.0, found.estimate) <= high <= 1
        variance = np.var(labels - found.power * judged) / n + found.power**2 * np.var(unlabelled) / others
        variance = np.clip(variance + found.power**2 / (2 * n**2), labels.var() / (n + others), labels.var() / n)
        spread = 3.841459 * variance / labels.var()  # ends are the shares 1.96 of their own standard errors away
        middle = min(1.0, found.estimate)
        roots = np.sort(np.roots([1 + spread, -2 * middle - spread, middle**2]))
        assert (low, high) == pytest.approx((roots[0], min(1.0, roots[1])), abs=1e-5)
    with pytest.raises(ValueError, match="all labels are the same"):
        powered_mean(np.ones(40), np.ones(40), np.ones(9)).bounded()
    found = powered_mean(labels, labels, rng.permutation([1.0] * 55 + [0.0] * 45))
    low, high = found.bounded()[0]
    assert high - low > stats.binomtest(88, 160).proportion_ci(method="wilson").high - 0.55, "not worth over 160 labels"


def test_a_useless_judge_is_left_out_and_nothing_unlabelled_is_no_error() -> None:
    labels, judged, _ = drawn(1, 50, 0, 0.9)
    found = powered_mean(labels, judged, [])
    assert found.power == 0 and found.variance == found.variance_alone and found.effective == 50
    always = powered_mean(labels, np.ones(50), np.ones(80))
    assert (always.power, always.correlation) == (0, 0) and always.variance == always.variance_alone
    against = powered_mean(labels, 1 - labels, 1 - np.array([1.0, 0.0] * 40))
    assert against.power == 0, "verdicts against the labels count nothing"
    with pytest.raises(ValueError, match="are needed"):
        powered_mean([], [], [1.0])
    with pytest.raises(ValueError, match="are needed"):
        powered_mean([1.0], [1.0, 0.0], [])
