"""Computes token statistics: one forward pass, in batches, over any causal language model.

Every statistic of a softmax that a scorer needs is reduced in float32: :func:`reduce_logits` reads logits that are
there, :func:`reduce_linear` never has more than a tile of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any

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

BATCH_TOKENS = {"cpu": 1024, "cuda": 32768}
"""Padded tokens at once; a CPU gains nothing from more, and loses to padding (512 take an eighth longer)."""
CHUNK_LOGITS = {"cpu": 1 << 25, "cuda": 1 << 28}
"""Logits held at once: 128 MB on a CPU, 1 GB on a GPU, in float32."""
SHARED = {"cpu": 2, "cuda": 8}
"""Fewest responses to one prompt that are worth a pass of their own after it; a GPU gains more from large batches."""
SHARED_TOKENS = 32
"""Fewest tokens of such a prompt."""
MAP_CELLS = 1 << 22
"""Cells of one head's attention maps, all rows of a batch together, in a pass with eager attention."""


class TokenScorer:
    """Computes token statistics with one causal language model, in batches of similar length.

    Args:
        model: in evaluation mode; hidden states are computed for a batch, logits for a tile of steps and tokens.
        tokenizer: its chat template renders prompts.
        batch_size: most samples of a batch.
        max_context: longest prompt plus response; None takes the model's own limit.

    ``usage`` adds up what has been read and generated.

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
        self.model, self.tokenizer = model.train(False), tokenizer
        self.head = Head(model)
        kind = self.head.device.type
        self._batch_tokens = BATCH_TOKENS.get(kind, BATCH_TOKENS["cuda"])
        self._batch_size = batch_size
        self._chunk = max(1, CHUNK_LOGITS.get(kind, CHUNK_LOGITS["cuda"]) // self.head.vocabulary)
        self.max_context = context_length(model.config, max_context)
        self.usage = Usage()

    @classmethod
    def from_pretrained(cls, model: ModelConfig | str, **options: Any) -> TokenScorer:
        """A scorer of a directory, a Hub id, ``world`` or ``package:NAME`` (EngineError: it cannot be loaded)."""
        config = ModelConfig(path=model) if isinstance(model, str) else model
        return cls(load_model(config, best_device()), load_tokenizer(config), **options)

    @cached_property
    def engine(self) -> Engine:
        """Generates with the same weights."""
        from judgetrain.engines.local.transformers_engine import TransformersEngine

        config = TransformersEngineConfig(name="scorer", batch_size=self._batch_size)
        engine = TransformersEngine(config, self.model, self.tokenizer)
        engine.max_context = self.max_context
        return engine

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """One completion per request, with the same weights; counted in ``usage``."""
        done = self.engine.generate(requests, seed) if requests else []
        self.usage += Usage(sum(c.prompt_tokens for c in done), sum(c.generated_tokens for c in done), len(done))
        return done

    def close(self) -> None:
        """Drop the model; the scorer cannot be used afterwards."""
        for name in ("model", "engine", "head"):
            vars(self).pop(name, None)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def encode(self, samples: Sequence[Sample]) -> list[Tokens | Unscored]:
        """Token ids of every sample, or why it cannot be scored."""
        return encode_samples(samples, self.tokenizer, self.head.vocabulary, self.max_context)

    def statistics(self, samples: Sequence[Sample], attention: bool = False) -> list[Result]:
        """Statistics of every sample, in order; an :class:`Unscored` with its reason where there are none (EngineError:
        attention weights cannot be had, or one sample alone does not fit into memory).

        ``attention`` asks for attention entropies too: that pass runs with eager attention.
        """
        return self.of_tokens(self.encode(samples), attention)

    @torch.inference_mode()
    def of_tokens(self, encoded: Sequence[Tokens | Unscored], attention: bool = False) -> list[Result]:
        """:meth:`statistics` of samples that are token ids already."""
        results: dict[int, Result] = {i: e for i, e in enumerate(encoded) if isinstance(e, Unscored)}
        tokens = {i: e for i, e in enumerate(encoded) if isinstance(e, Tokens)}
        collect = AttentionEntropies() if attention else None
        size = self._batch_size
        if not attention:
            results.update(self._shared(tokens, size))
        with eager_attention(self.model, collect) if collect else nullcontext():
            while left := {i: t for i, t in tokens.items() if i not in results}:
                try:
                    for batch in self._batches(left, size, attention):
                        results.update(zip(batch, self._run([tokens[i] for i in batch], collect), strict=True))
                except torch.OutOfMemoryError as error:
                    if size == 1:
                        told = "scoring one response does not fit into memory; lower max_context"
                        raise EngineError(told) from error
                    torch.cuda.empty_cache()
                    log.warning("out of memory with up to %d responses at once; going on with %d", size, size // 2)
                    size //= 2
        return [results[i] for i in range(len(encoded))]

    def _shared(self, tokens: Mapping[int, Tokens], size: int) -> dict[int, Result]:
        """Results of responses to prompts that several have, each prompt read once; what memory allows of them."""
        kind, groups = self.head.device.type, dict[tuple[int, ...], list[int]]()
        for i, each in sorted(tokens.items(), key=lambda item: (-len(item[1]), item[0])):
            groups.setdefault(each.prompt, []).append(i)
        results: dict[int, Result] = {}
        for prompt, members in groups.items() if self.head.shares else ():
            if len(members) < SHARED.get(kind, SHARED["cuda"]) or len(prompt) < SHARED_TOKENS:
                continue
            try:
                self.usage += Usage(len(prompt) - 1)
                cache = self.head.prefix(torch.tensor(prompt[:-1], device=self.head.device))
                while left := [i for i in members if i not in results]:
                    width = 1 + len(tokens[left[0]].response)
                    batch = left[: max(1, min(self._batch_tokens // width, size))]
                    results.update(zip(batch, self._run([tokens[i] for i in batch], None, cache), strict=True))
            except torch.OutOfMemoryError:
                break
        return results

    def _batches(self, tokens: Mapping[int, Tokens], size: int, attention: bool) -> Iterator[list[int]]:
        """Indices in batches of similar length, the longest first: what does not fit fails early."""
        order = sorted(tokens, key=lambda i: (-len(tokens[i]), i))
        while order:
            width = len(tokens[order[0]])
            fit = min(self._batch_tokens // width, MAP_CELLS // width**2 if attention else size, size)
            yield order[: max(1, fit)]
            order = order[max(1, fit) :]

    def _run(
        self, batch: Sequence[Tokens], collect: AttentionEntropies | None, cache: Cache | None = None
    ) -> list[Result]:
        """One forward pass; after ``cache``, which holds their prompt but for its last token, or from the beginning."""
        device, rows = self.head.device, batch
        if cache is not None:
            rows = [Tokens(each.prompt[-1:], each.response) for each in batch]
        width = max(map(len, rows))
        self.usage += Usage(sum(map(len, rows)), 0, len(rows))
        ids = torch.full((len(rows), width), int(self.tokenizer.pad_token_id or 0), dtype=torch.long)
        mask = torch.zeros_like(ids)
        spans: list[Span] = []
        for row, each in enumerate(rows):
            ids[row, : len(each)] = torch.tensor(each.prompt + each.response)
            mask[row, : len(each)] = 1
            spans.append((len(each.prompt), len(each)))
        if collect:
            collect.spans = spans
        ids, mask = ids.to(device), mask.to(device)
        hidden = self.head.hidden(ids, mask) if cache is None else self.head.following(cache, ids, mask)
        attention = collect.take() if collect else [None] * len(batch)
        states = torch.cat([hidden[row, response - 1 : end - 1] for row, (response, end) in enumerate(spans)])
        targets = torch.tensor([token for each in batch for token in each.response], device=device)
        del hidden
        table = self._reduced(states, targets)
        parts = np.split(table, np.cumsum([len(each.response) for each in batch])[:-1])
        return [_result(e, p, a) for e, p, a in zip(batch, parts, attention, strict=True)]

    def _reduced(self, states: torch.Tensor, targets: torch.Tensor) -> NDArray[np.float32]:
        """The statistics of all steps ``[steps, columns]``, their logits in tiles or in chunks of steps."""
        if self.head.linear:
            table = reduce_linear(states, *self.head.linear, targets)
        else:
            chunks = [slice(start, start + self._chunk) for start in range(0, len(states), self._chunk)]
            table = torch.cat([reduce_logits(self.head.logits(states[chunk]), targets[chunk]) for chunk in chunks])
        result: NDArray[np.float32] = table.cpu().numpy()
        return result


def _result(tokens: Tokens, table: NDArray[np.float32], attention: Any) -> Result:
    if not np.isfinite(table).all():
        return Unscored("non_finite")
    steps = {name: table[:, column] for column, name in enumerate(COLUMNS)}
    return TokenStatistics(len(tokens.prompt), steps, attention)


TILE = {"cpu": (256, 1 << 17), "cuda": (4096, 1 << 27)}
"""Most steps of a tile, and its logits: a CPU's second-level cache holds two such tiles."""


def reduce_logits(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The statistics of :data:`COLUMNS` for each step, float32 ``[steps, columns]``.

    Args:
        logits: ``[steps, vocabulary]``, any floating type; reduced in float32, without a copy of all of them.
        targets: ``[steps]``, the token ids whose log-probability is wanted.

    A step whose logits hold NaN or positive infinity gives NaN. Negative infinity (a token ruled out) counts nothing.
    """

    def fill(rows: slice, part: slice, out: torch.Tensor) -> None:
        out.copy_(logits[rows, part])

    return _in_tiles(fill, lambda rows: logits[rows].gather(1, targets[rows, None]), targets, logits.shape[1])


def reduce_linear(
    states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor
) -> torch.Tensor:
    """:func:`reduce_logits` of ``states @ weight.T + bias``, without ever holding them, float32 ``[steps, columns]``.

    Args:
        states: ``[steps, size]``, of the weight's type.
        weight: ``[vocabulary, size]``; its products are in its own type and reduced in float32.
        bias: ``[vocabulary]`` or None.
        targets: ``[steps]``, token ids.
    """

    def fill(rows: slice, part: slice, out: torch.Tensor) -> None:
        if weight.dtype == torch.float32:
            torch.mm(states[rows], weight[part].T, out=out)
        else:
            out.copy_(torch.mm(states[rows], weight[part].T))
        if bias is not None:
            out += bias[part]

    def chosen(rows: slice) -> torch.Tensor:
        # As one product of matrices, like the slices', so that a token's logit is the same number in both.
        own = targets[rows]
        return torch.nn.functional.linear(states[rows], weight[own], None if bias is None else bias[own]).diagonal()

    return _in_tiles(fill, chosen, targets, len(weight))


def _in_tiles(
    fill: Callable[[slice, slice, torch.Tensor], None],
    chosen: Callable[[slice], torch.Tensor],
    targets: torch.Tensor,
    vocabulary: int,
) -> torch.Tensor:
    """The statistics of logits that ``fill`` writes, for a slice of steps and one of the vocabulary, into a buffer.

    The vocabulary is read in slices, whose sums are kept relative to the largest logit so far (as online softmax
    does); a slice's logits are read while they are in a processor's cache. ``chosen`` gives the targets' logits.
    """
    most, cells = TILE.get(targets.device.type, TILE["cuda"])
    parts = [torch.empty((0, len(COLUMNS)), device=targets.device)]
    for start in range(0, len(targets), most):
        rows = slice(start, start + most)
        own = chosen(rows).reshape(-1, 1).float()
        best = torch.full_like(own, torch.finfo(torch.float32).min)  # finite: a slice may hold nothing but -inf
        total = products = torch.zeros_like(own)
        width = min(vocabulary, max(1, cells // len(own)))
        buffers = torch.empty((2, len(own) * width), device=targets.device)
        for column in range(0, vocabulary, width):
            part = slice(column, min(column + width, vocabulary))
            count = part.stop - column
            logits, scratch = (buffer[: len(own) * count].view(-1, count) for buffer in buffers)
            fill(rows, part, logits)
            larger = torch.maximum(best, logits.amax(dim=-1, keepdim=True))
            shifted = logits.sub_(larger)
            weights = torch.exp(shifted, out=scratch)
            read = torch.linalg.vecdot(weights, shifted)[:, None]
            if torch.isnan(read).any():  # 0 times minus infinity counts as 0
                read = torch.linalg.vecdot(weights, torch.where(weights > 0, shifted, 0.0))[:, None]
            step = best - larger
            scale = step.exp()
            products = scale * (products + step * total) + read
            total = scale * total + weights.sum(dim=-1, keepdim=True)
            best = larger
        log_total = total.log()
        parts.append(torch.cat((own - (best + log_total), log_total - products / total), dim=1))
    return torch.cat(parts)
