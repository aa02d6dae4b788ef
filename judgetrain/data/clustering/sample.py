"""A uniform sample over clusters (branching paper, A.1)."""

from __future__ import annotations

import numpy as np


def sample_uniform(labels: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Sorted indices of ``min(size, n)`` rows, as evenly over the clusters as their sizes allow.

    What a short cluster cannot give is shared out over the others, so that no two clusters that still have rows
    differ by more than one.
    """
    rng = np.random.default_rng(seed)
    order = np.argsort(labels, kind="stable")
    _, sizes = np.unique(labels, return_counts=True)
    quota = quotas(sizes, min(size, len(labels)), rng)
    chosen = [
        rng.choice(rows, take, replace=False)
        for rows, take in zip(np.split(order, np.cumsum(sizes)[:-1]), quota, strict=True)
    ]
    return np.sort(np.concatenate(chosen))


def quotas(sizes: np.ndarray, total: int, rng: np.random.Generator) -> np.ndarray:
    """How many rows each cluster gives: int array that sums to ``total``, at most ``sizes``."""
    quota = np.zeros_like(sizes)
    left = total
    while left > 0:
        open_ = np.flatnonzero(quota < sizes)
        share = left // len(open_)
        if share == 0:
            quota[rng.choice(open_, left, replace=False)] += 1
            return quota
        add = np.minimum(share, sizes[open_] - quota[open_])
        quota[open_] += add
        left -= int(add.sum())
    return quota
