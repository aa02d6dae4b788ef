"""The one interface of scorers: what a model tells of a response, what an estimator gets, and the scores it gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from judgetrain.scorers.config import ScorerConfig
from judgetrain.scorers.encode import Sample, Unscored

if TYPE_CHECKING:
    from judgetrain.scorers.statistics import TokenScorer


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


Value = float | Unscored


@dataclass(frozen=True)
class Scores:
    """Scores of n samples by one method.

    ``values``: the score itself, ``[n]``, or why there is none. ``better``: 1 if more of it is better, else -1.
    ``details``: what else an estimator found about each sample, ``[n]`` of JSON; empty from most.
    """

    method: str
    values: Sequence[Value]
    better: int
    details: Sequence[Mapping[str, Any]] = ()

    @property
    def oriented(self) -> list[float | None]:
        """The scores turned so that higher is better, ``[n]``; None where there is none."""
        return [None if isinstance(v, Unscored) else self.better * v for v in self.values]

    def plain(self, i: int) -> float | str:
        """A score as rows have it: the number, or the reason for which there is none."""
        value = self.values[i]
        return value.reason if isinstance(value, Unscored) else value

    @property
    def unscored(self) -> Counter[str]:
        """How many samples have no score, by reason."""
        return Counter(v.reason for v in self.values if isinstance(v, Unscored))


def value_of(written: float | str) -> Value:
    """A score as rows have it, read back."""
    return Unscored(written) if isinstance(written, str) else float(written)


@dataclass(frozen=True)
class Batch:
    """What is scored together: responses with their prompts, by the probabilities of ``scorer``'s model.

    ``settings`` say how scores are computed; what is sampled depends on ``seed``.
    """

    scorer: TokenScorer
    samples: Sequence[Sample]
    settings: ScorerConfig
    seed: int = 0


class Estimator(ABC):
    """Computes scores, several at once where they come from the same passes.

    ``group``: its name, that of the shards that keep its scores. ``names``: its scores, with 1 where more is better and
    -1 where less is. ``of_responses``: it scores a given response, not the model on a prompt. ``references``: whether
    they change it (:data:`~judgetrain.scorers.methods.VARIANTS`).
    """

    group: ClassVar[str]
    names: ClassVar[Mapping[str, int]]
    of_responses: ClassVar[bool] = True
    references: ClassVar[bool] = True

    @abstractmethod
    def compute(self, batch: Batch, names: Sequence[str]) -> dict[str, Scores]:
        """The scores that ``names`` (of :attr:`names`) asks for, of every sample; others may be among them.

        Raises:
            ConfigError: a setting that does not fit.
            EngineError: the model cannot be read.
        """
