"""A uniform sample over clusters (branching paper, A.1), and how well it covers the corpus."""

from __future__ import annotations

from typing import Any

import numpy as np

PROBES = 2000
"""Queries, drawn at random from the corpus, whose distance to the sample is measured."""

DRAWS = 5
"""Random samples that the sample is compared with."""

BLOCK = 256


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


def coverage(
    embeddings: np.ndarray, labels: np.ndarray, chosen: np.ndarray, categories: np.ndarray, seed: int
) -> dict[str, Any] | None:
    """Coverage of the rows ``chosen`` and, as a mean over :data:`DRAWS`, of random samples of as many rows.

    Distances are cosine distances of random queries of the corpus to the nearest sampled query that is not the query
    itself: ``distance`` over queries, ``distance_p95`` their 95th percentile, ``distance_by_cluster`` the mean over
    clusters of the mean of a cluster's queries, in which small clusters weigh as much as large ones.
    ``categories`` is how many of the corpus' categories the sample has.

    Args:
        embeddings: unit-length rows ``[n, dimension]``.
        labels: cluster of each row, int ``[n]``.
        chosen: rows of the sample.
        categories: category of each row, int ``[n]``, -1 where it has none.
        seed: of the queries and the random samples.

    Returns:
        ``None`` for a sample of fewer than two rows.
    """
    if len(chosen) < 2:
        return None
    rng = np.random.default_rng(seed)
    probes = np.sort(rng.choice(len(embeddings), min(PROBES, len(embeddings)), replace=False))
    random = [np.sort(rng.choice(len(embeddings), len(chosen), replace=False)) for _ in range(DRAWS)]

    def measured(rows: np.ndarray) -> dict[str, float]:
        distance = nearest(embeddings, probes, rows)
        clusters, place = np.unique(labels[probes], return_inverse=True)
        by_cluster = np.bincount(place, distance) / np.bincount(place, minlength=len(clusters))
        found = categories[rows]
        return {
            "distance": float(distance.mean()),
            "distance_p95": float(np.percentile(distance, 95)),
            "distance_by_cluster": float(by_cluster.mean()),
            "categories": float(len(np.unique(found[found >= 0]))),
        }

    sample, drawn = measured(chosen), [measured(rows) for rows in random]
    return {
        "queries": len(probes),
        "categories": len(np.unique(categories[categories >= 0])),
        "random_draws": DRAWS,
        "sample": {name: round(value, 4) for name, value in sample.items()},
        "random": {name: round(float(np.mean([d[name] for d in drawn])), 4) for name in sample},
    }


def nearest(embeddings: np.ndarray, probes: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Cosine distance of each probe to the nearest of ``rows`` that is not the probe itself, float ``[probes]``."""
    sampled = np.asarray(embeddings[rows], dtype=np.float32)
    found = np.empty(len(probes), dtype=np.float64)
    for start in range(0, len(probes), BLOCK):
        block = probes[start : start + BLOCK]
        cosine = np.asarray(embeddings[block], dtype=np.float32) @ sampled.T
        cosine[block[:, None] == rows[None, :]] = -np.inf
        found[start : start + BLOCK] = 1.0 - cosine.max(axis=1)
    return np.maximum(found, 0.0)
