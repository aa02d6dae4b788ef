"""Evidence behind pairs: probabilities against an integral, and consensus by its definition."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import integrate, stats

from judgetrain.label.config import LabelConfig
from judgetrain.label.examples import Outcomes, above_zero, against_label, better, consensus
from judgetrain.label.pairs import PairBuilder
from tests.builders.label import PROMPTER, tree_of


@pytest.mark.parametrize(("first", "second"), [((4, 0), (0, 4)), ((3, 1), (1, 3)), ((4, 0), (3, 1)), ((2, 2), (2, 2))])
def test_the_probability_is_that_of_an_integral(first: tuple[int, int], second: tuple[int, int]) -> None:
    """Net success is linear in the share of right judgments where none is neither, up to the prior's half a one."""

    def net_density(counts: tuple[int, int], seed: int) -> np.ndarray:
        gammas = np.random.default_rng(seed).gamma([counts[0] + 0.5, counts[1] + 0.5, 0.5], size=(200_000, 3))
        return (gammas[:, 0] - gammas[:, 1]) / gammas.sum(axis=1)

    expected = np.mean(net_density(first, 1) > net_density(second, 2))
    assert better(Outcomes(*first, 0), Outcomes(*second, 0)) == pytest.approx(expected, abs=0.012)
    assert better(Outcomes(*first, 0), Outcomes(*second, 0)) + better(Outcomes(*second, 0), Outcomes(*first, 0)) == (
        pytest.approx(1, abs=0.02)
    )


def test_more_right_than_wrong_is_a_beta_integral() -> None:
    for right, wrong in product(range(5), repeat=2):
        density = stats.beta(right + 0.5, wrong + 0.5).pdf
        expected, _ = integrate.quad(density, 0.5, 1 - 1e-12)
        found = above_zero(Outcomes(right, wrong, 3))
        assert found == pytest.approx(expected, abs=1e-3)
        assert found == stats.beta.sf(0.5, right + 0.5, wrong + 0.5), "to the last bit"


def test_ties_are_neither_right_nor_wrong() -> None:
    (criterion,) = tree_of(("AABtt?AA",)).criteria
    assert against_label(criterion.judgments, "A") == Outcomes(4, 1, 3)
    assert against_label(criterion.judgments, "B").net == (1 - 4) / 8


@pytest.mark.parametrize(
    ("words", "sure", "expected"),
    [
        (("AAAA", "AAAA"), 0.9, "A"),
        (("tttt", "ttAt"), 0.9, "tie"),
        (("AAAA", "AABB"), 0.9, "A"),  # 6 of 8, in order BA no other more often
        (("AAAB", "AABB"), 0.5, None),  # 5 of 8, in order BA B more often
        (("AAAB", "ABAA"), 0.9, "A"),
        (("AAAB", "ABAB"), 0.9, None),  # 5 of 8: not sure enough
        (("AAAB", "AAAB"), 0.5, "A"),
        (("AABB", "AABB"), 0.5, None),  # each order its own
        (("AA??", "AA??"), 0.5, None),  # one order alone
        (("????", "????"), 0.5, None),
    ],
)
def test_a_consensus_is_of_both_orders_and_sure(words: tuple[str, str], sure: float, expected: str | None) -> None:
    (criterion,) = tree_of(words).criteria
    assert consensus(criterion.judgments, sure) == expected


def test_a_difference_that_may_be_chance_makes_no_pair() -> None:
    tree = tree_of(("AAAA", "AAAB"), ("BBtB", "BBBB"))
    for sure, levels in ((0.5, {"judgment", "guideline"}), (0.9, {"judgment"}), (0.999, set())):
        config = LabelConfig(min_evidence=sure)
        builder = PairBuilder(PROMPTER, config)
        found = [*builder.judgment_pairs(tree, "A"), *builder.guideline_pairs(tree, "A")]
        assert {p.level for p in found} == levels
