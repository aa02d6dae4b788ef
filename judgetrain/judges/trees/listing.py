"""A tree's criteria: which of a sampled list are new, what each of them cost, what could not be had."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import UNANSWERED, Completion
from judgetrain.judges.prompting.parsing import listed_criteria, listed_items, normalise
from judgetrain.judges.trees.schema import CriteriaList, CriterionNode, EvaluationTree
from judgetrain.rubrics import Rubric
from judgetrain.schema import Comparison

Choose = Callable[[Comparison, list[str]], list[int]]
"""Which criteria of a list to expand, by index; the others stay in ``criteria_text`` only."""


@dataclass(frozen=True)
class Sampled:
    """A completion and the random numbers that made it: the batch's ``seed`` and the request's ``place`` in it."""

    completion: Completion
    seed: int
    place: int

    @property
    def record(self) -> dict[str, Any]:
        """The fields of the node that it becomes, but for its text."""
        return {
            "prompt_tokens": self.completion.prompt_tokens,
            "generated_tokens": self.completion.generated_tokens,
            "finish_reason": self.completion.finish_reason,
            "seed": self.seed,
            "place": self.place,
        }


@dataclass(kw_only=True)
class PartialTree:
    """The tree of one comparison as far as it has grown."""

    comparison: Comparison
    criteria_text: str = ""
    criteria: list[CriterionNode] = field(default_factory=list)
    lists: list[CriteriaList] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)

    def take_given(self, rubric: Rubric | None) -> None:
        """Begin with the criteria of a rubric, which cost nothing."""
        self.criteria = [
            CriterionNode(
                id=f"{self.comparison.id}/c{rank}",
                text=given.line,
                rank=rank,
                generated_tokens=0,
                guidelines=(),
                given=given,
            )
            for rank, given in enumerate(rubric.criteria if rubric else ())
        ]

    def take_criteria(self, sampled: Sampled, listed_at_most: int, wanted: int) -> None:
        """Add the new criteria of a list, until there are ``wanted``; counts what could not be had."""
        completion = sampled.completion
        reason = completion.finish_reason
        self.lists.append(CriteriaList(text=completion.text, **sampled.record))
        if reason in UNANSWERED:
            self.failures[f"criteria:{reason}"] += 1
            return
        self.criteria_text = f"{self.criteria_text}\n{completion.text}".strip("\n")
        known = {normalise(c.text) for c in self.criteria}
        material = material_of(self.comparison)
        whole = _whole(completion.text, reason)  # a line that was cut counts where there is no other
        listed = (listed_criteria(whole, material) or listed_criteria(completion.text, material))[:listed_at_most]
        if reason == "length" and listed:
            self.failures["criteria:cut_off"] += 1
        names = [normalise(item) for item, _ in listed_items(whole, material)]
        if repeats := len(names) - len(set(names) - known):
            self.failures["criteria:repeated"] += repeats
        fresh = [(criterion, end) for criterion, end in listed if normalise(criterion) not in known]
        costs = _costs(completion, [end for _, end in fresh])
        found = list(zip(fresh, costs, strict=True))[: wanted - len(self.criteria)]
        self.criteria += [
            CriterionNode(
                id=f"{self.comparison.id}/c{rank}",
                text=text,
                rank=rank,
                generated_tokens=cost,
                guidelines=(),
                listed_in=len(self.lists) - 1,
            )
            for rank, ((text, _), cost) in enumerate(found, start=len(self.criteria))
        ]

    def finished(self, seed: int) -> EvaluationTree:
        """The evaluation tree."""
        return EvaluationTree(
            comparison=self.comparison,
            criteria_text=self.criteria_text,
            criteria_prompt_tokens=sum(each.prompt_tokens for each in self.lists),
            criteria_generated_tokens=sum(each.generated_tokens for each in self.lists),
            criteria=tuple(self.criteria),
            seed=seed,
            failures=dict(sorted(self.failures.items())),
            lists=tuple(self.lists),
        )


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


def _costs(completion: Completion, ends: list[int]) -> list[int]:
    """The completion's tokens shared out over criteria whose lines end at ``ends``, in characters; sums to the total.

    Engines do not report where a line ends in tokens, so each line gets its share of the characters. Words before the
    list count for the first criterion, those after it for the last; repeats count for the next.
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
