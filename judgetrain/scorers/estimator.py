"""The one interface of scorers: what a model tells of a response, what an estimator gets, and the scores it gives."""

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
        """The scores that ``names`` (of :attr:`names`) asks for, of every sample; others may be among them
        (ConfigError: a setting that does not fit; EngineError: the model cannot be read)."""
