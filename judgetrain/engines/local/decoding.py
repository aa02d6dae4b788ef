"""Decode rows in batches: each distinct prompt of a batch is read once, and rows leave it when they end.

Tried and left out, since neither was faster on a CPU: letting new prompts join a running batch (its long rows make the
cache of all as wide as theirs), and finishing the last rows of several batches together.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any, cast

import torch
from transformers.cache_utils import DynamicCache

from judgetrain.engines.cache_keyword import cache_keyword
from judgetrain.engines.loading import context_length
from judgetrain.engines.local.batch_state import Generated, Row, Watch
from judgetrain.engines.local.row_cache import BatchMask, RowCache, only_attention, sees_all, taken
from judgetrain.errors import EngineError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

Ids = tuple[int, ...]
DROP_SHARE = 0.15
"""Closed rows are dropped once they are this share of the batch: dropping moves memory, keeping wastes work."""
COPIED = 16384
"""Tokens, shared beginnings among them, whose keys and values are copied at once: memory beside the batch's."""
SHARED = 64
"""Tokens that prompts begin with together, from which on it is worth a pass of its own to read them once."""


@dataclass
class _Running:
    """A batch after its tokens were drawn and before the model has read them (``tokens``: ``[rows]``)."""

    state: Generated
    tokens: torch.Tensor
    cache: RowCache | DynamicCache
    mask: BatchMask


class BatchDecoder:
    """Generates token ids with one model.

    ``prefill_tokens`` bounds how many prompt tokens, padding included, go through the model at once.
    """

    def __init__(self, model: PreTrainedModel, pad: int, prefill_tokens: int) -> None:
        self._model = model
        self._pad = pad
        self._prefill_tokens = prefill_tokens
        self._last_position = context_length(model.config) - 1
        self.device = model.device
        accepted = inspect.signature(model.forward).parameters
        self._takes_positions = "position_ids" in accepted
        self._keeps_logits = "logits_to_keep" in accepted
        self._by_parts = self._takes_positions and not {"longrope", "dynamic"} & rope_types(model.config)
        # A ready additive mask saves making one per step and layer; GPU kernels do better with their own.
        self._own_mask = self.device.type == "cpu" and model.config._attn_implementation in ("sdpa", "eager")

    @torch.inference_mode()
    def __call__(
        self, rows: Sequence[Row], batch_size: int, watch: Watch, seed: int
    ) -> Iterator[tuple[Row, list[int]]]:
        """Yields each row with its generated ids (the end token included) when it ends.

        ``rows`` are taken in the order given, at most ``batch_size`` at a time; sorted by length they need little
        padding, and equal prompts side by side are read once.
        """
        for start in range(0, len(rows), batch_size):
            running, ended = self._start(rows[start : start + batch_size], watch, seed)
            yield from ended
            while running.state.open.any():
                _drop_closed(running)
                logits = self._step(running)
                running.tokens = running.state.draw(logits)
                yield from running.state.append(running.tokens.cpu().numpy(), watch)

    def _start(self, rows: Sequence[Row], watch: Watch, seed: int) -> tuple[_Running, list[tuple[Row, list[int]]]]:
        """Read the prompts of ``rows`` and draw their first tokens; also returns the rows that ended with them."""
        state = Generated(rows, self.device, seed)
        lengths = torch.tensor([len(row.prompt) for row in rows], device=self.device)
        mask = BatchMask(lengths, int(lengths.max()) + state.remaining(), self._model.dtype)
        logits, cache = self._prefill(rows, mask.width, mask.columns)
        tokens = state.draw(logits)
        ended = state.append(tokens.cpu().numpy(), watch)
        return _Running(state, tokens, cache, mask), ended

    def _prefill(self, rows: Sequence[Row], width: int, columns: int) -> tuple[torch.Tensor, RowCache | DynamicCache]:
        """Read every distinct prompt once, and what several begin with once for all of them; returns next-token logits
        ``[rows, vocabulary]`` and the filled cache."""
        distinct = _by_length({row.prompt for row in rows})
        own = DynamicCache(config=self._model.config)
        if not only_attention(own, self._model.config):
            logits, read = self._read(distinct, own)
            of = self._places(rows, distinct)
            read.reorder_cache(cast(torch.LongTensor, of))
            return logits[of], read
        as_rows = sees_all(own, columns)
        cache: RowCache | None = None
        out: torch.Tensor | None = None
        for prompts, logits, read in self._reads(distinct):
            if cache is None or out is None:
                cache = RowCache.like(read, len(rows), columns if as_rows else width, width)
                out = logits.new_empty(len(rows), logits.shape[1])
            take = self._places(rows, prompts)
            chunk = (take >= 0).nonzero().squeeze(1)
            cache.put(read, chunk, take[chunk])
            out[chunk] = logits[take[chunk]]
        assert cache is not None and out is not None
        return out, cache if as_rows else cache.moved_to(own)

    def _places(self, rows: Sequence[Row], prompts: Sequence[Ids]) -> torch.Tensor:
        """Each row's prompt among ``prompts``; -1: it is none of them."""
        place = {prompt: i for i, prompt in enumerate(prompts)}
        return torch.tensor([place.get(row.prompt, -1) for row in rows], device=self.device)

    def _reads(self, distinct: Sequence[Ids]) -> Iterator[tuple[Sequence[Ids], torch.Tensor, DynamicCache]]:
        """All prompts in parts, each with its last logits and what was read of it."""
        found = families(distinct)
        heads = {p: family[0][:shared] for family, shared in found if shared and self._by_parts for p in family}
        for starts in self._chunks(_by_length({*heads.values()}), {}):
            _, read = self._read(starts)
            place = {start: row for row, start in enumerate(starts)}
            begun = {prompt: len(head) for prompt, head in heads.items() if head in place}
            for prompts in self._chunks(sorted(begun, key=lambda p: (len(p) - begun[p], len(p), p)), begun):
                rows = torch.tensor([place[heads[p]] for p in prompts], device=self.device)
                shared = torch.tensor([begun[p] for p in prompts], device=self.device)
                yield prompts, *self._read_on(prompts, read, rows, shared)
        for prompts in self._chunks(_by_length(p for p in distinct if p not in heads), {}):
            yield prompts, *self._read(prompts)

    def _chunks(self, prompts: Sequence[Ids], begun: Mapping[Ids, int]) -> Iterator[Sequence[Ids]]:
        """Those of the prompts that are read together; ``begun`` tokens of a prompt are read already, and the one with
        the fewest left comes first."""
        start = 0
        for stop, prompt in enumerate(prompts):
            left, lengths = len(prompt) - begun.get(prompt, 0), [*map(len, prompts[start : stop + 1])]
            wide = begun and (left > min(lengths) or len(lengths) * max(lengths) > COPIED)
            if stop > start and (len(lengths) * left > self._prefill_tokens or wide):
                yield prompts[start:stop]
                start = stop
        if prompts:
            yield prompts[start:]

    def _read(self, prompts: Sequence[Ids], cache: DynamicCache | None = None) -> tuple[torch.Tensor, DynamicCache]:
        """One forward pass over left-padded prompts: last logits ``[prompts, vocabulary]`` and the filled cache."""
        width = len(prompts[-1])
        ids = torch.tensor([(self._pad,) * (width - len(p)) + p for p in prompts], device=self.device)
        lengths = torch.tensor([len(p) for p in prompts], device=self.device)
        mask = (torch.arange(width, device=self.device) >= (width - lengths)[:, None]).long()
        cache = DynamicCache() if cache is None else cache
        return self._forward(ids, mask, (mask.cumsum(dim=-1) - 1).clamp(min=0), cache), cache

    def _read_on(
        self, prompts: Sequence[Ids], start: DynamicCache, rows: torch.Tensor, shared: torch.Tensor
    ) -> tuple[torch.Tensor, DynamicCache]:
        """As :meth:`_read`, where the first ``shared`` tokens of each were read, as a row of ``start`` (``rows``).

        All read the same number of tokens, the most that one has left: another reads the last of its shared ones again,
        so that padding stands at the left alone, as models with a window need it.
        """
        lengths = torch.tensor([len(p) for p in prompts], device=self.device)
        rest = int((lengths - shared).max())
        kept = lengths - rest
        columns = torch.arange(int(kept.max()), device=self.device) - (kept.max() - kept)[:, None]
        # What was read is at the right of its row, too.
        cache = taken(start, rows[:, None], columns.clamp(min=0) - shared[:, None])
        mask = torch.nn.functional.pad((columns >= 0).long(), (0, rest), value=1)
        ids = torch.tensor([p[-rest:] for p in prompts], device=self.device)
        positions = kept[:, None] + torch.arange(rest, device=self.device)
        return self._forward(ids, mask, positions, cache), cache

    def _step(self, running: _Running) -> torch.Tensor:
        """Logits ``[rows, vocabulary]`` after the batch's tokens, which go into the cache."""
        # Closed rows go on until they are dropped: their positions must not leave the model's table.
        positions = running.mask.lengths.clamp(max=self._last_position)[:, None]
        running.mask.advance()
        ready = self._own_mask and isinstance(running.cache, RowCache)
        mask = running.mask.additive() if ready else running.mask.binary()
        return self._forward(running.tokens[:, None], mask, positions, running.cache)

    @cached_property
    def _cache_keyword(self) -> str:
        return cache_keyword(self._model)

    def _forward(
        self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: RowCache | DynamicCache
    ) -> torch.Tensor:
        options: dict[str, Any] = {"position_ids": positions} if self._takes_positions else {}
        if self._keeps_logits:
            options["logits_to_keep"] = 1
        options[self._cache_keyword] = cache
        output = self._model(input_ids=ids, attention_mask=mask, use_cache=True, **options)
        logits: torch.Tensor = output.logits[:, -1]
        if not torch.isfinite(logits.amax()):
            told = "set its dtype to bfloat16 or float32; where it is in one of them, its weights are damaged"
            raise EngineError(f"logits of the model are not finite in {str(logits.dtype)[6:]}: {told}")
        return logits

    @torch.inference_mode()
    def departure(self, rows: Sequence[Row], steps: int) -> float:
        """How far decoding together, with a cache, is from a plain pass over each text, nats: the largest difference
        in the log-probabilities of the five likeliest tokens, over the first greedy steps."""
        running, _ = self._start(rows, lambda *_: False, 0)
        drawn, found = [], []
        for _ in range(steps):
            drawn.append(running.tokens.tolist())
            found.append(self._step(running).float().log_softmax(-1))
            running.tokens = found[-1].argmax(-1)
        worst, keep = 0.0, {"logits_to_keep": steps} if self._keeps_logits else {}
        for row, text, decoded in zip(rows, zip(*drawn, strict=True), torch.stack(found, dim=1), strict=True):
            ids = torch.tensor([row.prompt + text], device=self.device)
            plain = self._model(input_ids=ids, use_cache=False, **keep).logits[0, -steps:].float().log_softmax(-1)
            worst = max(worst, float((plain - decoded).gather(-1, plain.topk(5).indices).abs().max()))
        return worst


def _drop_closed(running: _Running) -> None:
    """Drop the batch's closed rows once they are worth it."""
    if 1 - running.state.open.mean() <= DROP_SHARE:
        return
    order = running.state.drop_closed().to(running.tokens.device)
    running.tokens = running.tokens[order]
    running.mask.keep(order)
    if isinstance(running.cache, RowCache):
        running.cache.keep(order)
    else:
        running.cache.reorder_cache(cast(torch.LongTensor, order))


def families(prompts: Iterable[Ids]) -> list[tuple[list[Ids], int]]:
    """Prompts by what they begin with, each family's shortest first, and how many tokens that is (0: one alone).

    A family shares :data:`SHARED` tokens or more, and at least half of its longest prompt: dialogue, reference and
    responses stand before the criterion in a prompt set, and an instruction alone makes no family.
    """
    found: list[tuple[list[Ids], int]] = []
    longest = 0
    for prompt in sorted(prompts):
        if found:
            family, shared = found[-1]
            alike = takewhile(bool, (a == b for a, b in zip(family[0], prompt, strict=False)))
            common = min(shared or len(prompt), sum(alike))
            if common >= max(SHARED, len(prompt) / 2, longest / 2):
                family.append(prompt)
                found[-1], longest = (family, common), max(longest, len(prompt))
                continue
        found.append(([prompt], 0))
        longest = len(prompt)
    # Of each prompt a token is left to read.
    return [(_by_length(family), min(shared, min(map(len, family)) - 1)) for family, shared in found]


def rope_types(config: PreTrainedConfig) -> set[str]:
    """The kinds of rotary position embeddings; some choose frequencies by the longest text that is read at once."""
    found = getattr(config.get_text_config(decoder=True), "rope_parameters", None) or {}
    return {str(each.get("rope_type")) for each in (found, *found.values()) if isinstance(each, dict)}


def _by_length(prompts: Iterable[Ids]) -> list[Ids]:
    return sorted(prompts, key=lambda prompt: (len(prompt), prompt))
