"""Hidden states of responses against the model's own, one response at a time."""

from typing import Any

import numpy as np
import pytest
import torch

from judgetrain.errors import EngineError
from judgetrain.scorers.encode import Sample, Unscored
from judgetrain.scorers.states import response_states
from judgetrain.scorers.statistics import TokenScorer
from tests.builders.engines import tiny_llama, word_tokenizer

TOKENIZER = word_tokenizer()
LAYERS = 6
MODEL = tiny_llama(len(TOKENIZER), num_hidden_layers=LAYERS)
WORDS = [word for word in TOKENIZER.get_vocab() if word.isalpha()]


def sample(*, asked: int, answered: int) -> Sample:
    """Return a sample of so many words, no two alike."""
    prompt = ({"role": "user", "content": " ".join(WORDS[:asked])},)
    return Sample(prompt, " ".join(WORDS[asked : asked + answered]))


def plainly(scorer: TokenScorer, item: Sample) -> np.ndarray:
    """Return the states of a third, a half, two thirds, five sixths and all of the layers, read without padding."""
    (tokens,) = scorer.encode([item])
    assert not isinstance(tokens, Unscored)
    ids = torch.tensor([[*tokens.prompt, *tokens.response]])
    with torch.no_grad():
        states = MODEL.model(input_ids=ids, output_hidden_states=True).hidden_states
    by_layer = []
    for layer in (2, 3, 4, 5, 6):
        of_response = states[layer][0, len(tokens.prompt) :].numpy()
        by_layer.append([of_response.mean(axis=0), of_response[-1]])
    return np.array(by_layer)


@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_states_are_those_of_the_model_however_they_are_batched(batch_size: int) -> None:
    scorer = TokenScorer(MODEL, TOKENIZER, batch_size=batch_size)
    samples = [sample(asked=asked, answered=answered) for asked, answered in ((1, 1), (5, 2), (2, 7), (3, 3))]
    read = response_states(scorer, samples)
    for states, item in zip(read, samples, strict=True):
        np.testing.assert_allclose(states, plainly(scorer, item), rtol=1e-4, atol=2e-4)
    lengths = [len(tokens) for tokens in scorer.encode(samples) if not isinstance(tokens, Unscored)]
    assert (scorer.usage.prompt_tokens, scorer.usage.calls) == (sum(lengths), 4)


def test_what_cannot_be_read_has_a_reason_in_its_place() -> None:
    samples = [sample(asked=2, answered=0), sample(asked=2, answered=2), sample(asked=5, answered=8)]
    empty, states, too_long = response_states(TokenScorer(MODEL, TOKENIZER, max_context=12), samples)
    assert empty == Unscored("empty_response") and too_long == Unscored("too_long")
    assert isinstance(states, np.ndarray) and states.dtype == np.float32


def test_states_that_are_no_numbers_are_none() -> None:
    broken = tiny_llama(len(TOKENIZER), num_hidden_layers=1)
    scorer = TokenScorer(broken, TOKENIZER)
    with torch.no_grad():
        broken.model.norm.weight.fill_(float("nan"))
    assert response_states(scorer, [sample(asked=2, answered=2)]) == [Unscored("non_finite")]


def test_a_model_that_keeps_its_states_to_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = TokenScorer(MODEL, TOKENIZER)
    decoder = scorer.head.decoder

    def without_states(*arguments: Any, output_hidden_states: bool = False, **options: Any) -> Any:
        return type(decoder).forward(decoder, *arguments, **options)

    monkeypatch.setattr(decoder, "forward", without_states)
    with pytest.raises(EngineError, match="LlamaForCausalLM does not give the hidden states of its layers"):
        response_states(scorer, [sample(asked=2, answered=2)])
