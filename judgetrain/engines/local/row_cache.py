"""Key-value caches, and masks over them, whose rows are filled, repeated and dropped while a batch is decoded.

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

    Args:
        like: a layer of the same shape, but for rows and columns.
        rows: how many rows there are.
        columns: how many tokens a row has room for.
        length: how many columns count as filled; :meth:`put` fills them.
    """

    def __init__(self, like: DynamicLayer, rows: int, columns: int, length: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        assert like.keys is not None and like.values is not None
        self.dtype = like.keys.dtype
        self.device = like.keys.device
        self.keys = like.keys.new_empty(rows, like.keys.shape[1], columns, like.keys.shape[3])
        self.values = like.values.new_empty(rows, like.values.shape[1], columns, like.values.shape[3])
        self.length = length
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append new columns in place, and return views of all filled keys and values."""
        start = self.length
        self.length += key_states.shape[2]
        assert self.keys is not None and self.values is not None
        # In place: a longer tensor would be a copy of all columns in every layer and step.
        self.keys[:, :, start : self.length] = key_states
        self.values[:, :, start : self.length] = value_states
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def get_seq_length(self) -> int:
        """Return the number of filled columns."""
        return self.length

    def put(self, source: DynamicLayer, rows: torch.Tensor, take: torch.Tensor) -> None:
        """Copy rows of a prefilled layer into this one, its last column at the last filled column.

        Args:
            source: the prefilled layer.
            rows: the rows of this layer to fill.
            take: the row of the source for each of them.
        """
        for name in ("keys", "values"):
            states = getattr(self, name)
            filled = getattr(source, name)
            start = self.length - filled.shape[2]
            # Layers may lie on several GPUs.
            rows = rows.to(states.device)
            take = take.to(states.device)
            # Masked columns are still multiplied, and nan * 0 is nan.
            states[rows, :, :start] = 0.0
            states[rows, :, start : self.length] = filled[take]

    def drop(self, holes: torch.Tensor, movers: torch.Tensor, rows: int) -> None:
        """Keep the first ``rows`` rows, after moving the rows ``movers`` into ``holes``."""
        assert self.keys is not None and self.values is not None
        for name in ("keys", "values"):
            states = getattr(self, name)
            holes = holes.to(states.device)
            movers = movers.to(states.device)
            states[holes, :, : self.length] = states[movers, :, : self.length]
            setattr(self, name, states[:rows])


def sees_all(cache: DynamicCache, columns: int) -> bool:
    """Return whether every layer of attention sees ``columns`` tokens, so that no window is as short."""
    # A layer without a window sees everything.
    return all(getattr(layer, "sliding_window", columns + 1) > columns for layer in cache.layers)


def only_attention(cache: DynamicCache, config: PreTrainedConfig) -> bool:
    """Return whether every layer is attention over all tokens or over a window, so that prompts are read in parts."""
    kinds = getattr(config.get_text_config(decoder=True), "layer_types", None) or ()
    has_attention_only = all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in cache.layers)
    return bool(cache.layers) and has_attention_only and "chunked_attention" not in kinds


def gather_rows(start: DynamicCache, rows: torch.Tensor, columns: torch.Tensor) -> DynamicCache:
    """Return a cache whose rows are made of columns of another cache's rows.

    Args:
        start: the other cache.
        rows: the row of ``start`` for each new row, ``[rows, 1]``.
        columns: its columns, counted from the right (negative), ``[rows, columns]``.
    """
    cache = DynamicCache()
    for place, layer in enumerate(cast(list[DynamicLayer], start.layers)):
        assert layer.keys is not None and layer.values is not None
        row = rows.to(layer.keys.device)
        column = columns.to(layer.keys.device)
        keys = layer.keys[row, :, column].transpose(1, 2)
        values = layer.values[row, :, column].transpose(1, 2)
        cache.update(keys, values, place)
    return cache


class RowCache(Cache):
    """A cache of :class:`RowLayer` s; all rows end at the last filled column."""

    def __init__(self, rows: list[RowLayer]) -> None:
        self.rows = rows
        super().__init__(layers=[*rows])

    @classmethod
    def like(cls, read: DynamicCache, rows: int, columns: int, length: int) -> RowCache:
        """Return an unfilled cache of ``rows`` rows, each of the shape of a row of ``read``."""
        layers = cast(list[DynamicLayer], read.layers)
        return cls([RowLayer(layer, rows, columns, length) for layer in layers])

    def put(self, source: DynamicCache, rows: torch.Tensor, take: torch.Tensor) -> None:
        """Fill ``rows`` with the rows ``take`` of a prefilled cache (:meth:`RowLayer.put`)."""
        for layer, filled in zip(self.rows, cast(list[DynamicLayer], source.layers), strict=True):
            layer.put(filled, rows, take)

    def moved_to(self, cache: DynamicCache) -> DynamicCache:
        """Copy everything into the model's own cache, whose windows keep what they hold, and return that."""
        for place, layer in enumerate(self.rows):
            cache.update(layer.keys, layer.values, place)
        return cache

    def keep(self, order: torch.Tensor) -> None:
        """Keep the rows ``order``: row ``i`` becomes the old row ``order[i]``.

        ``order[i]`` is ``i`` itself, or a row at or after ``len(order)``.
        """
        holes = (order != torch.arange(len(order), device=order.device)).nonzero().squeeze(1)
        for layer in self.rows:
            layer.drop(holes, order[holes], len(order))


class BatchMask:
    """The mask of the columns that each row attends to.

    They are the last columns of the prompts' width, as many as the row's prompt has tokens, and all columns after them.

    Args:
        lengths: the tokens of each prompt, ``[rows]``.
        columns: the most columns that a row may have at the end.
        dtype: the model's, for the additive mask.
    """

    def __init__(self, lengths: torch.Tensor, columns: int, dtype: torch.dtype) -> None:
        self._lengths = lengths
        self.columns = columns
        self.width = int(lengths.max())
        self.steps = 0
        self._binary = (torch.arange(columns, device=lengths.device) >= (self.width - lengths)[:, None]).long()
        self._additive = torch.zeros(self._binary.shape, dtype=dtype, device=lengths.device)
        # Not minus infinity: of a row that is masked as a whole, softmax would make NaN.
        self._additive.masked_fill_(self._binary == 0, torch.finfo(dtype).min)

    @property
    def lengths(self) -> torch.Tensor:
        """Return the number of tokens in the cache now, ``[rows]``."""
        return self._lengths + self.steps

    def advance(self) -> None:
        """Make room for one more token a row."""
        self.steps += 1

    def binary(self) -> torch.Tensor:
        """Return the mask ``[rows, width + steps]``: 1 for columns that are read, 0 for others."""
        return self._binary[:, : self.width + self.steps]

    def additive(self) -> torch.Tensor:
        """Return the mask ``[rows, 1, 1, width + steps]``: 0 for columns that are read, the least number for others."""
        return self._additive[:, None, None, : self.width + self.steps]

    def keep(self, order: torch.Tensor) -> None:
        """Keep the rows ``order``, in that order."""
        self._lengths = self._lengths[order]
        self._binary = self._binary[order]
        self._additive = self._additive[order]
