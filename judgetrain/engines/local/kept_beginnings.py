"""Keep, from one call to the next, the keys and values of prompts that later prompts begin like."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

if TYPE_CHECKING:
    from judgetrain.engines.local.decoding import Ids


class KeptBeginnings:
    """Keys and values of prompts that were read, for later prompts that begin like them.

    They are kept within :meth:`keeping` alone, since they are those of the model as it was when it read them.

    Args:
        most_bytes: the most memory that they may take; what comes after that is not kept.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._is_keeping = False
        self._bytes = 0
        # Sorted, so that prompts that begin alike are neighbours.
        self._prompts: list[Ids] = []
        # The cache that holds each prompt, and the prompt's row in it.
        self._rows: dict[Ids, tuple[DynamicCache, int]] = {}

    def __len__(self) -> int:
        return len(self._prompts)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep what is read until the end of the block, and free it there."""
        self._is_keeping = True
        try:
            yield
        finally:
            self._is_keeping = False
            self.clear()

    def clear(self) -> None:
        """Free everything that is kept."""
        self._bytes = 0
        self._prompts.clear()
        self._rows.clear()

    def add(self, prompts: Sequence[Ids], cache: DynamicCache) -> None:
        """Keep prompts, if this is asked for and there is room.

        Args:
            prompts: what was read.
            cache: holds their keys and values, a row each, at the right. It must not be changed afterwards.
        """
        if not self._is_keeping:
            return
        size = sum(states.nbytes for layer in _layers(cache) for states in _states(layer))
        if self._bytes + size > self._most_bytes:
            return
        self._bytes += size
        for row, prompt in enumerate(prompts):
            if prompt not in self._rows:
                insort(self._prompts, prompt)
                self._rows[prompt] = (cache, row)

    def nearest(self, prompt: Ids) -> tuple[Ids, int]:
        """Return the kept prompt that begins most like a prompt, and how many tokens they share; ``((), 0)``: none."""
        place = bisect_left(self._prompts, prompt)
        nearest: tuple[Ids, int] = ((), 0)
        # One of the two neighbours has the most in common, since the prompts are sorted.
        for neighbour in self._prompts[max(0, place - 1) : place + 1]:
            shared = common_length(neighbour, prompt)
            if shared > nearest[1]:
                nearest = (neighbour, shared)
        return nearest

    def gathered(self, prompts: Sequence[Ids], lengths: Sequence[int]) -> DynamicCache:
        """Return a cache of the beginnings of kept prompts, a row each, padded with zeros at the left.

        Args:
            prompts: kept ones.
            lengths: how many of each prompt's first tokens a row holds.
        """
        width = max(lengths)
        gathered = DynamicCache()
        sources = [self._rows[prompt] for prompt in prompts]
        for place, layer in enumerate(_layers(sources[0][0])):
            parts = []
            for kind, like in enumerate(_states(layer)):
                states = like.new_zeros(len(prompts), like.shape[1], width, like.shape[3])
                for row, (cache, source_row) in enumerate(sources):
                    source = _states(_layers(cache)[place])[kind]
                    start = source.shape[2] - len(prompts[row])
                    columns = source[source_row, :, start : start + lengths[row]]
                    states[row, :, width - lengths[row] :] = columns
                parts.append(states)
            gathered.update(parts[0], parts[1], place)
        return gathered


def common_length(one: Ids, other: Ids) -> int:
    """Return how many tokens two prompts begin with together."""
    length = 0
    for token, other_token in zip(one, other, strict=False):
        if token != other_token:
            break
        length += 1
    return length


def _layers(cache: DynamicCache) -> list[DynamicLayer]:
    """Return the layers of a cache of attention over all tokens."""
    return cast(list[DynamicLayer], cache.layers)


def _states(layer: DynamicLayer) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a layer's keys and values, ``[rows, heads, columns, head_dim]`` each."""
    assert layer.keys is not None and layer.values is not None
    return layer.keys, layer.values
