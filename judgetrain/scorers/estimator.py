"""The interface of scorers: the samples that an estimator gets, and the scores that it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from judgetrain.scorers.config import ScorerConfig
from judgetrain.scorers.encode import Sample, Unscored

if TYPE_CHECKING:
    from judgetrain.scorers.statistics import TokenScorer

Value = float | Unscored
"""A score, or the reason why there is none."""


@dataclass(frozen=True)
class Scores:
    """Scores of n samples by one method.

    Args:
        method: the score's name.
        values: the scores [n], or reasons why there are none.
        better: 1 if more of it is better, else -1.
        details: further JSON values of an estimator about each sample [n]; most estimators have none.
    """

    method: str
    values: Sequence[Value]
    better: int
    details: Sequence[Mapping[str, Any]] = ()

    @property
    def oriented(self) -> list[float | None]:
        """Return the scores [n], turned so that higher is better; None where there is none."""
        oriented: list[float | None] = []
        for value in self.values:
            if isinstance(value, Unscored):
                # Kept in its place, so that scores of several methods stay side by side.
                oriented.append(None)
            else:
                oriented.append(self.better * value)
        return oriented

    def plain(self, place: int) -> float | str:
        """Return the score at a place as rows hold it: the number, or the reason why there is none."""
        value = self.values[place]
        if isinstance(value, Unscored):
            return value.reason
        return value

    @property
    def unscored(self) -> Counter[str]:
        """Return the number of samples without a score, by reason."""
        return Counter(value.reason for value in self.values if isinstance(value, Unscored))


def value_of(written: float | str) -> Value:
    """Return a score from a row that :meth:`Scores.plain` wrote."""
    if isinstance(written, str):
        return Unscored(written)
    # JSON may have written a whole number without its point.
    return float(written)


@dataclass(frozen=True)
class Batch:
    """Responses that are scored together.

    Args:
        scorer: the model whose probabilities are read.
        samples: responses with their prompts.
        settings: how scores are computed.
        seed: the seed of whatever is sampled.
    """

    scorer: TokenScorer
    samples: Sequence[Sample]
    settings: ScorerConfig
    seed: int = 0


class Estimator(ABC):
    """Computes scores, several at once where they come from the same passes.

    Attributes:
        group: its name, which the shards of its scores have, too.
        names: its scores, with 1 where more is better and -1 where less is.
        of_responses: it scores a given response, not the model on a prompt.
        references: a reference changes its scores (:data:`~judgetrain.scorers.methods.VARIANTS`).
    """

    group: ClassVar[str]
    names: ClassVar[Mapping[str, int]]
    of_responses: ClassVar[bool] = True
    references: ClassVar[bool] = True

    @abstractmethod
    def compute(self, batch: Batch, names: Sequence[str]) -> dict[str, Scores]:
        """Return the scores of every sample, by name; further scores of the same passes may be among them.

        Args:
            batch: the samples and the model.
            names: the scores to compute, of :attr:`names`.

        Raises:
            ConfigError: a setting does not fit.
            EngineError: the model cannot be read.
        """
