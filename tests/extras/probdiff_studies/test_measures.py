"""The hypothesis studies with scripted answers and real log-probabilities; models side by side, by hand."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import Completion, Request, Sampling
from judgetrain.extras.probdiff_studies import measures
from judgetrain.scorers.encode import Sample, load_scorer_prompts
from judgetrain.scorers.statistics import TokenScorer
from tests.builders.scorers import tiny_scorer

PROMPTS = [({"role": "user", "content": text},) for text in ("the cat", "list a dog", "mat")]


@pytest.fixture(scope="module")
def scorer() -> TokenScorer:
    return tiny_scorer()


class Forgetful:
    name = "forgetful"

    def __init__(self) -> None:
        self.requests: list[list[Request]] = []

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        self.requests.append(list(requests))
        turn = len(self.requests)
        texts = [f"{r.messages[0]['content']} {turn if r.messages[0]['content'] == 'the cat' else 0}" for r in requests]
        return [
            Completion(
                text="" if turn == 2 and t.startswith("mat") else f" {t}\n",
                prompt_tokens=1,
                generated_tokens=1,
                finish_reason="stop",
            )
            for t in texts
        ]

    def close(self) -> None:
        pass


def test_repetitions_are_asked_in_one_conversation_and_compared_with_the_first() -> None:
    engine = Forgetful()
    repetition = measures.Repetition(3, load_scorer_prompts().again)
    answers, written = measures.repeated_answers(engine, PROMPTS, repetition, Sampling())
    assert sum(c.generated_tokens for c in written) == 3 + 3 + 2
    assert answers == [["the cat 1", "the cat 2", "the cat 3"], ["list a dog 0"] * 3, ["mat 0", "", ""]]
    assert [len(requests) for requests in engine.requests] == [3, 3, 2]
    last = engine.requests[2][0].messages
    assert [m["role"] for m in last] == ["user", "assistant", "user", "assistant", "user"]
    assert last[3]["content"] == "the cat 2" and last[4]["content"] == load_scorer_prompts().again
    vectors = {"the cat 1": [2, 0], "the cat 2": [1, 1], "the cat 3": [0, 3], "list a dog 0": [5, 5]}
    report = measures.repetition_report(answers, lambda texts: [vectors[t] for t in texts])
    assert report == [
        {"repetition": 1, "similarity": pytest.approx((math.sqrt(0.5) + 1) / 2), "exact_match": 0.5, "n": 2},
        {"repetition": 2, "similarity": pytest.approx((0 + 1) / 2), "exact_match": 0.5, "n": 2},
    ]
    assert measures.repetition_report([], lambda texts: []) == []
    [unlike] = measures.repetition_report([["word", "?"]], lambda texts: [[float(t == "word"), 0.0] for t in texts])
    assert unlike["similarity"] == 0.0  # of a text that the encoder knows no word of


def test_spread_is_of_the_answers_that_the_model_samples(scorer: TokenScorer) -> None:
    sampling = Sampling(max_new_tokens=6)
    spread = measures.logprob_spread(scorer, PROMPTS[:2], 5, sampling, seed=2)
    requests = [Request(messages=p, sampling=sampling) for p in PROMPTS[:2] for _ in range(5)]
    texts = [c.text.strip() for c in scorer.engine.generate(requests, derive_seed(2, "spread"))]
    deviations = measures.deviations([*spread, []])
    assert deviations["answers"] == [*map(len, spread), 0] and deviations["deviations"][2] is None
    assert deviations["deviation"] == pytest.approx(np.mean(deviations["deviations"][:2]))
    for i, logprobs in enumerate(spread):
        samples = [Sample(PROMPTS[i], text) for text in texts[5 * i : 5 * i + 5] if text]
        expected = [r.mean_logprob for r in scorer.statistics(samples)]  # type: ignore[union-attr]
        assert logprobs == pytest.approx(expected, abs=1e-5)
        deviation = math.sqrt(np.mean((np.array(expected) - np.mean(expected)) ** 2))
        assert deviations["deviations"][i] == pytest.approx(deviation, abs=1e-6)
