"""Taking criteria from a brainstormed list: which are new, what each of them cost, and which are to be judged by."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import UNANSWERED, Completion
from judgetrain.judges.prompting.parsing import listed_criteria, listed_items, normalise
from judgetrain.judges.trees.sampled import Sampled
from judgetrain.judges.trees.schema import CriteriaList
from judgetrain.schema import Comparison

Choose = Callable[[Comparison, list[str]], list[int]]
"""Which criteria of a list to expand, by index; the others stay in ``criteria_text`` only."""


class Listed(NamedTuple):
    """A criterion taken from a list: its rank, its text, its part of the list's tokens, and which list it was."""

    rank: int
    text: str
    tokens: int
    listed_in: int


@dataclass
class Growing:
    """A tree while it grows."""

    comparison: Comparison
    criteria_text: str = ""
    prompt_tokens: int = 0
    generated_tokens: int = 0
    criteria: list[Listed] = field(default_factory=list)
    lists: list[CriteriaList] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    beyond_context: bool = False
    """The criteria prompt does not fit: asking again gives the same."""


def positions(trees: Sequence[Growing]) -> dict[tuple[int, int], int]:
    """Where each (tree, rank) stands among the criteria of all trees, which decides its random numbers."""
    keys = [(index, rank) for index, tree in enumerate(trees) for rank, *_ in tree.criteria]
    return {key: position for position, key in enumerate(keys)}


def take_criteria(tree: Growing, sampled: Sampled, listed_at_most: int, wanted: int) -> None:
    """Add the new criteria of a list to a tree, until it has ``wanted``; counts what could not be had."""
    completion = sampled.completion
    tree.prompt_tokens += completion.prompt_tokens
    tree.generated_tokens += completion.generated_tokens
    reason, tokens = completion.finish_reason, (completion.prompt_tokens, completion.generated_tokens)
    tree.lists.append(CriteriaList(completion.text, reason, *tokens, sampled.seed, sampled.place))
    if reason in UNANSWERED:
        tree.failures[f"criteria:{reason}"] += 1
        tree.beyond_context = reason == "too_long"
        return
    tree.criteria_text = f"{tree.criteria_text}\n{completion.text}".strip("\n")
    known = {normalise(c.text) for c in tree.criteria}
    material = material_of(tree.comparison)
    listed = _listed(completion.text, reason, material)[:listed_at_most]
    if reason == "length" and listed:
        tree.failures["criteria:cut_off"] += 1
    names = [normalise(item) for item, _ in listed_items(_whole(completion.text, reason), material)]
    if repeats := len(names) - len(set(names) - known):
        tree.failures["criteria:repeated"] += repeats
    fresh = [(criterion, end) for criterion, end in listed if normalise(criterion) not in known]
    costs = _spread(completion, [end for _, end in fresh])
    room = wanted - len(tree.criteria)
    start, number = len(tree.criteria), len(tree.lists) - 1
    found = enumerate(zip(fresh, costs, strict=True), start=start)
    tree.criteria += [Listed(rank, text, cost, number) for rank, ((text, _), cost) in found][:room]


def whole_criteria(text: str, finish_reason: str, limit: int, comparison: Comparison) -> list[str]:
    """The criteria of a list, at most ``limit``, without the line that the token limit cut."""
    return [c for c, _ in listed_criteria(_whole(text, finish_reason), material_of(comparison))][:limit]


def _listed(text: str, finish_reason: str, material: str) -> list[tuple[str, int]]:
    """The criteria of a list and where their lines end; a line that was cut counts where there is no other."""
    return listed_criteria(_whole(text, finish_reason), material) or listed_criteria(text, material)


def material_of(comparison: Comparison) -> str:
    """The dialogue, which a list's reasoning may quote."""
    return f"{comparison.dialogue.context}\n{comparison.dialogue.query}"


def _whole(text: str, finish_reason: str) -> str:
    cut = finish_reason == "length" and not text.endswith("\n")
    return "".join(text.splitlines(keepends=True)[:-1]) if cut else text


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


def sample_criteria(seed: int, number: int) -> Choose:
    """A chooser of ``number`` criteria at random, the same for a comparison in every run."""

    def choose(comparison: Comparison, criteria: list[str]) -> list[int]:
        rng = random.Random(derive_seed(seed, comparison.id))
        return rng.sample(range(len(criteria)), min(number, len(criteria)))

    return choose
