"""Glass-box features as functions of token statistics (glass-box paper, sections 2 and 3).

``formula="paper"`` is what the paper's equations say; ``formula="released"`` is what its released code computes: one
step late (:class:`~judgetrain.scorers.statistics.TokenStatistics` says how), with another entropy and variance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from judgetrain.scorers.results import TokenStatistics

Formula = Literal["paper", "released"]
Read = Callable[[TokenStatistics], float]


@dataclass(frozen=True)
class Feature:
    """A feature of one response: how to compute it, and whether more of it is better (1) or less (-1).

    ``attention``: it reads attention entropies.
    """

    read: Read
    better: int
    doc: str
    attention: bool = False


def _mean(values: ArrayLike) -> float:
    return float(np.mean(np.asarray(values, dtype=np.float64)))


def _variance(values: ArrayLike) -> float:
    """E[x^2] - E[x]^2, computed without cancellation."""
    return float(np.var(np.asarray(values, dtype=np.float64)))


def _attention(statistics: TokenStatistics) -> NDArray[np.float64]:
    assert statistics.attention_entropy is not None
    return np.concatenate([np.asarray(layer, dtype=np.float64) for layer in statistics.attention_entropy])


_ATTENTION = {
    "attnent_min": Feature(lambda s: float(_attention(s).min()), -1, "smallest attention entropy of all heads", True),
    "attnent_avg": Feature(lambda s: float(_attention(s).mean()), -1, "mean attention entropy of all heads", True),
}

FEATURES: dict[Formula, dict[str, Feature]] = {
    "paper": {
        "sentprob": Feature(
            lambda s: float(np.sum(s["logprob"], dtype=np.float64)),
            1,
            "log of the response's probability: the sum of its tokens' log-probabilities",
        ),
        "sentprob_mean": Feature(lambda s: _mean(s["logprob"]), 1, "mean log-probability per token"),
        "softmax_ent": Feature(lambda s: _mean(s["entropy"]), -1, "mean entropy of the softmax"),
        "softmax_var": Feature(
            lambda s: _variance(np.exp(s["logprob"], dtype=np.float64)), -1, "variance of the tokens' probabilities"
        ),
        "softmax_var_log": Feature(lambda s: _variance(s["logprob"]), -1, "variance of the tokens' log-probabilities"),
        **_ATTENTION,
    },
    "released": {
        "sentprob": Feature(lambda s: _mean(s.released("logprob")), 1, "mean log-probability, one step late"),
        "sentprob_mean": Feature(lambda s: _mean(s.released("logprob")), 1, "the same as sentprob"),
        "softmax_ent": Feature(
            lambda s: _mean(s.released("logprob_times_logit")),
            1,
            "mean over steps and vocabulary of log-probability times raw logit, one step late",
        ),
        "softmax_var": Feature(
            lambda s: _mean(s.released("logprob_variance")),
            1,
            "variance of the log-probabilities over the vocabulary, mean over steps, one step late",
        ),
        "softmax_var_log": Feature(
            lambda s: _variance(s.released("logprob")), -1, "variance of the tokens' log-probabilities, one step late"
        ),
        **_ATTENTION,
    },
}
"""Every feature that one pass gives, by formula.

The directions of ``paper`` are its argument: a confident model (probable tokens, low entropy, little dispersion,
focused attention) answers well. Those of ``released`` follow the quantity: a peaked softmax has larger log-probability
products and a larger spread over the vocabulary, and so the stored features rise with the GPT-4 score. That of SentProb
is the paper's too, though its stored values fall as the GPT-4 score rises: the published correlations are absolute.
"""


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


def ensemble_exp(scores: ArrayLike) -> float:
    """Unt-Exp: the mean of the sentence scores of N passes ``[N]`` (section 2.2). Higher is better."""
    return _mean(scores)


def ensemble_var(scores: ArrayLike) -> float:
    """Unt-Var: the variance E[x^2] - E[x]^2 of the sentence scores of N passes ``[N]``. Lower is better."""
    return _variance(scores)
