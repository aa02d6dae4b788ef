"""A constrained text ends before its tokens run out, whatever the model draws, the language and the vocabulary."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from judgetrain.engines.base import Request, Sampling
from judgetrain.engines.config import EngineConfig, ModelConfig, SamplingConfig
from judgetrain.engines.local.closing import Speller
from judgetrain.engines.local.constraint import Constraints
from judgetrain.engines.local.transformers_engine import TransformersEngine
from judgetrain.engines.registry import make_engine
from judgetrain.errors import EngineError
from judgetrain.judges.prompting.prompts import FRAME, judgment_slots, load_prompt_set
from judgetrain.judges.prompting.readout import Readout
from tests.engines.conftest import TEMPLATE, tiny_llama
from tests.scripted import comparison

CHINESE = "\u8d39\u7528\u662f\u4e09\u767e\u5143\uff0c\u5305\u62ec\u65e9\u9910\u3002"
READOUT = Readout(constrained=True)


def byte_level() -> Any:
    """Byte-level BPE that has the frame's words as tokens; other text is spelled in bytes and parts of characters."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<end>", "<user>", "<assistant>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([FRAME.replace(r"\n", "\n"), CHINESE] * 9, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>", chat_template=TEMPLATE
    )


@pytest.fixture(scope="module", params=["world", "bytes"])
def judge(request: pytest.FixtureRequest) -> Any:
    pytest.importorskip("xgrammar")
    if request.param == "world":
        return make_engine(EngineConfig(model=ModelConfig(path="world")))
    tokenizer = byte_level()
    end = int(tokenizer.eos_token_id)
    model = tiny_llama(len(tokenizer), max_position_embeddings=2048, eos_token_id=end, pad_token_id=end)
    return TransformersEngine(EngineConfig(), model, tokenizer)


@pytest.mark.parametrize("limit", [48, 64, 128])
@pytest.mark.parametrize("temperature", [2.0, 6.0])
def test_every_judgment_in_the_frame_can_be_read_and_is_complete(judge: Any, limit: int, temperature: float) -> None:
    prompts = load_prompt_set("compact")
    sampling = READOUT.sampling(SamplingConfig(temperature, 1.0, limit), prompts)
    requests = []
    for i in range(12):
        shown = comparison(i, CHINESE, CHINESE[3:]) if i % 2 else comparison(i, "it tells the cost", "no cost")
        slots = judgment_slots(
            shown, "AB", CHINESE if i % 4 == 1 else "cost: tells the cost", "5 if it tells the cost."
        )
        requests.append(Request(prompts.render("judgment", slots), sampling, "judgment", slots))
    done = judge.generate(requests, seed=7)
    assert [READOUT.read(completion).failure for completion in done] == [None] * len(done)
    assert {completion.finish_reason for completion in done} == {"stop"}
    assert all(completion.generated_tokens <= limit for completion in done)


def test_texts_are_not_cut_while_there_is_room(judge: Any) -> None:
    """Closing begins with the last tokens: at a high limit the texts are as long as the frame allows."""
    prompts = load_prompt_set("compact")
    sampling = READOUT.sampling(SamplingConfig(6.0, 1.0, 128), prompts)
    slots = judgment_slots(comparison(1), "AB", "cost: tells the cost", "5 if it tells the cost.")
    done = judge.generate([Request(prompts.render("judgment", slots), sampling, "judgment", slots)] * 12, seed=3)
    assert max(completion.generated_tokens for completion in done) > 60


def test_the_fewest_tokens_and_what_leads_nowhere() -> None:
    vocabulary = [b"", b"A", b"Ana", b"lysis", b"Analy", b"sis:", b"s", b"is", b":", b" 1", b" 2", b"<x>"]
    speller = Speller(vocabulary, never=[11])
    assert speller.spell(b"Analysis:", {}) == [(4,), (5,)]
    assert speller.spell(b"Analysis: 1", {10: b"12"}) == [(4,), (5,), (9, 10)]
    assert speller.spell(b"Analysis;", {}) is None
    assert speller.spell(b"<x>", {}) is None
    assert speller.dead_ends(b"Analysis: 1", 10) == [1], "after A nothing goes on to nalysis"
    assert not speller.has_bytes(b"An")
    assert speller.has_bytes(b"sA:")


@pytest.fixture(scope="module")
def letters() -> tuple[Constraints, Any]:
    """Constraints of a vocabulary of single bytes and some words, of which id 0 ends a text."""
    pytest.importorskip("xgrammar")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<end>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "Ver", "dict", "es", "bec", "ause", "An", "alysis"]
    inner = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>")
    return Constraints(tokenizer, len(words), [0]), tokenizer


def draw(letters: tuple[Constraints, Any], pattern: str, limit: int, seed: int) -> str:
    """A text of random tokens under a pattern; with a question mark where its tokens ran out."""
    constraints, tokenizer = letters
    generator = torch.Generator().manual_seed(seed)
    matcher = constraints.matcher(pattern, limit)
    ids: list[int] = []
    while len(ids) < limit:
        logits = torch.randn(len(tokenizer), generator=generator) * 2
        matcher.forbid(logits)
        ids.append(int(torch.multinomial(logits.softmax(-1), 1, generator=generator)))
        matcher.accept(ids[-1])
        if ids[-1] == 0:
            return str(tokenizer.decode(ids[:-1]))
    return f"{tokenizer.decode(ids)}?"


@pytest.mark.parametrize(
    ("pattern", "limits"),
    [
        (r"Analysis: [^\n]{1,30}\n[1-5]", (14, 24, 40)),
        (r"Analysis: [^\n]{1,30}\n(A|B) wins", (24, 40)),
        (r"R: [^\n]{1,30}\n(short|a much longer ending)", (16, 20, 24, 40)),
        (r"R: [^\n]{1,30}\n[^\n]{1,30}\n[1-5]", (14, 24)),
        (r"R: [^\n]{12,30}\n[1-5]", (24, 30)),
        (r"(aaa|baa|aba|bbc)!", (6, 9)),
        (r"(yes|no, since it is much too long) [^\n]{1,9}", (14, 18, 30, 45)),
        (f"{CHINESE[:2]}: [^\\n]{{1,30}}\\n(\u7532|\u4e59)", (40, 50)),
        (r"Verdict: (yes|nah) because [^\n]{1,40}", (26, 40)),
    ],
)
def test_whatever_a_frame_goes_on_with_its_texts_match_and_end(
    letters: tuple[Constraints, Any], pattern: str, limits: tuple[int, ...]
) -> None:
    texts = [draw(letters, pattern, limit, seed) for limit in limits for seed in range(25)]
    assert [text for text in texts if not re.fullmatch(pattern, text)] == []
    assert len(set(texts)) > 2


def test_closing_takes_the_shortest_option(letters: tuple[Constraints, Any]) -> None:
    texts = {draw(letters, r"(a much longer ending|short|a middling end)\n", 12, seed) for seed in range(9)}
    assert texts == {"short\n"}


def test_a_plan_that_was_not_kept_to_is_dropped(letters: tuple[Constraints, Any]) -> None:
    constraints, tokenizer = letters
    matcher = constraints.matcher("ab[cd]", 4)
    for token in tokenizer.convert_tokens_to_ids(["a", "z"]):
        matcher.forbid(torch.zeros(len(tokenizer)))
        matcher.accept(token)
    logits = torch.zeros(len(tokenizer))
    matcher.forbid(logits)
    assert tokenizer.decode(logits.isfinite().nonzero().flatten()) == "b", "z was no part of the text"


def test_a_pattern_that_no_token_spells_is_said() -> None:
    pytest.importorskip("xgrammar")
    engine = make_engine(EngineConfig(model=ModelConfig(path="world")))
    sampling = Sampling(max_new_tokens=24, pattern=r"Verdict: (yes|nah) because [^\n]{1,40}")
    with pytest.raises(EngineError, match="'frame' in the prompt set"):
        engine.generate([Request(({"role": "user", "content": "the cost"},), sampling)], seed=1)
