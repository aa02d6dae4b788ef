"""Batched generation against Transformers' own generate and against itself one request at a time."""

import random
from dataclasses import replace

import pytest
import torch

from judgetrain.engines.base import Request, Sampling
from judgetrain.engines.config import ModelConfig, TransformersEngineConfig
from judgetrain.engines.local.decoding import tokens_to_read
from judgetrain.engines.local.kept_beginnings import KeptBeginnings
from judgetrain.engines.local.transformers_engine import TransformersEngine
from tests.builders.engines import WORDS, word_tokenizer

GREEDY = Sampling(temperature=0.0, max_new_tokens=12)


def ask(text: str, sampling: Sampling = GREEDY) -> Request:
    return Request(messages=({"role": "user", "content": text},), sampling=sampling)


def prompts(count: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 30))) for _ in range(count)]


def reference(engine: TransformersEngine, text: str, max_new_tokens: int) -> tuple[str, int]:
    """Transformers' greedy generate, one prompt, no padding."""
    ids = engine.tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )["input_ids"]
    out = engine.model.generate(
        ids, max_new_tokens=max_new_tokens, do_sample=False, attention_mask=torch.ones_like(ids)
    )
    new = out[0, ids.shape[1] :]
    return engine.tokenizer.decode(new, skip_special_tokens=True), len(new)


def test_greedy_equals_transformers_generate(engine):
    texts = prompts(11)
    for text, completion in zip(texts, engine.generate([ask(t) for t in texts], seed=1), strict=True):
        assert (completion.text, completion.generated_tokens) == reference(engine, text, 12)
        assert completion.finish_reason == ("length" if completion.generated_tokens == 12 else "stop")


def test_batch_size_and_order_change_nothing(engine):
    requests = [ask(t, Sampling(temperature=0.0, max_new_tokens=5 + i % 20)) for i, t in enumerate(prompts(23))]
    together = engine.generate(requests, seed=1)
    assert together == [engine.generate([request], seed=1)[0] for request in requests]
    assert together == engine.generate(requests[::-1], seed=1)[::-1]


def windowed(window: int | None, batch_size: int) -> TransformersEngine:
    """Return an engine whose model's layers see so many tokens back; None: all."""
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(3)
    tokenizer = word_tokenizer()
    config = MistralConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, initializer_range=0.4, pad_token_id=0, eos_token_id=2,
        bos_token_id=None, sliding_window=window,
    )  # fmt: skip
    model = MistralForCausalLM(config).eval()
    return TransformersEngine(TransformersEngineConfig(batch_size=batch_size), model, tokenizer)


@pytest.mark.parametrize("window", [8, 200])
def test_sliding_window_models_decode_like_generate(window):
    engine = windowed(window, 5)
    texts = prompts(5) + prompts(5)
    for text, completion in zip(texts, engine.generate([ask(t) for t in texts], seed=1), strict=True):
        assert (completion.text, completion.generated_tokens) == reference(engine, text, 12)


@pytest.mark.parametrize("window", [None, 8, 120, 600])
def test_what_prompts_begin_with_together_is_read_once(window):
    """Dialogue and responses before the criterion: answers are those of generate on each prompt alone."""
    engine = windowed(window, 9)
    words = " ".join(prompts(120)).split()
    starts = [" ".join(words[i : i + size]) for i, size in ((0, 200), (40, 150))]
    ends = [prompts(7), [" ".join([end] * 3) for end in prompts(7)]]  # the shorter beginning has the longer ends
    texts = [f"{starts[i]} {end}" for i in (0, 1) for end in ends[i]] + [starts[0], *prompts(4)]
    read = []
    engine.model.register_forward_pre_hook(
        lambda _, args, named: read.append(named["input_ids"].numel()), with_kwargs=True
    )
    completions = engine.generate([ask(text) for text in texts], seed=1)
    computed = sum(prompt for prompt in read if prompt > len(texts))  # the others are steps
    assert computed < sum(completion.prompt_tokens for completion in completions) * 0.6
    for text, completion in zip(texts, completions, strict=True):
        assert (completion.text, completion.generated_tokens) == reference(engine, text, 12)


@pytest.mark.parametrize(
    ("shared", "number", "is_read_once"), [(12, 40, False), (20, 3, False), (20, 5, True), (70, 2, True)]
)
def test_short_beginnings_are_read_once_where_many_prompts_have_them(shared, number, is_read_once):
    """Guidelines of a comparison: a short query, then the criterion. A pass of its own saves 64 tokens at least."""
    engine = windowed(None, 64)
    start = " ".join(" ".join(prompts(9)).split()[:shared])
    texts = [f"{start} {end}" for end in WORDS if end != start.split()[-1]][:number]
    read = []
    engine.model.register_forward_pre_hook(
        lambda _, args, named: read.append(named["input_ids"].numel()), with_kwargs=True
    )
    completions = engine.generate([ask(text) for text in texts], seed=1)
    computed = sum(tokens for tokens in read if tokens > number)  # the others are steps
    whole = sum(completion.prompt_tokens for completion in completions)
    assert (computed <= whole - 64) == is_read_once
    assert is_read_once or computed == whole
    for text, completion in zip(texts, completions, strict=True):
        assert (completion.text, completion.generated_tokens) == reference(engine, text, 12)


@pytest.mark.parametrize("window", [None, 120])
def test_what_stands_behind_a_common_beginning_is_read_once_for_its_prompts(window):
    """Examples before every response, and each response before its criteria: neither is read twice."""
    engine = windowed(window, 64)
    words = " ".join(prompts(120)).split()
    examples = words[:150]
    responses = [words[150 + 40 * i : 190 + 40 * i] for i in range(3)]
    ends = WORDS[:4]
    texts = [" ".join([*examples, *response, end, end]) for response in responses for end in ends]
    read = []
    hook = engine.model.register_forward_pre_hook(
        lambda _, args, named: read.append(named["input_ids"].numel()), with_kwargs=True
    )
    completions = engine.generate([ask(text) for text in texts], seed=1)
    hook.remove()
    computed = sum(tokens for tokens in read if tokens > len(texts))  # the others are steps
    frame = completions[0].prompt_tokens - len(texts[0].split())
    once = len(examples) + sum(map(len, responses)) + len(texts) * (2 + frame)
    assert abs(computed - once) <= len(texts), "the frame's beginning and padding"

    # One whose own words nobody shares reads on from the examples, too.
    texts.append(" ".join([*examples, *words[300:310]]))
    completions = engine.generate([ask(text) for text in texts], seed=1)
    for text, completion in zip(texts, completions, strict=True):
        assert (completion.text, completion.generated_tokens) == reference(engine, text, 12)


@pytest.mark.parametrize("window", [None, 8, 120])
def test_a_later_call_reads_on_from_what_an_earlier_one_read(window):
    """A comparison's first criterion in one call and its second in the next, as of a judge that stops early."""
    engine = windowed(window, 64)
    words = " ".join(prompts(120)).split()
    comparisons = [" ".join(words[40 * i : 40 * i + length]) for i, length in enumerate((90, 100, 70))]
    calls = [
        [f"{text} the cat" for text in comparisons],
        # The second has two criteria, and there is a new comparison.
        [*(f"{text} dog dog sat" for text in comparisons), f"{comparisons[1]} on mat", " ".join(words[300:330])],
    ]
    read = []
    engine.model.register_forward_pre_hook(
        lambda _, args, named: read.append(named["input_ids"].shape), with_kwargs=True
    )
    computed = []
    with engine.keeping_beginnings():
        for texts in calls:
            read.clear()
            completions = engine.generate([ask(text) for text in texts], seed=1)
            # Passes over one column are steps.
            computed.append(sum(rows * columns for rows, columns in read if columns > 1))
            whole = sum(completion.prompt_tokens for completion in completions)
            for text, completion in zip(texts, completions, strict=True):
                assert (completion.text, completion.generated_tokens) == reference(engine, text, 12)
    assert computed[1] < whole / 3

    # Nothing is left of them where the block ends, since the model may change.
    read.clear()
    engine.generate([ask(text) for text in calls[1]], seed=1)
    assert sum(rows * columns for rows, columns in read if columns > 1) > whole / 2


@pytest.mark.parametrize(("most_bytes", "kept"), [(1 << 20, 1), (1000, 0)])
def test_what_is_read_is_kept_within_the_block_and_where_there_is_room(most_bytes, kept):
    engine = windowed(None, 64)
    engine._kept = KeptBeginnings(most_bytes)
    engine._decoder = engine._make_decoder()
    request = ask(" ".join(prompts(9)))
    engine.generate([request], seed=1)
    assert len(engine._kept) == 0
    with engine.keeping_beginnings():
        engine.generate([request], seed=1)
        assert len(engine._kept) == kept
    assert len(engine._kept) == 0


def test_what_is_kept_makes_room_when_memory_is_out(monkeypatch):
    engine = windowed(None, 64)
    requests = [ask(text) for text in prompts(2)]
    decoder = engine._decoder
    kept = []

    def full_at_first(rows, size, watch, seed):
        kept.append(len(engine._kept))
        if len(kept) == 1:
            raise torch.OutOfMemoryError("no room")
        yield from decoder(rows, size, watch, seed)

    with engine.keeping_beginnings():
        expected = engine.generate(requests, seed=1)
        monkeypatch.setattr(engine, "_decoder", full_at_first)
        assert engine.generate(requests, seed=1) == expected
    assert kept == [2, 0]


def test_tokens_to_read_are_those_of_a_tree_of_beginnings():
    examples = tuple(range(100))
    one, two = ((*examples, *range(start, start + 80)) for start in (200, 300))
    distinct = [(*one, 1, 1), (*one, 2, 2), (*two, 1, 1), (*two, 2, 2)]
    assert tokens_to_read(distinct) == 100 + 2 * 80 + 4 * 2
    assert tokens_to_read([*distinct, (*examples, 7, 7, 7)]) <= 100 + 2 * 80 + 4 * 2 + 3 + 2
    assert tokens_to_read([(1, 2, 3), (1, 2, 4)]) == 6, "a pass for two tokens would cost more than it saves"


ROPES = {
    "dynamic": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 8.0},
    "longrope": {
        "rope_type": "longrope", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 128,
        "short_factor": [1.0] * 4, "long_factor": [8.0] * 4,
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", ROPES)
def test_no_text_is_read_by_positions_that_depend_on_the_longest_of_its_batch(kind):
    # Beyond a length these embeddings change for every text of the batch, so that this length is the limit.
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    tokenizer = word_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings={"dynamic": 128, "longrope": 1024}[kind], initializer_range=0.4, pad_token_id=0,
        eos_token_id=2, bos_token_id=None, rope_parameters=ROPES[kind],
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    words = " ".join(prompts(150)).split()
    short, other, long = (" ".join(words[:size]) for size in (90, 100, 150))

    alone = torch.tensor([tokenizer(short)["input_ids"]])
    plain = model(alone).logits[0, -1].log_softmax(-1)
    padded = torch.nn.functional.pad(alone, (0, 60))
    beside_a_long_one = model(padded).logits[0, alone.shape[1] - 1].log_softmax(-1)
    assert (plain - beside_a_long_one).abs().max() > 0.01, "else there is nothing to keep away"
    model(alone)  # those of kind dynamic stay as they are until a short text comes

    engine = TransformersEngine(TransformersEngineConfig(), model, tokenizer)
    assert engine.max_context == 128
    answers = engine.generate([ask(text) for text in (short, long, other)], seed=1)
    assert [answer.finish_reason == "too_long" for answer in answers] == [False, True, False]
    for text, answer in ((short, answers[0]), (other, answers[2])):
        assert (answer.text, answer.generated_tokens) == reference(engine, text, 12)


def test_memory_that_was_never_written_is_never_read(engine):
    requests = [ask(t) for t in prompts(12)]
    expected = engine.generate(requests, seed=1)
    torch.use_deterministic_algorithms(True)  # fills fresh memory with nan
    engine._decoder._prefill_tokens, before = 40, engine._decoder._prefill_tokens
    try:
        assert engine.generate(requests, seed=1) == expected
    finally:
        torch.use_deterministic_algorithms(False)
        engine._decoder._prefill_tokens = before


def test_sampling_depends_on_seed_and_index_only(engine, model_dir):
    hot = Sampling(temperature=1.3, top_p=0.9, max_new_tokens=15)
    requests = [ask(t, hot) for t in prompts(6) for _ in range(3)]
    first = engine.generate(requests, seed=4)
    torch.manual_seed(99)
    state = torch.random.get_rng_state()
    assert engine.generate(requests, seed=4) == first
    assert torch.equal(torch.random.get_rng_state(), state)
    assert engine.generate(requests, seed=5) != first
    assert len({c.text for c in first[:3]}) > 1  # copies of one prompt are separate draws
    other = TransformersEngine(TransformersEngineConfig(model=ModelConfig(path=str(model_dir)), batch_size=18))
    assert other.generate(requests, seed=4) == first
    mixed = [replace(r, sampling=GREEDY) if i % 2 else r for i, r in enumerate(requests)]
    assert engine.generate(mixed, seed=4)[::2] == first[::2]


def test_sampled_frequencies_follow_the_model(engine):
    count = 4000
    got = engine.generate([ask("the cat", Sampling(temperature=0.7, max_new_tokens=1))] * count, seed=8)
    ids = engine.tokenizer("<user>the cat<assistant>", return_tensors="pt", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        expected = torch.softmax(engine.model(ids).logits[0, -1] / 0.7, dim=-1)
    top = int(expected.argmax())
    share = sum(c.text == engine.tokenizer.decode([top], skip_special_tokens=True) for c in got) / count
    p = float(expected[top])
    assert abs(share - p) < 4 * (p * (1 - p) / count) ** 0.5 + 1e-9


def test_stop_string_ends_text_and_counts_tokens(engine):
    checked = 0
    for text in prompts(12):
        ids = engine.tokenizer(f"<user>{text}<assistant>", add_special_tokens=False, return_tensors="pt")["input_ids"]
        new = engine.model.generate(ids, max_new_tokens=30, do_sample=False, attention_mask=torch.ones_like(ids))[0]
        grown = [
            engine.tokenizer.decode(new[ids.shape[1] : n], skip_special_tokens=True)
            for n in range(ids.shape[1] + 1, len(new) + 1)
        ]
        if len(grown[-1].split()) < 4:
            continue
        stop = grown[-1].split()[3]
        stopped = engine.generate(
            [ask(text, Sampling(temperature=0.0, max_new_tokens=30, stop=(stop, "never")))], seed=1
        )[0]
        assert stopped.text == grown[-1][: grown[-1].find(stop)]
        assert stopped.finish_reason == "stop"
        assert stopped.generated_tokens == next(n for n, part in enumerate(grown, 1) if stop in part)
        checked += 1
    assert checked >= 5


def test_too_long_is_reported_and_never_cut(engine):
    long = " ".join(["cat"] * 90)
    short, too_long = engine.generate([ask("the cat"), ask(long)], seed=1)
    assert short.finish_reason != "too_long"
    assert (too_long.text, too_long.generated_tokens, too_long.finish_reason) == ("", 0, "too_long")
    assert (short.prompt_tokens, too_long.prompt_tokens) == (4, 92) and engine.generate([], seed=1) == []
    fits = engine.generate([ask(long, Sampling(temperature=0.0, max_new_tokens=4))], seed=1)[0]
    assert fits.finish_reason in ("length", "stop")


FORM = Sampling(max_new_tokens=24, pattern=r"score: [1-5]( the| cat| dog){2,6}")


@pytest.mark.parametrize("sampling", [Sampling(max_new_tokens=24), FORM])
def test_out_of_memory_halves_the_batch(engine, monkeypatch, sampling):
    if sampling.pattern:
        pytest.importorskip("xgrammar")
    requests = [ask(t, sampling) for t in prompts(12)]
    expected = engine.generate(requests, seed=1)
    decoder = engine._decoder
    sizes = []

    def small(rows, size, watch, seed):
        sizes.append(size)
        for count, ended in enumerate(decoder(rows, size, watch, seed)):
            if count == 3 and size > 1:
                raise torch.OutOfMemoryError("no room")
            yield ended

    monkeypatch.setattr(engine, "_decoder", small)
    assert engine.generate(requests, seed=1) == expected
    assert sizes == [4, 2, 1]
