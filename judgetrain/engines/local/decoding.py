"""Decode rows in batches: each distinct prompt of a batch is read once, and rows leave the batch when they end.

Two ideas were tried and left out, since neither was faster on a CPU: letting new prompts join a running batch (its long
rows make the cache of all rows as wide as theirs), and finishing the last rows of several batches together.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
from transformers.cache_utils import DynamicCache

from judgetrain.engines.cache_keyword import cache_keyword
from judgetrain.engines.internals import attention_of
from judgetrain.engines.loading import context_length
from judgetrain.engines.local.batch_state import Generated, Row, Watch
from judgetrain.engines.local.kept_beginnings import KeptBeginnings, common_length
from judgetrain.engines.local.row_cache import BatchMask, RowCache, gather_rows, only_attention, sees_all
from judgetrain.errors import EngineError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Ids = tuple[int, ...]
"""The token ids of a prompt, or of its beginning."""
DROP_SHARE = 0.15
"""The share of closed rows in a batch from which on they are dropped. Dropping moves memory, keeping wastes work."""
COPIED = 16384
"""The most tokens, shared beginnings among them, whose keys and values are copied at once, beside the batch's own."""
SHARED = 16
"""The least number of tokens that the prompts of a family begin with together."""
SAVED = 64
"""The least number of tokens that a family need not read for which a pass of its own is worth while.

Of judgments on one comparison 80% of the tokens are shared, and reading them once takes 0.39 of the time; of guidelines
for it 70%, in prompts of 30 tokens, and 0.6 of the time.
"""


@dataclass
class _Running:
    """A running batch, after its next tokens were drawn and before the model has read them.

    Args:
        state: the rows and what they have generated.
        tokens: the next token of every row, ``[rows]``.
        cache: the keys and values of all tokens before.
        mask: the columns of the cache that each row attends to.
    """

    state: Generated
    tokens: torch.Tensor
    cache: RowCache | DynamicCache
    mask: BatchMask


class Decoder(Protocol):
    """What an engine decodes rows with (:class:`BatchDecoder`)."""

    def __call__(
        self, rows: Sequence[Row], batch_size: int, watch: Watch, seed: int
    ) -> Iterator[tuple[Row, list[int]]]: ...

    def departure(self, rows: Sequence[Row], steps: int) -> float: ...


class BatchDecoder:
    """Generates token ids with one model.

    Args:
        model: a causal language model.
        pad: the token id that fills up prompts of a batch; it is masked.
        prefill_tokens: the most prompt tokens, padding included, that go through the model at once.
        kept: what is kept of prompts for later calls.
    """

    def __init__(self, model: PreTrainedModel, pad: int, prefill_tokens: int, kept: KeptBeginnings) -> None:
        self._model = model
        self._pad = pad
        self._prefill_tokens = prefill_tokens
        self._kept = kept
        self._last_position = context_length(model.config) - 1
        self.device = model.device
        arguments = inspect.signature(model.forward).parameters
        self._takes_positions = "position_ids" in arguments
        self._keeps_logits = "logits_to_keep" in arguments
        # Without positions of its own a beginning that is read apart would be numbered from its padding.
        self._by_parts = self._takes_positions
        # A ready additive mask saves making one per step and layer; GPU kernels do better with their own.
        self._own_mask = self.device.type == "cpu" and attention_of(model) in ("sdpa", "eager")

    @torch.inference_mode()
    def __call__(
        self, rows: Sequence[Row], batch_size: int, watch: Watch, seed: int
    ) -> Iterator[tuple[Row, list[int]]]:
        """Yield each row with its generated token ids (the end token included) when it ends.

        Args:
            rows: decoded in their order. Sorted by length they need little padding, and equal prompts side by side are
                read once.
            batch_size: the most rows that are decoded together.
            watch: returns whether a stop string of a row is complete.
            seed: with a row's place, decides its random numbers.
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
        """Read the prompts of a batch, draw first tokens, and return the running batch and the rows that ended."""
        state = Generated(rows, self.device, seed)
        lengths = torch.tensor([len(row.prompt) for row in rows], device=self.device)
        mask = BatchMask(lengths, int(lengths.max()) + state.remaining(), self._model.dtype)
        logits, cache = self._prefill(rows, mask.width, mask.columns)
        tokens = state.draw(logits)
        ended = state.append(tokens.cpu().numpy(), watch)
        return _Running(state, tokens, cache, mask), ended

    def _prefill(self, rows: Sequence[Row], width: int, columns: int) -> tuple[torch.Tensor, RowCache | DynamicCache]:
        """Read every distinct prompt once, and beginnings that several share once for all of them.

        Args:
            rows: the batch.
            width: the tokens of the longest prompt.
            columns: the most tokens that a row may have at the end.

        Returns:
            The next tokens' logits ``[rows, vocabulary]``, and the filled cache.
        """
        # Rows that sample the same prompt several times, as for votes, share one reading of it.
        distinct = _by_length({row.prompt for row in rows})
        model_cache = DynamicCache(config=self._model.config)
        if not only_attention(model_cache, self._model.config):
            # Recurrent states cannot be put together from parts.
            logits, filled = self._read(distinct, model_cache)
            places = self._places(rows, distinct)
            filled.reorder_cache(cast(torch.LongTensor, places))
            return logits[places], filled

        # Windows shorter than the text are kept by the model's own cache.
        keeps_rows = sees_all(model_cache, columns)
        room = width
        if keeps_rows:
            # For the tokens that are generated as well.
            room = columns
        cache: RowCache | None = None
        all_logits: torch.Tensor | None = None
        for prompts, logits, filled in self._reads(distinct):
            if cache is None or all_logits is None:
                # Made with the first part that is read, which shows the layers' shapes.
                cache = RowCache.like(filled, len(rows), room, width)
                all_logits = logits.new_empty(len(rows), logits.shape[1])
            places = self._places(rows, prompts)
            filled_rows = (places >= 0).nonzero().squeeze(1)
            cache.put(filled, filled_rows, places[filled_rows])
            all_logits[filled_rows] = logits[places[filled_rows]]

        assert cache is not None and all_logits is not None
        if keeps_rows:
            return all_logits, cache
        return all_logits, cache.moved_to(model_cache)

    def _places(self, rows: Sequence[Row], prompts: Sequence[Ids]) -> torch.Tensor:
        """Return the place of each row's prompt among ``prompts``, ``[rows]``; -1 where it is none of them."""
        place_of = {prompt: place for place, prompt in enumerate(prompts)}
        return torch.tensor([place_of.get(row.prompt, -1) for row in rows], device=self.device)

    def _reads(self, distinct: Sequence[Ids]) -> Iterator[tuple[Sequence[Ids], torch.Tensor, DynamicCache]]:
        """Read prompts in parts, and yield for each part its prompts, their last logits and the filled cache."""
        if not distinct:
            return
        beginnings: dict[Ids, Ids] = {}
        if self._by_parts:
            beginnings = beginnings_of(distinct)

        # Beginnings may begin alike themselves.
        for starts, _, start_cache in self._reads(_by_length({*beginnings.values()})):
            row_of = {start: row for row, start in enumerate(starts)}
            lengths_read = {prompt: len(start) for prompt, start in beginnings.items() if start in row_of}
            for prompts in self._chunks(_by_rest(lengths_read), lengths_read):
                start_rows = torch.tensor([row_of[beginnings[prompt]] for prompt in prompts], device=self.device)
                shared_lengths = torch.tensor([lengths_read[prompt] for prompt in prompts], device=self.device)
                taken = torch.tensor(_lengths_taken(prompts, lengths_read), device=self.device)
                columns = torch.arange(int(taken.max()), device=self.device) - (taken.max() - taken)[:, None]
                # A beginning stands at the right of its row, as here. Columns below 0 are padding.
                columns = columns.clamp(min=0) - shared_lengths[:, None]
                cache = gather_rows(start_cache, start_rows[:, None], columns)
                yield prompts, self._read_on(prompts, cache, taken), cache

        # Prompts that begin like no other of the batch may begin like one of an earlier call.
        alone = [prompt for prompt in distinct if prompt not in beginnings]
        nearest = self._nearest_kept(alone)
        lengths_read = {prompt: shared for prompt, (_, shared) in nearest.items()}
        for prompts in self._chunks(_by_rest(lengths_read), lengths_read):
            lengths_taken = _lengths_taken(prompts, lengths_read)
            cache = self._kept.gathered([nearest[prompt][0] for prompt in prompts], lengths_taken)
            taken = torch.tensor(lengths_taken, device=self.device)
            yield prompts, self._read_on(prompts, cache, taken), cache

        # All others are read from their beginning.
        new = [prompt for prompt in alone if prompt not in nearest]
        for prompts in self._chunks(_by_length(new), {}):
            logits, cache = self._read(prompts)
            if self._by_parts:
                self._kept.add(prompts, cache)
            yield prompts, logits, cache

    def _nearest_kept(self, prompts: Sequence[Ids]) -> dict[Ids, tuple[Ids, int]]:
        """Return, for prompts that begin like a kept one, that one and how many tokens are taken from it.

        Prompts are read on from a kept one under the conditions under which they would be a family of it.
        """
        nearest: dict[Ids, tuple[Ids, int]] = {}
        saved = 0
        for prompt in prompts:
            kept, shared = self._kept.nearest(prompt)
            # A token of each prompt is left to read, since its logits are needed.
            shared = min(shared, len(prompt) - 1)
            if shared >= max(SHARED, len(prompt) / 2):
                nearest[prompt] = (kept, shared)
                saved += shared
        if saved < SAVED:
            return {}
        return nearest

    def _chunks(self, prompts: Sequence[Ids], lengths_read: Mapping[Ids, int]) -> Iterator[Sequence[Ids]]:
        """Yield the prompts in parts that are read together.

        Args:
            prompts: in the order of the tokens that are left to read, the fewest first.
            lengths_read: how many tokens of a prompt are read already.
        """
        start = 0
        for stop, prompt in enumerate(prompts):
            tokens_left = len(prompt) - lengths_read.get(prompt, 0)
            lengths = [len(other) for other in prompts[start : stop + 1]]
            is_full = len(lengths) * tokens_left > self._prefill_tokens
            if lengths_read:
                # All of a part read as many tokens as one has left (:meth:`_read_on`), and a prompt has no more.
                is_full = is_full or tokens_left > min(lengths) or len(lengths) * max(lengths) > COPIED
            if stop > start and is_full:
                yield prompts[start:stop]
                start = stop
        if prompts:
            yield prompts[start:]

    def _read(self, prompts: Sequence[Ids], cache: DynamicCache | None = None) -> tuple[torch.Tensor, DynamicCache]:
        """Read prompts, padded at the left, in one pass.

        Args:
            prompts: the longest one last.
            cache: is filled; None: a new one.

        Returns:
            The last logits ``[prompts, vocabulary]``, and the filled cache.
        """
        width = len(prompts[-1])
        padded = [(self._pad,) * (width - len(prompt)) + prompt for prompt in prompts]
        ids = torch.tensor(padded, device=self.device)
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        mask = (torch.arange(width, device=self.device) >= (width - lengths)[:, None]).long()
        # Positions count a prompt's own tokens, whatever padding stands before them.
        positions = (mask.cumsum(dim=-1) - 1).clamp(min=0)
        if cache is None:
            cache = DynamicCache()
        return self._forward(ids, mask, positions, cache), cache

    def _read_on(self, prompts: Sequence[Ids], cache: DynamicCache, taken: torch.Tensor) -> torch.Tensor:
        """Read the rest of prompts whose beginnings were read, and return the last logits ``[prompts, vocabulary]``.

        Args:
            prompts: the whole prompts.
            cache: the keys and values of each one's beginning, at the right; it is filled with the rest.
            taken: how many tokens each beginning has, ``[prompts]``. All prompts have as many tokens left
                (:func:`_lengths_taken`).
        """
        rest = len(prompts[0]) - int(taken[0])
        width = int(taken.max())
        mask = (torch.arange(width, device=self.device) >= (width - taken)[:, None]).long()
        mask = torch.nn.functional.pad(mask, (0, rest), value=1)
        ids = torch.tensor([prompt[-rest:] for prompt in prompts], device=self.device)
        positions = taken[:, None] + torch.arange(rest, device=self.device)
        return self._forward(ids, mask, positions, cache)

    def _step(self, running: _Running) -> torch.Tensor:
        """Read the batch's next tokens into the cache, and return the logits after them ``[rows, vocabulary]``."""
        # Closed rows go on until they are dropped: their positions must not leave the model's table.
        positions = running.mask.lengths.clamp(max=self._last_position)[:, None]
        running.mask.advance()
        mask = running.mask.binary()
        if self._own_mask and isinstance(running.cache, RowCache):
            mask = running.mask.additive()
        return self._forward(running.tokens[:, None], mask, positions, running.cache)

    @cached_property
    def _cache_keyword(self) -> str:
        return cache_keyword(self._model)

    def _forward(
        self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: RowCache | DynamicCache
    ) -> torch.Tensor:
        """Return the logits after the last column ``[rows, vocabulary]``; keys and values go into the cache.

        Args:
            ids: the tokens to read, ``[rows, columns]``.
            mask: the columns that each row attends to, those in the cache first.
            positions: the tokens' positions, ``[rows, columns]``.
            cache: what was read before.
        """
        options: dict[str, Any] = {}
        if self._takes_positions:
            options["position_ids"] = positions
        if self._keeps_logits:
            # Those of all tokens of all prompts would take gigabytes with a large vocabulary.
            options["logits_to_keep"] = 1
        options[self._cache_keyword] = cache
        output = self._model(input_ids=ids, attention_mask=mask, use_cache=True, **options)
        logits: torch.Tensor = output.logits[:, -1]
        check_finite(logits)
        return logits

    @torch.inference_mode()
    def departure(self, rows: Sequence[Row], steps: int) -> float:
        """Return how far decoding together, with a cache, is from a plain pass over each text, in nats.

        It is the largest difference in the log-probabilities of the five likeliest tokens, over the first greedy steps.
        """
        # Together, as generation would read them: of different lengths, and two with one beginning.
        running, _ = self._start(rows, lambda *_: False, 0)
        tokens_by_step = []
        logprobs_by_step = []
        for _ in range(steps):
            tokens_by_step.append(running.tokens.tolist())
            logprobs = self._step(running).float().log_softmax(-1)
            logprobs_by_step.append(logprobs)
            running.tokens = logprobs.argmax(-1)

        return departure_from_plain(self._model, rows, tokens_by_step, logprobs_by_step)


def check_finite(logits: torch.Tensor) -> None:
    """Raise EngineError where a logit is infinite or not a number."""
    # NaN and infinity go through the maximum, so that one number is looked at in place of all.
    if not torch.isfinite(logits.amax()):
        dtype = str(logits.dtype).removeprefix("torch.")
        raise EngineError(
            f"logits of the model are not finite in {dtype}: set its dtype to bfloat16 or float32; where it is in "
            f"one of them, its weights are damaged"
        )


def departure_from_plain(
    model: PreTrainedModel,
    rows: Sequence[Row],
    tokens_by_step: Sequence[Sequence[int]],
    logprobs_by_step: Sequence[torch.Tensor],
) -> float:
    """Return the largest departure, in nats, of decoding from a plain pass over each whole text.

    It is that of the log-probabilities of the five likeliest tokens.

    Args:
        model: a causal language model.
        rows: the rows that were decoded.
        tokens_by_step: the tokens that were read at each step, ``[steps][rows]``.
        logprobs_by_step: the log-probabilities after each of them, ``[steps][rows, vocabulary]``, nats.
    """
    steps = len(tokens_by_step)
    options: dict[str, Any] = {}
    if "logits_to_keep" in inspect.signature(model.forward).parameters:
        options["logits_to_keep"] = steps
    largest = 0.0
    for index, row in enumerate(rows):
        text = tuple(tokens[index] for tokens in tokens_by_step)
        ids = torch.tensor([row.prompt + text], device=model.device)
        logits = model(input_ids=ids, use_cache=False, **options).logits[0, -steps:]
        plain = logits.float().log_softmax(-1)
        decoded = torch.stack([logprobs[index] for logprobs in logprobs_by_step])
        # Of tokens that hardly ever come, rounding moves the log-probabilities most, and it does not matter.
        difference = (plain - decoded).gather(-1, plain.topk(5).indices).abs().max()
        largest = max(largest, float(difference))
    return largest


def _drop_closed(running: _Running) -> None:
    """Drop the batch's closed rows once there are enough of them."""
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
    """Return prompts by families that begin alike, and how many tokens each family shares (0: a prompt alone).

    A family shares :data:`SHARED` tokens or more, and at least half of its longest prompt: dialogue, reference and
    responses stand before the criterion in a prompt set, and an instruction alone makes no family. Where all that
    sharing saves is less than :data:`SAVED` tokens, it shares nothing. Where members share still more among
    themselves, and that saves as much again, they are a family of their own: so are the criteria of each response
    behind examples that stand before every response. What families begin with is read by families, too.

    The prompts of a family are sorted by their length, and families with a common beginning stand side by side, those
    of shorter prompts first.
    """
    groups: list[list[Ids]] = []
    shared = 0
    longest = 0
    # Prompts that begin alike stand side by side.
    for prompt in sorted(prompts):
        if groups:
            common = common_length(groups[-1][0], prompt)
            if len(groups[-1]) > 1:
                common = min(common, shared)
            if common >= max(SHARED, len(prompt) / 2, longest / 2):
                groups[-1].append(prompt)
                shared = common
                longest = max(longest, len(prompt))
                continue
        groups.append([prompt])
        longest = len(prompt)

    result = []
    for group in sorted(groups, key=lambda group: max((len(prompt), prompt) for prompt in group)):
        result.extend(_families_within(group))
    return result


def _families_within(group: Sequence[Ids]) -> list[tuple[list[Ids], int]]:
    """Return the families of prompts that begin alike, as :func:`families` does; ``group`` is sorted."""
    if len(group) == 1:
        return [([*group], 0)]
    # The first and the last of sorted prompts have the least in common.
    common = common_length(group[0], group[-1])
    parts = [[group[0]]]
    for before, prompt in pairwise(group):
        if common_length(before, prompt) > common:
            parts[-1].append(prompt)
        else:
            parts.append([prompt])

    inner: list[tuple[list[Ids], int]] = []
    rest: list[Ids] = []
    readers = 0
    for part in parts:
        common_of_part = common_length(part[0], part[-1])
        if (common_of_part - common) * (len(part) - 1) >= SAVED:
            inner.extend(_families_within(part))
            readers += 1
        else:
            rest.extend(part)
            readers += len(part)
    if not rest:
        return inner

    # A token of each prompt is left to read, since its logits are needed.
    shared = min(common, min(map(len, rest)) - 1)
    if shared * (readers - 1) < SAVED:
        shared = 0
    return [(_by_length(rest), shared), *inner]


def beginnings_of(prompts: Iterable[Ids]) -> dict[Ids, Ids]:
    """Return the beginning that each prompt shares with others (:func:`families`), for prompts that share one."""
    beginnings = {}
    for family, shared in families(prompts):
        if shared:
            for prompt in family:
                beginnings[prompt] = prompt[:shared]
    return beginnings


def tokens_to_read(prompts: Iterable[Ids]) -> int:
    """Return how many tokens a batch of distinct prompts reads: what several begin with is read once."""
    distinct = {*prompts}
    beginnings = beginnings_of(distinct)
    tokens = sum(len(prompt) - len(beginnings.get(prompt, ())) for prompt in distinct)
    if beginnings:
        tokens += tokens_to_read(beginnings.values())
    return tokens


def _by_length(prompts: Iterable[Ids]) -> list[Ids]:
    """Return prompts sorted by their length; the order among equal lengths is always the same."""
    return sorted(prompts, key=lambda prompt: (len(prompt), prompt))


def _lengths_taken(prompts: Sequence[Ids], lengths_read: Mapping[Ids, int]) -> list[int]:
    """Return how many tokens of each prompt are taken from what was read, where all read the rest together.

    All read the same number of tokens, the most that one has left. The others read the last of their shared tokens
    again, so that padding stands at the left alone, as models with a window need it.
    """
    rest = max(len(prompt) - lengths_read[prompt] for prompt in prompts)
    return [len(prompt) - rest for prompt in prompts]


def _by_rest(lengths_read: Mapping[Ids, int]) -> list[Ids]:
    """Return prompts sorted by the tokens that are left to read, given how many of each are read."""
    return sorted(lengths_read, key=lambda prompt: (len(prompt) - lengths_read[prompt], len(prompt), prompt))
