"""What the teacher is expected to cost, before it is asked anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from judgetrain.config import Config
from judgetrain.dialogues.schema import Comparison
from judgetrain.engines.answers import estimated_tokens
from judgetrain.engines.base import Step
from judgetrain.tree.grow import judgment_slots, slots_of
from judgetrain.tree.prompts import load_prompt_set
from judgetrain.tree.teach import shape_of

CRITERION = "name of the criterion: what it looks at in a response"
"""Stands for a criterion that is not known yet."""


@dataclass
class Cost:
    """Calls of one step, and their tokens: ``generated`` as expected, ``at_most`` when every answer is as long as may
    be (and guidelines with it, which judgment prompts repeat)."""

    calls: int = 0
    prompt: int = 0
    prompt_at_most: int = 0
    generated: int = 0
    at_most: int = 0


def estimate(config: Config, comparisons: Sequence[Comparison]) -> dict[Step, Cost]:
    """The expected cost of annotating ``comparisons``, by step.

    Prompts are rendered and counted by their characters (:func:`estimated_tokens`). Answers are expected to be half
    as long as ``teacher.sampling.max_new_tokens`` allows, guidelines included. A teacher that lists fewer criteria
    than are to be judged takes fewer calls; tries that fail take more.
    """
    teacher, prompts, shape = config.teacher, load_prompt_set(config.prompts), shape_of(config)
    longest = teacher.sampling.max_new_tokens
    half = -(-longest // 2)
    costs: dict[Step, Cost] = {"criteria": Cost(), "guideline": Cost(), "judgment": Cost()}

    def add(step: Step, slots: dict[str, str], calls: int, more: int = 0, more_at_most: int = 0) -> None:
        prompt = sum(estimated_tokens(m["content"]) + 4 for m in prompts.render(step, slots))
        cost = costs[step]
        cost.calls += calls
        cost.prompt += calls * (prompt + more)
        cost.prompt_at_most += calls * (prompt + more_at_most)
        cost.generated += calls * half
        cost.at_most += calls * longest

    for comparison in comparisons:
        slots = slots_of(comparison)
        add("criteria", slots | {"count": str(shape.count)}, 1)
        add("guideline", slots | {"criterion": CRITERION}, teacher.branches)
        judged = judgment_slots(comparison, "AB", CRITERION, "")
        add("judgment", judged, teacher.branches * len(shape.orders), half, longest)
    return costs


def described(config: Config, comparisons: Sequence[Comparison]) -> Iterator[str]:
    """The estimate as lines."""
    costs = estimate(config, comparisons)
    for step, cost in costs.items():
        yield (
            f"  {step}: {cost.calls:,} calls, {cost.prompt:,} prompt tokens, {cost.generated:,} generated "
            f"(at most {cost.prompt_at_most:,} and {cost.at_most:,})"
        )
    calls = sum(c.calls for c in costs.values())
    expected = sum(c.prompt + c.generated for c in costs.values())
    most = sum(c.prompt_at_most + c.at_most for c in costs.values())
    yield f"  all: {calls:,} calls, about {expected:,} tokens, at most {most:,}; tries that fail come on top"
    limits = (
        ("teacher.max_requests", config.teacher.max_requests, calls),
        ("teacher.max_tokens", config.teacher.max_tokens, expected),
    )
    for name, limit, needed in limits:
        if limit is not None and limit < needed:
            yield f"  {name}={limit:,} does not suffice"
