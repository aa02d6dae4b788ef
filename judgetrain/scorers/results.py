"""Token statistics: what one forward pass tells about each response token, from which every scorer is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from judgetrain.scorers.encode import Unscored

COLUMNS = ("logprob", "entropy")
"""The statistics of one step of a softmax, in the order in which tables hold them.

``logprob``: log-probability of the target token, nats. ``entropy``: of the softmax, nats.
"""


@dataclass(frozen=True, eq=False)
class TokenStatistics:
    """Statistics of one response of T tokens.

    ``steps``: by name of :data:`COLUMNS` a float32 array ``[T]`` of the steps that predict the response's tokens.
    ``attention_entropy``: for each layer a float array ``[heads]``, nats; None where it was not asked for.
    """

    prompt_tokens: int
    response_tokens: int
    steps: Mapping[str, NDArray[np.float32]]
    attention_entropy: tuple[NDArray[np.float32], ...] | None = None

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        """A statistic of every step, ``[T]``."""
        return self.steps[name]

    @property
    def mean_logprob(self) -> float:
        """Mean log-probability per response token, nats (ProbDiff paper, equation 1 with its log)."""
        return float(np.mean(self["logprob"], dtype=np.float64))


Result = TokenStatistics | Unscored


@dataclass(frozen=True)
class Usage:
    """What a scorer has cost: tokens read (padding left out), tokens generated, and responses scored or generated."""

    prompt_tokens: int = 0
    generated_tokens: int = 0
    calls: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Usage) -> Usage:
        return Usage(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))
