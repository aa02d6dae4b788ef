"""From logits to a few numbers a step: every statistic of a softmax that a scorer needs, in float32.

:func:`reduce_logits` reads logits that are there; :func:`reduce_linear` never has more than a tile of them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from judgetrain.scorers.estimator import COLUMNS

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
        own = targets[rows]
        sums = _Sums(chosen(rows).reshape(-1, 1).float())
        width = min(vocabulary, max(1, cells // len(own)))
        buffers = torch.empty((2, len(own) * width), device=targets.device)
        for column in range(0, vocabulary, width):
            part = slice(column, min(column + width, vocabulary))
            count = part.stop - column
            logits, scratch = (buffer[: len(own) * count].view(-1, count) for buffer in buffers)
            fill(rows, part, logits)
            sums.add(logits, scratch)
        parts.append(sums.columns())
    return torch.cat(parts)


class _Sums:
    """Running sums over the vocabulary of some steps, each ``[steps, 1]``."""

    def __init__(self, chosen: torch.Tensor) -> None:
        self._chosen = chosen
        zero = torch.zeros_like(chosen)
        self._best = torch.full_like(zero, torch.finfo(torch.float32).min)  # finite: a slice may hold nothing but -inf
        self._total = self._products = zero

    def add(self, logits: torch.Tensor, scratch: torch.Tensor) -> None:
        """Read the next slice of the vocabulary; both buffers are overwritten."""
        best = torch.maximum(self._best, logits.amax(dim=-1, keepdim=True))
        shifted = logits.sub_(best)
        weights = torch.exp(shifted, out=scratch)
        step = self._best - best
        scale = step.exp()
        self._products = scale * (self._products + step * self._total) + _products(weights, shifted)
        self._total = scale * self._total + weights.sum(dim=-1, keepdim=True)
        self._best = best

    def columns(self) -> torch.Tensor:
        """The statistics of what was read, as :func:`reduce_logits` has them."""
        log_total = self._total.log()
        columns = (self._chosen - (self._best + log_total), log_total - self._products / self._total)
        return torch.cat(columns, dim=1)


def _dot(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Row by row the sum of products ``[steps, 1]``."""
    return torch.linalg.vecdot(first, second)[:, None]


def _products(weights: torch.Tensor, shifted: torch.Tensor) -> torch.Tensor:
    """Row by row the sum of weight times logit, ``[steps, 1]``; 0 times minus infinity counts as 0."""
    found = _dot(weights, shifted)
    if torch.isnan(found).any():
        found = _dot(weights, torch.where(weights > 0, shifted, 0.0))
    return found
