"""Glass-box features as functions of token statistics (glass-box paper, sections 2 and 3), as its equations say."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from judgetrain.scorers.encode import Unscored
from judgetrain.scorers.estimator import Batch, Estimator, Result, Scores, TokenStatistics, Value

Read = Callable[[TokenStatistics], float]


@dataclass(frozen=True)
class Feature:
    """A feature of one response: how to compute it, and whether more of it is better (1) or less (-1).

    ``attention``: it reads attention entropies.
    """

    read: Read
    better: int
    attention: bool = False


def mean(values: ArrayLike) -> float:
    """The mean, in double precision."""
    return float(np.mean(np.asarray(values, dtype=np.float64)))


def variance(values: ArrayLike) -> float:
    """E[x^2] - E[x]^2, computed without cancellation."""
    return float(np.var(np.asarray(values, dtype=np.float64)))


def _attention(statistics: TokenStatistics) -> NDArray[np.float64]:
    assert statistics.attention_entropy is not None
    return np.concatenate([np.asarray(layer, dtype=np.float64) for layer in statistics.attention_entropy])


FEATURES: dict[str, Feature] = {
    # Log of the response's probability.
    "sentprob": Feature(lambda s: float(np.sum(s["logprob"], dtype=np.float64)), 1),
    "sentprob_mean": Feature(lambda s: mean(s["logprob"]), 1),
    "softmax_ent": Feature(lambda s: mean(s["entropy"]), -1),
    # The paper's equation has the variance of the tokens' probabilities, its text that of their log-probabilities.
    "softmax_var": Feature(lambda s: variance(np.exp(s["logprob"], dtype=np.float64)), -1),
    "softmax_var_log": Feature(lambda s: variance(s["logprob"]), -1),
    "attnent_min": Feature(lambda s: float(_attention(s).min()), -1, attention=True),
    "attnent_avg": Feature(lambda s: float(_attention(s).mean()), -1, attention=True),
}
"""Every feature that one pass gives; a line here is a scorer.

Directions are the paper's argument: a confident model (probable tokens, low entropy, little dispersion, focused
attention) answers well.
"""


class SinglePass(Estimator):
    """All features in one pass, in which attention is eager only if one of them reads it."""

    group = "single_pass"
    names: ClassVar = {name: feature.better for name, feature in FEATURES.items()}

    def compute(self, batch: Batch, names: Sequence[str]) -> dict[str, Scores]:
        """Each feature of every sample.

        Raises:
            EngineError: attention weights are asked for and cannot be had.
        """
        results = batch.scorer.statistics(batch.samples, any(FEATURES[name].attention for name in names))
        return {name: read(results, name) for name in names}


def read(results: Sequence[Result], name: str) -> Scores:
    """One feature of token statistics that are there already; there is none where it would be infinite or NaN."""
    feature = FEATURES[name]
    values: list[Value] = [r if isinstance(r, Unscored) else feature.read(r) for r in results]
    finite = [v if isinstance(v, Unscored) or math.isfinite(v) else Unscored("non_finite") for v in values]
    return Scores(name, finite, feature.better)


def reference_sentprob(reference: TokenStatistics) -> float:
    """SentProb-Ref, how unsure the model is of the reference: -mean(p log p) of its tokens (section 3.2)."""
    logprobs = np.asarray(reference["logprob"], dtype=np.float64)
    return float(-np.mean(np.exp(logprobs) * logprobs))


def combine(*columns: Sequence[float | None]) -> list[float | None]:
    """The normalised sum of scores: each made mean 0 and standard deviation 1 over all items, then added.

    Columns ``[n]`` in which higher is better; an item that misses a score (None, infinite or NaN) is None in the result
    and counts in no mean. A column without spread adds 0. For the paper's Softmax-combo, whose normalisation is not
    published.
    """
    complete = [all(v is not None and np.isfinite(v) for v in row) for row in zip(*columns, strict=True)]
    total = np.zeros(sum(complete))
    for column in columns:
        values = np.array([v for v, there in zip(column, complete, strict=True) if there], dtype=np.float64)
        spread = values.std() if len(values) else 0.0
        if spread > 0:
            total += (values - values.mean()) / spread
    found = iter(total.tolist())
    return [next(found) if there else None for there in complete]
