"""Decode one batch: each distinct prompt is read once, and rows leave the batch when they end."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from transformers.cache_utils import DynamicCache

from judgetrain.engines.batch_state import BatchMask, BatchState, Row, Watch
from judgetrain.engines.row_cache import RowCache, can_use_rows

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DROP_SHARE = 0.15
"""Closed rows are dropped once they are this share of the batch: dropping moves memory, keeping wastes work."""


class BatchDecoder:
    """Generates token ids for a batch of rows with one model.

    ``prefill_tokens`` bounds how many prompt tokens, padding included, go through the model at once.
    """

    def __init__(self, model: PreTrainedModel, pad: int, prefill_tokens: int) -> None:
        self._model = model
        self._pad = pad
        self._prefill_tokens = prefill_tokens
        self.device = model.device
        accepted = inspect.signature(model.forward).parameters
        self._takes_positions = "position_ids" in accepted
        self._keeps_logits = "logits_to_keep" in accepted
        # A ready additive mask saves making one per step and layer; GPU kernels do better with their own.
        self._own_mask = self.device.type == "cpu" and model.config._attn_implementation in ("sdpa", "eager")

    @torch.inference_mode()
    def __call__(self, rows: Sequence[Row], watch: Watch, seed: int) -> list[list[int]]:
        """Generated ids of each row, the end token included."""
        state = BatchState(rows, self.device, seed)
        logits, cache, mask = self._prefill(rows, state.longest)
        while True:
            tokens = state.draw(logits)
            state.append(tokens.cpu().numpy(), watch)
            alive = state.open_places()
            if not alive.any():
                return state.results()
            if alive.mean() <= 1 - DROP_SHARE:
                order = state.drop_closed().to(self.device)
                tokens = tokens[order]
                mask.keep(order)
                _keep_rows(cache, order)
            logits = self._step(tokens, cache, mask, state.step)

    def _prefill(self, rows: Sequence[Row], longest: int) -> tuple[torch.Tensor, RowCache | DynamicCache, BatchMask]:
        """Read every distinct prompt once; returns next-token logits ``[rows, vocabulary]``, the cache, the mask."""
        distinct = sorted({row.prompt for row in rows}, key=lambda prompt: (len(prompt), prompt))
        place = {prompt: i for i, prompt in enumerate(distinct)}
        of = torch.tensor([place[row.prompt] for row in rows], device=self.device)
        columns = len(distinct[-1]) + longest
        mask = BatchMask([len(row.prompt) for row in rows], columns, self.device, self._model.dtype)
        if can_use_rows(DynamicCache(config=self._model.config), columns):
            logits, cache = self._prefill_rows(distinct, of, columns)
            return logits[of], cache, mask
        logits, dynamic = self._read(distinct)
        dynamic.reorder_cache(cast(torch.LongTensor, of))
        return logits[of], dynamic, mask

    def _prefill_rows(
        self, distinct: Sequence[tuple[int, ...]], of: torch.Tensor, columns: int
    ) -> tuple[torch.Tensor, RowCache]:
        """Read prompts (shortest first) in chunks; ``of`` says which prompt each row of the cache has."""
        parts: list[torch.Tensor] = []
        cache: RowCache | None = None
        start = 0
        while start < len(distinct):
            stop = start + self._chunk(distinct[start:])
            logits, read = self._read(distinct[start:stop])
            cache = cache or RowCache(read, len(of), columns, len(distinct[-1]))
            rows = ((of >= start) & (of < stop)).nonzero().squeeze(1)
            cache.put(read, rows, of[rows] - start)
            parts.append(logits)
            start = stop
        assert cache is not None
        return torch.cat(parts), cache

    def _chunk(self, prompts: Sequence[tuple[int, ...]]) -> int:
        """How many of the prompts (shortest first) are read together."""
        count = 1
        while count < len(prompts) and (count + 1) * len(prompts[count]) <= self._prefill_tokens:
            count += 1
        return count

    def _read(self, prompts: Sequence[tuple[int, ...]]) -> tuple[torch.Tensor, DynamicCache]:
        """One forward pass over left-padded prompts: last logits ``[prompts, vocabulary]`` and the filled cache."""
        width = len(prompts[-1])
        ids = torch.tensor([(self._pad,) * (width - len(p)) + p for p in prompts], device=self.device)
        lengths = torch.tensor([len(p) for p in prompts], device=self.device)
        mask = (torch.arange(width, device=self.device) >= (width - lengths)[:, None]).long()
        cache = DynamicCache(config=self._model.config)
        return self._forward(ids, mask, (mask.cumsum(dim=-1) - 1).clamp(min=0), cache), cache

    def _step(self, tokens: torch.Tensor, cache: RowCache | DynamicCache, mask: BatchMask, step: int) -> torch.Tensor:
        """Logits ``[places, vocabulary]`` after the ``step``-th generated token of each row."""
        attention = mask.additive(step) if self._own_mask and isinstance(cache, RowCache) else mask.binary(step)
        return self._forward(tokens[:, None], attention, mask.positions(step), cache)

    def _forward(
        self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: RowCache | DynamicCache
    ) -> torch.Tensor:
        options: dict[str, Any] = {"position_ids": positions} if self._takes_positions else {}
        if self._keeps_logits:
            options["logits_to_keep"] = 1
        output = self._model(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True, **options)
        logits: torch.Tensor = output.logits[:, -1]
        return logits


def _keep_rows(cache: RowCache | DynamicCache, order: torch.Tensor) -> None:
    if isinstance(cache, RowCache):
        cache.keep(order)
    else:
        cache.reorder_cache(cast(torch.LongTensor, order))
