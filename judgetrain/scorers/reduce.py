"""From logits to a few numbers a step: every statistic of a softmax that a scorer needs, in float32.

:func:`reduce_logits` reads logits that are there; :func:`reduce_linear` never has more than a tile of them.
"""

from __future__ import annotations

import torch

from judgetrain.scorers.results import COLUMNS

BLOCK = 1 << 20
"""Logits reduced at a time: few enough that the passes over them stay in a processor's cache."""
TILE = {"cpu": (256, 1 << 17), "cuda": (4096, 1 << 27)}
"""Most steps of a tile of :func:`reduce_linear`, and its logits: a CPU's second-level cache holds two such tiles."""
LARGE = 3e38
"""Almost the largest float32: times this, clamped to 0 and 1, a difference is whether it is positive."""


def reduce_logits(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The statistics of :data:`COLUMNS` for each step, float32 ``[steps, columns]``.

    Args:
        logits: ``[steps, vocabulary]``, any floating type; reduced in float32, without a copy of all of them.
        targets: ``[steps]``, the token ids whose log-probability and rank are wanted.

    A step whose logits hold NaN or positive infinity gives NaN. Negative infinity (a token ruled out) gives an
    infinite ``logprob_variance``, and NaN where the mean over the vocabulary has no value.
    """
    block = BLOCK if logits.device.type == "cpu" else BLOCK << 5
    rows = max(1, block // logits.shape[1])
    parts = [
        _reduce(logits[start : start + rows].float(), targets[start : start + rows])
        for start in range(0, len(logits), rows)
    ]
    return torch.cat(parts) if parts else torch.empty((0, len(COLUMNS)), device=logits.device)


def _reduce(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """One block of logits, float32; passes are few and written into one buffer (topk and boolean sums are slow)."""
    size = logits.shape[1]
    chosen = logits.gather(1, targets[:, None])
    best, mean = logits.amax(dim=-1, keepdim=True), logits.mean(dim=-1, keepdim=True)
    buffer = torch.empty_like(logits)
    rank = torch.gt(logits, chosen, out=buffer).sum(dim=-1) + 1
    spread = torch.sub(logits, mean, out=buffer).square_().sum(dim=-1)
    shifted = torch.sub(logits, best, out=buffer)
    margin = _margin(shifted)
    weights = shifted.exp()
    total = weights.sum(dim=-1)
    products = shifted.mul_(weights).sum(dim=-1)
    if torch.isnan(products).any():  # 0 times minus infinity counts as 0
        products = torch.where(weights > 0, shifted, 0.0).sum(dim=-1)
    log_total = total.log()
    log_partition = best[:, 0] + log_total
    weights.sub_(total[:, None] / size)
    columns = (
        chosen[:, 0] - log_partition,
        log_total - products / total,
        weights.square_().sum(dim=-1) / total.square() / max(1, size - 1),
        spread / max(1, size - 1),
        margin,
        torch.where(torch.isnan(total), torch.nan, rank),
        # mean(logprob * logit) = mean(logit^2) - log_partition * mean(logit)
        spread / size + mean[:, 0] * (mean[:, 0] - log_partition),
    )
    return torch.stack(columns, dim=1)


def _margin(shifted: torch.Tensor) -> torch.Tensor:
    """How far the second largest is below the largest ``[steps]``, from logits minus their largest."""
    first = torch.eq(shifted, 0.0, out=torch.empty_like(shifted))
    second = torch.add(shifted, first, alpha=torch.finfo(torch.float32).min).amax(dim=-1)
    return torch.where(first.sum(dim=-1) > 1, 0.0, -second)


def reduce_linear(
    states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor
) -> torch.Tensor:
    """:func:`reduce_logits` of ``states @ weight.T + bias``, without ever holding them, float32 ``[steps, columns]``.

    The vocabulary is read in slices, whose sums are kept relative to the largest logit so far (as online softmax
    does); a slice's logits are read while they are in a processor's cache.

    Args:
        states: ``[steps, size]``, of the weight's type.
        weight: ``[vocabulary, size]``; its products are in its own type and reduced in float32.
        bias: ``[vocabulary]`` or None.
        targets: ``[steps]``, token ids.
    """
    most, cells = TILE.get(states.device.type, TILE["cuda"])
    parts = []
    for start in range(0, len(states), most):
        rows = states[start : start + most]
        sums = _Sums(rows, weight, bias, targets[start : start + most])
        width = max(1, cells // len(rows))
        buffers = torch.empty((2, len(rows) * width), device=states.device)
        for column in range(0, len(weight), width):
            sums.add(column, min(width, len(weight) - column), buffers)
        parts.append(sums.columns())
    return torch.cat(parts) if parts else torch.empty((0, len(COLUMNS)), device=states.device)


class _Sums:
    """Running sums over the vocabulary of some steps, each ``[steps, 1]``."""

    def __init__(
        self, states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor
    ) -> None:
        self._states, self._weight, self._bias, self._targets = states, weight, bias, targets
        # As one product of matrices, like the slices', so that a token's logit is the same number in both.
        own = torch.nn.functional.linear(states, weight[targets], None if bias is None else bias[targets])
        self._chosen = own.diagonal()[:, None].float()
        zero = torch.zeros_like(self._chosen)
        self._best = torch.full_like(zero, torch.finfo(torch.float32).min)  # finite: a slice may hold nothing but -inf
        self._second = torch.full_like(zero, -torch.inf)
        self._total = self._products = self._squares = self._above = self._sum = self._spread = zero
        self._near: torch.Tensor | None = None

    def add(self, start: int, width: int, buffers: torch.Tensor) -> None:
        """Read the slice of the vocabulary that starts at a token id."""
        cells = len(self._states) * width
        logits, scratch = (buffer[:cells].view(-1, width) for buffer in buffers)
        part = slice(start, start + width)
        if self._weight.dtype == torch.float32:
            torch.mm(self._states, self._weight[part].T, out=logits)
        else:
            logits.copy_(torch.mm(self._states, self._weight[part].T))
        if self._bias is not None:
            logits += self._bias[part]
        if self._near is None:  # sums of squares lose nothing around a value near the mean
            self._near = logits.mean(dim=-1, keepdim=True)
        best = self._leaders(logits)
        self._count_above(logits, scratch, start)
        torch.sub(logits, self._near, out=scratch)
        self._sum = self._sum + scratch.sum(dim=-1, keepdim=True)
        self._spread = self._spread + _dot(scratch, scratch)
        shifted = logits.sub_(best)
        weights = torch.exp(shifted, out=scratch)
        step = self._best - best
        scale = step.exp()
        self._products = scale * (self._products + step * self._total) + _products(weights, shifted)
        self._total = scale * self._total + weights.sum(dim=-1, keepdim=True)
        self._squares = scale.square() * self._squares + _dot(weights, weights)
        self._best = best

    def _leaders(self, logits: torch.Tensor) -> torch.Tensor:
        """The largest logit so far; the second largest is looked for only in steps of which this slice may hold it."""
        top = logits.amax(dim=-1, keepdim=True)
        rows = (top > self._second)[:, 0].nonzero()[:, 0]
        if len(rows):
            found = logits[rows].topk(min(2, logits.shape[1]), dim=-1).values
            leaders = torch.cat([found, self._best[rows], self._second[rows]], dim=1).topk(2, dim=-1).values
            self._second = self._second.index_copy(0, rows, leaders[:, 1:])
        return torch.maximum(self._best, top)

    def _count_above(self, logits: torch.Tensor, scratch: torch.Tensor, start: int) -> None:
        """Count the tokens above the target; the target itself never is, however its logit was rounded."""
        above = torch.sub(logits, self._chosen, out=scratch).mul_(LARGE).clamp_(0.0, 1.0)
        inside = ((self._targets >= start) & (self._targets < start + logits.shape[1])).nonzero()[:, 0]
        above[inside, self._targets[inside] - start] = 0.0
        self._above = self._above + above.sum(dim=-1, keepdim=True)

    def columns(self) -> torch.Tensor:
        """The statistics, as :func:`reduce_logits` has them."""
        assert self._near is not None
        size = len(self._weight)
        log_total = self._total.log()
        log_partition, mean = self._best + log_total, self._near + self._sum / size
        spread = self._spread - self._sum.square() / size
        columns = (
            self._chosen - log_partition,
            log_total - self._products / self._total,
            (self._squares / self._total.square() - 1 / size) / max(1, size - 1),
            spread / max(1, size - 1),
            self._best - self._second,
            torch.where(torch.isnan(self._total), torch.nan, self._above + 1),
            spread / size + mean * (mean - log_partition),
        )
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
