"""Metrics of single responses' scores, each computed anew by loops over the rows."""

import math
import random
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from scipy import stats

from judgetrain.data.intervals import Resampling
from judgetrain.data.labelled import Scale
from judgetrain.evaluate.metrics.ratings import Scored, commonest, label_sentences, metrics_of, people_of, prevalence

TWO = Scale((0.0, 1.0), ("fail", "pass"))
FIVE = Scale((0.0, 0.25, 0.5, 0.75, 1.0), ("1", "2", "3", "4", "5"))
UNEVEN = Scale((0.0, 0.2, 1.0), ("poor", "fair", "good"))


def drawn(scale: Scale, seed: int, n: int = 60, unread: float = 0.1) -> Scored:
    """Labels, and scores that follow them with noise, several responses to a prompt."""
    rng = random.Random(seed)
    labels = [rng.choice(scale.scores) for _ in range(n)]
    scores: list[float | None] = []
    for label in labels:
        score = min(1.0, max(0.0, label + rng.gauss(0, 0.4)))
        scores.append(None if rng.random() < unread else round(score, 1))
    return Scored.of(labels, scores, scale, [f"q{place // 3}" for place in range(n)])


def nearest(scale: Scale, score: float) -> int:
    """The level next to a score by looking at all of them; of two as near the better one."""
    return max(range(len(scale.scores)), key=lambda level: (-round(abs(scale.scores[level] - score), 9), level))


def rows_of(scored: Scored) -> list[tuple[int, int | None, float, float | None]]:
    """The level of the label, that of the score (None: unread), the label and the score of each response."""
    rows: list[tuple[int, int | None, float, float | None]] = []
    for label, score in zip(scored.labels.tolist(), scored.scores.tolist(), strict=True):
        truth = nearest(scored.scale, label)
        if math.isnan(score):
            rows.append((truth, None, label, None))
        else:
            rows.append((truth, nearest(scored.scale, score), label, score))
    return rows


def kappa(pairs: list[tuple[Any, Any]], weight: Any) -> float:
    """Cohen's kappa: disagreement over that of labels and levels drawn apart."""
    observed = sum(weight(a, b) for a, b in pairs) / len(pairs)
    by_chance = sum(weight(a, b) for a, _ in pairs for _, b in pairs) / len(pairs) ** 2
    return 1 - observed / by_chance


def ordered_pairs(scored: Scored) -> float:
    right = pairs = 0.0
    for (p, a, s), (q, b, t) in permutations(zip(scored.prompts, scored.labels, scored.scores, strict=True), 2):
        if p == q and a > b and not math.isnan(s) and not math.isnan(t):
            pairs += 1
            right += 1.0 if s > t else 0.5 if s == t else 0.0
    return right / pairs


@pytest.mark.parametrize("seed", range(4))
def test_metrics_over_two_levels_are_those_of_a_count_by_hand(seed: int) -> None:
    scored = drawn(TWO, seed)
    rows = rows_of(scored)
    n = len(rows)
    hits = sum(truth == level == 1 for truth, level, _, _ in rows)
    rejections = sum(truth == level == 0 for truth, level, _, _ in rows)
    positives = sum(truth == 1 for truth, _, _, _ in rows)
    said = sum(level == 1 for _, level, _, _ in rows)
    read = [(truth, score) for truth, _, _, score in rows if score is not None]
    ranks = [1.0 if s > t else 0.5 if s == t else 0.0 for truth, s in read if truth for other, t in read if not other]
    error = 0.0
    for place in range(10):
        # scikit-learn's bins hold their upper end.
        low, high = place / 10, (place + 1) / 10
        inside = [(t, s) for t, s in read if low < s <= high or (place == 0 and s == 0)]
        if inside:
            shares = [sum(column) / len(inside) for column in zip(*inside, strict=True)]
            error += len(inside) / len(read) * abs(shares[0] - shares[1])
    expected = {
        "agreement": (hits + rejections) / n,
        "sensitivity": hits / positives,
        "specificity": rejections / (n - positives),
        "balanced_accuracy": (hits / positives + rejections / (n - positives)) / 2,
        "precision": hits / said,
        "f1": 2 * hits / (said + positives),
        "kappa": kappa([(truth, level) for truth, level, _, _ in rows], lambda a, b: a != b),
        "auroc": sum(ranks) / len(ranks),
        "brier": sum((truth - score) ** 2 for truth, score in read) / len(read),
        "calibration_error": error,
        "order_accuracy": ordered_pairs(scored),
    }
    values = metrics_of(scored, Resampling(300, 0))
    assert {name: values[name] for name in expected} == pytest.approx(expected, abs=1e-9)
    for name, value in expected.items():
        low, high = values[f"{name}_ci"]
        # The calibration error of a resample is above the true one: its bins are smaller.
        assert low <= value + 1e-9 and value <= high + (0 if name != "calibration_error" else 1)
        assert 0.01 < high - low < 0.9


@pytest.mark.parametrize("scale", [FIVE, UNEVEN])
def test_metrics_over_ordered_levels_are_those_of_a_count_by_hand(scale: Scale) -> None:
    scored = drawn(scale, 5)
    rows = rows_of(scored)
    read = [(truth, level, label, score) for truth, level, label, score in rows if level is not None]
    labels = np.array([label for _, _, label, _ in read])
    scores = np.array([score for _, _, _, score in read], dtype=float)
    items = list(zip(labels, scores, strict=True))
    concordant = sum(np.sign(a - b) * np.sign(s - t) for a, s in items for b, t in items)
    pairs_of = [sum(np.sign(a - b) ** 2 for a in column for b in column) for column in (labels, scores)]
    ranks = [np.array([(column < x).sum() + (column == x).sum() / 2 for x in column]) for column in (labels, scores)]
    expected = {
        "agreement": sum(truth == level for truth, level, _, _ in rows) / len(rows),
        "within_one": sum(abs(truth - level) <= 1 for truth, level, _, _ in read) / len(rows),
        "mean_error": sum(abs(label - score) for label, score in items) / len(read),
        "kappa": kappa([(truth, level) for truth, level, _, _ in read], lambda a, b: (a - b) ** 2),
        "pearson": np.cov(labels, scores)[0, 1] / labels.std(ddof=1) / scores.std(ddof=1),
        "spearman": np.corrcoef(*ranks)[0, 1],
        "kendall": concordant / math.sqrt(pairs_of[0] * pairs_of[1]),
        "order_accuracy": ordered_pairs(scored),
    }
    values = metrics_of(scored, Resampling(300, 0))
    assert {name: values[name] for name in expected} == pytest.approx(expected, abs=1e-9)
    for name, value in expected.items():
        low, high = values[f"{name}_ci"]
        assert low <= value <= high and 0.01 < high - low < 0.9


def test_the_order_of_pairs_is_somers_d_where_all_answer_one_prompt() -> None:
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 5, 30) / 4
    scores = rng.integers(0, 9, 30) / 8
    values = metrics_of(Scored.of(labels.tolist(), scores.tolist(), FIVE, ["q"] * 30), Resampling(50, 0))
    assert values["order_accuracy"] == pytest.approx((1 + stats.somersd(labels, scores).statistic) / 2, abs=1e-9)
    assert values["n_ordered"] == sum(a > b for a in labels for b in labels)
    # One prompt bounds nothing.
    assert {name for name, value in values.items() if name.endswith("_ci") and value} == set()


def test_what_cannot_be_read_agrees_with_nothing() -> None:
    labels = [1.0, 0.0] * 10
    prompts = [f"q{place}" for place in range(20)]
    right = metrics_of(Scored.of(labels, [*labels], TWO, prompts), Resampling(100, 0))
    assert (right["agreement"], right["kappa"], right["sensitivity"], right["auroc"]) == (1.0, 1.0, 1.0, 1.0)
    # At the end of the scale an interval has width.
    assert all(right[f"{name}_ci"][0] < 0.9 for name in ("agreement", "kappa", "sensitivity", "auroc"))
    half = metrics_of(Scored.of(labels, [1.0, None] * 10, TWO, prompts), Resampling(100, 0))
    assert (half["agreement"], half["sensitivity"], half["specificity"]) == (0.5, 1.0, 0.0)
    assert (half["auroc"], half["brier"]) == (None, 0.0)
    none = metrics_of(Scored.of(labels, [None] * 20, TWO, prompts), Resampling(100, 0))
    assert (none["agreement"], none["brier"], none["auroc"], none["order_accuracy"]) == (0.0, None, None, None)
    none = metrics_of(Scored.of(labels, [None] * 20, FIVE, prompts), Resampling(100, 0))
    assert (none["within_one"], none["mean_error"], none["kappa"], none["pearson"]) == (0.0, None, None, None)


def test_one_class_has_neither_kappa_nor_auroc_and_is_told() -> None:
    scored = Scored.of([1.0] * 12, [1.0] * 11 + [0.0], TWO, [f"q{place}" for place in range(12)])
    values = metrics_of(scored, Resampling(100, 0))
    assert (values["auroc"], values["specificity"], values["balanced_accuracy"]) == (None, None, None)
    assert values["agreement"] == pytest.approx(11 / 12, abs=1e-9)
    assert label_sentences("mine", scored) == [
        "mine: all 12 labels are pass, so that whoever always says so is right; label others, too"
    ]
    few = Scored.of([1.0, 0.0, 1.0], [1.0, 0.0, 1.0], TWO, ["a", "b", "c"])
    assert label_sentences("mine", few) == [
        "mine: 3 labels on 3 prompts are too few for intervals, which need 10 prompts"
    ]
    assert metrics_of(few, Resampling(100, 0))["kappa_ci"] is None


def test_prevalence_and_the_commonest_level() -> None:
    scored = Scored.of([0.0, 1.0, 1.0, None], [None] * 4, UNEVEN, ["a", "b", "c", "d"])
    assert prevalence(scored) == pytest.approx({"poor": 1 / 3, "fair": 0, "good": 2 / 3}, abs=1e-6)
    assert commonest(scored) == 2
    assert commonest(Scored.of([0.0, 1.0], [None] * 2, UNEVEN, ["a", "b"])) == 2


def alpha_by_pairs(votes: list[tuple[float, ...]]) -> float:
    """Krippendorff's alpha as it is defined: over all pairs of labels of one response, and of any two."""
    units = [unit for unit in votes if len(unit) > 1]
    labels = [label for unit in units for label in unit]
    n = len(labels)
    observed = sum(sum((a - b) ** 2 for a, b in permutations(unit, 2)) / (len(unit) - 1) for unit in units) / n
    expected = sum((a - b) ** 2 for a, b in permutations(labels, 2)) / n / (n - 1)
    return 1 - observed / expected


@pytest.mark.parametrize("scale", [TWO, FIVE, UNEVEN])
def test_people_s_agreement_and_the_judge_s_are_over_the_same_labels_left_out(scale: Scale) -> None:
    rng = random.Random(11)
    votes: list[tuple[float, ...]] = []
    scores: list[float | None] = []
    for _ in range(40):
        true = rng.choice(scale.scores)
        people = rng.choice((1, 2, 3, 4))
        votes.append(tuple(true if rng.random() < 0.7 else rng.choice(scale.scores) for _ in range(people)))
        scores.append(None if rng.random() < 0.1 else min(1.0, max(0.0, true + rng.gauss(0, 0.2))))
    person = judge = count = 0
    for of_response, score in zip(votes, scores, strict=True):
        for place, vote in enumerate(of_response):
            others = [other for index, other in enumerate(of_response) if index != place]
            if not others or (scale is TWO and sum(others) * 2 == len(others)):
                continue
            level = nearest(scale, sum(others) / len(others))
            count += 1
            person += nearest(scale, vote) == level
            judge += score is not None and nearest(scale, score) == level
    prompts = [f"q{place}" for place in range(40)]
    people = people_of(votes, scores, scale, prompts, Resampling(500, 0))
    assert people is not None
    assert (people.n, people.annotators) == (sum(len(of_response) > 1 for of_response in votes), 4)
    figures = (people.alpha, people.person, people.judge, people.difference)
    expected = (alpha_by_pairs(votes), person / count, judge / count, (judge - person) / count)
    assert figures == pytest.approx(expected, abs=1e-9)
    for value, ends in zip(
        figures, (people.alpha_ci, people.person_ci, people.judge_ci, people.difference_ci), strict=True
    ):
        assert value is not None and ends is not None and ends[0] < value < ends[1]


def test_the_alpha_of_krippendorff_s_own_example() -> None:
    # Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", section D: four observers, twelve units,
    # interval data: 0.849.
    data = ["1*11", "2232", "3333", "3333", "2222", "1234", "4444", "1121", "2222", "*555", "**11", "**3*"]
    votes = [tuple((int(sign) - 1) / 4 for sign in unit if sign != "*") for unit in data]
    people = people_of(votes, [None] * 12, FIVE, [f"u{place}" for place in range(12)], Resampling(50, 0))
    assert people is not None and people.alpha == pytest.approx(0.849, abs=5e-4)


@pytest.mark.parametrize(
    ("right", "told"), [(1.0, "agrees more than"), (0.75, "not told apart from"), (0.2, "agrees less than")]
)
def test_whether_the_judge_is_as_good_as_another_person_is_said(right: float, told: str) -> None:
    rng = random.Random(2)
    votes = []
    scores: list[float | None] = []
    for _ in range(200):
        true = rng.choice((0.0, 1.0))
        votes.append(tuple(true if rng.random() < 0.9 else 1 - true for _ in range(3)))
        scores.append(true if rng.random() < right else 1 - true)
    if right == 0.75:
        # As another person does: the first one's labels.
        scores = [of_response[0] for of_response in votes]
        votes = [(*of_response[1:], float(round(sum(of_response) / 3))) for of_response in votes]
    people = people_of(votes, scores, TWO, [f"q{place}" for place in range(200)], Resampling(500, 0))
    assert people is not None and told in people.sentence


def test_one_annotator_is_no_agreement_of_people() -> None:
    assert people_of([(1.0,), (0.0,), ()], [1.0, 0.0, None], TWO, ["a", "b", "c"], Resampling(50, 0)) is None
    people = people_of([(1.0, 1.0)] * 12, [1.0] * 12, TWO, [f"q{place}" for place in range(12)], Resampling(50, 0))
    assert people is not None and people.alpha is None and people.person == 1.0


def test_scores_that_are_equal_in_decimals_have_one_rank() -> None:
    """(0.1 + 0.8) / 2 and (0.2 + 0.7) / 2, of a judge from elsewhere: neither response is put before the other."""
    first = (0.1 + 0.8) / 2
    second = (0.2 + 0.7) / 2
    assert first != second
    for scores in ([first, second], [second, first]):
        scored = Scored.of([0.0, 1.0], scores, TWO, ["p", "p"])
        assert metrics_of(scored, Resampling(10, 0))["order_accuracy"] == 0.5
