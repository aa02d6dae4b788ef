"""Taking criteria from a brainstormed list: which are new, and what each of them cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from judgetrain.dialogues.schema import Comparison
from judgetrain.engines.base import UNANSWERED, Completion
from judgetrain.tree.parsing import listed_criteria, normalise


@dataclass
class Growing:
    """A tree while it grows."""

    comparison: Comparison
    criteria_text: str = ""
    prompt_tokens: int = 0
    generated_tokens: int = 0
    criteria: list[tuple[int, str, int]] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    beyond_context: bool = False
    """The criteria prompt does not fit: asking again gives the same."""


def positions(trees: Sequence[Growing]) -> dict[tuple[int, int], int]:
    """Where each (tree, rank) stands among the criteria of all trees, which decides its random numbers."""
    keys = [(index, rank) for index, tree in enumerate(trees) for rank, _, _ in tree.criteria]
    return {key: position for position, key in enumerate(keys)}


def take_criteria(tree: Growing, completion: Completion, listed_at_most: int, wanted: int) -> None:
    """Add the new criteria of a list to a tree, until it has ``wanted``; counts what could not be had."""
    tree.prompt_tokens += completion.prompt_tokens
    tree.generated_tokens += completion.generated_tokens
    if completion.finish_reason in UNANSWERED:
        tree.failures[f"criteria:{completion.finish_reason}"] += 1
        tree.beyond_context = completion.finish_reason == "too_long"
        return
    tree.criteria_text = f"{tree.criteria_text}\n{completion.text}".strip("\n")
    known = {normalise(text) for _, text, _ in tree.criteria}
    dialogue = tree.comparison.dialogue
    listed = listed_criteria(completion.text, f"{dialogue.context}\n{dialogue.query}")[:listed_at_most]
    if completion.finish_reason == "length" and len(listed) > 1 and not completion.text.endswith("\n"):
        listed.pop()  # the line that the token limit cut
    fresh = [(criterion, end) for criterion, end in listed if normalise(criterion) not in known]
    costs = _spread(completion, [end for _, end in fresh])
    room = wanted - len(tree.criteria)
    start = len(tree.criteria)
    tree.criteria += [(start + i, c, cost) for i, ((c, _), cost) in enumerate(zip(fresh, costs, strict=True))][:room]


def _spread(completion: Completion, ends: list[int]) -> list[int]:
    """The completion's tokens shared out over criteria whose lines end at ``ends``, in characters; sums to the total.

    Engines do not report where a line ends in tokens, and the cost of the first k criteria is wanted: what stands up
    to the end of the k-th line, by its share of the characters. Words before the list count for the first criterion,
    those after it for the last; repeats count for the next.
    """
    total = len(completion.text) or 1
    upto = [round(completion.generated_tokens * end / total) for end in ends[:-1]]
    bounds = [0, *upto, completion.generated_tokens] if ends else []
    return [later - earlier for earlier, later in pairwise(bounds)]
