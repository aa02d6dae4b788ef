"""The branches of a tree as reasons of a verdict or score, and why some of them could not be read."""

from collections.abc import Iterator, Sequence

from judgetrain.engines.base import UNANSWERED
from judgetrain.judges.predictions import Reason, in_own_order
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, GuidelineNode, JudgmentNode
from judgetrain.schema import ORDERS, RESPONSES


def reasons_of(criteria: Sequence[CriterionNode]) -> Iterator[Reason]:
    """Yield the branches by order, and in an order by rank."""
    # A judge's tree has orders of one kind only; the other yields nothing.
    for order in (*ORDERS, *RESPONSES):
        for node in criteria:
            for guideline in node.guidelines:
                for judgment in guideline.judgments:
                    if judgment.order == order:
                        yield _reason(node, guideline, judgment)


def _reason(node: CriterionNode, guideline: GuidelineNode, judgment: JudgmentNode) -> Reason:
    """Return one branch as a reason of a verdict."""
    scale = None
    if not node.criterion.is_even:
        scale = node.criterion.scores
    return Reason(
        order=judgment.order,
        criterion=node.text,
        guideline=guideline.text,
        text=in_own_order(judgment.text, judgment.order),
        score_a=judgment.score_a,
        score_b=judgment.score_b,
        verdict=judgment.verdict,
        failure=judgment.failure,
        name=node.criterion.name,
        weight=node.criterion.weight,
        source=node.criterion.source,
        levels=judgment.levels,
        scale=scale,
    )


def judgment_failures(criterion: CriterionNode) -> list[str]:
    """Return the reasons of a criterion's judgments that could not be read."""
    return [judgment.failure for judgment in criterion.judgments if judgment.failure]


def guideline_failures(criterion: CriterionNode) -> list[str]:
    """Return the reasons of a criterion's guidelines that could not be judged by."""
    return [f"guideline:{guideline.failure}" for guideline in criterion.guidelines if guideline.failure]


def list_failure(tree: EvaluationTree) -> str:
    """Return why a tree has no criteria: the engine gave no list, or the list had none."""
    unanswered = {f"criteria:{reason}" for reason in UNANSWERED}
    for failure in tree.failures:
        if failure in unanswered:
            return failure
    return "criteria:none"
