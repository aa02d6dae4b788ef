"""Decoding by Transformers' generate with a static cache, beside the project's own decoder and plain passes."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    PreTrainedModel,
)

from judgetrain.engines.base import Completion, Request, Sampling
from judgetrain.engines.config import GenerateEngineConfig, ModelConfig
from judgetrain.engines.lazy_model import make_engine
from judgetrain.engines.local.decoding import BatchDecoder
from judgetrain.engines.local.generate_engine import GenerateDecoder, GenerateEngine
from judgetrain.engines.local.transformers_engine import TransformersEngine
from judgetrain.errors import EngineError
from tests.builders.engines import WORDS, word_tokenizer

GREEDY = Sampling(temperature=0.0, max_new_tokens=12)


def ask(text: str, sampling: Sampling = GREEDY) -> Request:
    return Request(messages=({"role": "user", "content": text},), sampling=sampling)


TEXTS = [" ".join(WORDS[place : place + 2 + place % 7]) for place in range(11)]


@pytest.fixture(scope="module")
def generating(model_dir: Path) -> GenerateEngine:
    """Return an engine that has tried itself out, four rows at a time."""
    engine = make_engine(GenerateEngineConfig(model=ModelConfig(path=str(model_dir)), batch_size=4))
    assert isinstance(engine, GenerateEngine) and isinstance(engine._decoder, GenerateDecoder)
    return engine


def greedy_by_plain_passes(engine: TransformersEngine, text: str, most: int) -> list[int]:
    """Return the likeliest token after the whole text, again and again: no cache, no padding, no generate."""
    ids = engine.tokenizer(f"<user>{text}<assistant>", add_special_tokens=False)["input_ids"]
    new: list[int] = []
    while len(new) < most and engine.tokenizer.eos_token_id not in new:
        with torch.no_grad():
            logits = engine.model(torch.tensor([ids + new]), use_cache=False).logits
        new.append(int(logits[0, -1].argmax()))
    return new


def test_greedy_texts_are_those_of_plain_passes(generating: GenerateEngine) -> None:
    for text, completion in zip(TEXTS, generating.generate([ask(text) for text in TEXTS], seed=1), strict=True):
        expected = greedy_by_plain_passes(generating, text, 12)
        assert completion.generated_tokens == len(expected)
        assert completion.text == generating.tokenizer.decode(expected, skip_special_tokens=True)


HOT = Sampling(temperature=1.3, top_p=0.9, max_new_tokens=15)
SAMPLINGS: dict[str, Callable[[int], Sampling]] = {
    "sampled": lambda place: HOT,
    "of several lengths, some greedy": lambda place: replace(
        HOT, max_new_tokens=1 + place, temperature=float(place % 2)
    ),
    "up to a stop string": lambda place: replace(HOT, max_new_tokens=30, stop=(" dog", "never")),
    "with probabilities": lambda place: replace(HOT, candidates=("cat", "dog"), top_p=1.0),
    "in a form": lambda place: Sampling(max_new_tokens=24, pattern=r"score: [1-5]( the| cat| dog){2,6}"),
}


@pytest.mark.parametrize("kind", SAMPLINGS)
def test_it_writes_what_the_own_decoder_writes(
    generating: GenerateEngine, engine: TransformersEngine, kind: str
) -> None:
    if kind == "in a form":
        pytest.importorskip("xgrammar")
    requests = [ask(text, SAMPLINGS[kind](place)) for place, text in enumerate([*TEXTS, TEXTS[0], TEXTS[0]])]
    completions = generating.generate(requests, seed=4)
    expected = engine.generate(requests, seed=4)
    assert [without_choices(c) for c in completions] == [without_choices(c) for c in expected]
    for completion, other in zip(completions, expected, strict=True):
        for choice, other_choice in zip(completion.choices, other.choices, strict=True):
            assert choice.at == other_choice.at
            assert choice.probabilities == pytest.approx(other_choice.probabilities, abs=1e-4)
    assert any(c.choices for c in completions) == (kind == "with probabilities")


def without_choices(completion: Completion) -> Completion:
    return replace(completion, choices=())


def test_the_model_sees_few_sizes_of_batches(generating: GenerateEngine) -> None:
    """Each size is compiled: eleven rows, four at a time, are 4, 4 and 3, of which the last is filled up."""
    sizes = set()
    hook = generating.model.register_forward_pre_hook(
        lambda _, args, named: sizes.add(len(named["input_ids"])), with_kwargs=True
    )
    try:
        generating.generate([ask(text) for text in TEXTS], seed=1)
    finally:
        hook.remove()
    assert sizes == {4}


def test_a_models_own_generation_settings_change_nothing_and_stay(
    generating: GenerateEngine, engine: TransformersEngine
) -> None:
    requests = [ask(text) for text in TEXTS]
    before = generating.model.generation_config
    own = GenerationConfig(repetition_penalty=9.0, do_sample=True, top_k=1, max_length=5, eos_token_id=7)
    generating.model.generation_config = own
    try:
        assert generating.generate(requests, seed=1) == engine.generate(requests, seed=1)
        assert generating.model.generation_config is own
    finally:
        generating.model.generation_config = before


def test_a_batch_that_does_not_fit_into_memory_is_halved(
    generating: GenerateEngine, engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    forward = generating.model.forward

    # generate looks at the arguments' names.
    @wraps(forward)
    def with_little_memory(*args: object, **named: torch.Tensor) -> object:
        sizes.append(len(named["input_ids"]))
        if sizes[-1] > 2:
            raise torch.OutOfMemoryError("no room")
        return forward(*args, **named)

    monkeypatch.setattr(generating.model, "forward", with_little_memory)
    requests = [ask(text) for text in TEXTS]
    assert generating.generate(requests, seed=1) == engine.generate(requests, seed=1)
    assert sizes[0] == 4 and set(sizes[1:]) == {2, 1}, "eleven rows"


def test_a_model_that_decodes_otherwise_than_it_reads_is_refused(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions that do not count on: every decoded token stands at the place of the first one."""
    forward = type(AutoModelForCausalLM.from_pretrained(model_dir)).forward

    def forgetful(self: torch.nn.Module, *args: object, **named: torch.Tensor) -> object:
        if named.get("use_cache", True) and named["input_ids"].shape[1] == 1:
            named["position_ids"] = torch.zeros_like(named["input_ids"])
        return forward(self, *args, **named)

    monkeypatch.setattr(type(AutoModelForCausalLM.from_pretrained(model_dir)), "forward", forgetful)
    # What engine.type=auto has chosen need not be given up with the model.
    message = r"the llama model says step by step what is .* nats .* engine\.type=transformers or vllm$"
    with pytest.raises(EngineError, match=message):
        make_engine(GenerateEngineConfig(model=ModelConfig(path=str(model_dir))))


@pytest.mark.parametrize("kind", ["mamba", "gpt_neo"])
def test_a_model_without_a_static_cache_is_decoded_by_the_own_decoder(kind: str) -> None:
    """GPT-Neo has attention alone, and is none of those that Transformers tries with a static cache."""
    tokenizer = word_tokenizer()
    torch.manual_seed(0)
    size = {"vocab_size": len(tokenizer), "hidden_size": 32}
    model: PreTrainedModel
    if kind == "mamba":
        model = MambaForCausalLM(MambaConfig(**size, num_hidden_layers=2))
    else:
        layers = {"num_layers": 2, "num_heads": 2, "attention_types": [[["global", "local"], 1]]}
        model = GPTNeoForCausalLM(GPTNeoConfig(**size, **layers))
    engine = GenerateEngine(GenerateEngineConfig(), model, tokenizer)
    assert isinstance(engine._decoder, BatchDecoder)
