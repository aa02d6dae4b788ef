"""Criteria from brainstormed lists: which are new, what each of them cost, and which are judged by."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import UNANSWERED, Completion
from judgetrain.judges.prompting.parsing import listed_criteria, listed_items, normalise
from judgetrain.judges.trees.growing import GrowingCriterion, GrowingTree
from judgetrain.judges.trees.sampled import Sampled
from judgetrain.judges.trees.schema import CriteriaList
from judgetrain.schema import Comparison

Choose = Callable[[Comparison, list[str]], list[int]]
"""Which criteria of a list to expand, by index; the others stay in ``criteria_text`` only."""


def take_criteria(tree: GrowingTree, sampled: Sampled, listed_at_most: int, wanted: int) -> None:
    """Add the new criteria of a list to a tree, until it has ``wanted``; counts what could not be had."""
    completion = sampled.completion
    tree.prompt_tokens += completion.prompt_tokens
    tree.generated_tokens += completion.generated_tokens
    reason = completion.finish_reason
    tree.lists.append(
        CriteriaList(
            text=completion.text,
            finish_reason=reason,
            prompt_tokens=completion.prompt_tokens,
            generated_tokens=completion.generated_tokens,
            seed=sampled.seed,
            place=sampled.place,
        )
    )
    if reason in UNANSWERED:
        tree.failures[f"criteria:{reason}"] += 1
        tree.beyond_context = reason == "too_long"
        return
    tree.criteria_text = f"{tree.criteria_text}\n{completion.text}".strip("\n")
    known = {normalise(c.text) for c in tree.criteria}
    material = material_of(tree.comparison)
    whole = _whole(completion.text, reason)  # a line that was cut counts where there is no other
    listed = (listed_criteria(whole, material) or listed_criteria(completion.text, material))[:listed_at_most]
    if reason == "length" and listed:
        tree.failures["criteria:cut_off"] += 1
    names = [normalise(item) for item, _ in listed_items(whole, material)]
    if repeats := len(names) - len(set(names) - known):
        tree.failures["criteria:repeated"] += repeats
    fresh = [(criterion, end) for criterion, end in listed if normalise(criterion) not in known]
    costs = _spread(completion, [end for _, end in fresh])
    room = wanted - len(tree.criteria)
    found = enumerate(list(zip(fresh, costs, strict=True))[:room], start=len(tree.criteria))
    tree.criteria += [
        GrowingCriterion(rank=rank, text=text, tokens=cost, listed_in=len(tree.lists) - 1)
        for rank, ((text, _), cost) in found
    ]


def whole_criteria(text: str, finish_reason: str, limit: int, comparison: Comparison) -> list[str]:
    """The criteria of a list, at most ``limit``, without the line that the token limit cut."""
    return [c for c, _ in listed_criteria(_whole(text, finish_reason), material_of(comparison))][:limit]


def material_of(comparison: Comparison) -> str:
    """The dialogue, which a list's reasoning may quote."""
    return f"{comparison.dialogue.context}\n{comparison.dialogue.query}"


def _whole(text: str, finish_reason: str) -> str:
    """The list without the line that the token limit cut."""
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
