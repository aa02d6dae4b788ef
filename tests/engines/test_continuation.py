"""The token ids of an answer behind a prompt, with tokenizers that put a blank before every text."""

from typing import Any

import pytest

from judgetrain.engines.answer_tokens import continuation, token_ids
from judgetrain.scorers.encode import Sample, encode_samples
from tests.engines.tokenizers import byte_level

LINES = ["the cat reads a book Response A Score: 4 USER: ASSISTANT: it is right . Two : a\n\nb"] * 4
ANSWER = "Response A Score: 4"
TEMPLATE = "{% for m in messages %}{{ m.role | upper }}: {{ m.content }} {% endfor %}ASSISTANT: "


def sentencepiece(scheme: str | None) -> Any:
    """Return a tokenizer as SentencePiece makes it; scheme None is that of Llama 2, whose normalizer puts the blank."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    if scheme is None:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
        tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme)
        tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme=scheme)
    special = ["<unk>", "<s>", "</s>"]
    tokenizer.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=300, special_tokens=special))
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=TEMPLATE, **names)


@pytest.mark.parametrize("scheme", ["first", "always", "never", None])
@pytest.mark.parametrize("prompt", ["USER: the cat ASSISTANT: ", "a ", "USER: the cat  "])
def test_an_answer_behind_a_blank_gets_no_second_one(scheme: str | None, prompt: str) -> None:
    tokenizer = sentencepiece(scheme)
    prompt_ids = token_ids(tokenizer, prompt)
    ids = continuation(tokenizer, prompt, prompt_ids, ANSWER)
    assert tokenizer.decode([*prompt_ids, *ids], clean_up_tokenization_spaces=False) == prompt + ANSWER
    # The tokens that stand for the word without a blank, as a tokenizer writes that puts none.
    plain = sentencepiece("never")
    assert tokenizer.convert_ids_to_tokens(list(ids)) == plain.tokenize(ANSWER)


@pytest.mark.parametrize("scheme", ["first", "never"])
def test_a_boundary_that_no_token_spans_stays_as_it_is(scheme: str) -> None:
    tokenizer = sentencepiece(scheme)
    prompt = "USER: the cat ASSISTANT:"
    prompt_ids = token_ids(tokenizer, prompt)
    ids = continuation(tokenizer, prompt, prompt_ids, f" {ANSWER}")
    assert (*prompt_ids, *ids) == token_ids(tokenizer, f"{prompt} {ANSWER}")


def test_a_byte_level_answer_is_tokenised_alone_where_a_token_would_span_the_boundary() -> None:
    tokenizer = byte_level(None, ["see: Response A"] * 20)
    prompt = "see: "
    prompt_ids = token_ids(tokenizer, prompt)
    assert token_ids(tokenizer, prompt + ANSWER)[: len(prompt_ids)] != prompt_ids
    assert continuation(tokenizer, prompt, prompt_ids, ANSWER) == token_ids(tokenizer, ANSWER)


def test_scorers_read_the_text_with_one_blank() -> None:
    tokenizer = sentencepiece("always")
    sample = Sample(({"role": "user", "content": "the cat"},), ANSWER)
    (tokens,) = encode_samples([sample], tokenizer, 10**6, 999)
    text = tokenizer.decode([*tokens.prompt, *tokens.response], clean_up_tokenization_spaces=False)
    assert text == f"USER: the cat ASSISTANT: {ANSWER}"
