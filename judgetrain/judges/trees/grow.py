"""Breadth-first growth of evaluation trees (branching paper, section 4.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import UNANSWERED, Completion, Engine, Request, Sampling, Step
from judgetrain.engines.config import SamplingConfig
from judgetrain.engines.thinking import answer_of
from judgetrain.judges.config import TreeConfig
from judgetrain.judges.prompting.prompts import PromptSet
from judgetrain.judges.prompting.readout import Readout
from judgetrain.judges.trees.brainstorm import Choose, Growing, positions, take_criteria
from judgetrain.judges.trees.sampled import Sampled, by_key, repeated, retry, sample
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, GuidelineNode, JudgmentNode
from judgetrain.schema import Comparison, Order

Wave = Mapping[int, Sequence[Order]]
"""Which criteria to judge next, by rank, and in which orders."""

Steer = Callable[[EvaluationTree], Wave]
"""Given a tree as far as it has grown, what to grow next; an empty wave ends it. No criterion comes twice."""


@dataclass(frozen=True)
class Shape:
    """How wide a tree grows. ``count`` criteria are asked for, ``criteria`` of them are grown."""

    count: int
    criteria: int
    guidelines: int = 1
    judgments: int = 1
    orders: tuple[Order, ...] = ("AB", "BA")
    top_up: bool = False
    """Ask once more where fewer than ``criteria`` different criteria came back."""
    retries: int = 0
    """How often a judgment that cannot be read is sampled again, at a temperature above 0."""


@dataclass(frozen=True)
class StepSampling:
    """Sampling settings by level, and how judgments are read."""

    criteria: SamplingConfig
    guideline: SamplingConfig
    judgment: SamplingConfig
    readout: Readout = Readout()

    @classmethod
    def of(cls, settings: TreeConfig) -> StepSampling:
        """The sampling and readout of a judge."""
        levels = settings.criteria_sampling, settings.guideline_sampling, settings.judgment_sampling
        return cls(*levels, Readout.of(settings))


def grow(
    comparisons: Sequence[Comparison],
    engine: Engine,
    prompts: PromptSet,
    shape: Shape,
    sampling: StepSampling,
    seed: int,
    choose: Choose | None = None,
    steer: Steer | None = None,
) -> list[EvaluationTree]:
    """One evaluation tree per comparison; every level is one batch over all comparisons.

    A complete tree has ``criteria × guidelines × judgments × orders`` branches. Whatever cannot be read is
    counted in the tree's ``failures`` by reason; nothing is guessed. With ``steer`` the branches grow in waves, two
    batches each, until it wants no more; those that do grow are the ones of the complete tree.
    """
    trees = [Growing(c) for c in comparisons]
    _brainstorm(trees, engine, prompts, shape, sampling.criteria, seed)
    if choose:
        for tree in trees:
            kept = set(choose(tree.comparison, [c.text for c in tree.criteria]))
            tree.criteria = [c for i, c in enumerate(tree.criteria) if i in kept]
    guidelines: _Guidelines = {}
    judgments: _Judgments = {}
    readout = sampling.readout
    steer = steer or (lambda tree: {c.rank: shape.orders for c in tree.criteria if not c.guidelines})
    while True:
        grown = [_assemble(tree, index, guidelines, judgments, seed, readout) for index, tree in enumerate(trees)]
        waves = [steer(tree) for tree in grown]
        if not any(waves):
            return grown
        fresh = _guidelines(trees, waves, engine, prompts, shape, sampling.guideline, derive_seed(seed, "guideline"))
        guidelines |= fresh
        judgments |= _judgments(trees, waves, fresh, engine, prompts, shape, sampling, derive_seed(seed, "judgment"))


def slots_of(comparison: Comparison) -> dict[str, str]:
    """The slots that every step's prompt has."""
    return {"query": comparison.dialogue.query, "context": comparison.dialogue.context}


def judgment_slots(comparison: Comparison, order: Order, criterion: str, guideline: str) -> dict[str, str]:
    """The slots of a judgment prompt; for order BA the responses are exchanged."""
    shown = comparison if order == "AB" else comparison.swapped()
    return slots_of(comparison) | {
        "criterion": criterion,
        "guideline": guideline,
        "response_a": shown.response_a,
        "response_b": shown.response_b,
    }


def _request(
    prompts: PromptSet, step: Step, slots: dict[str, str], sampling: SamplingConfig, stop: tuple[str, ...] = ()
) -> Request:
    limits = replace(Sampling.of(sampling), stop=stop)
    return Request(messages=prompts.render(step, slots), sampling=limits, step=step, slots=slots)


def _brainstorm(
    trees: list[Growing], engine: Engine, prompts: PromptSet, shape: Shape, sampling: SamplingConfig, seed: int
) -> None:
    """Name criteria; where ``shape.top_up``, ask once more for trees that came back short."""
    stop = (f"\n{shape.criteria + 1}.",) if shape.criteria < shape.count else ()
    waiting = trees
    for attempt in range(2 if shape.top_up else 1):
        slots = [slots_of(t.comparison) | {"count": str(shape.count)} for t in waiting]
        requests = [replace(_request(prompts, "criteria", s, sampling, stop), attempt=attempt) for s in slots]
        sampled = sample(requests, engine, derive_seed(seed, "criteria", attempt))
        for tree, each in zip(waiting, sampled, strict=True):
            take_criteria(tree, each, shape.count, shape.criteria)
        waiting = [t for t in waiting if len(t.criteria) < shape.criteria and not t.beyond_context]
        if not waiting:
            return
    for tree in waiting:
        if tree.criteria:
            tree.failures["criteria:short"] += 1
        elif tree.criteria_text or not tree.failures:  # what never came is counted by its own reason
            tree.failures["criteria:none"] += 1


_Guidelines = dict[tuple[int, int], list[Sampled]]
"""Guidelines by (tree, rank of the criterion)."""

_Judgments = dict[tuple[int, int, int, Order], list[Sampled]]
"""Judgments by (tree, rank of the criterion, guideline, order)."""


def _guidelines(
    trees: list[Growing],
    waves: Sequence[Wave],
    engine: Engine,
    prompts: PromptSet,
    shape: Shape,
    sampling: SamplingConfig,
    seed: int,
) -> _Guidelines:
    keys: list[tuple[int, int]] = []
    requests: list[Request] = []
    for (index, rank), position in positions(trees).items():
        if rank in waves[index]:
            criterion = next(c.text for c in trees[index].criteria if c.rank == rank)
            slots = slots_of(trees[index].comparison) | {"criterion": criterion}
            keys += [(index, rank)] * shape.guidelines
            request = _request(prompts, "guideline", slots, sampling)
            requests += repeated(request, position * shape.guidelines, shape.guidelines)
    found = zip(keys, sample(requests, engine, seed), strict=True)
    return by_key(keys, [replace(s, completion=_answered(s.completion, trees[i].comparison)) for (i, _), s in found])


def _answered(guideline: Completion, comparison: Comparison) -> Completion:
    """A guideline without the reasoning before it, as judgments are asked for by it; empty if that never ended."""
    return replace(guideline, text=answer_of(guideline.text, "\n".join(slots_of(comparison).values())) or "")


def _judgments(
    trees: list[Growing],
    waves: Sequence[Wave],
    guidelines: _Guidelines,
    engine: Engine,
    prompts: PromptSet,
    shape: Shape,
    sampling: StepSampling,
    seed: int,
) -> _Judgments:
    keys: list[tuple[int, int, int, Order]] = []
    requests: list[Request] = []
    places = positions(trees)
    limits = sampling.readout.sampling(sampling.judgment, prompts)
    for (index, rank), candidates in guidelines.items():
        tree = trees[index]
        criterion = next(c.text for c in tree.criteria if c.rank == rank)
        for number, guideline in enumerate(c.completion for c in candidates):
            if reason := unusable(guideline):
                tree.failures[f"guideline:{reason}"] += 1
                continue
            if guideline.finish_reason == "length":  # judged by, but not taught
                tree.failures["guideline:cut_off"] += 1
            first = (places[index, rank] * shape.guidelines + number) * len(shape.orders)
            for place, order in enumerate(shape.orders, start=first):
                if order not in waves[index][rank]:
                    continue
                slots = judgment_slots(tree.comparison, order, criterion, guideline.text.strip())
                keys += [(index, rank, number, order)] * shape.judgments
                request = Request(
                    messages=prompts.render("judgment", slots), sampling=limits, step="judgment", slots=slots
                )
                requests += repeated(request, place * shape.judgments, shape.judgments)
    sampled = sample(requests, engine, seed)
    attempts = shape.retries if limits.temperature > 0 else 0
    return by_key(keys, retry(sampled, requests, engine, seed, attempts, partial(_unreadable, sampling.readout)))


def _unreadable(readout: Readout, request: Request, completion: Completion) -> str | None:
    """Why a judgment cannot be read though there is one, or None."""
    if completion.finish_reason in UNANSWERED:
        return None
    material = tuple(text for slot, text in (request.slots or {}).items() if slot not in ("criterion", "guideline"))
    return _leaf("", "AB", completion, Counter(), readout, material).failure


def unusable(guideline: Completion | GuidelineNode) -> str | None:
    """Why a guideline cannot be judged by, or None: ``too_long``, ``error`` or ``empty``."""
    if guideline.finish_reason in UNANSWERED:
        return guideline.finish_reason
    return None if guideline.text.strip() else "empty"


def _assemble(
    growing: Growing, index: int, guidelines: _Guidelines, judgments: _Judgments, seed: int, readout: Readout
) -> EvaluationTree:
    criteria = []
    failures = Counter(growing.failures)
    material = (*slots_of(growing.comparison).values(), growing.comparison.response_a, growing.comparison.response_b)
    for rank, text, cost, listed_in in growing.criteria:
        base = f"{growing.comparison.id}/c{rank}"
        nodes = []
        for number, each in enumerate(guidelines.get((index, rank), [])):
            leaves = [
                replace(
                    _leaf(f"{base}/g{number}/{order}{i}", order, leaf.completion, failures, readout, material),
                    seed=leaf.seed,
                    place=leaf.place,
                    retried=leaf.retried,
                )
                for order in ("AB", "BA")
                for i, leaf in enumerate(judgments.get((index, rank, number, order), []))  # type: ignore[arg-type]
            ]
            guideline = each.completion
            nodes.append(
                GuidelineNode(
                    f"{base}/g{number}",
                    guideline.text.strip(),
                    guideline.prompt_tokens,
                    guideline.generated_tokens,
                    guideline.finish_reason,
                    tuple(leaves),
                    each.seed,
                    each.place,
                )
            )
        criteria.append(CriterionNode(base, text, rank, cost, tuple(nodes), listed_in))
    return EvaluationTree(
        growing.comparison,
        growing.criteria_text,
        growing.prompt_tokens,
        growing.generated_tokens,
        tuple(criteria),
        seed,
        dict(sorted(failures.items())),
        tuple(growing.lists),
    )


def _leaf(
    identifier: str,
    order: str,
    completion: Completion,
    failures: Counter[str],
    readout: Readout,
    material: Sequence[str],
) -> JudgmentNode:
    if completion.finish_reason in UNANSWERED:
        scores: tuple[float | None, float | None] = (None, None)
        failure: str | None = completion.finish_reason
    else:
        parsed = readout.read(completion, material)
        scores, failure = (parsed.first, parsed.second), parsed.failure
    if failure:
        failures[f"judgment:{failure}"] += 1
    score_a, score_b = scores if order == "AB" else scores[::-1]
    return JudgmentNode(
        identifier,
        order,  # type: ignore[arg-type]
        completion.text,
        score_a,
        score_b,
        failure,
        completion.prompt_tokens,
        completion.generated_tokens,
        completion.finish_reason,
        readout.tie,
    )
