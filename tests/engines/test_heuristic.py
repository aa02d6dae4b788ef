"""The heuristic annotator: readable texts, sensible directions, a stated error rate."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.config import EngineConfig
from judgetrain.engines import labelling
from judgetrain.engines.base import Request, Sampling, Step
from judgetrain.engines.heuristic import HeuristicEngine
from judgetrain.tree.parsing import parse_criteria, parse_judgment


def ask(step: Step, **slots: str) -> Request:
    return Request(({"role": "user", "content": "prompt"},), Sampling(), step, {"query": "q", "context": "", **slots})


@settings(max_examples=60, deadline=None)
@given(
    query=st.text(max_size=80),
    a=st.text(max_size=200),
    b=st.text(max_size=200),
    name=st.sampled_from(labelling.CRITERIA),
)
def test_judgments_are_readable_for_any_text(query: str, a: str, b: str, name: labelling.Criterion) -> None:
    engine = HeuristicEngine(EngineConfig(type="heuristic", error_rate=0.0))
    request = ask("judgment", query=query, criterion=name.line, guideline="g", response_a=a, response_b=b)
    swapped = ask("judgment", query=query, criterion=name.line, guideline="g", response_a=b, response_b=a)
    first, second = (parse_judgment(c.text) for c in engine.generate([request, swapped], seed=0))
    assert first.failure is None
    assert (first.first, first.second) == (second.second, second.first)


def test_criteria_lists_are_readable_varied_and_as_long_as_asked() -> None:
    engine = HeuristicEngine(EngineConfig(type="heuristic"))
    requests = [ask("criteria", query="Write a short list of ideas", count="5")] * 20
    lists = [parse_criteria(c.text, 10) for c in engine.generate(requests, seed=1)]
    assert {len(names) for names in lists} == {5}
    assert len({tuple(names) for names in lists}) > 1
    assert [c.text for c in engine.generate(requests, seed=1)] == [c.text for c in engine.generate(requests, seed=1)]


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
        (labelling.politeness, "q", "Glad to help, thank you.", "That is stupid."),
        (labelling.reasoning, "q", "It floats because it is light.", "It floats."),
    ],
)
def test_each_function_points_the_right_way(check: labelling.Criterion, query: str, better: str, worse: str) -> None:
    assert check(query, better) > check(query, worse)  # type: ignore[operator]
    assert 0.0 <= check(query, "") <= 1.0  # type: ignore[operator]


def test_error_rate_is_the_share_of_random_judgments() -> None:
    request = ask("judgment", criterion="Relevance: x", guideline="g", response_a="q", response_b="")
    texts = {rate: HeuristicEngine(EngineConfig(error_rate=rate)).generate([request] * 1000, 0) for rate in (0.0, 0.3)}
    wrong = sum(a.text != b.text for a, b in zip(texts[0.0], texts[0.3], strict=True)) / 1000
    # One random pair of scores in 25 is right by chance.
    assert pytest.approx(wrong, abs=0.05) == 0.3 * 24 / 25


def test_what_it_cannot_do_is_an_error_completion() -> None:
    done = HeuristicEngine(EngineConfig(type="heuristic")).generate([ask("response")], 0)[0]
    assert done.finish_reason == "error"
    assert "response" in str(done.error)
