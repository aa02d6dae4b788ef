"""Criteria lists and what is rendered: the usual variations, and text that is read back as it was written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgetrain.judges.prompting.parsing import (
    ParsedJudgment,
    normalise,
    parse_criteria,
    parse_judgment,
    render_criteria,
)
from tests.builders.scripted import render_judgment

TEXT = st.text(alphabet=st.characters(blacklist_characters="\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), max_size=40)
LINES = st.lists(TEXT | st.sampled_from(["Response B Score: 1", "**Response A Score**", "4", "> 3"]), max_size=4)
"""Texts of several lines, some of which read like a judge's own."""
SCORES = st.integers(1, 5) | st.integers(2, 10).map(lambda n: n / 2) | st.floats(1, 5)
PART = st.text(alphabet="ab _*`0123456789.()-/", min_size=1, max_size=12)
"""Parts of a criterion: code names, emphasis, numbers."""


@given(SCORES, SCORES, LINES, LINES, LINES)
def test_round_trip_of_judgments(a: float, b: float, x: list[str], y: list[str], z: list[str]) -> None:
    text = render_judgment(a, b, *("\n".join(lines) for lines in (x, y, z)))
    parsed = parse_judgment(text)
    assert parsed == ParsedJudgment(a, b)
    assert parsed.places is not None
    assert [text[place] for place in parsed.places] == [str(a)[0], str(b)[0]]


@given(st.lists(st.tuples(PART, PART).map(lambda p: f"Q{p[0].rstrip()}x: y{p[1].rstrip()}"), min_size=1, max_size=9))
def test_round_trip_of_criteria(lines: list[str]) -> None:
    different = list({normalise(line): line for line in reversed(lines)}.values())
    assert parse_criteria(render_criteria(different), 20) == different


@pytest.mark.parametrize(
    "criterion",
    [
        *("Use of __init__: naming", "__init__: naming", "Criterion: x: y", "2. x", "*a: b", "**a** and b: c"),
        *("a * b * c: d", "3 steps: 1. a 2. b", "snake_case_names: x", "Depth: is **very** deep", "- x: y"),
    ],
)
def test_a_criterion_is_read_back_as_it_was_written(criterion: str) -> None:
    assert parse_criteria(render_criteria([criterion, "Tone: kind"]), 20) == [criterion, "Tone: kind"]


@given(st.lists(TEXT | PART, max_size=8))
def test_reading_what_was_rendered_from_a_reading_changes_nothing(lines: list[str]) -> None:
    once = parse_criteria(render_criteria(lines), 20)
    assert parse_criteria(render_criteria(once), 20) == once


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1. Depth: goes deep\n2. Tone: is kind", ["Depth: goes deep", "Tone: is kind"]),
        ("1) **Depth**: goes deep\n2) **Tone** - is kind", ["Depth: goes deep", "Tone - is kind"]),
        ("Here are some:\n- Depth: a\n* Tone: b\n\u2022 Form: c", ["Depth: a", "Tone: b", "Form: c"]),
        ("1. Depth: a\n2. depth : b\n3. DEPTH: c", ["Depth: a"]),
        ("Criterion 1: Depth\nCriterion 2: Tone", ["Depth", "Tone"]),
        ("1. Depth:\n   - goes deep\n   - is thorough\n2. Tone: kind", ["Depth:", "Tone: kind"]),
        ("1\u3001\u6df1\u5ea6\uff1aa\n2\uff0e\u8bed\u6c14", ["\u6df1\u5ea6\uff1aa", "\u8bed\u6c14"]),
        (
            "1. \u6df1\u5ea6\uff1aa\n2. \u6df1\u5ea6\uff1ab\n3. Tone \u2013 a\n4. Tone \u2013 b",
            ["\u6df1\u5ea6\uff1aa", "Tone \u2013 a"],
        ),
        ("<think>\n1. User wants speed\n2. and more</think>\n1. Accuracy", ["Accuracy"]),
        ("1. User wants speed</think>\n1. Accuracy", ["Accuracy"]),
        ("<think>\n1. User wants speed", []),
        ("1. Depth: a\n   1. goes deep\n   2. is thorough\n2. Tone: b\n\t3. kind", ["Depth: a", "Tone: b"]),
        (" 9. Depth: a\n10. Tone: b\n 11. Form: c", ["Depth: a", "Tone: b", "Form: c"]),
        ("- Depth: a\n  - goes deep\n- Tone: b", ["Depth: a", "Tone: b"]),
        ("> 1. Order: quoted\n1. Depth: a", ["Depth: a"]),
        ("**1. Depth**: a\n**2.** Tone: b\n3. **Form:** c", ["Depth: a", "Tone: b", "Form: c"]),
        ("1. Criterion: Depth: a\n2. **Criterion: Tone**: b", ["Depth: a", "Tone: b"]),
        ("1.5 points for depth\n---", []),
        ("3.5 stars at most.\n1. Depth: a", ["Depth: a"]),
        ("(1) Depth: a\n(2) Tone: b", ["Depth: a", "Tone: b"]),
        ("### 1. Depth: a\n### 2. Tone: b", ["Depth: a", "Tone: b"]),
        ("- 1. Depth: a\n- 2. Tone: b", ["Depth: a", "Tone: b"]),
        ("1. Criterion: Depth\n2. Criterion: Tone", ["Depth", "Tone"]),
        ("no list at all", []),
        ("1. \n2. :", []),
    ],
)
def test_criteria_lists(text: str, expected: list[str]) -> None:
    assert parse_criteria(text, 10) == expected


def test_criteria_are_cut_at_the_limit() -> None:
    assert len(parse_criteria("\n".join(f"{i}. name{i}" for i in range(1, 9)), 3)) == 3
