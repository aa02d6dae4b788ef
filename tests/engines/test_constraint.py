"""Constrained decoding and the probabilities of candidates, against the model's own forward pass."""

import math
import re
from functools import partial
from typing import Any

import pytest
import torch

from judgetrain.engines.base import Choice, Request, choices_of
from judgetrain.engines.config import ModelConfig, SamplingConfig, TransformersEngineConfig
from judgetrain.engines.lazy_model import make_engine
from judgetrain.errors import EngineError
from judgetrain.judges.prompting.parsing import read_judgment
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.config import StepsConfig
from judgetrain.judges.trees.grow import judgment_sampling, judgment_slots
from tests.builders.engines import ask as any_ask
from tests.builders.scripted import comparison

ask = partial(any_ask, max_new_tokens=24)
FRAME = r"score: [1-5]\n(the|a) (cat|dog)( sat| ran){1,3}\.?"


def test_every_constrained_text_matches_and_free_rows_are_as_they_were(engine) -> None:
    pytest.importorskip("xgrammar")
    free = [ask("a cat"), ask("the dog", temperature=0.0)]
    alone = engine.generate(free, seed=3)
    bound = [ask(text, pattern=FRAME, temperature=t) for text in ("the mat", "a cat", "score") for t in (0.0, 1.0, 3.0)]
    done = engine.generate([*free, *bound], seed=3)
    assert done[:2] == alone
    for completion in done[2:]:
        assert re.fullmatch(FRAME, completion.text), completion
        assert completion.finish_reason == "stop"
    assert not re.fullmatch(FRAME, alone[0].text)


@pytest.fixture(scope="module")
def world():
    pytest.importorskip("xgrammar")
    return make_engine(TransformersEngineConfig(model=ModelConfig(path="world")))


@pytest.mark.parametrize(("limit", "temperature", "cut"), [(40, 2.0, True), (128, 0.5, False)])
def test_a_judgment_is_read_if_its_form_is_whole_and_counted_as_cut_off_if_not(
    world, limit: int, temperature: float, cut: bool
) -> None:
    """Cut by the limit alone, with both scores there or not."""
    prompts = load_prompt_set("compact")
    asking = StepsConfig(judgment_sampling=SamplingConfig(temperature, 1.0, limit), constrained=True)
    sampling = judgment_sampling(asking, prompts)
    slots = judgment_slots(comparison(1), "AB", "cost: tells the cost", "5 if it tells the cost.")
    done = world.generate(
        [Request(messages=prompts.render("judgment", slots), sampling=sampling, step="judgment", slots=slots)] * 40,
        seed=7,
    )
    matching = [c for c in done if re.fullmatch(sampling.pattern, c.text)]
    whole = [c for c in matching if c.finish_reason == "stop"]
    assert all(c.generated_tokens == limit for c in matching if c not in whole), "its end token did not come"
    assert {c.finish_reason for c in done if c not in whole} == ({"length"} if cut else set())
    assert [read_judgment(c, asking.score).failure for c in done] == [None if c in whole else "cut_off" for c in done]
    assert whole


def test_a_pattern_that_no_token_begins_or_that_is_none_is_said(world) -> None:
    for pattern, message in (
        (r"Verdict: (yes|nah) because [^\n]{1,40}", "'frame' in the prompt set"),
        ("(a", "not a pattern"),
    ):
        with pytest.raises(EngineError, match=message):
            world.generate([ask("the cost", pattern=pattern)], seed=1)


@pytest.fixture
def drawn(engine, monkeypatch):
    """Return the rows that the engine finishes, with the ids that were drawn for them, by the request's place."""
    rows = {}
    finish = engine._finish

    def record(row, ids):
        rows[row.index] = (row, list(ids))
        return finish(row, ids)

    monkeypatch.setattr(engine, "_finish", record)
    return rows


def test_special_tokens_are_no_text(engine, drawn) -> None:
    pytest.importorskip("xgrammar")
    engine.generate([ask("cat", pattern=r"[^\n]{1,60}", temperature=2.0)] * 40, seed=1)
    texts = {tuple(ids) for _, ids in drawn.values()}
    assert len(texts) > 10
    specials = set(engine.tokenizer.all_special_ids)
    assert all(not specials & set(ids[:-1]) for ids in texts)


def test_candidates_probabilities_are_those_of_a_forward_pass(engine, drawn) -> None:
    candidates = ("1", "2", "3", "4", "5")
    plain = [ask(text, temperature=1.5) for text in ("the cat", "a dog ran", "score")] * 6
    requests = [ask(r.messages[0]["content"], temperature=1.5, candidates=candidates) for r in plain]
    texts = [c.text for c in engine.generate(plain, seed=5)]
    done = engine.generate(requests, seed=5)
    assert [c.text for c in done] == texts
    vocabulary = engine.tokenizer.get_vocab()
    spelled = [[vocabulary[c], vocabulary[f" {c}"]] for c in candidates]
    count = 0
    for index, completion in enumerate(done):
        row, ids = drawn[index]
        places = [place for place, i in enumerate(ids) if any(i in group for group in spelled)]
        assert [place for place, _ in row.choices] == places
        assert [c.at for c in completion.choices] == [m.start() for m in re.finditer("[1-5]", completion.text)]
        with torch.no_grad():
            logits = engine.model(torch.tensor([[*row.prompt, *ids]])).logits[0]
        for place, choice in zip(places, completion.choices, strict=True):
            chances = logits[len(row.prompt) + place - 1].softmax(0)
            mass = torch.stack([chances[group].sum() for group in spelled])
            assert torch.allclose(mass / mass.sum(), torch.tensor(choice.probabilities), atol=1e-4)
            count += 1
    assert count > 10


def test_without_the_package_the_extra_is_named(model_dir, monkeypatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "xgrammar", None)
    engine = make_engine(TransformersEngineConfig(model=ModelConfig(path=str(model_dir))))
    with pytest.raises(EngineError, match=r"pip install 'judgetrain\[constrained\]'"):
        engine.generate([ask("cat", pattern="a")], seed=1)


DIGITS = ("1", "2", "3", "4", "5")
RANKED = [(" 4", math.log(0.5)), ("5", math.log(0.2)), ("4", math.log(0.1)), ("four", math.log(0.2))]


def test_spellings_of_a_candidate_add_up_and_probabilities_are_relative_to_the_candidates() -> None:
    tokens = [(b"Score:", []), (b" 4", RANKED), (b"\n", [])]
    [choice] = choices_of(tokens, DIGITS, "Score: 4\n")
    assert choice.at == 7
    assert choice.probabilities == pytest.approx((0, 0, 0, 0.6 / 0.8, 0.2 / 0.8))


def test_what_was_cut_off_or_was_no_candidate_gives_none() -> None:
    tokens = [(b"Score: ", []), (b"7", [("7", 0.0)]), (b"###", []), (b"4", RANKED)]
    assert list(choices_of(tokens, DIGITS, "Score: 7")) == []
    assert list(choices_of([(b"4", [("seven", 0.0)])], DIGITS, "4")) == []
    assert list(choices_of([(b"4", RANKED)], (), "4")) == []
    assert list(choices_of([(b"4", [("4", 0.0)])], DIGITS, "4")) == [Choice(0, (0, 0, 0, 1.0, 0))]


HIDDEN = [(b"Score: ", []), (b"2", [("2", 0.0)]), (b"? no</think>", [])]
SPELLED = {
    "plain": ([(b"Good. Score: ", [])], "Good. Score: 4"),
    "a character split over tokens": ([(b"\xf0\x9f\x98", []), (b"\x8a Score: ", [])], "\U0001f60a Score: 4"),
    "reasoning that the text lacks": ([*HIDDEN, (b"Good. Score: ", [])], "Good. Score: 4"),
    "both": ([*HIDDEN, (b"\xf0\x9f\x98", []), (b"\x8a Score: ", [])], "\U0001f60a Score: 4"),
    "reasoning that begins as the text does": ([*HIDDEN, (b"Score: ", [])], "Score: 4"),
}


@pytest.mark.parametrize(("before", "text"), SPELLED.values(), ids=SPELLED)
@pytest.mark.parametrize("cut", [[], [(b"END", []), (b" 5", [("5", 0.0)])]], ids=["whole", "cut at a stop string"])
def test_a_candidate_s_place_is_found_by_bytes_from_the_end(before: list[Any], text: str, cut: list[Any]) -> None:
    [choice] = choices_of([*before, (b"4", RANKED), *cut], DIGITS, text)
    assert text[choice.at] == "4"
    assert choice.probabilities == pytest.approx((0, 0, 0, 0.6 / 0.8, 0.2 / 0.8))
