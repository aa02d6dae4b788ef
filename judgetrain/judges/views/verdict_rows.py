"""Rows of verdicts (stage judge) as pages: what the judge said of a comparison, as the tree that led there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from judgetrain.judges.base import Reason
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, GuidelineNode, JudgmentNode
from judgetrain.judges.views.tree_page import View
from judgetrain.schema import Comparison, Dialogue, Message, Verdict

VERDICTS = "verdicts"
"""The name of stage judge's rows."""
ONCE = "(asked once, without criteria)"
_FACTS = {
    "verdict": "Verdict",
    "verdict_ab": "A shown first",
    "verdict_ba": "B shown first",
    "margin": "Margin",
    "failure": "Not judged",
    "judge": "Judge",
}


@dataclass(frozen=True, kw_only=True)
class StatedJudgment(JudgmentNode):
    """A judgment whose verdict is known beside its scores, which a judge that is asked once gives none of."""

    stated: Verdict | None

    @property
    def verdict(self) -> Verdict | None:
        """The verdict in the comparison's own order, or None if the judgment could not be read."""
        return self.stated


def verdict_views(rows: Iterable[Mapping[str, Any]]) -> list[View]:
    """A view of each row: the comparison, the verdicts, and its reasons by criterion."""
    return [View(_tree(row), facts=_facts(row)) for row in rows]


def _facts(row: Mapping[str, Any]) -> dict[str, str]:
    found = {name: row[column] for column, name in _FACTS.items() if row[column] is not None}
    return {name: f"{value:.3g}" if isinstance(value, float) else str(value) for name, value in found.items()}


def _tree(row: Mapping[str, Any]) -> EvaluationTree:
    """The tree that the row's reasons are the branches of; tokens of single nodes are not in the row."""
    messages = tuple(Message(**m) for m in row["messages"]) or (Message("user", ""),)
    dialogue = Dialogue(row["dialogue_id"], "", messages)
    texts = (row[name] for name in ("response_a", "response_b", "model_a", "model_b", "label", "group"))
    branches: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for reason in row["reasons"]:
        branches.setdefault((reason["criterion"], reason["guideline"]), []).append(reason)
    criteria = tuple(_criterion(rank, named, found) for rank, (named, found) in enumerate(branches.items()))
    return EvaluationTree(
        comparison=Comparison(row["id"], dialogue, *texts),
        criteria_text="",
        criteria_prompt_tokens=0,
        criteria_generated_tokens=0,
        criteria=criteria,
        seed=0,
        failures=dict(row["failures"]),
    )


def _criterion(rank: int, texts: tuple[str, str], reasons: Sequence[Mapping[str, Any]]) -> CriterionNode:
    name = f"c{rank}"
    none: dict[str, Any] = {"prompt_tokens": 0, "generated_tokens": 0, "finish_reason": "stop"}
    said = [{k: reason[k] for k in Reason.SAID if k != "verdict"} for reason in reasons]
    judgments = tuple(
        StatedJudgment(id=f"{name}.j{i}", stated=reason["verdict"], **of, **none)
        for i, (reason, of) in enumerate(zip(reasons, said, strict=True))
    )
    guideline = GuidelineNode(id=f"{name}.g", text=texts[1], judgments=judgments, **none)
    return CriterionNode(id=name, text=texts[0] or ONCE, rank=rank, generated_tokens=0, guidelines=(guideline,))
