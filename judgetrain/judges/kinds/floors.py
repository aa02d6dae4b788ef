"""Judges that read nothing: what any judge must beat."""

from __future__ import annotations

import random
from collections.abc import Sequence

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.judges.base import Prediction
from judgetrain.schema import Comparison, Verdict


class Floor:
    """A judge without a model: one verdict per order, at no cost."""

    name = "floor"

    def compare(self, comparison: Comparison) -> Prediction:
        """The verdict on one comparison."""
        return self.compare_all([comparison], 0)[0]

    def compare_all(self, comparisons: Sequence[Comparison], seed: int) -> list[Prediction]:
        """The verdicts on many comparisons."""
        result = []
        for comparison in comparisons:
            first, second = self.verdicts(comparison, seed)
            result.append(Prediction(comparison.id, self.name, 0, first, second, None))
        return result

    def verdicts(self, comparison: Comparison, seed: int) -> tuple[Verdict, Verdict]:
        """The verdicts with the responses as they are and exchanged, both in the comparison's own order."""
        raise TypeError("Floor is a base class")

    def close(self) -> None:
        """Nothing to free."""


class RandomJudge(Floor):
    """A fair coin between A and B for each order."""

    name = "random"

    def verdicts(self, comparison: Comparison, seed: int) -> tuple[Verdict, Verdict]:
        """Two independent draws, the same for a seed and comparison."""
        rng = random.Random(derive_seed(seed, "random", comparison.id))
        return rng.choice(("A", "B")), rng.choice(("A", "B"))


class FirstJudge(Floor):
    """Always the response shown first."""

    name = "first"

    def verdicts(self, comparison: Comparison, seed: int) -> tuple[Verdict, Verdict]:
        """A when A is shown first, else B."""
        return "A", "B"


class LongerJudge(Floor):
    """The response with more characters."""

    name = "longer"

    def verdicts(self, comparison: Comparison, seed: int) -> tuple[Verdict, Verdict]:
        """The longer response in both orders; a tie at equal length."""
        a, b = len(comparison.response_a), len(comparison.response_b)
        verdict: Verdict = "tie" if a == b else "A" if a > b else "B"
        return verdict, verdict


FLOORS: dict[str, type[Floor]] = {judge.name: judge for judge in (RandomJudge, FirstJudge, LongerJudge)}
