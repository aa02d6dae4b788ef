"""Why the chosen side of a preference pair is chosen, in words, read off the tree that the pair came of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from judgetrain.judges.trees.schema import EvaluationTree, JudgmentNode
from judgetrain.schema import Verdict

_SAYS = {"A": "A is better", "B": "B is better", "tie": "both are equal", None: "no verdict"}


def why(row: Mapping[str, Any], tree: EvaluationTree, label: Verdict | None) -> str:
    """A sentence or two for a row of preference pairs; empty where its nodes are not of this tree.

    Args:
        row: with its ``level`` and the ids of its ``nodes``; sides of criteria are lists, best first.
        tree: the tree that it came of.
        label: the comparison's label.
    """
    found = _nodes(tree)
    sides = [[found[node] for node in row["nodes"][side] if node in found] for side in ("chosen", "rejected")]
    if not all(sides):
        return ""
    chosen, rejected = (side[0] for side in sides)
    if row["level"] == "judgment":
        return _of_judgments(chosen[0], rejected[0], label)
    if row["level"] == "guideline":
        return (
            f"Judgments by the chosen guideline give the label more often: {_rate(chosen, label)}, against "
            f"{_rate(rejected, label)} by the rejected one."
        )
    if row["level"] == "criteria":
        return (
            "The same criteria in two orders. The chosen one begins with a criterion whose judgments lead to the label "
            f"({_rate(chosen, label)} give it), the rejected one with one that leads away ({_rate(rejected, label)})."
        )
    return ""


def _nodes(tree: EvaluationTree) -> dict[str, Sequence[JudgmentNode]]:
    """The judgments below every node, by its id."""
    found: dict[str, Sequence[JudgmentNode]] = {c.id: c.judgments for c in tree.criteria}
    for _, guideline in tree.guidelines():
        found[guideline.id] = guideline.judgments
        found |= {judgment.id: (judgment,) for judgment in guideline.judgments}
    return found


def _of_judgments(chosen: JudgmentNode, rejected: JudgmentNode, label: Verdict | None) -> str:
    said = (
        f"By this guideline most judgments, in both orders of the responses, find that {_SAYS[chosen.verdict]}: the "
        f"chosen one says so, the rejected one says that {_SAYS[rejected.verdict]}."
    )
    if chosen.verdict == label:
        return said
    said += (
        f" The label, {_SAYS[label]}, is of all criteria together; a criterion that does not tell the responses apart "
        "does not contradict it (label.ties=neutral)."
    )
    return said + (" That the rejected one names the label's side is a slip here." if rejected.verdict == label else "")


def _rate(judgments: Sequence[JudgmentNode], label: Verdict | None) -> str:
    readable = [j.verdict for j in judgments if j.verdict is not None]
    return f"{readable.count(label)} of {len(readable)}" if label else f"{len(readable)} readable"
