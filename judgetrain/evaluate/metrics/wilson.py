"""Wilson's interval of a share, for items that may come in clusters."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from judgetrain.evaluate.metrics.bootstrap import Clusters, cluster_index

Z = 1.959963984540054
"""The normal quantile of 97.5%."""


def wilson_interval(values: ArrayLike, clusters: Clusters = None) -> tuple[float, float] | None:
    """95% interval of the share of ``values`` [n] that are true (Wilson 1927); None without items.

    In place of n stand as many independent items as tell as much: n over the design effect, the variance of the share
    over clusters by that over items (Kish 1965), never below 1. Where all values are the same the effect is not known,
    and each cluster counts once.
    """
    array = np.asarray(values, dtype=float)
    if not len(array):
        return None
    return score_interval(float(array.mean()), _effective(array, clusters))


def score_interval(share: float, trials: float, z: float = Z) -> tuple[float, float]:
    """Wilson's interval of a share seen in so many independent trials, which need be no whole number; ``z``: the normal
    quantile. It lies between 0 and 1 and is never empty."""
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    reach = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, min(share, middle - reach)), min(1.0, max(share, middle + reach))


def _effective(values: np.ndarray, clusters: Clusters) -> float:
    """So many independent items tell as much as these."""
    if clusters is None:
        return float(len(values))
    if len(clusters) != len(values):
        raise ValueError(f"{len(values)} values and {len(clusters)} clusters")
    index, n, share = cluster_index(clusters, len(values)), len(values), values.mean()
    counts = np.bincount(index)
    if len(counts) == 1 or share in (0.0, 1.0):
        return float(len(counts))
    off = np.bincount(index, weights=values) - share * counts
    of_clusters = float(off @ off) * len(counts) / (len(counts) - 1) / n**2
    return n / max(1.0, of_clusters / (share * (1 - share) / n))
