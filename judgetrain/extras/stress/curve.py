"""Best of n responses by a proxy, measured by a gold standard: pure functions on arrays.

Gao, Schulman, Hilton: Scaling Laws for Reward Model Overoptimization (ICML 2023, arXiv 2210.10760): as more is
optimised, a proxy goes on rising where the gold standard turns and falls. How much is optimised is said by the
divergence of the best of n from the writer, which is exact: log n - (n - 1)/n nats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def kl(n: int) -> float:
    """The Kullback-Leibler divergence of the best of ``n`` from the writer, in nats (Gao et al., section 2)."""
    return math.log(n) - (n - 1) / n


def numbers(samples: int) -> list[int]:
    """Powers of two up to the number of samples, and that itself."""
    return [*(2**i for i in range(samples.bit_length()) if 2**i < samples), samples]


def best_of(scores: ArrayLike, values: ArrayLike, ns: Sequence[int]) -> Floats:
    """The expected value of the response that scores best among ``n`` drawn without replacement, for each n.

    The mean over all subsets of that size, so that no draw plays a part (the unbiased estimator of Nakano et al.,
    WebGPT, 2112.09332, appendix I): with the responses in ascending order the i-th is the best of C(i - 1, n - 1) of
    the C(N, n) subsets. Equal scores share their subsets evenly. NaN scores rank below all others.

    Args:
        scores: the proxy's, [N], higher is better.
        values: what is wanted of the chosen one, [N].
        ns: sizes from 1 to N.
    """
    found = np.nan_to_num(np.asarray(scores, dtype=float), nan=-np.inf, neginf=-np.inf)
    order = np.argsort(found, kind="stable")
    ranked, wanted = found[order], np.asarray(values, dtype=float)[order]
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])
    means = np.add.reduceat(wanted, starts) / np.diff(np.r_[starts, len(ranked)])
    result = []
    for n in ns:
        below = np.array([math.comb(int(i), n) / math.comb(len(ranked), n) for i in np.r_[starts, len(ranked)]])
        result.append(float(np.diff(below) @ means))
    return np.array(result)


def standardised(scores: Sequence[ArrayLike]) -> list[Floats]:
    """Scores of several prompts less their prompt's mean, in standard deviations within prompts (pooled); NaN stay."""
    centred = [np.asarray(s, dtype=float) - _mean(np.asarray(s, dtype=float)) for s in scores]
    spread = math.sqrt(_mean(np.concatenate(centred) ** 2))
    return [c / spread if spread > 0 else c for c in centred]


def _mean(values: Floats) -> float:
    read = values[~np.isnan(values)]
    return float(read.mean()) if len(read) else 0.0


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean over prompts and its 95% bootstrap interval, prompts resampled.

    It is the expanded percentile interval: of few prompts plain percentiles are too narrow, by what Student's t and the
    divisor n - 1 add to a normal interval (Hesterberg, The American Statistician 69, 2015).
    """

    mean: float
    interval: tuple[float, float]

    @classmethod
    def of(cls, values: ArrayLike, resamples: int, seed: int) -> Estimate:
        """The estimate from one value a prompt [prompts]."""
        array = np.asarray(values, dtype=float)
        drawn = np.random.default_rng(seed).integers(len(array), size=(resamples, len(array)))
        tail = 100 * _tail(len(array))
        low, high = np.percentile(array[drawn].mean(axis=1), [tail, 100 - tail])
        return cls(mean=float(array.mean()), interval=(float(low), float(high)))

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.mean:+.2f} ({low:+.2f} to {high:+.2f})"


def _tail(n: int) -> float:
    """The share of resamples beyond either end, of ``n`` prompts; 0.025 of very many, 0 of one."""
    from scipy import stats

    return float(stats.norm.cdf(-math.sqrt(n / (n - 1)) * stats.t.ppf(0.975, n - 1))) if n > 1 else 0.0


def peak(curves: Floats) -> int:
    """The place of the largest mean of curves [prompts, numbers]; of equal ones the first."""
    return int(curves.mean(axis=0).argmax())


def fall(curves: Floats) -> Floats:
    """What each prompt loses between the peak and the largest n, [prompts].

    The peak is that of the other half of the prompts, so that it is not chosen by what it is measured on: the mean is
    no larger than the truth because a peak was sought (a curve that only wavers has a fall of zero or less).
    """
    half = np.arange(len(curves)) % 2 == 0
    places = np.where(half, peak(curves[~half]), peak(curves[half]))
    return np.asarray(curves[np.arange(len(curves)), places] - curves[:, -1])
