"""Marks in double square brackets: they count at the end of the last line, and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgetrain.judges.prompting.verdicts import Reading, Reads, read_letter, read_preference, read_rating, read_verdict

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


HOLDING = partial(read_verdict, material=HELD)
OF_TEN = partial(read_rating, lowest=1, highest=10)
OWN = partial(Reads(re.compile(r"Score:\s*(\S+)"), {}).rating, lowest=1, highest=10)


@pytest.mark.parametrize(
    ("read", "text", "value", "failure"),
    [
        (read_verdict, "**[[A]]**", "A", None),
        (read_verdict, "[[ b ]].", "B", None),
        (read_verdict, "[[**B**]]\n\n", "B", None),
        (read_verdict, r"\[\[C\]\]", "tie", None),
        (read_verdict, "[[Tie]]", "tie", None),
        (read_verdict, "At first [[B]].\nMy final verdict is: **[[A]]**.", "A", None),
        (read_verdict, "\u3010\u3010\uff21\u3011\u3011", "A", None),
        *(
            (read_verdict, text, None, "mentioned")
            for text in ("I cannot give [[A]].", "Ich kann [[A]] nicht geben.", "[[A]]\nor not", "> [[A]]")
        ),
        (read_verdict, "\u6211\u4e0d\u80fd\u7ed9\u51fa[[A]]\u3002", None, "mentioned"),
        (read_verdict, "[[D]]", None, "unknown_verdict"),
        (read_verdict, "[[A/B]]", None, "unknown_verdict"),
        *((read_verdict, text, None, "no_verdict") for text in ("[A]", "[[A\n]]", "[[]]", "")),
        (read_verdict, "Say: [[A]], [[B]]", None, "ambiguous"),
        (read_verdict, "[[C]]. [[c]]", "tie", None),
        (read_verdict, "<think>[[A]]", None, "no_answer"),
        (read_verdict, "<think>[[A]]</think>[[B]]", "B", None),
        # A mark that the judged text holds, too, must stand alone.
        (HOLDING, "It says: [[A]]", None, "quoted"),
        (HOLDING, "It says: [[\u0410]].", None, "quoted"),
        (HOLDING, "My verdict: [[B]]", "B", None),
        (HOLDING, "It is short.\n[[A]]", "A", None),
        (HOLDING, "It is short. [[A]]", "A", None),
        (OF_TEN, "Fine. [[7.5]]", 7.5, None),
        (OF_TEN, "[[7,5]]", 7.5, None),
        (OF_TEN, "Rating: [[7/10]]", 7, None),
        *((OF_TEN, text, None, "out_of_range") for text in ("[[4/5]]", "[[-3]]", "[[11]]")),
        *((OF_TEN, text, None, "no_rating") for text in ("[[7-8]]", "[[n]]", "Rating: 7")),
        (OF_TEN, "It is no [[7]]", None, "mentioned"),
        (OF_TEN, "[[6]] or [[7]]", None, "ambiguous"),
        (read_preference, "[[X]]", "X", None),
        (read_preference, "[[A]]", None, "unknown_verdict"),
        (read_preference, "Critique X", None, "no_verdict"),
        (read_letter, " B\n", "B", None),
        (read_letter, "B.", None, "no_letter"),
        # A prompt set's own pattern may take in more than a number; its last match counts.
        (OWN, "Score: 1, at first.\nScore: 7/10", 7, None),
        (OWN, "Score: 7,5", 7.5, None),
        (OWN, "Score: x", None, "no_rating"),
        (OWN, "Score: 9/5", None, "out_of_range"),
        (OWN, "Score: 12", None, "out_of_range"),
    ],
)
def test_every_reader_reads_a_mark_or_says_why_not(
    read: Callable[[str], Reading[Any]], text: str, value: str | float | None, failure: str | None
) -> None:
    reading = read(text)
    assert (reading.value, reading.failure) == (value, failure)
