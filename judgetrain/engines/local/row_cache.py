"""Key-value caches, and the masks over them, whose rows can be filled, repeated and dropped while a batch is decoded.

Transformers' dynamic cache copies every key and value at each decoding step, which for small models is most of the
time; :class:`RowCache` writes into tensors of the final length instead. Models with other kinds of layers
(windows shorter than the text, recurrent states) keep their own cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


class RowLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Keys and values ``[rows, heads, columns, head_dim]`` of one layer in tensors of fixed length.

    ``length`` columns are filled; ``update`` appends in place and returns views.
    """

    def __init__(self, like: DynamicLayer, rows: int, columns: int, length: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        assert like.keys is not None and like.values is not None
        self.dtype, self.device = like.keys.dtype, like.keys.device
        self.keys = like.keys.new_empty(rows, like.keys.shape[1], columns, like.keys.shape[3])
        self.values = like.values.new_empty(rows, like.values.shape[1], columns, like.values.shape[3])
        self.length = length
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append new columns; returns all filled keys and values."""
        start, self.length = self.length, self.length + key_states.shape[2]
        assert self.keys is not None and self.values is not None
        self.keys[:, :, start : self.length] = key_states
        self.values[:, :, start : self.length] = value_states
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def get_seq_length(self) -> int:
        """Filled columns."""
        return self.length

    def put(self, source: DynamicLayer, rows: torch.Tensor, take: torch.Tensor) -> None:
        """Copy rows ``take`` of a prefilled layer into ``rows``, its last column at the last filled column.

        Columns before them are zeroed: masked columns are still multiplied, and nan * 0 is nan.
        """
        for name in ("keys", "values"):
            states, filled = getattr(self, name), getattr(source, name)
            start = self.length - filled.shape[2]
            rows, take = rows.to(states.device), take.to(states.device)  # layers may lie on several GPUs
            states[rows, :, :start] = 0.0
            states[rows, :, start : self.length] = filled[take]

    def drop(self, holes: torch.Tensor, movers: torch.Tensor, rows: int) -> None:
        """Keep the first ``rows`` rows, after moving the rows ``movers`` into ``holes``."""
        assert self.keys is not None and self.values is not None
        for name in ("keys", "values"):
            states = getattr(self, name)
            holes, movers = holes.to(states.device), movers.to(states.device)
            states[holes, :, : self.length] = states[movers, :, : self.length]
            setattr(self, name, states[:rows])


def sees_all(cache: DynamicCache, columns: int) -> bool:
    """Whether no layer of attention has a window as short as ``columns``."""
    return all(getattr(layer, "sliding_window", columns + 1) > columns for layer in cache.layers)


def only_attention(cache: DynamicCache, config: PreTrainedConfig) -> bool:
    """Whether every layer is attention over everything or over a window, so that it can be read by parts."""
    kinds = getattr(config.get_text_config(decoder=True), "layer_types", None) or ()
    windows = all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in cache.layers)
    return bool(cache.layers) and windows and "chunked_attention" not in kinds


def taken(start: DynamicCache, rows: torch.Tensor, columns: torch.Tensor) -> DynamicCache:
    """A cache of rows that each hold ``columns`` ``[rows, columns]``, from the right, of a row of ``start``."""
    cache = DynamicCache()
    for place, layer in enumerate(cast(list[DynamicLayer], start.layers)):
        assert layer.keys is not None and layer.values is not None
        row, at = rows.to(layer.keys.device), columns.to(layer.keys.device)
        cache.update(*(each[row, :, at].transpose(1, 2) for each in (layer.keys, layer.values)), place)
    return cache


class RowCache(Cache):
    """A cache of :class:`RowLayer` s: ``length`` of ``columns`` are filled, and rows end at the last of them."""

    def __init__(self, rows: list[RowLayer]) -> None:
        self.rows = rows
        super().__init__(layers=[*rows])

    @classmethod
    def like(cls, read: DynamicCache, rows: int, columns: int, length: int) -> RowCache:
        """An unfilled cache for ``rows`` rows of the shape of ``read``'s."""
        layers = cast(list[DynamicLayer], read.layers)
        return cls([RowLayer(layer, rows, columns, length) for layer in layers])

    def put(self, source: DynamicCache, rows: torch.Tensor, take: torch.Tensor) -> None:
        """Fill ``rows`` with the rows ``take`` of a prefilled cache."""
        for layer, filled in zip(self.rows, cast(list[DynamicLayer], source.layers), strict=True):
            layer.put(filled, rows, take)

    def moved_to(self, cache: DynamicCache) -> DynamicCache:
        """The model's own cache with all that is filled: of a window no more than it holds."""
        for place, layer in enumerate(self.rows):
            cache.update(layer.keys, layer.values, place)
        return cache

    def keep(self, order: torch.Tensor) -> None:
        """Row ``i`` becomes the old row ``order[i]``, which is ``i`` itself or a row at or after ``len(order)``."""
        holes = (order != torch.arange(len(order), device=order.device)).nonzero().squeeze(1)
        for layer in self.rows:
            layer.drop(holes, order[holes], len(order))


class BatchMask:
    """Which columns of the cache a row attends to: the last ``lengths`` of the first ``width``, and all after them.

    ``lengths``: tokens in the cache ``[rows]`` when the batch was put together; ``columns`` leaves room for more.
    """

    def __init__(self, lengths: torch.Tensor, columns: int, dtype: torch.dtype) -> None:
        self._lengths, self.columns = lengths, columns
        self.width = int(lengths.max())
        self.steps = 0
        self._binary = (torch.arange(columns, device=lengths.device) >= (self.width - lengths)[:, None]).long()
        self._additive = torch.zeros(self._binary.shape, dtype=dtype, device=lengths.device)
        self._additive.masked_fill_(self._binary == 0, torch.finfo(dtype).min)

    @property
    def lengths(self) -> torch.Tensor:
        """Tokens in the cache ``[rows]`` now."""
        return self._lengths + self.steps

    def advance(self) -> None:
        """Make room for one more token a row."""
        self.steps += 1

    def binary(self) -> torch.Tensor:
        """``[rows, width + steps]``, 1 for columns that are read."""
        return self._binary[:, : self.width + self.steps]

    def additive(self) -> torch.Tensor:
        """``[rows, 1, 1, width + steps]``, 0 for columns that are read and the lowest number for others."""
        return self._additive[:, None, None, : self.width + self.steps]

    def keep(self, order: torch.Tensor) -> None:
        """Keep the rows ``order``, in that order."""
        self._lengths, self._binary, self._additive = self._lengths[order], self._binary[order], self._additive[order]
