"""A scorer as a judge: score both responses, compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from judgetrain.judges.base import Cost, Judge, Prediction, verdict_of
from judgetrain.schema import Comparison
from judgetrain.scorers.config import ScorerConfig
from judgetrain.scorers.encode import Sample, sample_of
from judgetrain.scorers.estimator import Scores, Usage
from judgetrain.scorers.methods import OF_RESPONSES, check_scorers, score

if TYPE_CHECKING:
    from judgetrain.scorers.statistics import TokenScorer

PREFIX = "scorer:"
"""What marks a scorer among the methods of stage evaluate, as in ``scorer:sentprob``."""


class ScorerJudge(Judge):
    """Prefers the response with the better score; the order in which they are shown plays no part.

    Args:
        scorer: the model whose probabilities are read.
        method: a scorer of given responses, as ``sentprob`` or ``probdiff``.
        settings: how the score is computed.

    Raises:
        ConfigError: no such scorer, or one that does not score a given response.
    """

    def __init__(self, scorer: TokenScorer, method: str = "sentprob", settings: ScorerConfig | None = None) -> None:
        check_scorers([method], OF_RESPONSES)
        self.scorer, self.method, self.name = scorer, method, f"{PREFIX}{method}"
        self.settings = settings or ScorerConfig()

    def compare_all(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        """The verdicts on many comparisons; ``softmax_combo`` normalises over all their responses."""
        before = self.scorer.usage
        scores = score(self.scorer, samples_of(comparisons), [self.method], self.settings, seed)[self.method]
        return predictions(comparisons, scores, self.name, self.scorer.usage - before)

    def close(self) -> None:
        """Free the model."""
        self.scorer.close()


def samples_of(comparisons: Sequence[Comparison]) -> list[Sample]:
    """The two responses of every comparison, A then B."""
    return [sample_of(c.dialogue, response) for c in comparisons for response in (c.response_a, c.response_b)]


def predictions(comparisons: Sequence[Comparison], scores: Scores, name: str, usage: Usage) -> list[Prediction]:
    """Predictions from the scores of :func:`samples_of`; ``usage`` is shared evenly among the comparisons."""
    oriented = scores.oriented
    share = max(1, len(comparisons))
    cost = Cost(usage.prompt_tokens / share, usage.generated_tokens / share, usage.calls / share)
    result = []
    for i, comparison in enumerate(comparisons):
        a, b = oriented[2 * i : 2 * i + 2]
        margin = None if a is None or b is None else a - b
        gone = Counter(v.reason for v in scores.values[2 * i : 2 * i + 2] if not isinstance(v, (int, float)))
        said = {"margin": margin, "cost": cost, "judgments": 2, "failures": dict(gone)}
        result.append(Prediction.of(comparison, name, verdict_of(margin), verdict_of(margin), **said))
    return result
