"""Reading judgments and criteria lists: the usual variations, failures by reason, nothing guessed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgetrain.tree.parsing import ParsedJudgment, parse_criteria, parse_judgment, render_criteria, render_judgment

TEXT = st.text(alphabet=st.characters(blacklist_characters="\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), max_size=40)
PLAIN = st.from_regex(r"[A-Za-z][a-z]{2,8}", fullmatch=True)


@given(st.integers(1, 5), st.integers(1, 5), PLAIN, PLAIN, PLAIN)
def test_round_trip_of_judgments(a: int, b: int, x: str, y: str, z: str) -> None:
    text = render_judgment(a, b, x, y, z)
    parsed = parse_judgment(text)
    assert parsed == ParsedJudgment(a, b)
    assert parsed.places is not None
    assert [text[place] for place in parsed.places] == [str(a), str(b)]


@given(st.lists(PLAIN, min_size=1, max_size=12, unique_by=str.casefold), PLAIN)
def test_round_trip_of_criteria(names: list[str], what: str) -> None:
    lines = [f"{name}: {what}" for name in names]
    assert parse_criteria(render_criteria(lines), 20) == lines


@given(st.lists(TEXT, max_size=8))
def test_reading_what_was_rendered_from_a_reading_changes_nothing(lines: list[str]) -> None:
    once = [c for c in parse_criteria(render_criteria(lines), 20) if not {"*", "_"} & set(c)]
    assert parse_criteria(render_criteria(once), 20) == once


@given(st.text(alphabet="Response AB Score: 0123456789/-.,*\n\t", max_size=200) | st.text())
def test_any_text_gives_scores_in_range_or_a_reason(text: str) -> None:
    parsed = parse_judgment(text)
    if parsed.failure is None:
        assert parsed.first is not None
        assert 1 <= parsed.first <= 5
    else:
        assert (parsed.first, parsed.second) == (None, None)
    parse_criteria(text, 10)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Response A Score: 3\nResponse B Score: 4", (3, 4)),
        ("response a score : 3\nresponse b score : 4", (3, 4)),
        ("**Response A Score:** 3/5\n**Response B Score:** 2/5", (3, 2)),
        ("- **Response A Score**: 3.5\n- **Response B Score**: 4", (3.5, 4)),
        ("# Response A Score = 1\ntext\n\n  Response B Score = 5", (1, 5)),
        ("Response A's Score: [3]\nResponse B's Score: (2)", (3, 2)),
        ("Response B Score: 4\nResponse A Score: 2", (2, 4)),
        ("Response A Score: 3\nResponse A Score: 3\nResponse B Score: 1", (3, 1)),
        ("Response A Score: 3 out of 5\nResponse B Score: **4** / 5", (3, 4)),
        ("Response A Score: 4,5\nResponse B Score: 2", (4.5, 2)),
        ("Response A Score: 3, since it is short\nResponse B Score: 4 - good", (3, 4)),
    ],
)
def test_variations(text: str, expected: tuple[float, float]) -> None:
    assert parse_judgment(text) == ParsedJudgment(*expected)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no_scores"),
        ("Response A Score: 3", "no_score_b"),
        ("Response B Score: 3", "no_score_a"),
        ("Response A Score: five\nResponse B Score: 3", "no_score_a"),
        ("Response A Score: 3/10\nResponse B Score: 4/10", "out_of_range"),
        ("Response A Score: 3 out of 10\nResponse B Score: 4", "out_of_range"),
        ("Response A Score: 3-4\nResponse B Score: 2", "ambiguous"),
        ("Response A Score: 3\nResponse B Score: 1 or 2", "ambiguous"),
        ("Response A Score: 7\nResponse B Score: 3", "out_of_range"),
        ("Response A Score: 0\nResponse B Score: 3", "out_of_range"),
        ("Response A Score: -3\nResponse B Score: 3", "out_of_range"),
        ("Response A Score: 3\nResponse B Score: 3\nResponse A Score: 5", "ambiguous"),
        ("I think Response A Score: 3 and Response B Score: 4", "no_scores"),
    ],
)
def test_failures_have_a_reason(text: str, reason: str) -> None:
    assert parse_judgment(text) == ParsedJudgment(None, None, reason)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1. Depth: goes deep\n2. Tone: is kind", ["Depth: goes deep", "Tone: is kind"]),
        ("1) **Depth**: goes deep\n2) **Tone** - is kind", ["Depth: goes deep", "Tone - is kind"]),
        ("Here are some:\n- Depth: a\n* Tone: b\n\u2022 Form: c", ["Depth: a", "Tone: b", "Form: c"]),
        ("1. Depth: a\n2. depth : b\n3. DEPTH: c", ["Depth: a"]),
        ("Criterion 1: Depth\nCriterion 2: Tone", ["Depth", "Tone"]),
        ("1. Depth:\n   - goes deep\n   - is thorough\n2. Tone: kind", ["Depth:", "Tone: kind"]),
        (
            "1\u3001\u6df1\u5ea6\uff1aa\n2\uff0e\u8bed\u6c14",
            ["\u6df1\u5ea6\uff1aa", "\u8bed\u6c14"],
        ),
        (
            "1. \u6df1\u5ea6\uff1aa\n2. \u6df1\u5ea6\uff1ab\n3. Tone \u2013 a\n4. Tone \u2013 b",
            ["\u6df1\u5ea6\uff1aa", "Tone \u2013 a"],
        ),
        ("1.5 points for depth\n---", []),
        ("no list at all", []),
        ("1. \n2. :", []),
    ],
)
def test_criteria_lists(text: str, expected: list[str]) -> None:
    assert parse_criteria(text, 10) == expected


def test_criteria_are_cut_at_the_limit() -> None:
    assert len(parse_criteria("\n".join(f"{i}. name{i}" for i in range(1, 9)), 3)) == 3
