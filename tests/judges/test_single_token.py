"""The judge that answers with one letter: its log-odds against the model's own logits, its orders, what is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from judgetrain.engines.base import Choice, Completion, Request
from judgetrain.engines.config import ModelConfig, TransformersEngineConfig
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.errors import ConfigError
from judgetrain.judges import Comparison, SingleTokenJudge, load_judge
from judgetrain.judges.kinds.prompted import pairwise_questions
from judgetrain.judges.method import Method
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.pipeline.run import Pipeline
from tests.builders.pipeline import configured as composed
from tests.builders.scripted import ScriptedEngine, comparison, number

BASE = ModelConfig(path="world")


def log_odds(compared: Comparison) -> tuple[float, float]:
    """Of the comparison's A over its B after each order's prompt, from the whole distribution of the next token."""
    model, tokenizer = load_model(BASE), load_tokenizer(BASE)
    letters = [
        [i for i in range(len(tokenizer)) if tokenizer.decode([i]).strip() == letter]
        for letter in SingleTokenJudge.letters
    ]
    found = []
    for question in pairwise_questions(compared):
        messages = list(load_prompt_set("single_token", "single_token").render("single_token", question.slots))
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        with torch.no_grad():
            chances = model(input_ids=ids["input_ids"]).logits[0, -1].double().softmax(-1)
        first, second = (sum(float(chances[i]) for i in each) for each in letters)
        found.append(math.log(first / second))
    return found[0], -found[1]


def test_log_odds_are_the_models_and_the_letter_is_the_likelier_one() -> None:
    judge = load_judge("single_token:world", engine=TransformersEngineConfig(model=BASE))
    compared = [comparison(i, a=f"the answer gives an example of it {i}", b="it is kind") for i in range(4)]
    predictions = judge.compare_all(compared)
    judge.close()
    for each, prediction in zip(compared, predictions, strict=True):
        straight, exchanged = log_odds(each)
        assert prediction.margin == pytest.approx((straight + exchanged) / 2, abs=1e-3)
        expected = ["A" if odds > 0 else "B" for odds in (straight, exchanged)]
        assert [prediction.verdict_ab, prediction.verdict_ba] == expected
        assert prediction.cost.generated_tokens == 2 and prediction.failures == {}
        assert (prediction.asked, prediction.plan) == ("greedy", "independent")


class Lettered(ScriptedEngine):
    """Prefers a side by its text, and the first by a fixed amount; some replies are no letter."""

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        done = []
        for request, completion in zip(requests, super().generate(requests, seed), strict=True):
            assert request.sampling.pattern == "(A|B)" and request.sampling.candidates == ("A", "B")
            odds = 1.0 + worth(request.slots["response_a"]) - worth(request.slots["response_b"])
            chance = round(1 / (1 + math.exp(-odds)), 6)
            done.append(replace(completion, choices=(Choice(0, (chance, round(1 - chance, 6))),)))
        return done


def worth(text: str) -> float:
    return number(text) % 50 / 10


def says(request: Request, occurrence: int) -> str:
    a, b = request.slots["response_a"], request.slots["response_b"]
    return "Neither" if number(a, b) % 11 == 0 else "AB"[worth(b) > worth(a) + 1.0]


def test_a_preference_for_the_first_place_cancels_in_the_margin() -> None:
    items = [comparison(i) for i in range(60)]
    unread = 0
    for item, prediction in zip(items, SingleTokenJudge(Lettered(says)).compare_all(items), strict=True):
        difference = worth(item.response_a) - worth(item.response_b)
        lost = [number(item.response_a, item.response_b) % 11 == 0, number(item.response_b, item.response_a) % 11 == 0]
        if any(lost):
            assert prediction.margin is None and prediction.failures == {"no_letter": sum(lost)}
            unread += 1
            continue
        assert prediction.margin == pytest.approx(difference, abs=2e-3)
        expected = ("A" if difference + 1 >= 0 else "B", "B" if 1 - difference >= 0 else "A")
        assert (prediction.verdict_ab, prediction.verdict_ba) == expected
    assert 0 < unread < 30


def test_a_letter_without_probabilities_is_no_verdict() -> None:
    (found,) = SingleTokenJudge(ScriptedEngine(lambda request, occurrence: "A")).compare_all([comparison(0)])
    assert (found.verdict, found.margin, found.failures) == ("unreadable", None, {"no_probabilities": 2})


def test_it_is_loaded_by_its_name_and_evaluated_as_a_method(tmp_path: Path) -> None:
    assert Method.parse("single_token:dpo").kind == "single_token" and Method.parse("single_token:dpo").names_model
    judge = load_judge("single_token:external", engine=TransformersEngineConfig(model=BASE))
    assert isinstance(judge, SingleTokenJudge) and judge.sampling.max_new_tokens == 2
    judge.close()
    config = composed(
        f"output_dir={tmp_path}", "recipe=debug", "stage=evaluate", "evaluate.methods=[single_token:external]"
    )
    with pytest.raises(ConfigError, match=r"evaluate\.external\.type=world: gives no probabilities of tokens, which"):
        Pipeline(config).check("evaluate")
