"""AUC against its definition."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.evaluate.metrics import auc


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), max_size=40))
def test_it_is_the_share_of_pairs_in_order(items: list[tuple[int, bool]]) -> None:
    """Of a right and a wrong item the right one has the larger score; equal scores count half."""
    right, wrong = ([score for score, good in items if good is wanted] for wanted in (True, False))
    wins = [1.0 if a > b else 0.5 if a == b else 0.0 for a in right for b in wrong]
    expected = pytest.approx(sum(wins) / len(wins)) if wins else None
    assert auc([score for score, _ in items], ["A" if good else "B" for _, good in items]) == expected
