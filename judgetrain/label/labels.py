"""Labels of trees: without humans, the ensemble of a tree's branches (branching paper, section 4.4), or given ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label.config import LabelConfig
from judgetrain.label.votes import VOTES, vote
from judgetrain.schema import Verdict

MIN_READABLE = 0.5
"""A tree of which fewer judgments could be read has no label: what is left is no sample of its branches."""


@dataclass(frozen=True, kw_only=True)
class Label:
    """The verdict on a comparison, of its branches, of an external judge or given (``source``).

    ``share`` is the winner's share of the votes that decide (A and B; tie votes abstain), 0.5 for a tie, or with
    ``label.vote`` of plurality or mean_score that of all readable votes;
    ``deciding_share`` is the share of those that decide among all that could be read. ``verdict`` is None where there
    is no label; ``reason`` then says why.
    """

    verdict: Verdict | None
    share: float
    votes: dict[str, int]
    readable: float
    reason: str | None = None
    source: str = "ensemble"

    @property
    def deciding_share(self) -> float:
        """The share of the readable votes that are no tie, 0 where none could be read."""
        deciding = self.votes["A"] + self.votes["B"]
        return deciding / max(1, deciding + self.votes["tie"])

    def to_row(self) -> dict[str, Any]:
        """A JSON-ready dictionary."""
        return asdict(self) | {"deciding_share": self.deciding_share}


def accepts(verdict: Verdict | None, label: Verdict, ties: str) -> bool:
    """Whether a branch's verdict is in keeping with the label.

    A tie on one criterion does not contradict a label A or B: that criterion may simply not tell the responses
    apart. With ``ties="wrong"`` only the label itself will do.
    """
    return verdict == label or (ties == "neutral" and verdict == "tie")


def given_label(tree: EvaluationTree, config: LabelConfig) -> Label:
    """The label that the comparison brings, or an abstention: ``no_given_label``, or ``too_few_readable`` branches."""
    ensemble, verdict = ensemble_label(tree, config), tree.comparison.label
    if ensemble.reason == "too_few_readable":
        return ensemble
    reason = None if verdict else "no_given_label"
    votes = vote([verdict] if verdict else [])[2]
    share = 0.0 if verdict is None else 0.5 if verdict == "tie" else 1.0
    return Label(verdict=verdict, share=share, votes=votes, readable=ensemble.readable, reason=reason, source="given")


def ensemble_label(tree: EvaluationTree, config: LabelConfig) -> Label:
    """The label of a tree by ``label.vote``, or an abstention: ``too_few_readable`` branches."""
    judgments = [j for _, _, j in tree.judgments()]
    readable = sum(j.verdict is not None for j in judgments) / len(judgments) if judgments else 0.0
    verdict, share, votes = VOTES[config.vote](tree)
    if readable < MIN_READABLE or verdict is None:
        return Label(verdict=None, share=share, votes=votes, readable=readable, reason="too_few_readable")
    return Label(verdict=verdict, share=share, votes=votes, readable=readable)
