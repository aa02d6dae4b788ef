"""Scores by a server's log-probabilities: those of the model itself, whatever characters a token is a part of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from judgetrain.engines.answers import AnswerStore, Budget
from judgetrain.engines.config import ModelConfig, OpenAIEngineConfig, TransformersEngineConfig
from judgetrain.errors import ConfigError, EngineError
from judgetrain.extras.world_base.pretrain import wrapped
from judgetrain.pipeline.config import Config
from judgetrain.scorers.encode import Sample, Unscored
from judgetrain.scorers.methods import score
from judgetrain.scorers.results import TokenStatistics
from judgetrain.scorers.served import ServedScorer
from judgetrain.scorers.stages import check_scorer
from judgetrain.scorers.statistics import TokenScorer
from tests.builders.engines import TEMPLATE, tiny_llama, word_tokenizer
from tests.builders.served_model import ServedModel, serving_model

SPECIALS = ["<pad>", "<unk>", "<end>", "<user>", "<assistant>", "<system>"]
PROMPT = ({"role": "user", "content": "the cat"},)
SAMPLES = [Sample(PROMPT, "the dog sat on"), Sample(PROMPT, "list a dog"), Sample(PROMPT, " ")]
SPLIT = [
    Sample(({"role": "user", "content": "the 🦊 and the 猫"},), "the dog sat"),
    Sample(PROMPT, "🦊🦊 ran"),
    Sample(PROMPT, "猫がマットに座る"),
    Sample(({"role": "user", "content": "cafe\u0301 👩‍🚀"},), "e\u0301te\u0301 🏳️‍🌈!"),
    Sample("the 🦊", " sat on 猫"),
]
"""Characters of several bytes, which are split over tokens: emoji, joined ones, CJK, combining marks."""


def of_bytes() -> PreTrainedTokenizerFast:
    """As GPT-2's: tokens of bytes, most of them parts of a character here."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["the cat sat on the mat and the dog ran"] * 9, trainer)
    return wrapped(tokenizer, TEMPLATE)


def of_pieces() -> PreTrainedTokenizerFast:
    """As Llama 2's: white space as ▁, and tokens such as <0xF0> where a character is unknown."""
    pieces = [*SPECIALS, *(f"<0x{i:02X}>" for i in range(256)), "▁", *"abcdefghijklmnopqrstuvwxyz!", "▁t", "he", "▁the"]
    merges = [("▁", "t"), ("h", "e"), ("▁t", "he")]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return wrapped(tokenizer, TEMPLATE)


@pytest.fixture
def server(scorer: TokenScorer) -> Iterator[ServedModel]:
    with serving_model(scorer.tokenizer, scorer.model) as served:
        yield served


def asking(
    server: ServedModel,
    budget: Budget | None = None,
    answers: AnswerStore | None = None,
    tokenizer: Any = None,
    **options: Any,
) -> ServedScorer:
    config = OpenAIEngineConfig(model="m", base_url=server.url, api_key_env="", **{"concurrency": 2, **options})
    return ServedScorer(config, tokenizer or server.tokenizer, answers, budget)


def by_hand(sample: Sample, tokenizer: Any, model: Any) -> list[float]:
    """The log-probabilities of a response's tokens by the model itself, a loop over its logits."""
    text = sample.prompt
    if not isinstance(text, str):
        text = tokenizer.apply_chat_template([*text], tokenize=False, add_generation_prompt=True)
    before = tokenizer(text, add_special_tokens=isinstance(sample.prompt, str))["input_ids"]
    whole = tokenizer(text + sample.response, add_special_tokens=isinstance(sample.prompt, str))["input_ids"]
    if whole[: len(before)] != before:
        whole = before + tokenizer(sample.response, add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        logits = model(torch.tensor([whole])).logits[0].double()
    return [float(logits[i - 1, whole[i]] - torch.logsumexp(logits[i - 1], 0)) for i in range(len(before), len(whole))]


@pytest.mark.parametrize("made", [of_bytes, of_pieces, word_tokenizer])
def test_characters_that_are_split_over_tokens_stay_on_their_side(made: Callable[[], Any]) -> None:
    tokenizer = made()
    model = tiny_llama(len(tokenizer), max_position_embeddings=512)
    with serving_model(tokenizer, model) as server:
        found = asking(server).statistics(SPLIT)
        for sample, result in zip(SPLIT, found, strict=True):
            expected = by_hand(sample, tokenizer, model)
            assert isinstance(result, TokenStatistics) and result.response_tokens == len(expected)
            assert result["logprob"].tolist() == pytest.approx(expected, abs=1e-4)
    offsets = [len(tokenizer.decode([t])) for t in server.answered[0]]
    assert sum(offsets) != len(tokenizer.decode(server.answered[0])) or made is not of_bytes, "offsets would do"


def test_log_probabilities_are_those_of_the_model_itself(
    scorer: TokenScorer, server: ServedModel, tmp_path: Path
) -> None:
    budget = Budget(tmp_path / "spent.jsonl")
    remote = asking(server, budget)
    found, local = remote.statistics(SAMPLES), scorer.statistics(SAMPLES)
    for one, other in zip(found[:2], local[:2], strict=True):
        assert isinstance(one, TokenStatistics) and isinstance(other, TokenStatistics)
        assert one.response_tokens == other.response_tokens and one.prompt_tokens == other.prompt_tokens
        assert one["logprob"] == pytest.approx(other["logprob"], abs=1e-5)
    assert found[2] == Unscored("empty_response") and len(server.bodies) == 2
    read = sum(map(len, server.answered))
    assert budget.spent == {"requests": 2, "prompt_tokens": read, "generated_tokens": 2}
    names = ("sentprob_mean", "softmax_ent", "attnent_min")
    ours, theirs = score(remote, SAMPLES, names), score(scorer, SAMPLES, names)  # type: ignore[arg-type]
    assert ours["sentprob_mean"].values[:2] == pytest.approx(theirs["sentprob_mean"].values[:2], abs=1e-5)
    assert ours["softmax_ent"].values[0] == ours["attnent_min"].values[0] == Unscored("no_distribution")


def test_every_try_counts_and_none_goes_beyond_the_limit(server: ServedModel, tmp_path: Path) -> None:
    server.faults = [(500, {}), (503, {})]
    budget = Budget(tmp_path / "spent.jsonl", max_requests=5, key="selfeval")
    remote = asking(server, budget, concurrency=1)
    assert isinstance(remote.statistics(SAMPLES[:1])[0], TokenStatistics)
    assert len(server.bodies) == budget.spent["requests"] == 3
    server.faults = [(500, {})] * 9
    with pytest.raises(EngineError, match=r"selfeval\.max_requests=5 requests are sent"):
        remote.statistics(SAMPLES[1:2])
    assert len(server.bodies) == budget.spent["requests"] == 5


def test_what_was_told_is_kept_whatever_the_seed(server: ServedModel, tmp_path: Path) -> None:
    first = asking(server, answers=AnswerStore(tmp_path, 1)).statistics([*SAMPLES, SAMPLES[0]])
    assert len(server.bodies) == 2, "the same text is asked for once"
    again = asking(server, answers=AnswerStore(tmp_path, 2)).statistics(SAMPLES)
    assert len(server.bodies) == 2
    for one, other in zip(first[:2], again[:2], strict=True):
        assert isinstance(one, TokenStatistics) and isinstance(other, TokenStatistics)
        assert one["logprob"].tolist() == other["logprob"].tolist()


def test_another_model_under_the_same_name_is_asked_anew(server: ServedModel, tmp_path: Path) -> None:
    for weights, asked in (("a", 1), ("b", 2), ("a", 2)):
        asking(server, answers=AnswerStore(tmp_path, 1, {"files": weights})).statistics(SAMPLES[:1])
        assert len(server.bodies) == asked


def without(answer: dict[str, Any], name: str) -> dict[str, Any]:
    answer["choices"][0]["logprobs"].pop(name)
    return answer


def silent(answer: dict[str, Any]) -> dict[str, Any]:
    answer["choices"][0]["logprobs"] = None
    return answer


def with_another_before(answer: dict[str, Any]) -> dict[str, Any]:
    """As of a server that puts a token of its own before those that are sent, and does not show what it writes."""
    told = answer["choices"][0]["logprobs"]
    told["token_logprobs"], told["tokens"] = [None, *told["token_logprobs"][:-1]], ["<s>", *told["tokens"][:-1]]
    answer["usage"]["prompt_tokens"] += 1
    return answer


def of_what_is_written(answer: dict[str, Any]) -> dict[str, Any]:
    """As of a server that ignores echo."""
    told = answer["choices"][0]["logprobs"]
    answer["choices"][0]["logprobs"] = {name: column[-1:] for name, column in told.items()}
    return answer


def two_unknown(answer: dict[str, Any]) -> dict[str, Any]:
    answer["choices"][0]["logprobs"]["token_logprobs"][1] = None
    return answer


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (silent, r"log-probabilities of none"),
        (of_what_is_written, r"log-probabilities of 1\b"),
        (with_another_before, r"it was sent 8 tokens, and read 9"),
        (two_unknown, r"tokens after the first have none"),
        (lambda answer: without(answer, "tokens"), r"does not hold the tokens"),
    ],
)
def test_an_answer_that_cannot_be_attributed_ends_the_run_and_is_paid(
    changed: Callable[[dict[str, Any]], Any], told: str, server: ServedModel, tmp_path: Path
) -> None:
    server.changed = changed
    budget = Budget(tmp_path / "spent.jsonl")
    remote = asking(server, budget, AnswerStore(tmp_path, 1), concurrency=1)
    with pytest.raises(EngineError, match=rf"{told}.*scorer\.engine needs a server .*echo"):
        remote.statistics(SAMPLES)
    assert len(server.bodies) == 1 and budget.spent["unknown_tokens"] == len(server.answered[0]) + 1
    assert not list(tmp_path.glob("??/*.json")), "nothing is kept that could not be read"


def test_a_tokenizer_of_another_model_is_found_out() -> None:
    with serving_model(tokenizer := of_bytes(), tiny_llama(len(tokenizer))) as server:
        with pytest.raises(EngineError, match=r"token \d+ is '.*' there, and 'the' by the tokenizer of scorer\.model"):
            asking(server, tokenizer=word_tokenizer(), concurrency=1).statistics(SAMPLES)
        assert len(server.bodies) == 1


def test_tokens_may_be_named_by_id(server: ServedModel) -> None:
    """As by vLLM with --return-tokens-as-token-ids."""

    def by_id(answer: dict[str, Any]) -> dict[str, Any]:
        told = answer["choices"][0]["logprobs"]
        told["tokens"] = [f"token_id:{t}" for t in (*server.answered[-1], 3)]
        return answer

    server.changed = by_id
    assert isinstance(asking(server, concurrency=1).statistics(SAMPLES[:1])[0], TokenStatistics)


def test_texts_that_are_refused(server: ServedModel) -> None:
    server.context = 12
    long = Sample(PROMPT, "the dog sat on the mat and ran")
    assert asking(server).statistics([long, SAMPLES[1]])[0] == Unscored("too_long")
    refusal = 400, {"error": {"message": "prompt must be a string"}}
    server.faults = [refusal] * 2
    with pytest.raises(EngineError, match=r"scorer\.engine: m scored none of the first texts: HTTP 400: prompt must"):
        asking(server).statistics(SAMPLES)
    remote = asking(server)
    remote.statistics(SAMPLES[1:2])
    server.faults = [refusal]
    assert remote.statistics(SAMPLES[:1]) == [Unscored("no_answer")]


@pytest.mark.parametrize("value", [-9999.0, float("nan"), float("-inf")])
def test_a_token_that_is_ruled_out_has_no_score(value: float, server: ServedModel, tmp_path: Path) -> None:
    def ruled_out(answer: dict[str, Any]) -> dict[str, Any]:
        answer["choices"][0]["logprobs"]["token_logprobs"][-2] = value
        return answer

    server.changed = ruled_out
    for _ in range(2):  # the second time from what was kept
        found = asking(server, answers=AnswerStore(tmp_path, 1)).statistics(SAMPLES[:1])
        assert found == [Unscored("non_finite")] and len(server.bodies) == 1


def test_settings_that_no_server_can_fulfil_are_refused() -> None:
    config = Config()
    config.train.base = ModelConfig(path="world")
    config.scorer.engine = TransformersEngineConfig()
    with pytest.raises(ConfigError, match=r"scorer\.engine\.type='transformers': allowed is openai"):
        check_scorer(config.scorer, config.train.base)
    config.scorer.engine = OpenAIEngineConfig(model="m", api_key_env="")
    check_scorer(config.scorer, config.train.base)
