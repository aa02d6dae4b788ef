"""What the teacher and the external judge are expected to cost, before they are asked anything."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from judgetrain.engines.answers import estimated_tokens
from judgetrain.engines.base import Step
from judgetrain.engines.config import PaidConfig
from judgetrain.judges.prompting.prompts import PromptSet, judgment_slots, load_prompt_set, slots_of
from judgetrain.label.config import ExternalConfig, TeacherConfig
from judgetrain.label.external import Case, load_external_prompts
from judgetrain.label.teach import shape_of
from judgetrain.schema import Comparison

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


class _Costs(defaultdict[Step, Cost]):
    """The costs of the steps of one prompt set, whose answers have at most ``longest`` tokens and half of it as a rule.

    Prompts are rendered and counted by their characters (:func:`estimated_tokens`).
    """

    def __init__(self, prompts: PromptSet, longest: int) -> None:
        super().__init__(Cost)
        self._prompts, self._longest, self.half = prompts, longest, -(-longest // 2)

    def ask(self, step: Step, slots: Mapping[str, str], calls: int, more: int = 0, more_at_most: int = 0) -> None:
        """Add calls of a step, whose prompts hold ``more`` tokens than the slots say."""
        prompt = sum(estimated_tokens(m["content"]) + 4 for m in self._prompts.render(step, slots))
        cost = self[step]
        cost.calls += calls
        cost.prompt += calls * (prompt + more)
        cost.prompt_at_most += calls * (prompt + more_at_most)
        cost.generated += calls * self.half
        cost.at_most += calls * self._longest


def estimate(teacher: TeacherConfig, prompts: str, comparisons: Sequence[Comparison]) -> dict[Step, Cost]:
    """The expected cost of annotating ``comparisons``, by step.

    Answers are expected to be half as long as ``teacher.sampling.max_new_tokens`` allows, guidelines included. A
    teacher that lists fewer criteria than are to be judged takes fewer calls; tries that fail take more.
    """
    shape = shape_of(teacher)
    longest = teacher.sampling.max_new_tokens
    costs = _Costs(load_prompt_set(prompts), longest)
    for comparison in comparisons:
        slots = slots_of(comparison)
        costs.ask("criteria", slots | {"count": str(shape.count)}, 1)
        costs.ask("guideline", slots | {"criterion": CRITERION}, teacher.branches)
        judged = judgment_slots(comparison, "AB", CRITERION, "")
        costs.ask("judgment", judged, teacher.branches * len(shape.orders), costs.half, longest)
    return dict(costs)


def estimate_external(settings: ExternalConfig, cases: Sequence[Case]) -> dict[Step, Cost]:
    """The expected cost of the external judge's labels; what is asked again because it could not be read adds to it."""
    prompts, dialect = load_external_prompts(settings)
    costs = _Costs(prompts, settings.sampling.max_new_tokens)
    for case in cases:
        shown = case.comparison
        if dialect == "one_step":
            responses = {"response_a": shown.response_a, "response_b": shown.response_b}
            costs.ask("one_step", slots_of(shown) | responses, 2 * settings.samples)
        for conflict in case.conflicts:
            costs.ask("preference", conflict.slots, 2)
    return dict(costs)


def described(costs: Mapping[Step, Cost], paid: PaidConfig, key: str) -> Iterator[str]:
    """An estimate as lines; ``paid`` are the limits that stand under ``key`` of the configuration."""
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
        (f"{key}.max_requests", paid.max_requests, calls),
        (f"{key}.max_tokens", paid.max_tokens, expected),
    )
    for name, limit, needed in limits:
        if limit is not None and limit < needed:
            yield f"  {name}={limit:,} does not suffice"
