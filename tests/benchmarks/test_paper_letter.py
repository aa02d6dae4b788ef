"""The table of ours against the letter: settings that compose, and figures that can be counted by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from judgetrain.artifacts.files import write_json_atomic
from judgetrain.pipeline.graph import STAGES
from tests.benchmarks.paper_letter import SETTINGS, SHARED, yield_of, yield_row
from tests.builders.label import tree_of
from tests.builders.pipeline import configured

TABLE = {
    "trees": {"label_A": 3, "label_tie": 1, "too_few_readable": 2},
    "sft": {"judgment": 7, "guideline": 2},
    "pairs": {"judgment": 5, "criteria": 1},
    "pairs_skipped": {
        "judgment:over_cap": 2,
        "judgment:unbalanced_verdict": 1,
        "judgment:no_consensus": 40,
        "guideline:over_cap": 9,
    },
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_compose(name: str) -> None:
    config = configured("recipe=quickstart", *SETTINGS[name], *SHARED)
    STAGES["label"].check(config)
    assert config.evaluate.methods == ["dpo"]
    assert (config.label.vote, config.label.min_vote_share == 0.0) in (
        ("deciding", False),
        ("plurality", True),
        ("mean_score", True),
    )


def test_a_row_by_hand(tmp_path: Path) -> None:
    """Of 4 guidelines: 5 pairs are kept and 3 that were made are left out; 40 criteria had no consensus."""
    write_json_atomic(tmp_path / "yield.json", TABLE)
    trees = [tree_of(("AAAA", "AAAB"), ("BBBB",)), tree_of(("AAAA",), index=1)]
    assert yield_of(TABLE, 4) == 2.0
    assert yield_row("ours", tmp_path, trees) == "| ours | 3 / 0 / 1 | 9 | 5 | 0 | 1 | 2.00 |"
