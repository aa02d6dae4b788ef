"""Labelling functions: each points the right way, and none takes long on a long text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from judgetrain.label import labelling
from judgetrain.label.known import ASPECTS, judgment
from tests.builders.timing import growth


@pytest.mark.parametrize(
    ("check", "query", "better", "worse"),
    [
        (labelling.relevance, "how do bees make honey", "Bees make honey from nectar.", "Cats sleep a lot."),
        (labelling.completeness, "q", "One two three four five six seven eight nine.", "One."),
        (labelling.conciseness, "q", "Short answer.", "word " * 400),
        (labelling.structure, "q", "1. one\n2. two\n3. three", "one two three"),
        (labelling.specificity, "q", "In 1889 the Eiffel tower rose 300 metres.", "It was built some time ago there."),
        (labelling.freshness, "q", "a b c d e f g h", "a b c a b c a b c"),
        (labelling.directness, "what is rust", "Rust is a language.", "Sorry, I cannot answer that."),
        (labelling.requested_form, "write a python function", "```\ndef f(): pass\n```", "I would use a loop."),
        (labelling.fluency, "q", "A whole sentence.", "and then the the the"),
        (labelling.language_match, "hello there", "good day", "\u4f60\u597d\u4e16\u754c"),
        (labelling.reasoning, "q", "It floats because it is light.", "It floats."),
    ],
)
def test_each_function_points_the_right_way(
    check: Callable[[str, str], float], query: str, better: str, worse: str
) -> None:
    assert check(query, better) > check(query, worse)
    assert 0.0 <= check(query, "") <= 1.0


@pytest.mark.parametrize(
    "unit", ["\n", "\n ", "a", "a ", "1", "- ", "- \n", "{ ; ", "\r\n", "\u4f60\u3002", ",A", "\U0001f600"]
)
@pytest.mark.parametrize("query", ["write a python function", "list ideas", "a brief summary"])
def test_a_long_response_is_judged_in_linear_time(unit: str, query: str) -> None:
    def judge(long: str) -> None:
        for aspect in ASPECTS:
            judgment(query, long, "", "A", aspect.line)

    assert growth(judge, unit, 10_000) < 10
