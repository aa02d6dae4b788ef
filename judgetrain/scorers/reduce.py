"""From logits to a few numbers a step: every statistic of a softmax that a scorer needs, in float32."""

from __future__ import annotations

import torch

from judgetrain.scorers.results import COLUMNS

BLOCK = 1 << 20
"""Logits reduced at a time: few enough that the passes over them stay in a processor's cache."""


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
