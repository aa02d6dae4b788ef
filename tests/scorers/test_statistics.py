"""Token statistics against full logits and NumPy, whatever the lengths, padding, batches and chunks."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.errors import EngineError
from judgetrain.scorers import statistics
from judgetrain.scorers.encode import COLUMNS, Sample, Tokens, TokenStatistics, Unscored
from judgetrain.scorers.statistics import TokenScorer, reduce_linear, reduce_logits
from tests.builders import scorers as plain
from tests.builders.engines import tiny_llama, word_tokenizer

TOKENIZER = word_tokenizer()
SIZE = len(TOKENIZER)
MODEL = tiny_llama(SIZE)
ids = st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=12).map(tuple)
batches = st.lists(st.builds(Tokens, ids, ids), min_size=1, max_size=6)


def scorer(model: Any = MODEL, *, batch_tokens: int = 512, chunk: int = 1 << 20, **options: Any) -> TokenScorer:
    """Return a scorer that reads ``batch_tokens`` padded tokens a pass, and holds the logits of ``chunk`` steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(statistics.BATCH_TOKENS, "cpu", batch_tokens)
        patch.setitem(statistics.CHUNK_LOGITS, "cpu", chunk * SIZE)
        return TokenScorer(model, TOKENIZER, **options)


def check(statistics: Any, expected: dict[str, np.ndarray], tolerance: float = 1e-5) -> None:
    assert isinstance(statistics, TokenStatistics)
    for name in COLUMNS:
        np.testing.assert_allclose(statistics.steps[name], expected[name], rtol=tolerance, atol=tolerance, err_msg=name)


@settings(max_examples=40, deadline=None)
@given(batches, st.integers(1, 4), st.integers(1, 30), st.integers(1, 60))
def test_every_statistic_equals_the_plain_way(
    batch: list[Tokens], batch_size: int, chunk: int, batch_tokens: int
) -> None:
    tested = scorer(batch_size=batch_size, chunk=chunk, batch_tokens=batch_tokens)
    for tokens, statistics_row in zip(batch, tested.of_tokens(batch), strict=True):
        check(statistics_row, plain.statistics(MODEL, tokens))
        assert isinstance(statistics_row, TokenStatistics)
        assert statistics_row.prompt_tokens == len(tokens.prompt)
        assert len(statistics_row["logprob"]) == len(statistics_row["entropy"]) == len(tokens.response)
        expected = plain.statistics(MODEL, tokens)["logprob"].mean()
        assert statistics_row.mean_logprob == pytest.approx(expected, abs=1e-5)


@settings(max_examples=15, deadline=None)
@given(batches, st.integers(1, 4))
def test_attention_entropies_equal_a_loop_over_token_pairs(batch: list[Tokens], size: int) -> None:
    eager = tiny_llama(SIZE, attn_implementation="eager")
    statistics_rows = scorer(batch_size=size).of_tokens(batch, attention=True)
    for tokens, statistics_row in zip(batch, statistics_rows, strict=True):
        assert isinstance(statistics_row, TokenStatistics) and statistics_row.attention_entropy is not None
        np.testing.assert_allclose(
            np.stack(statistics_row.attention_entropy), plain.attention_entropies(eager, tokens), atol=1e-5
        )
        check(statistics_row, plain.statistics(MODEL, tokens))


def tiled(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the same by reduce_linear: states that choose rows of a weight that holds the logits."""
    return reduce_linear(torch.eye(len(logits)), logits.T.contiguous(), None, targets)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 5),
    st.integers(2, 400),
    st.sampled_from([0.01, 1.0, 30.0]),
    st.integers(2, 700),
)
@pytest.mark.parametrize("reduce", [reduce_logits, tiled])
def test_reduction_of_any_logits(reduce: Any, seed: int, steps: int, size: int, scale: float, tile: int) -> None:
    rng = np.random.default_rng(seed)
    logits = (rng.normal(size=(steps, size)) * scale + rng.normal() * scale).astype(np.float32)
    targets = rng.integers(size, size=steps).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(statistics.TILE, "cpu", (3, tile))
        reduced = reduce(torch.from_numpy(logits), torch.tensor(targets)).numpy()
    expected = plain.columns(logits.astype(np.float64), targets)
    for column, name in enumerate(COLUMNS):
        np.testing.assert_allclose(reduced[:, column], expected[name], rtol=2e-5, atol=1e-5, err_msg=name)


def by_bias(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the statistics of one step whose logits are all bias, by reduce_linear, a token at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(statistics.TILE, "cpu", (1, 1))
        return reduce_linear(torch.zeros(1, 2), torch.ones(logits.shape[1], 2), logits[0], targets)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1, 2, 0]])
@pytest.mark.parametrize("reduce", [reduce_logits, by_bias])
def test_a_token_that_the_model_rules_out_counts_nothing_in_the_entropy(reduce: Any, order: list[int]) -> None:
    logits = torch.tensor([1.0, 2.0, -torch.inf])[order][None]
    value_of = dict(zip(COLUMNS, reduce(logits, torch.tensor([order.index(1)]))[0].tolist(), strict=True))
    p = np.exp([1.0, 2.0]) / np.exp([1.0, 2.0]).sum()
    assert value_of["entropy"] == pytest.approx(-(p * np.log(p)).sum(), abs=1e-6)
    assert value_of["logprob"] == pytest.approx(np.log(p[1]), abs=1e-6)


SIZES = dict(vocab_size=SIZE, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
COMMON = SIZES | dict(intermediate_size=48, num_key_value_heads=2, pad_token_id=0, max_position_embeddings=96)
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "gemma2": COMMON | dict(initializer_range=0.4, head_dim=8, final_logit_softcapping=3.0, sliding_window=4),
    "cohere": COMMON | dict(initializer_range=0.4, logit_scale=0.3),
    "mixtral": COMMON | dict(initializer_range=0.4, num_local_experts=2),
    "gpt2": dict(vocab_size=SIZE, n_embd=32, n_layer=2, n_head=4, initializer_range=0.4),
    "opt": SIZES | dict(ffn_dim=48),
    "bloom": dict(vocab_size=SIZE, hidden_size=32, n_layer=2, n_head=4),
    "gemma3_text": COMMON
    | dict(initializer_range=0.4, head_dim=8, sliding_window=4)
    | dict(num_hidden_layers=4, layer_types=["sliding_attention", "full_attention"] * 2),
}


def made(kind: str) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(3)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **ARCHITECTURES[kind])).eval()


def test_the_model_is_eager_for_that_pass_only() -> None:
    model = tiny_llama(SIZE, attn_implementation="sdpa")
    scorer(model).of_tokens([Tokens((5, 6), (7, 8))], attention=True)
    assert model.config._attn_implementation == "sdpa"
    assert not any(module._forward_hooks for module in model.modules())


def test_a_token_without_a_logit_is_outside_the_vocabulary() -> None:
    chat = ({"role": "user", "content": "the cat"},)
    results = TokenScorer(tiny_llama(SIZE - 2), TOKENIZER).statistics([Sample(chat, " 9"), Sample(chat, " the")])
    assert results[0] == Unscored("outside_vocabulary") and isinstance(results[1], TokenStatistics)


def test_what_cannot_be_scored_is_named_and_the_rest_is_scored() -> None:
    user = ({"role": "user", "content": "list a cat"},)
    template = "{% if messages[0].content == 'no' %}{{ raise_exception('no') }}{% endif %}{{ messages[0].content }} "
    tokenizer = word_tokenizer(template)
    tested = TokenScorer(MODEL, tokenizer, max_context=20)
    good = Sample(user, " the dog sat")
    samples = [
        Sample(user, ""),
        Sample(user, " \n "),
        good,
        Sample(user, " the dog" * 10),
        Sample(({"role": "user", "content": "no"},), " dog"),
        Sample((), " dog"),
    ]
    results = tested.statistics(samples)
    reasons = [result.reason if isinstance(result, Unscored) else "scored" for result in results]
    assert reasons == [*["empty_response"] * 2, "scored", "too_long", "refused_prompt", "empty_prompt"]
    assert results[2].mean_logprob == pytest.approx(tested.statistics([good])[0].mean_logprob, abs=1e-6)  # type: ignore[union-attr]


def test_nan_logits_are_no_score_for_that_row_alone() -> None:
    model = tiny_llama(SIZE)
    with torch.no_grad():
        model.model.embed_tokens.weight[9] = torch.nan
    results = scorer(model).of_tokens([Tokens((5, 9), (7, 8)), Tokens((5, 6), (7, 8))])
    assert results[0] == Unscored("non_finite")
    assert isinstance(results[1], TokenStatistics)


def test_the_boundary_is_where_the_prompt_tokens_end() -> None:
    tested = scorer()
    chat = ({"role": "user", "content": "the cat"},)
    (tokens,) = tested.encode([Sample(chat, "sat on <end> mat")])
    assert isinstance(tokens, Tokens)
    rendered = TOKENIZER.apply_chat_template(list(chat), tokenize=False, add_generation_prompt=True)
    assert tokens.prompt == tuple(TOKENIZER(rendered, add_special_tokens=False)["input_ids"])
    assert TOKENIZER.eos_token_id not in tokens.response, "a special token's literal in a response stays text"
    assert TOKENIZER.convert_ids_to_tokens(tokens.response[:2]) == ["sat", " on"]


def test_logits_of_a_capped_head_are_never_held_for_more_steps_than_a_chunk() -> None:
    sizes: list[int] = []
    model = made("gemma2")
    model.lm_head.register_forward_hook(lambda module, arguments, output: sizes.append(output.shape[-2]))
    tested = scorer(model, chunk=7)
    assert tested.head.linear is None
    sizes.clear()
    tested.of_tokens([Tokens((5,) * 30, (6,) * 20)] * 3)
    assert sizes == [*[7] * 8, 4], "three responses of 20 tokens"
    assert "forward" not in vars(model.model)


def test_logits_of_a_linear_head_are_never_held_beyond_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        cells = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor) and not func.is_view:
                self.cells = max(self.cells, result.numel())
            return result

    rng = np.random.default_rng(0)
    weight = torch.randn(5000, 8)
    states = torch.randn(90, 8)
    targets = torch.from_numpy(rng.integers(5000, size=90))
    monkeypatch.setitem(statistics.TILE, "cpu", (30, 1200))
    with Largest() as seen:
        reduced = reduce_linear(states, weight, None, targets)
    assert seen.cells <= 2 * 1200, "the two buffers of a tile"
    np.testing.assert_allclose(reduced, reduce_logits(states @ weight.T, targets), rtol=1e-5, atol=1e-5)


def test_a_model_without_a_decoder_of_its_own_is_refused() -> None:
    with pytest.raises(EngineError, match="LlamaModel cannot be scored"):
        TokenScorer(MODEL.model, TOKENIZER)


def test_a_model_without_attention_says_so_and_reads_every_prompt() -> None:
    from transformers import MambaConfig, MambaForCausalLM

    torch.manual_seed(1)
    mamba = MambaForCausalLM(MambaConfig(vocab_size=SIZE, hidden_size=16, state_size=4, num_hidden_layers=1))
    tested = scorer(mamba, batch_size=1)
    batch = [Tokens((5, 6) * 20, (8, 9)), Tokens((5, 6) * 20, (7,))]
    assert not tested.head.shares, "it cannot go on from a cache"
    for tokens, statistics_row in zip(batch, tested.of_tokens(batch), strict=True):
        check(statistics_row, plain.statistics(mamba, tokens))
    assert tested.usage.prompt_tokens == 42 + 41
    with pytest.raises(EngineError, match="leave out attnent"):
        tested.of_tokens(batch, attention=True)


@pytest.mark.parametrize("kind", ["", *ARCHITECTURES])
def test_a_prompt_of_several_responses_is_read_once_and_changes_nothing(kind: str) -> None:
    model = made(kind) if kind else MODEL
    rng = np.random.default_rng(5)
    prompts = [tuple(rng.integers(3, SIZE, size=n).tolist()) for n in (40, 35, 33)]
    answers = [(0, 7), (1, 3), (0, 1), (0, 12), (2, 4), (1, 9)]
    batch = [Tokens(prompts[p], tuple(rng.integers(3, SIZE, size=n).tolist())) for p, n in answers]
    tested = scorer(model, batch_tokens=20, chunk=3)
    assert tested.head.shares
    assert (tested.head.linear is not None) == (kind not in ("gemma2", "cohere")), "other heads are not read in tiles"
    for tokens, statistics_row in zip(batch, tested.of_tokens(batch), strict=True):
        check(statistics_row, plain.statistics(model, tokens), 2e-5)
        assert isinstance(statistics_row, TokenStatistics) and statistics_row.prompt_tokens == len(tokens.prompt)
    read = 40 + 35 + 33 + sum(n for _, n in answers) + (3 - 1) + (2 - 1)  # a prompt's last token with every response
    assert (tested.usage.prompt_tokens, tested.usage.calls) == (read, len(batch))
    every = tested.of_tokens(batch, attention=True)
    for one, other in zip(every, tested.of_tokens(batch), strict=True):
        check(one, other.steps, 1e-4)  # type: ignore[union-attr]
        assert {len(layer) for layer in one.attention_entropy or ()} == {4}  # type: ignore[union-attr]


def test_memory_that_ends_with_a_shared_prompt_is_tried_the_ordinary_way(monkeypatch: pytest.MonkeyPatch) -> None:
    tested = scorer()
    batch = [Tokens((5, 6) * 20, (8, 9)), Tokens((5, 6) * 20, (7,))]

    def full(*arguments: Any) -> Any:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(tested.head, "following", full)
    for tokens, statistics_row in zip(batch, tested.of_tokens(batch), strict=True):
        check(statistics_row, plain.statistics(MODEL, tokens))
