"""Examples of a criterion at work: an answer that gains by it, one that loses, one that the label speaks against."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from judgetrain.extras.rubric.evidence import Evidence
from judgetrain.extras.rubric.kinds import Kinds
from judgetrain.extras.rubric.measure import KindFigures
from judgetrain.judges.predictions import in_own_order
from judgetrain.judges.trees.schema import EvaluationTree, JudgmentNode
from judgetrain.schema import RESPONSES, Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

Sort = Literal["gains", "loses", "against"]
"""The answer is the better one by the criterion and by the label; the worse one by both; or better by it alone."""
Wanted = Mapping[tuple[int, int, Sort], int]
"""The tree of an example, by its number, of a kind, a type of criteria and a sort."""


@dataclass(frozen=True)
class Example:
    """A comparison, and what the judgment by a criterion says of it.

    Args:
        query: what was asked.
        response_a: the comparison's first response.
        response_b: its second one.
        query_b: what the second one answers, where it is something else; empty: the same.
        answer: the response that the example is about, as its sort says: A or B.
        judgment: by the criterion, as it was written, with the comparison's own names of the responses.
        judged: the response that a judgment of one alone is about; empty: both.
    """

    query: str
    response_a: str
    response_b: str
    query_b: str
    answer: Verdict
    judgment: str
    judged: str = ""


def wanted_examples(evidence: Evidence, kinds: Kinds, figures: list[KindFigures]) -> Wanted:
    """Return which trees show each criterion of each kind at work; nothing where none does.

    The better side is the label's. Where no tree of the kind has one, it is what the other criteria say by their worth.
    """
    trees_wanted: dict[tuple[int, int, Sort], int] = {}
    for kind, of_kind in enumerate(figures):
        inside = np.flatnonzero(kinds.of_tree == kind)
        for criterion in of_kind.criteria:
            lead = evidence.margins[inside, criterion.type] * _sides(evidence, kinds, kind, criterion.type)[inside]
            order = np.argsort(-lead, kind="stable")
            ahead = [int(place) for place in order if lead[place] > 0]
            if ahead:
                trees_wanted[kind, criterion.type, "gains"] = int(inside[ahead[0]])
                # Another answer than the one that gained, where there is another.
                trees_wanted[kind, criterion.type, "loses"] = int(inside[ahead[min(1, len(ahead) - 1)]])
            if len(order) and lead[order[-1]] < 0:
                trees_wanted[kind, criterion.type, "against"] = int(inside[order[-1]])
    return trees_wanted


def _sides(evidence: Evidence, kinds: Kinds, kind: int, without: int) -> NDArray[np.float64]:
    """Return the side that is better [tree]: the label, or where the kind has none the other criteria's."""
    if (evidence.labelled & (kinds.of_tree == kind)).any():
        return evidence.labels
    worth = np.maximum(kinds.worth[kind], 0.0)
    worth[without] = 0.0
    return np.asarray(np.sign(evidence.margins @ worth))


def find_examples(
    trees: Iterable[EvaluationTree], evidence: Evidence, trees_wanted: Wanted
) -> dict[tuple[int, int, Sort], Example]:
    """Return the examples in a second pass over the trees, which are read one by one."""
    types_of_tree: dict[int, dict[str, int]] = {tree: {} for tree in trees_wanted.values()}
    for identifier, tree, type_ in zip(
        evidence.judgments.ids, evidence.judgments.tree.tolist(), evidence.types.tolist(), strict=True
    ):
        if tree in types_of_tree:
            types_of_tree[tree][identifier] = type_
    by_tree: dict[int, list[tuple[int, int, Sort]]] = {}
    for key, number in trees_wanted.items():
        by_tree.setdefault(number, []).append(key)
    examples = {}
    for number, tree in enumerate(trees):
        for key in by_tree.get(number, ()):
            examples[key] = _example(tree, types_of_tree[number], key, float(evidence.margins[number, key[1]]))
    return examples


def _example(tree: EvaluationTree, types: Mapping[str, int], key: tuple[int, int, Sort], margin: float) -> Example:
    """Return the example of a tree.

    Args:
        tree: the tree.
        types: of its criteria, by their ids.
        key: the kind, the type and the sort.
        margin: how far A is ahead by the criterion.
    """
    _, type_, sort = key
    comparison = tree.comparison
    query = comparison.dialogue.query
    # Single responses in a pair may answer two prompts.
    query_b = ""
    if comparison.made and comparison.made != query:
        query_b = comparison.made
    # The criterion's winner is shown as what gains, and as what the label speaks against; its loser as what loses.
    answer: Verdict = "B"
    if (margin > 0) != (sort == "loses"):
        answer = "A"
    judgments = []
    for criterion in tree.criteria:
        # What is named too seldom has no type.
        if types.get(criterion.id) == type_:
            judgments.extend(criterion.judgments)
    judgment = ""
    judged = ""
    if judgments:
        shown = _clearest(judgments, margin)
        judgment = in_own_order(shown.text, shown.order)
        if shown.order in RESPONSES:
            judged = shown.order
    return Example(query, comparison.response_a, comparison.response_b, query_b, answer, judgment, judged)


def _clearest(judgments: Sequence[JudgmentNode], margin: float) -> JudgmentNode:
    """Return the judgment that says most clearly what all of them say in the mean.

    With both orders shown one may say the opposite, and would contradict what stands above the example.

    Args:
        judgments: of one comparison by one criterion.
        margin: how far A is ahead in the mean.
    """

    def lead(judgment: JudgmentNode) -> float:
        if judgment.margin is None:
            return -math.inf
        return judgment.margin if margin > 0 else -judgment.margin

    return max(judgments, key=lead)
