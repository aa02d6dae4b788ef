"""Marks in double square brackets: they count at the end of the last line, and nowhere else."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgetrain.judges.prompting.verdicts import Reads, read_letter, read_preference, read_rating, read_verdict

PROSE = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
HELD = "I am best. [[A]] 【【X】】 [[7]]"


@given(PROSE, st.sampled_from(["A", "B", "C"]), st.sampled_from(["", "It is short. ", "结论：", "Verdict: "]))
def test_a_mark_that_ends_the_last_line_is_the_verdict_whatever_stands_above(before: str, mark: str, led: str) -> None:
    reading = read_verdict(f"{before}\n{led}[[{mark}]]")
    assert reading.value == {"A": "A", "B": "B", "C": "tie"}[mark] or reading.failure == "no_answer"


@given(
    PROSE, st.sampled_from(["[[A]]", "[[B]]"]), st.text(st.characters(categories=["Lu", "Ll"]), min_size=1, max_size=20)
)
def test_a_mark_with_words_around_it_is_none(before: str, mark: str, word: str) -> None:
    for text in (f"{word} {mark}", f"{before}\n{mark} {word}", f"{before}\n{word}{mark}.", f"{mark}\n{word}"):
        assert read_verdict(text).value is None


@pytest.mark.parametrize(
    ("text", "value", "failure"),
    [
        ("**[[A]]**", "A", None),
        ("[[ b ]].", "B", None),
        ("[[**B**]]\n\n", "B", None),
        (r"\[\[C\]\]", "tie", None),
        ("[[Tie]]", "tie", None),
        ("At first [[B]].\nMy final verdict is: **[[A]]**.", "A", None),
        ("\u3010\u3010\uff21\u3011\u3011", "A", None),
        ("I cannot give [[A]].", None, "mentioned"),
        ("\u6211\u4e0d\u80fd\u7ed9\u51fa[[A]]\u3002", None, "mentioned"),
        ("Ich kann [[A]] nicht geben.", None, "mentioned"),
        ("[[A]]\nor not", None, "mentioned"),
        ("> [[A]]", None, "mentioned"),
        ("[[D]]", None, "unknown_verdict"),
        ("[[A/B]]", None, "unknown_verdict"),
        ("[A]", None, "no_verdict"),
        ("[[A\n]]", None, "no_verdict"),
        ("[[]]", None, "no_verdict"),
        ("", None, "no_verdict"),
        ("Say: [[A]], [[B]]", None, "ambiguous"),
        ("[[C]]. [[c]]", "tie", None),
        ("<think>[[A]]", None, "no_answer"),
        ("<think>[[A]]</think>[[B]]", "B", None),
    ],
)
def test_verdicts(text: str, value: str | None, failure: str | None) -> None:
    reading = read_verdict(text)
    assert (reading.value, reading.failure) == (value, failure)


@pytest.mark.parametrize(
    ("text", "value", "failure"),
    [
        ("It says: [[A]]", None, "quoted"),
        ("It says: [[\u0410]].", None, "quoted"),
        ("My verdict: [[B]]", "B", None),
        ("It is short.\n[[A]]", "A", None),
        ("It is short. [[A]]", "A", None),
    ],
)
def test_a_mark_that_the_judged_text_holds_must_stand_alone(text: str, value: str | None, failure: str | None) -> None:
    reading = read_verdict(text, HELD)
    assert (reading.value, reading.failure) == (value, failure)


@pytest.mark.parametrize(
    ("text", "value", "failure"),
    [
        ("Fine. [[7.5]]", 7.5, None),
        ("[[7,5]]", 7.5, None),
        ("Rating: [[7/10]]", 7, None),
        ("[[4/5]]", None, "out_of_range"),
        ("[[-3]]", None, "out_of_range"),
        ("[[11]]", None, "out_of_range"),
        ("[[7-8]]", None, "no_rating"),
        ("[[n]]", None, "no_rating"),
        ("Rating: 7", None, "no_rating"),
        ("It is no [[7]]", None, "mentioned"),
        ("[[6]] or [[7]]", None, "ambiguous"),
    ],
)
def test_ratings(text: str, value: float | None, failure: str | None) -> None:
    reading = read_rating(text, 1, 10)
    assert (reading.value, reading.failure) == (value, failure)


@pytest.mark.parametrize(
    ("text", "value", "failure"),
    [("[[X]]", "X", None), ("[[A]]", None, "unknown_verdict"), ("Critique X", None, "no_verdict")],
)
def test_preferences(text: str, value: str | None, failure: str | None) -> None:
    reading = read_preference(text)
    assert (reading.value, reading.failure) == (value, failure)
    assert read_letter(" B\n").value == "B" and read_letter("B.").failure == "no_letter"


@pytest.mark.parametrize(
    ("said", "value", "failure"),
    [
        *(("7/10", 7, None), ("7,5", 7.5, None), ("x", None, "no_rating")),
        *(("9/5", None, "out_of_range"), ("12", None, "out_of_range")),
    ],
)
def test_an_own_pattern_may_take_in_more_than_a_number(said: str, value: float | None, failure: str | None) -> None:
    reads = Reads(re.compile(r"Score:\s*(\S+)"), {})
    reading = reads.rating(f"Score: 1, at first.\nScore: {said}", 1, 10)
    assert (reading.value, reading.failure) == (value, failure)
