"""The comparison of samples: measures against a loop, and that the held-out queries are in neither sample."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from tests.benchmarks import sample_coverage
from tests.benchmarks.sample_coverage import compared, interval, measured


@pytest.fixture
def rows() -> np.ndarray:
    drawn = np.random.default_rng(0).normal(size=(300, 6))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


def test_the_measures_are_those_of_a_loop(rows: np.ndarray) -> None:
    labels, categories = np.arange(300) % 7, np.where(np.arange(300) % 2, np.arange(300) % 5, -1)
    probes, sample = np.arange(0, 60), np.arange(100, 103)
    found = measured(rows, labels, categories, probes, sample)
    distance = [min(1 - float(rows[p] @ rows[s]) for s in sample) for p in probes]
    by_cluster = [np.mean([d for p, d in zip(probes, distance, strict=True) if labels[p] == c]) for c in range(7)]
    assert found["distance"] == pytest.approx(np.mean(distance), abs=1e-5)
    assert found["distance_p95"] == pytest.approx(np.percentile(distance, 95), abs=1e-5)
    assert found["distance_by_cluster"] == pytest.approx(np.mean(by_cluster), abs=1e-5)
    assert found["categories"] == 1 / 5, "row 101 has category 1; rows 100 and 102 have none"


def test_neither_sample_holds_what_is_held_out(rows: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(sample_coverage, "measured", lambda *arguments: calls.append(arguments[3:]) or {})
    compared(rows, np.arange(300) % 7, np.full(300, -1), 40, seed=3)
    (probes, over), (same, random) = calls
    assert (probes == same).all() and len(probes) == 30
    for sample in (over, random):
        assert len(set(sample.tolist())) == 40
        assert not np.intersect1d(probes, sample).size
    assert set(np.bincount(over % 7)) <= {5, 6}, "even over the clusters"


def test_the_interval_is_students(rows: np.ndarray) -> None:
    values = [0.1, 0.2, 0.15, 0.3]
    low, high = ttest_1samp(values, 0).confidence_interval(0.95)
    assert interval(values) == f"{np.mean(values):+.4f} ({low:+.4f} to {high:+.4f})"
