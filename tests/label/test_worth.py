"""What criteria are worth, by kinds of query, on arrays made here."""

import numpy as np
import pytest

from judgetrain.label.worth import worth_by_kind


@pytest.mark.filterwarnings("error")
def test_a_kind_without_a_tree_is_worth_nothing_and_changes_no_other() -> None:
    rng = np.random.default_rng(0)
    labels = rng.choice([-1.0, 1.0], 200)
    columns = np.column_stack([labels * 0.5, rng.normal(0, 0.3, 200), labels])
    seen = np.ones(columns.shape, dtype=bool)
    everything = np.ones(200, dtype=bool)
    one = np.zeros(200, dtype=np.int64)
    kinds = np.arange(200) % 2
    without_gap = worth_by_kind(columns, seen, [one, kinds], everything)
    with_gap = worth_by_kind(columns, seen, [one, 2 * kinds], everything)
    assert with_gap[[0, 2]].tolist() == without_gap.tolist()
    assert with_gap[1].tolist() == [0.0, 0.0]
    # The first type says the label, the second is noise.
    assert (without_gap[:, 0] > 0.9).all()
    assert (without_gap[:, 1] < 0.5).all()
