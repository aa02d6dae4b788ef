"""Training examples in TRL's conversational formats, made from nodes of evaluation trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from judgetrain.judges.prompting.parsing import render_criteria
from judgetrain.judges.prompting.prompts import PromptSet, judgment_slots, judgment_step, slots_of
from judgetrain.judges.trees.schema import CriterionNode, GuidelineNode, JudgmentNode
from judgetrain.schema import Comparison, Verdict

Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Prompter:
    """Renders the judge's prompts of one prompt set, as the judge that grew the trees was shown them.

    ``count`` is the number of criteria asked for; ``reference``: whether reference answers are shown.
    """

    prompts: PromptSet
    count: int
    reference: bool = False

    def criteria(self, comparison: Comparison) -> Messages:
        """The prompt for a list of criteria."""
        return list(self.prompts.render("criteria", slots_of(comparison, self.reference) | {"count": str(self.count)}))

    def guideline(self, comparison: Comparison, criterion: str) -> Messages:
        """The guideline prompt."""
        return list(self.prompts.render("guideline", slots_of(comparison, self.reference) | {"criterion": criterion}))

    def judgment(self, comparison: Comparison, criterion: str, guideline: str, node: JudgmentNode) -> Messages:
        """The judgment prompt, with the responses in the order that the node saw, or the one that it saw."""
        slots = judgment_slots(comparison, node.order, criterion, guideline, self.reference)
        return list(self.prompts.render(judgment_step(node.order), slots))

    def criteria_row(self, comparison: Comparison, criteria: Sequence[CriterionNode]) -> dict[str, Any]:
        """A supervised example of a criteria list, in the order given."""
        text = render_criteria([c.text for c in criteria])
        return sft_row(self.criteria(comparison), text, "criteria", comparison, [c.id for c in criteria])

    def guideline_row(self, comparison: Comparison, criterion: CriterionNode, node: GuidelineNode) -> dict[str, Any]:
        """A supervised example of a scoring guideline."""
        return sft_row(self.guideline(comparison, criterion.text), node.text, "guideline", comparison, [node.id])

    def judgment_row(
        self, comparison: Comparison, criterion: CriterionNode, guideline: GuidelineNode, node: JudgmentNode
    ) -> dict[str, Any]:
        """A supervised example of a judgment."""
        prompt = self.judgment(comparison, criterion.text, guideline.text, node)
        return sft_row(prompt, node.text, "judgment", comparison, [node.id])


def _answer(text: str) -> Messages:
    return [{"role": "assistant", "content": text.strip()}]


def sft_row(
    prompt: Messages, completion: str, level: str, comparison: Comparison, nodes: Sequence[str]
) -> dict[str, Any]:
    """A supervised example: ``prompt``, ``completion``, its level, and the ids of the nodes it came from."""
    return {
        "prompt": prompt,
        "completion": _answer(completion),
        "level": level,
        "comparison_id": comparison.id,
        "nodes": list(nodes),
    }


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A preference between two completions of one prompt, with the ids of the nodes behind each side."""

    prompt: Messages
    chosen: str
    rejected: str
    level: str
    margin: float
    comparison_id: str
    chosen_nodes: tuple[str, ...]
    rejected_nodes: tuple[str, ...]
    chosen_verdict: Verdict | None = None
    """Of a judgment pair's chosen side."""
    rejected_verdict: Verdict | None = None
    """Of a judgment pair's rejected side; None: it could not be read, or there is none."""
    reward: dict[str, float] = field(default_factory=dict)
    made: str = ""
    """How the comparison was constructed, where it was (``responses.contrast``)."""

    @classmethod
    def from_parts(cls, parts: dict[str, Any]) -> Pair:
        """The pair of its own fields, as JSON has them."""
        return cls(**parts | {name: tuple(parts[name]) for name in ("chosen_nodes", "rejected_nodes")})

    def to_row(self) -> dict[str, Any]:
        """A row in TRL's conversational preference format."""
        return {
            "prompt": self.prompt,
            "chosen": _answer(self.chosen),
            "rejected": _answer(self.rejected),
            "level": self.level,
            "margin": self.margin,
            "comparison_id": self.comparison_id,
            "nodes": {"chosen": list(self.chosen_nodes), "rejected": list(self.rejected_nodes)},
            "reward": self.reward,
            "made": self.made,
        }
