"""Scores and letters weighed by the model's own probabilities."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from judgetrain.engines.base import Choice, Completion, Request, choices_of
from judgetrain.engines.config import ModelConfig, SamplingConfig, TransformersEngineConfig
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.errors import ConfigError
from judgetrain.judges import Comparison, SingleTokenJudge, load_judge
from judgetrain.judges.config import StepsConfig
from judgetrain.judges.kinds.prompted import pairwise_questions
from judgetrain.judges.method import Method
from judgetrain.judges.prompting.parsing import (
    FRAME,
    SCORE_FRAME,
    SCORES,
    ParsedJudgment,
    judgment_sampling,
    read_judgment,
)
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.pipeline.run import Pipeline
from tests.builders.pipeline import configured as composed
from tests.builders.scripted import ScriptedEngine, comparison, number, render_judgment

TEXT = "Response A Score: **4**\nAnalysis of Response A: x 5\nResponse B Score: 2/5\nAnalysis of Response B: y"
AT_A, AT_B, ELSEWHERE = TEXT.index("4"), TEXT.index("2/5"), TEXT.index("x 5") + 2


def completion(*choices: Choice, text: str = TEXT) -> Completion:
    return Completion(text=text, prompt_tokens=1, generated_tokens=1, finish_reason="stop", choices=choices)


def read_expected(completion: Completion, frame: str = FRAME) -> ParsedJudgment:
    return read_judgment(completion, StepsConfig(score="expected"), frame=frame)


def test_expected_scores_are_means_over_the_probabilities_at_the_score_positions() -> None:
    read = read_expected(
        completion(
            Choice(AT_A, (0.1, 0.0, 0.0, 0.6, 0.3)),
            Choice(ELSEWHERE, (0.0, 0.0, 0.0, 0.0, 1.0)),
            Choice(AT_B, (0.2, 0.5, 0.2, 0.1, 0.0)),
        )
    )
    assert read.first == pytest.approx(0.1 * 1 + 0.6 * 4 + 0.3 * 5)
    assert read.second == pytest.approx(0.2 * 1 + 0.5 * 2 + 0.2 * 3 + 0.1 * 4)
    assert read_judgment(completion(), StepsConfig()) == ParsedJudgment(4, 2)


def test_reasoning_before_a_judgment_moves_no_score() -> None:
    thought = "<think>Response A Score: 1\nResponse B Score: 5</think>\n"
    chances = Choice(len(thought) + AT_A, (0, 0, 0, 1.0, 0)), Choice(len(thought) + AT_B, (0, 1.0, 0, 0, 0))
    wrong = tuple(Choice(thought.index(digit), (0, 0, 1.0, 0, 0)) for digit in "15")
    read = read_expected(completion(*wrong, *chances, text=thought + TEXT))
    assert (read.first, read.second) == (4, 2)


FIRST = "Comparison: B is better.\nResponse A Score: 2\nResponse B Score: 4"
FIRST_FRAME = rf"Comparison: [AB] is better\.\n{FRAME}"


def said(side_a: float, side_b: float, text: str = FIRST) -> Completion:
    """A judgment that is sure of its digits, 2 and 4, and of its letter as given."""
    sure = {"2": (0, 1.0, 0, 0, 0, 0, 0), "4": (0, 0, 0, 1.0, 0, 0, 0)}
    digits = [Choice(match.start(), sure[match[0]]) for match in re.finditer("[24]", text)]
    name = Choice(text.index("A Score"), (0, 0, 0, 0, 0, 1.0, 0))
    letter = Choice(text.index("B is better"), (0, 0, 0, 0, 0, side_a, side_b))
    return completion(letter, name, *digits, text=text)


def test_the_doubt_of_a_judgment_that_says_the_verdict_first_is_in_its_letter() -> None:
    for a, b in ((0.0, 1.0), (0.3, 0.7), (0.5, 0.5), (0.03, 0.07)):  # relative to each other
        read = read_expected(said(a, b), FIRST_FRAME)
        share = b / (a + b)
        assert read.first == pytest.approx(2 * share + 4 * (1 - share)), (
            "as written, and exchanged as often as A is said"
        )
        assert read.second == pytest.approx(4 * share + 2 * (1 - share))
    assert read_judgment(said(0.3, 0.7), StepsConfig(), frame=FIRST_FRAME) == ParsedJudgment(2, 4)


def test_a_letter_that_its_scores_do_not_follow_or_that_comes_after_them_is_not_weighed() -> None:
    denied = "Comparison: B is better.\nResponse A Score: 4\nResponse B Score: 2"
    denied = read_expected(said(0.3, 0.7, denied), FIRST_FRAME)
    assert (denied.first, denied.second) == (4, 2)
    after = "Response A Score: 2\nResponse B Score: 4\nComparison: B is better."
    assert (read_expected(said(0.3, 0.7, after)).first, read_expected(said(0.3, 0.7, after)).second) == (2, 4)
    without = completion(*said(0.3, 0.7).choices[1:], text=FIRST)
    read = read_expected(without, FIRST_FRAME)
    assert (read.first, read.second) == (2, 4), "an engine that says nothing of it"


@pytest.mark.parametrize(
    ("text", "choices", "reason"),
    [
        (TEXT, (), "no_probabilities"),
        (TEXT, (Choice(AT_A, (1.0, 0, 0, 0, 0)),), "no_probabilities"),
        (TEXT.replace("2/5", "2.5"), (Choice(AT_A, (0, 0, 0, 1.0, 0)), Choice(AT_B, (0, 1.0, 0, 0, 0))), "no_prob"),
        ("I like both.", (), "no_scores"),
        (TEXT.replace("2/5", "9"), (Choice(AT_A, (0, 0, 0, 1.0, 0)),), "out_of_range"),
    ],
)
def test_what_cannot_be_read_has_a_reason(text: str, choices: tuple[Choice, ...], reason: str) -> None:
    read = read_expected(completion(*choices, text=text))
    assert (read.first, read.second) == (None, None)
    assert (read.failure or "").startswith(reason)


@pytest.mark.parametrize("scores", ["parsed", "expected"])
@pytest.mark.parametrize("constrained", [True, False])
def test_a_reply_that_was_cut_is_no_judgment_whatever_it_holds(scores: str, constrained: bool) -> None:
    sure = Choice(AT_A, (0, 0, 0, 1.0, 0)), Choice(AT_B, (0, 1.0, 0, 0, 0))
    cut = Completion(text=TEXT, prompt_tokens=1, generated_tokens=1, finish_reason="length", choices=sure)
    asking = StepsConfig(score=scores, constrained=constrained)
    assert read_judgment(cut, asking) == ParsedJudgment(None, None, "cut_off")


@pytest.mark.parametrize("name", ["compact", "multi_step"])
def test_the_frame_admits_what_judges_are_taught_and_nothing_without_scores(name: str) -> None:
    frame = load_prompt_set(name).judgment_frame("judgment", 40)
    assert re.fullmatch(frame, render_judgment(1, 5, "a b", "c: d", "A is better."))
    for wrong in ("", "I like both.", "Response A Score: 6", render_judgment(1, 5, "a" * 41, "b", "c")):
        assert not re.fullmatch(frame, wrong)


def test_a_set_may_bring_its_own_frame(tmp_path) -> None:
    source = load_prompt_set("compact").source
    (tmp_path / "mine.yaml").write_text(source + "\n  frame: '[ab]{1,{width}}\\nA: [1-5]\\nB: [1-5]'\n")
    assert load_prompt_set(tmp_path / "mine.yaml").judgment_frame("judgment", 31) == r"[ab]{1,7}\nA: [1-5]\nB: [1-5]"


def test_sampling_asks_the_engine_for_what_scores_need() -> None:
    prompts, limits = load_prompt_set("compact"), SamplingConfig(0.7, 0.9, 50)
    asked = judgment_sampling(StepsConfig(judgment_sampling=limits, score="expected", constrained=True), prompts)
    assert asked.candidates == ("1", "2", "3", "4", "5", "A", "B")
    assert asked.pattern == prompts.judgment_frame("judgment", 50)
    assert (asked.temperature, asked.top_p, asked.max_new_tokens) == (0.7, 0.9, 50)
    plain = judgment_sampling(StepsConfig(), prompts)
    assert (plain.pattern, plain.candidates) == ("", ())


@pytest.mark.parametrize(
    ("tokens", "failure"),
    [(["1", "0"], "out_of_range"), (["0", "4"], "no_probabilities"), (["4", ".5"], "no_probabilities"), (["4"], None)],
)
def test_a_score_of_several_tokens_is_never_the_expected_score_of_one_of_them(
    tokens: list[str], failure: str | None
) -> None:
    """As vLLM reports them: 10 is not the 1 that it begins with, nor 04 the 4 that it ends with."""
    pieces = ["Score", ": ", *tokens, "\nAnalysis: y"]
    reported = [(piece.encode(), [(piece, 0.0)]) for piece in pieces]
    text = "".join(pieces)
    one = completion(*choices_of(reported, SCORES, text), text=text)
    read = read_judgment(one, StepsConfig(score="expected"), frame=SCORE_FRAME, responses=1)
    assert (read.failure, read.first) == (failure, None if failure else 4)


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
