"""Which pairs are kept, and what they lean to."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.label.config import LabelConfig
from judgetrain.label.examples import Pair, Prompter, leanings, near_identical, surplus
from judgetrain.label.pairs import PairBuilder


def pair(chosen: str, rejected: str, level: str = "judgment", order: str = "AB", query: str = "q") -> Pair:
    node = f"d/c0/g0/{order}0" if level == "judgment" else "d/c0"
    of = {"prompt": [{"role": "user", "content": query}], "margin": 1.0, "comparison_id": "d"}
    nodes: dict[str, Any] = {"chosen_nodes": (node,), "rejected_nodes": (node,)}
    return Pair(chosen=chosen, rejected=rejected, level=level, **of, **nodes)  # type: ignore[arg-type]


def builder(*balance: str) -> PairBuilder:
    return PairBuilder(Prompter(load_prompt_set("compact"), 4), LabelConfig(balance=[*balance]))


def selected(made: PairBuilder, pairs: list[Pair]) -> list[Pair]:
    return [pairs[i] for i in made.selected(pairs, 0)]


def balanced(pairs: list[Pair], by: list[str], seed: int = 0) -> list[Pair]:
    left_out = surplus(pairs, by, random.Random(seed))
    return [p for i, p in enumerate(pairs) if i not in left_out]


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ("Score: 3. Good!", "score 3  good", "near_identical"),
        ("Score: 3. Good!", "Score: 4.5. Good!", "score_digits_only"),
        ("Score: 3. Good!", "Score: 3. Bad!", None),
        ("", "", "near_identical"),
        ("all of it", "none of it", None),
    ],
)
def test_near_identical_texts_have_a_reason(first: str, second: str, reason: str | None) -> None:
    assert near_identical(first, second) == near_identical(second, first) == reason


def test_pairs_that_differ_in_case_punctuation_and_spacing_alone_are_repeats() -> None:
    first = pair("Response A Score: 5. It is good", "x y")
    others = [
        pair("Response A Score: 4. It is good", "x y"),
        pair("Response A Score: 5. It is good", "xy"),
        pair("Response A Score: 5. It is good", "x y", query="q?"),
        pair("x y", "Response A Score: 5. It is good"),
    ]
    made = builder()
    again = [pair("Response A Score: 5.  It is good!", "x  y"), pair("response a score: 5 it is good", "X, y.")]
    assert selected(made, [first, *again, *others]) == [first, *others]
    assert made.skipped == {"judgment:repeated": 2}


TEXT = st.text("ab", min_size=1, max_size=4)
LEVEL, ORDER = st.sampled_from(["judgment", "guideline"]), st.sampled_from(["AB", "BA"])
PAIRS = st.lists(st.builds(pair, TEXT, TEXT, LEVEL, ORDER), max_size=30)


@given(PAIRS)
def test_orders_are_balanced_among_judgments_alone(pairs: list[Pair]) -> None:
    kept = balanced(pairs, ["order"])
    orders = Counter(p.chosen_nodes[0][-3:-1] for p in kept if p.level == "judgment")
    assert orders["AB"] == orders["BA"]
    assert [p for p in kept if p.level == "guideline"] == [p for p in pairs if p.level == "guideline"]


@pytest.mark.parametrize("by", [["verdict", "order"], ["order", "verdict"]])
@pytest.mark.parametrize(("cells", "left"), [((10, 10, 0, 20), 20), ((15, 5, 0, 20), 30), ((10, 0, 10, 20), 20)])
def test_balancing_by_both_traits_leaves_no_leaning_to_either(cells: tuple[int, ...], left: int, by: list[str]) -> None:
    """One trait after the other undoes the first: 0.7 of the chosen sides decide, or 0.7 stand in order AB."""
    kinds = [("A", "AB"), ("tie", "AB"), ("A", "BA"), ("tie", "BA")]
    drawn = [kind for kind, n in zip(kinds, cells, strict=True) for _ in range(n)]
    pairs = [
        replace(pair("x", "y", order=order, query=str(i)), chosen_verdict=said) for i, (said, order) in enumerate(drawn)
    ]
    made = builder(*by)
    kept = selected(made, pairs)
    lean = leanings(kept)["judgment"]
    assert (len(kept), lean["decides"], lean["order_ab"]) == (left, 0.5, 0.5)
    assert made.skipped == {"judgment:unbalanced_order_verdict": 40 - left}
    assert selected(builder(), pairs) == pairs


SAID = st.sampled_from(["A", "B", "tie", None])


@given(st.lists(st.tuples(st.sampled_from(["A", "B", "tie"]), SAID, st.sampled_from(["AB", "BA"])), max_size=40))
def test_neither_place_is_spoken_for_more_often(drawn: list[tuple[Any, Any, str]]) -> None:
    """The response shown first is A in order AB and B in order BA; what a pair says of the places, by its two sides."""
    pairs = [
        replace(pair("x", "y", order=order, query=str(i)), chosen_verdict=chosen, rejected_verdict=rejected)
        for i, (chosen, rejected, order) in enumerate(drawn)
    ]

    def kinds(found: list[Pair]) -> Counter[tuple[str, str, int]]:
        def seat(verdict: str | None, order: str) -> int:  # 1: shown first, -1: second, 0: neither
            return 0 if verdict not in ("A", "B") else 1 if (verdict == "A") == (order == "AB") else -1

        counts: Counter[tuple[str, str, int]] = Counter()
        for p in found:
            order = p.chosen_nodes[0][-3:-1]
            chosen, rejected = seat(p.chosen_verdict, order), seat(p.rejected_verdict, order)
            taught = chosen or (-rejected if p.rejected_verdict else 0)
            counts[("decides" if chosen else "-", "decides" if rejected else "-", taught)] += 1
        return counts

    before, kept = kinds(pairs), balanced(pairs, ["place"])
    after = kinds(kept)
    for (chosen, rejected, taught), n in before.items():
        assert after[chosen, rejected, taught] == min(n, before[chosen, rejected, -taught]) or not taught
        assert taught or after[chosen, rejected, 0] == n, "what speaks for no place is kept"
    assert all(p in pairs for p in kept)
    assert not kept or leanings(kept)["judgment"]["first"] in (None, 0.5)


def test_leanings_are_shares_of_the_pairs_that_have_a_side() -> None:
    pairs = [
        pair("aaaa", "a"),
        pair("aa", "a", order="BA"),
        pair("a", "aaa"),
        pair("a", "b"),
        pair("x", "yyy", level="guideline"),
    ]
    assert leanings(pairs) == {
        "guideline": {"chosen_longer": 0.0, "order_ab": None, "decides": None, "first": None},
        "judgment": {"chosen_longer": 0.667, "order_ab": 0.75, "decides": None, "first": None},
    }
