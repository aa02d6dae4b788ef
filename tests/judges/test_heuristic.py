"""The heuristic annotator: readable texts, sensible directions, a stated error rate."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.engines.base import Request, Sampling, Step
from judgetrain.judges.config import HeuristicEngineConfig
from judgetrain.judges.heuristic import labelling
from judgetrain.judges.heuristic.engine import HeuristicEngine
from judgetrain.judges.prompting.parsing import parse_criteria, parse_judgment
from tests.builders.timing import growth


def ask(step: Step, **slots: str) -> Request:
    return Request(
        messages=({"role": "user", "content": "prompt"},),
        sampling=Sampling(),
        step=step,
        slots={"query": "q", "context": "", **slots},
    )


@settings(max_examples=60, deadline=None)
@given(
    query=st.text(max_size=80),
    a=st.text(max_size=200),
    b=st.text(max_size=200),
    name=st.sampled_from(labelling.CRITERIA),
)
def test_judgments_are_readable_for_any_text(query: str, a: str, b: str, name: labelling.Criterion) -> None:
    engine = HeuristicEngine(HeuristicEngineConfig(error_rate=0.0))
    request = ask("judgment", query=query, criterion=name.line, guideline="g", response_a=a, response_b=b)
    swapped = ask("judgment", query=query, criterion=name.line, guideline="g", response_a=b, response_b=a)
    first, second = (parse_judgment(c.text) for c in engine.generate([request, swapped], seed=0))
    assert first.failure is None
    assert (first.first, first.second) == (second.second, second.first)


def test_criteria_lists_are_readable_varied_and_as_long_as_asked() -> None:
    engine = HeuristicEngine(HeuristicEngineConfig())
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
def test_each_function_points_the_right_way(
    check: Callable[[str, str], float], query: str, better: str, worse: str
) -> None:
    assert check(query, better) > check(query, worse)
    assert 0.0 <= check(query, "") <= 1.0


def test_error_rate_is_the_share_of_random_judgments() -> None:
    request = ask("judgment", criterion="Relevance: x", guideline="g", response_a="q", response_b="")
    texts = {
        rate: HeuristicEngine(HeuristicEngineConfig(error_rate=rate)).generate([request] * 1000, 0)
        for rate in (0.0, 0.3)
    }
    wrong = sum(a.text != b.text for a, b in zip(texts[0.0], texts[0.3], strict=True)) / 1000
    # One random pair of scores in 25 is right by chance.
    assert pytest.approx(wrong, abs=0.05) == 0.3 * 24 / 25


def test_what_it_cannot_do_is_an_error_completion() -> None:
    done = HeuristicEngine(HeuristicEngineConfig()).generate([ask("response")], 0)[0]
    assert done.finish_reason == "error"
    assert "response" in str(done.error)


@pytest.mark.parametrize("slot", ["query", "criterion", "response_b"])
def test_a_missing_slot_is_an_error_completion_that_names_it(slot: str) -> None:
    slots = {"query": "q", "criterion": "Relevance: x", "guideline": "g", "response_a": "a", "response_b": "b"}
    del slots[slot]
    request = Request(
        messages=({"role": "user", "content": "prompt"},), sampling=Sampling(), step="judgment", slots=slots
    )
    done = HeuristicEngine(HeuristicEngineConfig()).generate([request], 0)[0]
    assert (done.finish_reason, done.text) == ("error", "")
    assert slot in str(done.error)


def test_texts_are_short_enough_for_a_small_model() -> None:
    engine = HeuristicEngine(HeuristicEngineConfig(error_rate=0.5))
    for line in [c.line for c in labelling.CRITERIA] + ["Sparkle: shines"]:
        requests = [
            ask("guideline", criterion=line),
            *[ask("judgment", criterion=line, guideline="g", response_a="a b", response_b="")] * 30,
        ]
        guideline, *judgments = (c.text for c in engine.generate(requests, 0))
        assert len(line.split()) <= 12
        assert len(guideline.split()) <= 30
        assert all(f"{score} if" in guideline for score in range(1, 6))
        assert max(len(text.split()) for text in judgments) <= 40


@pytest.mark.parametrize(
    "wording", ["Relevance", "RELEVANCE - whatever", "relevance: other words", "Relevance \u2014 x"]
)
def test_a_criterion_is_known_by_its_name(wording: str) -> None:
    engine = HeuristicEngine(HeuristicEngineConfig(error_rate=0.0))
    response = {"response_a": "bees make honey", "response_b": "cats sleep"}
    request = ask("judgment", query="how do bees make honey", criterion=wording, guideline="g", **response)
    parsed = parse_judgment(engine.generate([request], 0)[0].text)
    assert (parsed.first, parsed.second) == (5.0, 1.0)


def test_an_unknown_criterion_is_scored_by_relevance_and_completeness() -> None:
    engine = HeuristicEngine(HeuristicEngineConfig(error_rate=0.0))
    response = {"response_a": "bees make honey from nectar that they gather", "response_b": ""}
    request = ask("judgment", query="how do bees make honey", criterion="Sparkle: shines", guideline="g", **response)
    parsed = parse_judgment(engine.generate([request], 0)[0].text)
    assert (parsed.first, parsed.second) == (3.0, 1.0)


def test_criteria_that_suit_the_query_are_named_more_often() -> None:
    engine = HeuristicEngine(HeuristicEngineConfig())

    def share(query: str, name: str) -> float:
        requests = [ask("criteria", query=query, count="4")] * 200
        return sum(name in completion.text for completion in engine.generate(requests, 0)) / 200

    assert share("a brief summary of this post", "Conciseness") > share("hello there", "Conciseness") + 0.2
    assert share("why is the sky blue", "Reasoning") > share("hello there", "Reasoning") + 0.2


@pytest.mark.parametrize(
    "unit", ["\n", "\n ", "a", "a ", "1", "- ", "- \n", "{ ; ", "\r\n", "\u4f60\u3002", ",A", "\U0001f600"]
)
@pytest.mark.parametrize("query", ["write a python function", "list ideas", "a brief summary"])
def test_a_long_response_is_judged_in_linear_time(unit: str, query: str) -> None:
    engine = HeuristicEngine(HeuristicEngineConfig(error_rate=0.0))
    names = [criterion.line for criterion in labelling.CRITERIA]

    def judge(long: str) -> None:
        slots = {"query": query, "guideline": "g", "response_a": long, "response_b": ""}
        done = engine.generate([ask("judgment", criterion=name, **slots) for name in names], 0)
        assert all(parse_judgment(completion.text).failure is None for completion in done)

    assert growth(judge, unit, 10_000) < 10


def test_labelling_functions_see_no_blank_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def completeness(query: str, response: str) -> float:
        seen.append(response)
        return 0.5

    monkeypatch.setattr("judgetrain.judges.heuristic.engine.completeness", completeness)
    long = "one  two" + "\n \n" * 20_000 + "\tthree "
    request = ask("judgment", query="q", criterion="Sparkle: x", guideline="g", response_a=long, response_b="\n" * 9)
    HeuristicEngine(HeuristicEngineConfig(error_rate=0.0)).generate([request], 0)
    assert seen == ["one  two\nthree", ""]
