"""Evaluation trees while they grow."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from judgetrain.judges.trees.schema import CriteriaList, CriterionNode, EvaluationTree, GuidelineNode, JudgmentNode
from judgetrain.schema import Comparison


@dataclass
class GrowingGuideline:
    """A guideline, and the judgments by it so far."""

    node: GuidelineNode
    judgments: list[JudgmentNode] = field(default_factory=list)


@dataclass(kw_only=True)
class GrowingCriterion:
    """A criterion taken from a list; ``tokens`` is its part of the list's, ``listed_in`` the list's number."""

    rank: int
    text: str
    tokens: int
    listed_in: int
    position: int = 0
    """Where it stands among the criteria of all trees, which decides its random numbers."""
    guidelines: list[GrowingGuideline] = field(default_factory=list)


@dataclass(kw_only=True)
class GrowingTree:
    """The tree of one comparison as far as it has grown."""

    comparison: Comparison
    criteria_text: str = ""
    prompt_tokens: int = 0
    generated_tokens: int = 0
    criteria: list[GrowingCriterion] = field(default_factory=list)
    lists: list[CriteriaList] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    beyond_context: bool = False
    """The criteria prompt does not fit: asking again gives the same."""

    def finished(self, seed: int) -> EvaluationTree:
        """The evaluation tree."""
        return EvaluationTree(
            comparison=self.comparison,
            criteria_text=self.criteria_text,
            criteria_prompt_tokens=self.prompt_tokens,
            criteria_generated_tokens=self.generated_tokens,
            criteria=tuple(self._criterion(c) for c in self.criteria),
            seed=seed,
            failures=dict(sorted(self.failures.items())),
            lists=tuple(self.lists),
        )

    def _criterion(self, criterion: GrowingCriterion) -> CriterionNode:
        return CriterionNode(
            id=f"{self.comparison.id}/c{criterion.rank}",
            text=criterion.text,
            rank=criterion.rank,
            generated_tokens=criterion.tokens,
            guidelines=tuple(replace(g.node, judgments=tuple(g.judgments)) for g in criterion.guidelines),
            listed_in=criterion.listed_in,
        )
