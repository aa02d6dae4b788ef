"""How the branches of a tree become a verdict where a criterion has several: by hand, and against plain loops."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.judges.kinds.aggregation import steps, verdict
from judgetrain.schema import Order
from tests.builders.label import SCORES, tree_of

ORDERS: tuple[Order, ...] = ("AB", "BA")


@pytest.mark.parametrize(
    ("criteria", "said"),
    [
        # By one guideline the first criterion says A, by the other a tie: it says A, and no later one undoes it.
        ((("AA", "tt"), ("BB", "BB")), "A"),
        ((("AA", "tt"), ("BB", "BB"), ("BB", "BB")), "A"),
        # Its guidelines contradict each other: it says nothing, and the next one decides, unless by too little.
        ((("AA", "BB"), ("BB", "BB")), "tie"),
        ((("AA", "BB"), ("BB", "tt")), "tie"),
        ((("AA", "AA", "BB"), ("BB", "BB", "BB")), "A"),
        # Two judgments in each order by one guideline count as one, too; what cannot be read says nothing.
        ((("AtAt",), ("BBBB",)), "A"),
        ((("A?A?",), ("BBBB",)), "A"),
        ((("????",), ("BBBB",)), "tie"),
        ((("tttt",), ("tttt",)), "tie"),
    ],
)
def test_a_criterion_says_once_what_most_of_its_branches_say(criteria: tuple[tuple[str, ...], ...], said: str) -> None:
    tree = tree_of(*criteria)
    assert [verdict(tree.criteria, order, "clear") for order in ORDERS] == [said, said]


def balance(words: tuple[str, ...], half: int, clear: bool, place: int) -> int:
    """Judgments of a criterion in one order that say A, less those that say B."""
    found = 0
    for word in words:
        for letter in word[: len(word) // 2] if half == 0 else word[len(word) // 2 :]:
            a, b = SCORES[letter]
            if a is not None and b is not None and not (clear and place and abs(a - b) <= 2):
                found += (a > b) - (a < b)
    return found


WORDS = st.sampled_from([a + b for a in "ABt?" for b in "ABt?"])


@settings(max_examples=60)
@given(criteria=st.lists(st.lists(WORDS, min_size=1, max_size=3).map(tuple), min_size=1, max_size=5))
def test_the_first_criterion_that_sees_a_difference_decides(criteria: list[tuple[str, ...]]) -> None:
    tree = tree_of(*criteria)
    for half, order in enumerate(ORDERS):
        said = [letter for words in criteria for word in words for letter in word[half]]
        nets = [balance(words, half, True, place) for place, words in enumerate(criteria)]
        first = next((net for net in nets if net), 0)
        expected = None if {*said} == {"?"} else "A" if first > 0 else "B" if first < 0 else "tie"
        assert verdict(tree.criteria, order, "clear") == expected


@settings(max_examples=60)
@given(words=st.lists(WORDS, min_size=1, max_size=6))
def test_with_one_branch_a_criterion_each_adds_its_own_vote(words: list[str]) -> None:
    """What early stopping counts on: an entry for each branch, of the weight of its place."""
    tree = tree_of(*[(word,) for word in words])
    for half, order in enumerate(ORDERS):
        votes = [balance((word,), half, False, 0) for word in words]
        assert steps(tree.criteria, order, "vote") == votes
        clear = [balance((word,), half, True, place) for place, word in enumerate(words)]
        assert steps(tree.criteria, order, "clear") == [vote * 0.5**place for place, vote in enumerate(clear)]
        assert steps(tree.criteria[:0], order, "clear") == []
