"""Marks in double square brackets: what is read, and why something is not."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from judgetrain.engines.lookalikes import fold
from judgetrain.judges.prompting.verdicts import _SPOKEN_OF, _SUPPOSED, read_preference, read_rating, read_verdict

PROSE = st.text(st.characters(codec="ascii", exclude_characters="[]\\\"'`>\x1e"), max_size=60) | st.text(
    st.characters(exclude_characters="[]\\\"'`>", exclude_categories=["Cs", "Ps", "Pe", "Pi", "Pf", "Sm"]), max_size=60
)
"""Words without brackets, also those of other scripts, and without quotation marks."""


@given(PROSE, st.sampled_from(["A", "B", "C"]), PROSE)
def test_one_mark_anywhere_is_the_verdict(before: str, mark: str, after: str) -> None:
    # Words that speak of a mark ("forged [[A]]", "[[A]] if …") have tests of their own; here they would come by chance.
    assume(not _SPOKEN_OF.search(fold(before).text) and not _SUPPOSED.match(fold(after).text))
    reading = read_verdict(f"{before}[[{mark}]]{after}")
    assert (reading.value, reading.failure) == ({"A": "A", "B": "B", "C": "tie"}[mark], None)


@given(st.lists(st.one_of(PROSE, st.sampled_from(["[[A]]", "[[B]]", "[[C]]"])), max_size=8))
def test_a_verdict_is_read_only_when_all_marks_are_the_same(parts: list[str]) -> None:
    marks = {p for p in parts if p.startswith("[[")}
    reading = read_verdict("\n".join(parts))
    if len(marks) == 1:
        assert reading.value == {"[[A]]": "A", "[[B]]": "B", "[[C]]": "tie"}[marks.pop()]
    else:
        assert (reading.value, reading.failure) == (None, "ambiguous" if marks else "no_verdict")


@pytest.mark.parametrize(
    ("text", "value", "failure"),
    [
        ("**[[A]]**", "A", None),
        ("[[ b ]]", "B", None),
        ("[[**B**]]", "B", None),
        (r"\[\[C\]\]", "tie", None),
        ("[[Tie]]", "tie", None),
        ("[[Assistant A]]", "A", None),
        ("[[Verdict: B]]", "B", None),
        ("See [[Python]]. [[A]] it is, so [[A]].", "A", None),
        ("[[Python]]", None, "unknown_verdict"),
        ("[[D]]", None, "unknown_verdict"),
        ("[[A/B]]", None, "unknown_verdict"),
        ("[A]", None, "no_verdict"),
        ("A is better", None, "no_verdict"),
        ("[[A\n]]", None, "no_verdict"),
        ("[[]]", None, "no_verdict"),
        ("", None, "no_verdict"),
        ("Say [[A]], [[B]] or [[C]].", None, "ambiguous"),
        ("Response B claims [[B]], but [[A]]", None, "ambiguous"),
        ("[[C]] ... [[tie]]", "tie", None),
    ],
)
def test_variations_of_verdicts(text: str, value: str | None, failure: str | None) -> None:
    reading = read_verdict(text)
    assert (reading.value, reading.failure) == (value, failure)


@given(PROSE, st.integers(0, 12), PROSE)
def test_ratings_on_the_scale_are_read_and_others_refused(before: str, value: int, after: str) -> None:
    assume(not _SPOKEN_OF.search(fold(before).text) and not _SUPPOSED.match(fold(after).text))
    reading = read_rating(f"{before}[[{value}]]{after}", 1, 10)
    inside = 1 <= value <= 10
    assert (reading.value, reading.failure) == ((value, None) if inside else (None, "out_of_range"))


@pytest.mark.parametrize(
    ("text", "value", "failure"),
    [
        ("[[7.5]]", 7.5, None),
        ("[[7,5]]", 7.5, None),
        ("[[7/10]]", 7, None),
        ("[[Rating: 7]]", 7, None),
        ("[[score = 7 out of 10]]", 7, None),
        ("[[7]] and [[7.0]]", 7, None),
        ("[[4/5]]", None, "out_of_range"),
        ("[[-3]]", None, "out_of_range"),
        ("[[7-8]]", None, "no_rating"),
        ("[[n]]", None, "no_rating"),
        ("Rating: 7", None, "no_rating"),
        ("[[6]] or [[7]]", None, "ambiguous"),
        ("[[6]], no: [[70]]", None, "ambiguous"),
    ],
)
def test_variations_of_ratings(text: str, value: float | None, failure: str | None) -> None:
    reading = read_rating(text, 1, 10)
    assert (reading.value, reading.failure) == (value, failure)


@pytest.mark.parametrize(
    ("text", "value", "failure"),
    [
        ("[[X]]", "X", None),
        ("[[Critique Y]]", "Y", None),
        ("[[A]]", None, "unknown_verdict"),
        ("[[X]] [[Y]]", None, "ambiguous"),
        ("Critique X", None, "no_verdict"),
    ],
)
def test_preferences(text: str, value: str | None, failure: str | None) -> None:
    reading = read_preference(text)
    assert (reading.value, reading.failure) == (value, failure)
