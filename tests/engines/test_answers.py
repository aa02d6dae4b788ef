"""The store of paid answers and the budget: content decides, kills lose nothing, limits hold."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.engines.answers import AnswerStore, Budget, prompt_tokens
from judgetrain.engines.base import Completion
from judgetrain.errors import EngineError
from tests.builders.engines import ask


def test_an_answer_is_found_by_content_and_by_nothing_else(tmp_path: Path) -> None:
    store = AnswerStore(tmp_path, seed=1)
    answer = Completion(text="hello \ud83d", prompt_tokens=7, generated_tokens=3, finish_reason="length")
    (content,) = store.contents("m", [ask("q")])
    assert store.get(content) is None
    store.put(content, answer)
    (path,) = tmp_path.glob("??/*.json")
    stored = json.loads(path.read_text())
    assert stored["request"] == json.loads(json.dumps(content)) and stored["completion"]["prompt_tokens"] == 7
    again = AnswerStore(tmp_path, seed=1)
    completion = again.get(again.contents("m", [ask("other"), ask("q")])[1])
    assert completion == Completion(text="hello ?", prompt_tokens=7, generated_tokens=3, finish_reason="length"), (
        "not by its place in a call, and fit for any file"
    )
    others = [
        again.contents("m", [ask("q ")])[0],
        again.contents("n", [ask("q")])[0],
        again.contents("m", [ask("q", temperature=0.5)])[0],
        again.contents("m", [ask("q"), ask("q")])[1],
        again.contents("m", [ask("q")], parameters=lambda r: {"reasoning_effort": "low"})[0],
        AnswerStore(tmp_path, seed=2).contents("m", [ask("q")])[0],
    ]
    assert [again.get(c) for c in others] == [None] * 6


@settings(max_examples=50)
@given(st.lists(st.sampled_from("abc"), max_size=12))
def test_equal_requests_of_a_call_are_different_samples(texts: list[str]) -> None:
    contents = AnswerStore(Path("unused"), 0).contents("m", [ask(t) for t in texts])
    seeds = [c["seed"] for c in contents]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)
    alone = {t: [c["seed"] for c in contents if c["messages"][0]["content"] == t] for t in set(texts)}
    for text, completion in alone.items():
        only = AnswerStore(Path("unused"), 0).contents("m", [ask(text)] * len(completion))
        assert [c["seed"] for c in only] == completion, "other requests change nothing"


def test_a_budget_of_requests_holds_over_restarts_and_torn_lines(tmp_path: Path) -> None:
    path = tmp_path / "spent.jsonl"
    first = Budget(path, max_requests=3)
    for _ in range(2):
        first.settle(
            first.send(ask("q")), Completion(text="a", prompt_tokens=5, generated_tokens=2, finish_reason="stop")
        )
    with path.open("a") as file:
        file.write('\n{"requests": ')
    second = Budget(path, max_requests=3)
    assert second.spent == {"requests": 2, "prompt_tokens": 10, "generated_tokens": 4}
    second.settle(second.send(ask("q")), None)
    for budget in (second, Budget(path, max_requests=3)):
        with pytest.raises(EngineError, match=r"teacher\.max_requests=3: .*raise it"):
            budget.send(ask("q"))
    assert Budget(path, max_requests=4).spent["requests"] == 3


def test_a_budget_of_tokens_counts_what_is_under_way(tmp_path: Path) -> None:
    request = ask("x" * 40, max_new_tokens=20)
    assert prompt_tokens(request) == 19
    budget = Budget(tmp_path / "spent.jsonl", max_tokens=80)
    first = budget.send(request)
    second = budget.send(request)
    assert first == second == 39
    with pytest.raises(EngineError, match=r"teacher\.max_tokens=80: 0 are spent, and the next request may take 39"):
        budget.send(request)
    budget.settle(first, Completion(text="a", prompt_tokens=10, generated_tokens=5, finish_reason="stop"))
    with pytest.raises(EngineError, match="15 are spent"):
        budget.send(request)
    budget.settle(second, None)
    budget.settle(
        budget.send(request), Completion(text="a", prompt_tokens=10, generated_tokens=5, finish_reason="stop")
    )
    assert sum(budget.spent[k] for k in ("prompt_tokens", "generated_tokens")) == 30
