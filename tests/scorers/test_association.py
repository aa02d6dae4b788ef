"""AUC, correlations and their intervals, against loops, scikit-learn and cases that can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from judgetrain.scorers.association import associate, auc

ITEMS = st.lists(
    st.tuples(st.integers(-3, 3), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(0, 4)), min_size=2, max_size=40
)


def counted(scores: list[float], outcomes: list[float]) -> float | None:
    """The AUC by its definition: pairs of a right and a wrong item."""
    right = [s for s, y in zip(scores, outcomes, strict=True) if y > 0.5]
    wrong = [s for s, y in zip(scores, outcomes, strict=True) if y < 0.5]
    wins = [1.0 if a > b else 0.5 if a == b else 0.0 for a in right for b in wrong]
    return sum(wins) / len(wins) if wins else None


@settings(max_examples=60, deadline=None)
@given(ITEMS)
def test_values_are_those_of_their_definitions(items: list[tuple[int, float, int]]) -> None:
    scores, outcomes, clusters = (list(column) for column in zip(*items, strict=True))
    found = associate(scores, outcomes, clusters, seed=0, resamples=5)
    assert (found.n, found.clusters) == (len(items), len(set(clusters)))
    expected = counted(scores, outcomes)
    assert found.auc == (None if expected is None else pytest.approx(expected))
    if np.ptp(scores) and np.ptp(outcomes):
        assert found.correlation == pytest.approx(stats.pearsonr(scores, outcomes).statistic)
        assert found.spearman == pytest.approx(stats.spearmanr(scores, outcomes).statistic)
    else:
        assert found.correlation is found.spearman is None
    binary = [y > 0.5 for y in outcomes]
    assert auc(scores, binary) == (
        None if len(set(binary)) < 2 else pytest.approx(counted(scores, [float(b) for b in binary]))
    )


def test_intervals_resample_whole_clusters() -> None:
    """Copies of each item within its cluster add nothing: the interval stays that of the single items."""
    rng = np.random.default_rng(0)
    outcomes = rng.integers(2, size=60).astype(float)
    scores = outcomes + rng.normal(size=60)
    once = associate(scores, outcomes, range(60), seed=1)
    often = associate(np.repeat(scores, 9), np.repeat(outcomes, 9), np.repeat(np.arange(60), 9).tolist(), seed=1)
    assert once.auc_ci is not None
    assert often.auc_ci is not None
    widths = [ci[1] - ci[0] for ci in (once.auc_ci, often.auc_ci)]
    assert widths[1] == pytest.approx(widths[0], rel=0.35)
    assert once.auc_ci[0] < once.auc < once.auc_ci[1]  # type: ignore[operator]
    alone = associate(np.repeat(scores, 9), np.repeat(outcomes, 9), range(540), seed=1)
    assert alone.auc_ci is not None
    assert alone.auc_ci[1] - alone.auc_ci[0] < 0.6 * widths[0]


def test_the_interval_of_a_bootstrap_covers_as_a_plain_one_does() -> None:
    rng = np.random.default_rng(3)
    outcomes = rng.integers(2, size=80).astype(float)
    scores = outcomes + 2 * rng.normal(size=80)
    values = []
    for _ in range(300):
        drawn = rng.integers(80, size=80)
        values.append(counted(scores[drawn].tolist(), outcomes[drawn].tolist()))
    found = associate(scores, outcomes, range(80), seed=0, resamples=300)
    assert found.auc_ci == pytest.approx(np.percentile(values, (2.5, 97.5)), abs=0.04)


def test_what_is_not_defined_is_none_and_bad_input_is_refused() -> None:
    empty = associate([], [], [], 0)
    assert (empty.n, empty.auc, empty.correlation, empty.spearman) == (0, None, None, None)
    single = associate([1.0, 2.0], [0.0, 1.0], ["c", "c"], 0)
    assert (single.auc, single.auc_ci) == (1.0, None), "one cluster has no spread between clusters"
    with pytest.raises(ValueError, match="equal length"):
        associate([1.0], [0.0, 1.0], ["c"], 0)
    with pytest.raises(ValueError, match="finite"):
        associate([float("nan")], [0.0], ["c"], 0)
