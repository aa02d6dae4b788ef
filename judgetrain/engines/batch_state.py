"""State of a batch while it is decoded: what was generated, which rows are still open, what each row attends to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from judgetrain.engines.base import Sampling
from judgetrain.engines.sampling import Sampler, uniforms

if TYPE_CHECKING:
    from numpy.typing import NDArray

ENDS, MAY_STOP = 2, 1
"""Marks of a token in :class:`Row` tables: it ends the text; it may have completed a stop string."""

Watch = Callable[[int, Sequence[int]], bool]
"""Given a row and its generated ids after a token marked MAY_STOP: whether a stop string is complete."""


@dataclass(frozen=True)
class Row:
    """One request in the decoder's terms.

    ``marks``: int8 ``[vocabulary]``, what each token does to this row's text. ``index`` is the request's place in
    the whole call: its random numbers depend on it and on the seed alone.
    """

    prompt: tuple[int, ...]
    sampling: Sampling
    marks: NDArray[np.int8]
    index: int


class BatchState:
    """Generated ids. ``slots[i]`` is the row in place ``i`` of the running batch; dropped rows have no place."""

    def __init__(self, rows: Sequence[Row], device: torch.device, seed: int) -> None:
        self.step = 0
        self._limits = np.array([row.sampling.max_new_tokens for row in rows])
        self.longest = int(self._limits.max())
        noise = np.zeros((len(rows), self.longest), dtype=np.float32)
        for place, row in enumerate(rows):
            if row.sampling.temperature > 0:
                count = row.sampling.max_new_tokens
                noise[place, :count] = uniforms(seed, row.index, count)
        self._sampler = Sampler([row.sampling for row in rows], noise, device)
        self._slots = np.arange(len(rows))
        self._open = np.ones(len(rows), dtype=bool)
        self._ids = np.zeros((len(rows), self.longest), dtype=np.int64)
        self._lengths = np.zeros(len(rows), dtype=np.int64)
        tables = list({id(row.marks): row.marks for row in rows}.values())
        known = {id(table): i for i, table in enumerate(tables)}
        self._tables, self._table_of = np.stack(tables), np.array([known[id(row.marks)] for row in rows])

    def draw(self, logits: torch.Tensor) -> torch.Tensor:
        """Next token ids ``[places]`` from logits ``[places, vocabulary]``."""
        return self._sampler(logits, self.step)

    def append(self, tokens: NDArray[np.int64], watch: Watch) -> None:
        """Add one token to every open row and close the rows that end with it."""
        live = self._open[self._slots]
        rows, tokens = self._slots[live], tokens[live]
        self._ids[rows, self.step] = tokens
        self.step += 1
        self._lengths[rows] = self.step
        marks = self._tables[self._table_of[rows], tokens]
        closed = (marks == ENDS) | (self._limits[rows] <= self.step)
        for row in rows[(marks == MAY_STOP) & ~closed]:
            self._open[row] = not watch(int(row), self._ids[row, : self.step].tolist())
        self._open[rows[closed]] = False

    def open_places(self) -> NDArray[np.bool_]:
        """Which places of the batch hold an open row."""
        return self._open[self._slots]

    def drop_closed(self) -> torch.Tensor:
        """Leave only open rows, the last ones moved into the gaps; returns the old place of each new place."""
        alive = self.open_places()
        count = int(alive.sum())
        order = np.arange(count)
        order[~alive[:count]] = count + np.flatnonzero(alive[count:])
        self._slots = self._slots[order]
        moved = torch.from_numpy(order)
        self._sampler.keep(moved)
        return moved

    def results(self) -> list[list[int]]:
        """Generated ids of every row, in the order of the rows given."""
        return [self._ids[row, :length].tolist() for row, length in enumerate(self._lengths)]


class BatchMask:
    """Which columns a row attends to: its right-aligned prompt and everything generated after it.

    ``lengths``: prompt tokens ``[places]``; the longest prompt has ``width`` of them; ``columns`` leaves room for
    what is generated.
    """

    def __init__(self, lengths: Sequence[int], columns: int, device: torch.device, dtype: torch.dtype) -> None:
        self.lengths = torch.tensor(lengths, device=device)
        self.width = max(lengths)
        self._binary = (torch.arange(columns, device=device) >= (self.width - self.lengths)[:, None]).long()
        self._additive = torch.zeros(self._binary.shape, dtype=dtype, device=device)
        self._additive.masked_fill_(self._binary == 0, torch.finfo(dtype).min)

    def binary(self, step: int) -> torch.Tensor:
        """``[places, width + step]``, 1 for columns that are read."""
        return self._binary[:, : self.width + step]

    def additive(self, step: int) -> torch.Tensor:
        """``[places, 1, 1, width + step]``, 0 for columns that are read and the lowest number for others."""
        return self._additive[:, None, None, : self.width + step]

    def positions(self, step: int) -> torch.Tensor:
        """Position ``[places, 1]`` of the ``step``-th generated token (from 1)."""
        return (self.lengths + step - 1)[:, None]

    def keep(self, order: torch.Tensor) -> None:
        """Keep the places ``order``, in that order."""
        self.lengths, self._binary, self._additive = self.lengths[order], self._binary[order], self._additive[order]
