"""Text that a tokenizer has no tokens for is counted and said, and refused where it is a prompt's own frame."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from judgetrain.engines.base import Request, Sampling
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_tokenizer
from judgetrain.engines.model_check import check_loadable
from judgetrain.engines.prompting import encode
from judgetrain.engines.unknown import UnknownText, unknown_pieces
from judgetrain.errors import ConfigError
from judgetrain.train.data import Renderer, fitting
from tests.builders.architectures import tiny
from tests.builders.engines import encoded, word_tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz .,:\n"
ROW = {"level": "judgment", "prompt": [{"role": "user", "content": "the cat sat"}], "nodes": ["n"]}


def unigram(**options: Any) -> PreTrainedTokenizerFast:
    """Return a tokenizer as SentencePiece makes them: a token for each letter, and one for what it does not know."""
    pieces = [("<unk>", 0.0), ("▁", -2.0), *((letter, -3.0) for letter in LETTERS if letter != " ")]
    if options.get("byte_fallback"):
        pieces += [(f"<0x{byte:02X}>", -9.0) for byte in range(256)]
    backend = Tokenizer(models.Unigram(pieces, unk_id=0, **options))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


def test_a_text_that_is_too_long_is_no_fault_of_the_model(caplog: pytest.LogCaptureFixture) -> None:
    """Transformers warns of indexing errors, and no such text ever comes to the model."""
    tokenizer = unigram()
    tokenizer.model_max_length = 4
    logger = logging.getLogger("transformers.tokenization_utils_base")
    logger.addHandler(caplog.handler)
    of_words = word_tokenizer()
    of_words.model_max_length = 4
    messages = ({"role": "user", "content": "the cat <user> sat on " * 9},)
    try:
        assert unknown_pieces(tokenizer, "the cat sat on §") == ["§"]
        _, unasked = encode([Request(messages=messages, sampling=Sampling())], of_words, 4)
        assert unasked[0].finish_reason == "too_long"
    finally:
        logger.removeHandler(caplog.handler)
    assert "longer than" not in caplog.text


def letters_alone() -> PreTrainedTokenizerFast:
    """Return a tokenizer that leaves out what it has no tokens for, as BPE does without an unknown token."""
    vocabulary = {letter: place for place, letter in enumerate(LETTERS)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def whole_words() -> PreTrainedTokenizerFast:
    """Return a tokenizer of words between blanks."""
    backend = Tokenizer(models.WordLevel({"<unk>": 0, "the": 1, "cat": 2}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


def every_byte() -> PreTrainedTokenizerFast:
    """Return a tokenizer whose unknown token is the one that ends its texts, as GPT-2's."""
    alphabet = {letter: place for place, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    tokenizer.add_special_tokens({"unk_token": "<|end|>", "eos_token": "<|end|>"})
    return tokenizer


@pytest.mark.parametrize(
    ("make", "text", "pieces"),
    [
        (unigram, "the café, 東 too", ["é", "東"]),
        (lambda: unigram(byte_fallback=True), "the café, 東 too", []),
        (letters_alone, "the café, 東 too", ["é", "東"]),
        (letters_alone, "the cat\u200b sat", []),
        (whole_words, "the café cat <unk>", ["café"]),
        (every_byte, "the café, 東 too<|end|>", []),
    ],
)
def test_the_pieces_without_tokens_are_found(
    make: Callable[[], PreTrainedTokenizerFast], text: str, pieces: list[str]
) -> None:
    tokenizer = make()
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert unknown_pieces(tokenizer, text) == unknown_pieces(tokenizer, text, ids) == pieces


def test_they_are_counted_by_text() -> None:
    tokenizer = unigram()
    unknown = UnknownText(tokenizer)
    assert unknown.remark("texts") == ""
    for text in ("the cat", "é and é", "a 東"):
        unknown.add(text, tokenizer(text, add_special_tokens=False)["input_ids"])
    assert unknown.remark("texts").startswith("2 of 3 texts hold text that the tokenizer has no token for, as 'é':")


def test_prompts_with_unknown_text_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = word_tokenizer()
    known, unknown = [{"role": "user", "content": "the cat"}], [{"role": "user", "content": "the zebra"}]
    with caplog.at_level(logging.WARNING, "judgetrain"):
        encoded([known], tokenizer)
        assert not caplog.records
        encoded([known, unknown], tokenizer)
        encoded([unknown], tokenizer)
    (record,) = caplog.records
    assert "1 of 2 prompts hold text that the tokenizer has no token for, as ' zebra'" in record.getMessage()


def test_a_template_with_marks_that_the_tokenizer_does_not_know_is_refused(tmp_path: Path) -> None:
    tiny("llama", tmp_path)
    check_loadable(ModelConfig(path=str(tmp_path)), "k")
    file = tmp_path / "chat_template.jinja"
    file.write_text(file.read_text().replace("{{", "§§{{", 1))
    with pytest.raises(ConfigError, match="k: its chat template writes '§', and its tokenizer has no token for"):
        check_loadable(ModelConfig(path=str(tmp_path)), "k")


def answer(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def test_unknown_text_is_counted_in_training_rows() -> None:
    tokenizer = word_tokenizer()
    rows = [ROW | {"level": "", "completion": answer(text)} for text in ("the cat ran", "the zebra ran", "a dog sat")]
    examples = fitting(rows, Renderer.of(tokenizer), 1000, "examples")
    (remark,) = [remark for remark in examples.remarks if "no token for" in remark]
    assert remark.startswith("1 of 6 prompts and answers hold text") and "' zebra'" in remark


def test_the_shipped_base_has_tokens_for_its_own_template() -> None:
    tokenizer = load_tokenizer(ModelConfig(path="world"))
    assert unknown_pieces(tokenizer, "Response A Score: 4\nAnalysis of Response A: ") == []
