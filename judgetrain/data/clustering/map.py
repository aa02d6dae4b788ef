"""A picture of the corpus in two dimensions: clusters by colour, the sample on top."""

from __future__ import annotations

import numpy as np

FITTED = 20_000
"""Rows from which the two dimensions are computed."""

DRAWN = 3000
"""Rows that are drawn, and as many of the sample at most."""

WIDTH, HEIGHT, MARGIN = 900, 700, 20
_GOLDEN_ANGLE = 137.508


def svg_map(embeddings: np.ndarray, labels: np.ndarray, chosen: np.ndarray, seed: int) -> str:
    """An SVG of the first two principal components: rows as small dots in their cluster's colour, the sample ringed.

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
    dots = [_dot(x, y, labels[row], i >= len(plain)) for i, (row, (x, y)) in enumerate(zip(rows, places, strict=True))]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="Map of {len(embeddings)} queries in {len(np.unique(labels))} clusters">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>{"".join(dots)}</svg>\n'
    )


def _some(rows: np.ndarray, number: int, rng: np.random.Generator) -> np.ndarray:
    return np.sort(rng.choice(rows, number, replace=False)) if len(rows) > number else rows


def _dot(x: float, y: float, cluster: int, ringed: bool) -> str:
    colour = f"hsl({cluster * _GOLDEN_ANGLE % 360:.0f} 65% 45%)"
    shape = f'cx="{x:.1f}" cy="{y:.1f}" fill="{colour}"'
    return f'<circle {shape} r="3.2" stroke="#111"/>' if ringed else f'<circle {shape} r="1.6" opacity="0.45"/>'
