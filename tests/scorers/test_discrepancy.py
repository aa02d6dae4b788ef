"""Confidence, wins, ranking, conflicts and length control on numbers worked out by hand, and as properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgetrain.scorers import discrepancy

D = [0.2, -0.05, -0.06, None, -0.2, 0.0]
numbers = st.floats(-3, 3, width=32)
values = st.lists(st.one_of(st.none(), numbers), min_size=1, max_size=30)


def test_confidence_at_the_papers_thresholds() -> None:
    assert discrepancy.confidence(D) == 3 / 5
    assert discrepancy.confidence(D, missing=-1.0) == 3 / 6
    assert discrepancy.confidence_sweep(D) == {0.0: 2 / 5, -0.05: 3 / 5, -0.1: 4 / 5}
    assert discrepancy.confidence([None]) is None
    assert discrepancy.mean(D) == pytest.approx(-0.022)
    assert discrepancy.mean([None]) is None


@given(values, numbers, numbers)
def test_confidence_never_grows_with_the_threshold(d: list[float | None], low: float, high: float) -> None:
    below, above = discrepancy.confidence(d, min(low, high)), discrepancy.confidence(d, max(low, high))
    assert (below is None) == (above is None) == all(x is None for x in d)
    if below is not None and above is not None:
        assert 0 <= above <= below <= 1


def test_length_report_by_hand() -> None:
    ratios = [1.0, 1.2, 1.21, 0.79, None]
    d = [0.0, -0.04, -0.1, 0.2, None]
    report = discrepancy.length_report(d, ratios)
    assert report is not None
    slope, _ = np.polyfit(np.log(ratios[:4]), d[:4], 1)  # type: ignore[arg-type]
    assert (report.n, report.changed) == (4, 0.5)
    assert report.mean_change == pytest.approx(0.05)
    assert report.slope == pytest.approx(slope)
    assert (report.kept_mean, report.kept_confidence) == (pytest.approx(-0.02), 1.0)
    expected = [x - slope * math.log(r) for x, r in zip(d[:4], ratios[:4], strict=True)]  # type: ignore[operator, arg-type]
    assert report.controlled == [*map(pytest.approx, expected), None]
    assert report.controlled_mean == pytest.approx(np.mean(expected))
    assert report.controlled_confidence == np.mean([x >= -0.05 for x in expected])


@given(numbers, numbers, st.lists(st.floats(0.3, 3), min_size=3, max_size=20))
def test_what_length_alone_explains_is_taken_out(level: float, slope: float, ratios: list[float]) -> None:
    d = [level + slope * math.log(r) for r in ratios]
    report = discrepancy.length_report(d, ratios)
    assert report is not None
    if np.ptp(np.log(ratios)) > 0.1:
        np.testing.assert_allclose(report.controlled, level, atol=1e-6)  # type: ignore[arg-type]


def test_without_spread_or_items_nothing_is_controlled() -> None:
    report = discrepancy.length_report([0.1, -0.2, 0.0], [1.1, 1.1, 1.1])
    assert report is not None
    assert (report.slope, report.controlled) == (0.0, [0.1, -0.2, 0.0])
    assert discrepancy.length_report([None], [None]) is None
    with pytest.raises(ValueError, match="positive"):
        discrepancy.length_report([0.1], [0.0])
