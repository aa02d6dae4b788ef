"""Metrics of single responses beside AutoRubric's on the same columns: where it is installed.

It brings packages of its own (LiteLLM takes seconds to import), so that no environment of CI has it; docs/extending.md
says how to try it. Every metric is computed by loops in ``test_ratings``, too.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pytest

from judgetrain.data.intervals import Resampling
from judgetrain.data.labelled import Scale
from judgetrain.evaluate.metrics.ratings import Scored, metrics_of, people_of

autorubric: Any = pytest.importorskip("autorubric")
TWO = Scale((0.0, 1.0), ("fail", "pass"))
FIVE = Scale((0.0, 0.25, 0.5, 0.75, 1.0), ("1", "2", "3", "4", "5"))
UNEVEN = Scale((0.0, 0.2, 1.0), ("poor", "fair", "good"))


def columns(scale: Scale, seed: int, n: int = 80) -> tuple[list[int], list[int]]:
    """Return the level of each label, and the level that a judge gives: its neighbour in a third of the rows."""
    rng = random.Random(seed)
    last = len(scale.scores) - 1
    labels = [rng.randint(0, last) for _ in range(n)]
    levels = [min(last, max(0, level + rng.choice((-1, 0, 0, 0, 0, 1)))) for level in labels]
    return labels, levels


def of_autorubric(scale: Scale, labels: list[int], levels: list[int]) -> Any:
    """Return AutoRubric's metrics of one criterion, by its public way from a finished evaluation."""
    from autorubric.dataset import DataItem, RubricDataset
    from autorubric.eval import EvalResult, EvalTimingStats, ItemResult
    from autorubric.metrics import compute_metrics
    from autorubric.types import CriterionReport, CriterionVerdict, EvaluationReport, MultiChoiceVerdict

    common: dict[str, Any] = {"name": "quality", "weight": 1.0, "requirement": "The response is good."}
    if not scale.has_two_levels:
        common["options"] = [
            {"label": name, "value": score} for name, score in zip(scale.names, scale.scores, strict=True)
        ]
        common["scale_type"] = "ordinal"

    def of_level(level: int) -> dict[str, Any]:
        """Return the verdict that stands for a level, as a report holds it."""
        if scale.has_two_levels:
            return {"verdict": (CriterionVerdict.UNMET, CriterionVerdict.MET)[level]}
        chosen = MultiChoiceVerdict(selected_index=level, selected_label=scale.names[level], value=scale.scores[level])
        return {"multi_choice_verdict": chosen}

    items = []
    results = []
    for place, (label, level) in enumerate(zip(labels, levels, strict=True)):
        truth: Any = scale.names[label]
        if scale.has_two_levels:
            truth = of_level(label)["verdict"]
        items.append(DataItem(submission=f"response {place}", description=str(place), ground_truth=[truth]))
        report = EvaluationReport(
            score=scale.scores[level], report=[CriterionReport(**common, reason="none", **of_level(level))]
        )
        results.append(ItemResult(place, items[-1], report, 0.0))
    now = datetime.now(UTC)
    evaluation = EvalResult(
        item_results=results,
        total_items=len(items),
        successful_items=len(items),
        failed_items=0,
        total_token_usage=None,
        total_completion_cost=None,
        timing_stats=EvalTimingStats(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        started_at=now,
        completed_at=now,
    )
    rubric = autorubric.Rubric([autorubric.Criterion(**common)])
    (metrics,) = compute_metrics(evaluation, RubricDataset(prompt="query", rubric=rubric, items=items)).per_criterion
    return metrics


def ours(scale: Scale, labels: list[int], levels: list[int]) -> dict[str, Any]:
    """Return our metrics of the same columns."""
    scored = Scored.of(
        [scale.scores[level] for level in labels],
        [scale.scores[level] for level in levels],
        scale,
        [f"query {place}" for place in range(len(labels))],
    )
    return metrics_of(scored, Resampling(50, 0))


def assert_equal(values: dict[str, Any], expected: dict[str, float]) -> None:
    """Assert that our figures are AutoRubric's."""
    assert {name: values[name] for name in expected} == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_two_levels_have_autorubrics_figures(seed: int) -> None:
    labels, levels = columns(TWO, seed)
    theirs = of_autorubric(TWO, labels, levels)
    values = ours(TWO, labels, levels)
    expected = {
        "agreement": theirs.accuracy,
        "precision": theirs.precision,
        "sensitivity": theirs.recall,
        "f1": theirs.f1,
        "kappa": theirs.kappa,
    }
    assert_equal(values, expected)


@pytest.mark.parametrize("scale", [FIVE, UNEVEN])
@pytest.mark.parametrize("seed", range(5))
def test_ordered_levels_have_autorubrics_figures(scale: Scale, seed: int) -> None:
    labels, levels = columns(scale, seed)
    theirs = of_autorubric(scale, labels, levels)
    values = ours(scale, labels, levels)
    expected = {
        "agreement": theirs.exact_accuracy,
        "within_one": theirs.adjacent_accuracy,
        "kappa": theirs.weighted_kappa,
        "mean_error": theirs.mae,
        "spearman": theirs.spearman.coefficient,
        "kendall": theirs.kendall.coefficient,
    }
    assert_equal(values, expected)


def test_agreement_among_people_is_that_of_the_package_that_autorubric_uses() -> None:
    import krippendorff

    rng = random.Random(3)
    votes = [[rng.choice(FIVE.scores) for _ in range(rng.randint(2, 4))] for _ in range(40)]
    prompts = [f"query {place}" for place in range(len(votes))]
    people = people_of(votes, [0.5] * len(votes), FIVE, prompts, Resampling(50, 0))
    by_person = [
        [of_item[person] if person < len(of_item) else float("nan") for of_item in votes] for person in range(4)
    ]
    alpha = krippendorff.alpha(reliability_data=by_person, level_of_measurement="interval")
    assert people is not None
    assert people.alpha == pytest.approx(alpha, abs=1e-9)
