"""Baselines: judges without a model, which any judge must beat."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Sequence

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.judges.base import Judge, Prediction
from judgetrain.judges.kinds.surface import SurfaceJudge
from judgetrain.schema import Comparison, Verdict


class Baseline(Judge):
    """A judge that looks at one comparison at a time: one verdict per order, at no cost."""

    def compare_all(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        """The verdicts on many comparisons."""
        return [Prediction.of(c, self.name, *self.verdicts(c, seed)) for c in comparisons]

    @abstractmethod
    def verdicts(self, comparison: Comparison, seed: int) -> tuple[Verdict, Verdict]:
        """The verdicts with the responses as they are and exchanged, both in the comparison's own order."""


class RandomJudge(Baseline):
    """A fair coin between A and B for each order."""

    name = "random"

    def verdicts(self, comparison: Comparison, seed: int) -> tuple[Verdict, Verdict]:
        """Two independent draws, the same for a seed and comparison."""
        rng = random.Random(derive_seed(seed, "random", comparison.id))
        return rng.choice(("A", "B")), rng.choice(("A", "B"))


class FirstJudge(Baseline):
    """Always the response shown first."""

    name = "first"

    def verdicts(self, comparison: Comparison, seed: int) -> tuple[Verdict, Verdict]:
        """A when A is shown first, else B."""
        return "A", "B"


class LongerJudge(Baseline):
    """The response with more characters; a tie at equal length."""

    name = "longer"

    def verdicts(self, comparison: Comparison, seed: int) -> tuple[Verdict, Verdict]:
        """The same in both orders."""
        return comparison.longer, comparison.longer


BASELINES: dict[str, type[Judge]] = {
    judge.name: judge for judge in (RandomJudge, FirstJudge, LongerJudge, SurfaceJudge)
}
