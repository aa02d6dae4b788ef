"""What the teacher and the external judge are expected to cost, before they are asked anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.answers import estimated_tokens
from judgetrain.engines.base import Step
from judgetrain.engines.cost_estimate import Cost, Costs, described
from judgetrain.judges.prompting.prompts import PromptSet, judgment_slots, judgment_step, load_prompt_set, slots_of
from judgetrain.label.config import ExternalConfig, TeacherConfig
from judgetrain.label.external import Case, cases_of, load_external_prompts
from judgetrain.label.stages import LabelSettings, TeacherSettings
from judgetrain.label.teacher_stage import divided, shape_of
from judgetrain.schema import Comparison

CRITERION = "name of the criterion: what it looks at in a response"
"""Stands for a criterion that is not known yet."""


class _Costs(Costs):
    """The costs of the steps of one prompt set, whose answers have at most ``longest`` tokens and half of it as a rule.

    Prompts are rendered and counted by their characters (:func:`estimated_tokens`).
    """

    def __init__(self, prompts: PromptSet, longest: int) -> None:
        super().__init__()
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


def estimate(teacher: TeacherConfig, reads: str, prompts: str, comparisons: Sequence[Comparison]) -> dict[Step, Cost]:
    """The expected cost of annotating ``comparisons``, by step.

    Answers are expected to be half as long as ``teacher.sampling.max_new_tokens`` allows, guidelines included. A
    teacher that lists fewer criteria than are to be judged takes fewer calls; tries that fail take more.
    """
    shape = shape_of(teacher, reads)
    longest = teacher.sampling.max_new_tokens
    costs = _Costs(load_prompt_set(prompts), longest)
    for comparison in comparisons:
        costs.ask("criteria", slots_of(comparison) | {"count": str(shape.count)}, 1)
    for comparison in comparisons[: teacher.judged]:
        slots = slots_of(comparison)
        costs.ask("guideline", slots | {"criterion": CRITERION}, teacher.branches)
        for order in shape.orders:
            judged = judgment_slots(comparison, order, CRITERION, "")
            costs.ask(judgment_step(order), judged, teacher.branches, costs.half, longest)
    return dict(costs)


def estimate_external(settings: ExternalConfig, cases: Sequence[Case]) -> dict[Step, Cost]:
    """The expected cost of the external judge's labels; what is asked again because it could not be read adds to it."""
    prompts, dialect = load_external_prompts(settings)
    costs = _Costs(prompts, settings.sampling.max_new_tokens)
    for case in cases:
        shown = case.comparison
        if dialect == "pairwise":
            responses = {"response_a": shown.response_a, "response_b": shown.response_b}
            costs.ask("pairwise", slots_of(shown) | responses, 2)
        for conflict in case.conflicts:
            costs.ask("preference", conflict.slots, 2)
    return dict(costs)


def teacher(settings: TeacherSettings, inputs: Callable[[], Mapping[str, Path]]) -> Iterator[str]:
    """The lines of a dry run of stage teacher."""
    config = settings.teacher
    comparisons = [Comparison.from_row(row) for row in read_rows(inputs()["responses"], "comparisons")]
    taught, remaining = divided(comparisons, config, derive_seed(settings.seed, "teacher"))
    left = f"{len(remaining)} remain for the tree"
    if not remaining:
        left = "none remains, so that the trees are grown over the same ones; a smaller teacher.share leaves some"
    yield f"teacher: dry run for {config.engine.described}: {len(taught)} comparisons ({left}), expected"
    yield from described(estimate(config, settings.reads, settings.prompts, taught), config, "teacher")


def external(settings: LabelSettings, inputs: Callable[[], Mapping[str, Path]]) -> Iterator[str]:
    """The lines of a dry run of stage label."""
    config = settings.label.external
    _, dialect = load_external_prompts(config)
    cases = list(cases_of(settings.label, inputs()["tree"], dialect, derive_seed(settings.seed, "label")))
    yield f"label: dry run for {config.engine.described}: {len(cases)} comparisons, expected"
    yield from described(estimate_external(config, cases), config, "label.external")
