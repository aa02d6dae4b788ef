"""A picture of the corpus in two dimensions: clusters by colour, the sample on top."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FITTED = 20_000
"""Rows from which the two dimensions are computed."""

DRAWN = 3000
"""Rows that are drawn, and as many of the sample at most."""

WIDTH, HEIGHT, MARGIN = 900, 700, 20
_GOLDEN_ANGLE = 137.508


@dataclass(frozen=True)
class Map:
    """The picture's dots: x, y, colour, and whether it is of the sample; the number of all rows and clusters."""

    dots: Sequence[tuple[float, float, str, bool]]
    rows: int
    clusters: int


def corpus_map(embeddings: np.ndarray, labels: np.ndarray, chosen: np.ndarray, seed: int) -> Map:
    """The first two principal components: rows as small dots in their cluster's colour, the sample on top.

    Args:
        embeddings: rows ``[n, dimension]``.
        labels: cluster of each row, int ``[n]``.
        chosen: rows of the sample.
        seed: of the rows that are drawn where there are more than a picture can hold.
    """
    from sklearn.decomposition import PCA

    rng = np.random.default_rng(seed)
    fitted = _some(np.arange(len(embeddings)), FITTED, rng)
    plain, ringed = _some(np.arange(len(embeddings)), DRAWN, rng), _some(chosen, DRAWN, rng)
    rows = np.concatenate([plain, ringed])
    values = np.asarray(embeddings[fitted], dtype=np.float32)
    if min(values.shape) >= 2:
        pca = PCA(2, svd_solver="randomized", random_state=int(rng.integers(2**31))).fit(values)
        places = pca.transform(np.asarray(embeddings[rows], dtype=np.float32))
    else:
        places = np.zeros((len(rows), 2))
    low, high = places.min(axis=0), places.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    places = MARGIN + (places - low) / span * (np.array([WIDTH, HEIGHT]) - 2 * MARGIN)
    colours = [f"hsl({label * _GOLDEN_ANGLE % 360:.0f} 65% 45%)" for label in labels[rows].tolist()]
    dots = [(x, y, c, i >= len(plain)) for i, ((x, y), c) in enumerate(zip(places.tolist(), colours, strict=True))]
    return Map(dots, len(embeddings), len(np.unique(labels)))


def _some(rows: np.ndarray, number: int, rng: np.random.Generator) -> np.ndarray:
    return np.sort(rng.choice(rows, number, replace=False)) if len(rows) > number else rows
