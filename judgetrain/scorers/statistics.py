"""Token statistics by one forward pass, in batches, over any causal language model.

Every statistic of a softmax is reduced in float32. :func:`reduce_logits` reads logits that a model has computed.
:func:`reduce_linear` computes them itself and never holds more than a tile of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from judgetrain.engines.config import ModelConfig, TransformersEngineConfig
from judgetrain.engines.loading import best_device, context_length, load_model, load_tokenizer
from judgetrain.errors import EngineError
from judgetrain.scorers.encode import COLUMNS, Result, Sample, Tokens, TokenStatistics, Unscored, Usage, encode_samples
from judgetrain.scorers.head import AttentionEntropies, Head, Span, eager_attention

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from transformers import Cache, PreTrainedModel, PreTrainedTokenizerBase

    from judgetrain.engines.base import Completion, Engine, Request

log = logging.getLogger(__name__)
T = TypeVar("T")

BATCH_TOKENS = {"cpu": 1024, "cuda": 32768}
"""Padded tokens of a batch; a CPU gains nothing from more, and loses to padding (512 take an eighth longer)."""
CHUNK_LOGITS = {"cpu": 1 << 25, "cuda": 1 << 28}
"""Logits that are held at once: 128 MB on a CPU, 1 GB on a GPU, in float32."""
SHARED = {"cpu": 2, "cuda": 8}
"""The fewest responses to one prompt for which the prompt is read by itself; a GPU gains more from large batches."""
SHARED_TOKENS = 32
"""The fewest tokens of a prompt that is read by itself."""
MAP_CELLS = 1 << 22
"""Cells of one head's attention maps, all rows of a batch together, in a pass with eager attention."""


class TokenScorer:
    """Computes token statistics with one causal language model, in batches of similar length.

    Args:
        model: any causal language model; hidden states are computed for a batch, logits for a tile of steps and tokens.
        tokenizer: its chat template renders prompts.
        batch_size: the most samples of a batch.
        max_context: the most tokens of prompt and response; None takes the model's own limit.

    Attributes:
        head: the model in two parts.
        usage: the tokens read and generated so far.

    Raises:
        EngineError: the model cannot be taken apart into decoder and head.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        batch_size: int = 64,
        max_context: int | None = None,
    ) -> None:
        # Evaluation mode: dropout would change every score.
        self.model = model.train(False)
        self.tokenizer = tokenizer
        self.head = Head(model)
        device_type = self.head.device.type
        self._batch_tokens = BATCH_TOKENS.get(device_type, BATCH_TOKENS["cuda"])
        self._batch_size = batch_size
        held_logits = CHUNK_LOGITS.get(device_type, CHUNK_LOGITS["cuda"])
        # A head that is not linear gives all logits of a step at once: as many steps as fit.
        self._chunk_steps = max(1, held_logits // self.head.vocabulary)
        self.max_context = context_length(model.config, max_context)
        self.usage = Usage()

    @classmethod
    def from_pretrained(cls, model: ModelConfig | str, **options: Any) -> TokenScorer:
        """Return a scorer of a directory, a Hub id, ``world`` or ``package:NAME``.

        Raises:
            EngineError: the model cannot be loaded.
        """
        if isinstance(model, str):
            model = ModelConfig(path=model)
        return cls(load_model(model, best_device()), load_tokenizer(model), **options)

    @cached_property
    def engine(self) -> Engine:
        """Return the engine that generates with the same weights."""
        from judgetrain.engines.local.transformers_engine import TransformersEngine

        config = TransformersEngineConfig(name="scorer", batch_size=self._batch_size)
        engine = TransformersEngine(config, self.model, self.tokenizer)
        # One limit for what is read and what is written.
        engine.max_context = self.max_context
        return engine

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """Return one completion a request, with the same weights; they count in ``usage``."""
        if not requests:
            # Without this, an engine would be made for nothing.
            return []
        completions = self.engine.generate(requests, seed)
        self.usage += Usage(
            prompt_tokens=sum(completion.prompt_tokens for completion in completions),
            generated_tokens=sum(completion.generated_tokens for completion in completions),
            calls=len(completions),
        )
        return completions

    def close(self) -> None:
        """Drop the model; the scorer cannot be used afterwards."""
        # Each of the three holds the weights; the engine is there only if something was generated.
        for name in ("model", "engine", "head"):
            vars(self).pop(name, None)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def encode(self, samples: Sequence[Sample]) -> list[Tokens | Unscored]:
        """Return the token ids of every sample, or the reason why it cannot be scored."""
        return encode_samples(samples, self.tokenizer, self.head.vocabulary, self.max_context)

    def statistics(self, samples: Sequence[Sample], attention: bool = False) -> list[Result]:
        """Return the statistics of every sample, or the reason why there are none.

        Args:
            samples: responses with their prompts.
            attention: compute attention entropies, too; that pass runs with eager attention, which is slower.

        Raises:
            EngineError: the model gives no attention weights, or one sample alone does not fit into memory.
        """
        return self.of_tokens(self.encode(samples), attention)

    @torch.inference_mode()
    def of_tokens(self, encoded: Sequence[Tokens | Unscored], attention: bool = False) -> list[Result]:
        """Return :meth:`statistics` of samples that are token ids already."""
        results: dict[int, Result] = {}
        tokens: dict[int, Tokens] = {}
        for place, item in enumerate(encoded):
            if isinstance(item, Unscored):
                results[place] = item
            else:
                tokens[place] = item

        if attention:
            collect = AttentionEntropies()
            with eager_attention(self.model, collect):
                results |= self.batched(tokens, lambda batch: self._run(batch, collect), with_maps=True)
        else:
            # A map of attention covers prompt and response: entropies need the prompt in every pass.
            results |= self._shared(tokens)
            remaining = {place: item for place, item in tokens.items() if place not in results}
            results |= self.batched(remaining, lambda batch: self._run(batch, None))
        return [results[place] for place in range(len(encoded))]

    def batched(
        self, tokens: Mapping[int, Tokens], run: Callable[[Sequence[Tokens]], Sequence[T]], with_maps: bool = False
    ) -> dict[int, T]:
        """Return what a forward pass makes of samples, by their places; batches become smaller where memory is short.

        Args:
            tokens: the samples by place.
            run: returns one result for each sample of a batch.
            with_maps: the pass holds attention maps.

        Raises:
            EngineError: one sample alone does not fit into memory.
        """
        results: dict[int, T] = {}
        size = self._batch_size
        while len(results) < len(tokens):
            remaining = {place: item for place, item in tokens.items() if place not in results}
            try:
                for batch in self._batches(remaining, size, with_maps):
                    batch_results = run([tokens[place] for place in batch])
                    results.update(zip(batch, batch_results, strict=True))
            except torch.OutOfMemoryError as error:
                if size == 1:
                    raise EngineError("scoring one response does not fit into memory; lower max_context") from error
                torch.cuda.empty_cache()
                log.warning("out of memory with up to %d responses at once; going on with %d", size, size // 2)
                size //= 2
        return results

    def _shared(self, tokens: Mapping[int, Tokens]) -> dict[int, Result]:
        """Return the results of responses to prompts that several have, by their places; each prompt is read once.

        Where memory is short, the remaining responses are left to :meth:`batched`.
        """
        results: dict[int, Result] = {}
        if not self.head.shares:
            return results
        fewest = SHARED.get(self.head.device.type, SHARED["cuda"])
        for prompt, places in self._by_prompt(tokens).items():
            # A pass of its own over a short prompt takes longer than reading it again in every row.
            if len(places) < fewest or len(prompt) < SHARED_TOKENS:
                continue
            try:
                results.update(self._after_prompt(prompt, {place: tokens[place] for place in places}))
            except torch.OutOfMemoryError:
                # Without the cache of a prompt in memory, the ordinary way may still fit.
                break
        return results

    def _by_prompt(self, tokens: Mapping[int, Tokens]) -> dict[tuple[int, ...], list[int]]:
        """Return the places of the responses to each prompt, the longest sample first."""
        places_of: dict[tuple[int, ...], list[int]] = {}
        # As in batches: the widest of a prompt's responses come together.
        for place in _longest_first(tokens):
            places_of.setdefault(tokens[place].prompt, []).append(place)
        return places_of

    def _after_prompt(self, prompt: tuple[int, ...], tokens: Mapping[int, Tokens]) -> Iterator[tuple[int, Result]]:
        """Yield the place and the result of each response to one prompt, in batches after a single pass over it.

        Args:
            prompt: token ids.
            tokens: the samples by place, the longest first.
        """
        self.usage += Usage(prompt_tokens=len(prompt) - 1)
        # The last prompt token predicts the response, so it stands in the rows.
        cache = self.head.prefix(torch.tensor(prompt[:-1], device=self.head.device))
        places = list(tokens)
        while places:
            width = 1 + len(tokens[places[0]].response)
            size = max(1, min(self._batch_tokens // width, self._batch_size))
            batch = places[:size]
            places = places[size:]
            yield from zip(batch, self._run([tokens[place] for place in batch], None, cache), strict=True)

    def _batches(self, tokens: Mapping[int, Tokens], size: int, with_maps: bool) -> Iterator[list[int]]:
        """Yield places in batches of similar length, the longest first: a sample that is too long fails early.

        Args:
            tokens: the samples by place.
            size: the most samples of a batch.
            with_maps: attention maps are held, whose size grows with the square of the length.
        """
        places = _longest_first(tokens)
        while places:
            width = len(tokens[places[0]])
            fitting = min(size, self._batch_tokens // width)
            if with_maps:
                fitting = min(fitting, MAP_CELLS // width**2)
            fitting = max(1, fitting)
            yield places[:fitting]
            places = places[fitting:]

    def _run(
        self, batch: Sequence[Tokens], collect: AttentionEntropies | None, cache: Cache | None = None
    ) -> list[Result]:
        """Return the results of one forward pass.

        Args:
            batch: the samples.
            collect: collects attention entropies, if set.
            cache: of the prompt of all samples but for its last token; None reads prompts from the beginning.
        """
        rows = batch
        if cache is not None:
            rows = [Tokens(tokens.prompt[-1:], tokens.response) for tokens in batch]
        self.usage += Usage(prompt_tokens=sum(map(len, rows)), calls=len(rows))
        ids, mask, spans = self.padded(rows)
        if collect is not None:
            collect.spans = spans
        if cache is None:
            hidden = self.head.hidden(ids, mask)
        else:
            hidden = self.head.following(cache, ids, mask)
        attention: Sequence[Any] = [None] * len(batch)
        if collect is not None:
            attention = collect.take()

        # The state of a step predicts the token of the next one.
        states = torch.cat([row[response - 1 : end - 1] for row, (response, end) in zip(hidden, spans, strict=True)])
        responses = chain.from_iterable(tokens.response for tokens in batch)
        targets = torch.tensor(list(responses), device=self.head.device)
        # Of padded rows this may be more than the logits of a tile.
        del hidden
        table = self._reduced(states, targets)
        ends = np.cumsum([len(tokens.response) for tokens in batch])
        tables = np.split(table, ends[:-1])

        # Cut apart again: the states of all samples were one table for the product with the head's weights.
        return [_result(*parts) for parts in zip(batch, tables, attention, strict=True)]

    def padded(self, rows: Sequence[Tokens]) -> tuple[torch.Tensor, torch.Tensor, list[Span]]:
        """Return token ids and mask [rows, width], padded on the right, and the columns of each row's response."""
        width = max(map(len, rows))
        # The mask hides padding, so that any token will do.
        padding = int(self.tokenizer.pad_token_id or 0)
        ids = torch.full((len(rows), width), padding, dtype=torch.long)
        mask = torch.zeros_like(ids)
        spans: list[Span] = []
        for row, tokens in enumerate(rows):
            ids[row, : len(tokens)] = torch.tensor(tokens.prompt + tokens.response)
            mask[row, : len(tokens)] = 1
            spans.append((len(tokens.prompt), len(tokens)))
        return ids.to(self.head.device), mask.to(self.head.device), spans

    def _reduced(self, states: torch.Tensor, targets: torch.Tensor) -> NDArray[np.float32]:
        """Return the statistics of all steps [steps, columns].

        The logits of a linear head are computed in tiles, those of any other in chunks of steps.

        Args:
            states: hidden states [steps, size].
            targets: the token id that each step predicts [steps].
        """
        if self.head.linear is not None:
            weight, bias = self.head.linear
            table = reduce_linear(states, weight, bias, targets)
        else:
            # A soft cap or a scale is in the model's own code, which gives whole steps.
            tables = []
            for start in range(0, len(states), self._chunk_steps):
                chunk = slice(start, start + self._chunk_steps)
                tables.append(reduce_logits(self.head.logits(states[chunk]), targets[chunk]))
            table = torch.cat(tables)
        result: NDArray[np.float32] = table.cpu().numpy()
        return result


def _longest_first(tokens: Mapping[int, Tokens]) -> list[int]:
    """Return the places of samples, the longest first; equal ones stay in their order."""
    return sorted(tokens, key=lambda place: (-len(tokens[place]), place))


def _result(tokens: Tokens, table: NDArray[np.float32], attention: Any) -> Result:
    """Return the statistics of one sample, or ``non_finite``.

    Args:
        tokens: the sample.
        table: its statistics [steps, columns].
        attention: its attention entropies [heads] by layer, or None.
    """
    # One token without a number would spoil every mean over the response.
    if not np.isfinite(table).all():
        return Unscored("non_finite")
    steps = {name: table[:, column] for column, name in enumerate(COLUMNS)}
    return TokenStatistics(len(tokens.prompt), steps, attention)


TILE = {"cpu": (256, 1 << 17), "cuda": (4096, 1 << 27)}
"""The most steps of a tile, and its logits: a CPU's second-level cache holds two such tiles."""


def reduce_logits(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the statistics of :data:`COLUMNS` for each step, float32 [steps, columns].

    A step whose logits hold NaN or positive infinity gives NaN. Negative infinity (a token ruled out) counts nothing.

    Args:
        logits: [steps, vocabulary], any floating type; reduced in float32, without a copy of all of them.
        targets: [steps], the token ids whose log-probability is computed.
    """

    def fill(rows: slice, part: slice, out: torch.Tensor) -> None:
        out.copy_(logits[rows, part])

    def of_targets(rows: slice) -> torch.Tensor:
        return logits[rows].gather(1, targets[rows, None])

    return _in_tiles(fill, of_targets, targets, logits.shape[1])


def reduce_linear(
    states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor
) -> torch.Tensor:
    """Return :func:`reduce_logits` of ``states @ weight.T + bias`` without ever holding them, float32 [steps, columns].

    Args:
        states: [steps, size], of the weight's type.
        weight: [vocabulary, size]; its products are in its own type and reduced in float32.
        bias: [vocabulary] or None.
        targets: [steps], the token ids whose log-probability is computed.
    """

    def fill(rows: slice, part: slice, out: torch.Tensor) -> None:
        if weight.dtype == torch.float32:
            torch.mm(states[rows], weight[part].T, out=out)
        else:
            # The buffer is float32, and a product cannot be written into another type.
            out.copy_(torch.mm(states[rows], weight[part].T))
        if bias is not None:
            out += bias[part]

    def of_targets(rows: slice) -> torch.Tensor:
        # As one product of matrices, like the slices', so that a token's logit is the same number in both.
        ids = targets[rows]
        bias_of_targets = None
        if bias is not None:
            bias_of_targets = bias[ids]
        return torch.nn.functional.linear(states[rows], weight[ids], bias_of_targets).diagonal()

    return _in_tiles(fill, of_targets, targets, len(weight))


def _in_tiles(
    fill: Callable[[slice, slice, torch.Tensor], None],
    of_targets: Callable[[slice], torch.Tensor],
    targets: torch.Tensor,
    vocabulary: int,
) -> torch.Tensor:
    """Return the statistics of logits that are computed tile by tile [steps, columns].

    Args:
        fill: writes the logits of a slice of steps and a slice of the vocabulary into a buffer.
        of_targets: returns the targets' logits of a slice of steps.
        targets: token ids [steps].
        vocabulary: the number of logits of a step.
    """
    most_steps, cells = TILE.get(targets.device.type, TILE["cuda"])
    tables = [torch.empty((0, len(COLUMNS)), device=targets.device)]
    for start in range(0, len(targets), most_steps):
        rows = slice(start, start + most_steps)
        # By itself: the target may lie in any slice of the vocabulary, and slices are overwritten.
        target_logits = of_targets(rows).reshape(-1, 1).float()
        tables.append(_reduce_rows(fill, rows, target_logits, vocabulary, cells))
    return torch.cat(tables)


def _reduce_rows(
    fill: Callable[[slice, slice, torch.Tensor], None],
    rows: slice,
    target_logits: torch.Tensor,
    vocabulary: int,
    cells: int,
) -> torch.Tensor:
    """Return the statistics of a slice of steps [steps, columns].

    The vocabulary is read in slices, whose sums are kept relative to the largest logit so far (as online softmax does:
    Milakov and Gimelshein 2018, arXiv:1805.02867). A slice's logits are read while they are in a processor's cache.

    Args:
        fill: writes the logits of a slice of steps and a slice of the vocabulary into a buffer.
        rows: the slice of steps.
        target_logits: the logits of the targets [steps, 1].
        vocabulary: the number of logits of a step.
        cells: the most logits of a tile.
    """
    steps = len(target_logits)
    # Finite: a slice may hold nothing but negative infinity, which minus itself would be NaN.
    largest = torch.full_like(target_logits, torch.finfo(torch.float32).min)
    total = torch.zeros_like(target_logits)
    products = torch.zeros_like(target_logits)
    width = min(vocabulary, max(1, cells // steps))
    # Allocated once: two buffers serve all slices.
    logits_buffer, weights_buffer = torch.empty((2, steps * width), device=target_logits.device)
    for column in range(0, vocabulary, width):
        part = slice(column, min(column + width, vocabulary))
        count = part.stop - column
        logits = logits_buffer[: steps * count].view(-1, count)
        fill(rows, part, logits)
        larger = torch.maximum(largest, logits.amax(dim=-1, keepdim=True))
        shifted = logits.sub_(larger)
        weights = torch.exp(shifted, out=weights_buffer[: steps * count].view(-1, count))
        slice_products = torch.linalg.vecdot(weights, shifted)[:, None]
        if torch.isnan(slice_products).any():
            # 0 times negative infinity is NaN, and counts as 0 in an entropy.
            finite = torch.where(weights > 0, shifted, 0.0)
            slice_products = torch.linalg.vecdot(weights, finite)[:, None]

        # Earlier sums are relative to an earlier largest logit; they move to the new one.
        change = largest - larger
        scale = change.exp()
        products = scale * (products + change * total) + slice_products
        total = scale * total + weights.sum(dim=-1, keepdim=True)
        largest = larger
    log_total = total.log()
    logprob = target_logits - (largest + log_total)
    # With x relative to the largest logit and Z the sum of exp(x): H = log Z - sum(x exp(x)) / Z.
    entropy = log_total - products / total
    return torch.cat((logprob, entropy), dim=1)
