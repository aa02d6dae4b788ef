"""Breadth-first growth of evaluation trees (branching paper, section 4.3)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from judgetrain.artifacts import derive_seed
from judgetrain.config import SamplingConfig, TreeConfig
from judgetrain.dialogues.schema import Comparison, Order
from judgetrain.engines.base import Completion, Engine, Request, Sampling, Step
from judgetrain.tree.parsing import normalise, parse_criteria
from judgetrain.tree.prompts import PromptSet
from judgetrain.tree.readout import Readout
from judgetrain.tree.schema import CriterionNode, EvaluationTree, GuidelineNode, JudgmentNode

Choose = Callable[[Comparison, list[str]], list[int]]
"""Which criteria of a list to expand, by index; the others stay in ``criteria_text`` only."""


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


@dataclass
class _Growing:
    """A tree while it grows."""

    comparison: Comparison
    criteria_text: str = ""
    prompt_tokens: int = 0
    generated_tokens: int = 0
    criteria: list[tuple[int, str, int]] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    beyond_context: bool = False
    """The criteria prompt does not fit: asking again gives the same."""


def grow(
    comparisons: Sequence[Comparison],
    engine: Engine,
    prompts: PromptSet,
    shape: Shape,
    sampling: StepSampling,
    seed: int,
    choose: Choose | None = None,
) -> list[EvaluationTree]:
    """One evaluation tree per comparison; every level is one batch over all comparisons.

    A complete tree has ``criteria × guidelines × judgments × orders`` branches. Whatever cannot be read is
    counted in the tree's ``failures`` by reason; nothing is guessed.
    """
    trees = [_Growing(c) for c in comparisons]
    _brainstorm(trees, engine, prompts, shape, sampling.criteria, seed)
    if choose:
        for tree in trees:
            kept = set(choose(tree.comparison, [text for _, text, _ in tree.criteria]))
            tree.criteria = [c for i, c in enumerate(tree.criteria) if i in kept]
    guidelines = _guidelines(trees, engine, prompts, shape, sampling.guideline, derive_seed(seed, "guideline"))
    judgments = _judgments(trees, guidelines, engine, prompts, shape, sampling, derive_seed(seed, "judgment"))
    return [_assemble(tree, index, guidelines, judgments, seed, sampling.readout) for index, tree in enumerate(trees)]


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
    limits = Sampling(sampling.temperature, sampling.top_p, sampling.max_new_tokens, stop)
    return Request(prompts.render(step, slots), limits, step, slots)


def _brainstorm(
    trees: list[_Growing], engine: Engine, prompts: PromptSet, shape: Shape, sampling: SamplingConfig, seed: int
) -> None:
    """Name criteria; where ``shape.top_up``, ask once more for trees that came back short."""
    stop = (f"\n{shape.criteria + 1}.",) if shape.criteria < shape.count else ()
    waiting = trees
    for attempt in range(2 if shape.top_up else 1):
        slots = [slots_of(t.comparison) | {"count": str(shape.count)} for t in waiting]
        requests = [_request(prompts, "criteria", s, sampling, stop) for s in slots]
        completions = engine.generate(requests, derive_seed(seed, "criteria", attempt))
        for tree, completion in zip(waiting, completions, strict=True):
            _take_criteria(tree, completion, shape)
        waiting = [t for t in waiting if len(t.criteria) < shape.criteria and not t.beyond_context]
        if not waiting:
            return
    for tree in waiting:
        if tree.criteria:
            tree.failures["criteria:short"] += 1
        elif tree.criteria_text or not tree.failures:  # what never came is counted by its own reason
            tree.failures["criteria:none"] += 1


def _take_criteria(tree: _Growing, completion: Completion, shape: Shape) -> None:
    tree.prompt_tokens += completion.prompt_tokens
    tree.generated_tokens += completion.generated_tokens
    if completion.finish_reason in ("too_long", "error"):
        tree.failures[f"criteria:{completion.finish_reason}"] += 1
        tree.beyond_context = completion.finish_reason == "too_long"
        return
    tree.criteria_text = f"{tree.criteria_text}\n{completion.text}".strip("\n")
    known = {normalise(text) for _, text, _ in tree.criteria}
    listed = parse_criteria(completion.text, shape.count)
    if completion.finish_reason == "length" and len(listed) > 1 and not completion.text.endswith("\n"):
        listed.pop()  # the line that the token limit cut
    fresh = [c for c in listed if normalise(c) not in known]
    costs = _spread(completion, fresh)
    room = shape.criteria - len(tree.criteria)
    start = len(tree.criteria)
    tree.criteria += [(start + i, c, cost) for i, (c, cost) in enumerate(zip(fresh, costs, strict=True))][:room]


def _spread(completion: Completion, criteria: list[str]) -> list[int]:
    """The completion's tokens shared out over its criteria; they sum to the total.

    Engines do not report where a line ends in tokens, and the cost of the first k criteria is wanted: what stands up
    to the end of the k-th line, by its share of the characters. Words before the list count for the first criterion,
    those after it for the last; repeats count for the next.
    """
    lines = completion.text.splitlines(keepends=True)
    owners = [parse_criteria(line, 1) for line in lines]
    costs: list[int] = []
    total, read, used = len(completion.text) or 1, 0, 0
    for line, owner in zip(lines, owners, strict=True):
        read += len(line)
        if len(costs) < len(criteria) and owner == [criteria[len(costs)]]:
            last = len(costs) + 1 == len(criteria)
            upto = completion.generated_tokens if last else round(completion.generated_tokens * read / total)
            costs.append(upto - used)
            used = upto
    return costs


_Guidelines = dict[tuple[int, int], list[Completion]]
"""Guidelines by (tree, rank of the criterion)."""

_Judgments = dict[tuple[int, int, int, Order], list[Completion]]
"""Judgments by (tree, rank of the criterion, guideline, order)."""


def _guidelines(
    trees: list[_Growing], engine: Engine, prompts: PromptSet, shape: Shape, sampling: SamplingConfig, seed: int
) -> _Guidelines:
    keys, requests = [], []
    for index, tree in enumerate(trees):
        for rank, criterion, _ in tree.criteria:
            slots = slots_of(tree.comparison) | {"criterion": criterion}
            keys += [(index, rank)] * shape.guidelines
            requests += [_request(prompts, "guideline", slots, sampling)] * shape.guidelines
    found: _Guidelines = {}
    for key, completion in zip(keys, engine.generate(requests, seed) if requests else [], strict=True):
        found.setdefault(key, []).append(completion)
    return found


def _judgments(
    trees: list[_Growing],
    guidelines: _Guidelines,
    engine: Engine,
    prompts: PromptSet,
    shape: Shape,
    sampling: StepSampling,
    seed: int,
) -> _Judgments:
    keys, requests = [], []
    limits = sampling.readout.sampling(sampling.judgment, prompts)
    for (index, rank), candidates in guidelines.items():
        tree = trees[index]
        criterion = next(text for r, text, _ in tree.criteria if r == rank)
        for number, guideline in enumerate(candidates):
            if reason := unusable(guideline):
                tree.failures[f"guideline:{reason}"] += 1
                continue
            for order in shape.orders:
                slots = judgment_slots(tree.comparison, order, criterion, guideline.text.strip())
                keys += [(index, rank, number, order)] * shape.judgments
                request = Request(prompts.render("judgment", slots), limits, "judgment", slots)
                requests += [request] * shape.judgments
    found: _Judgments = {}
    for key, completion in zip(keys, engine.generate(requests, seed) if requests else [], strict=True):
        found.setdefault(key, []).append(completion)
    return found


def unusable(guideline: Completion | GuidelineNode) -> str | None:
    """Why a guideline cannot be judged by, or None: ``too_long``, ``error`` or ``empty``."""
    if guideline.finish_reason in ("too_long", "error"):
        return guideline.finish_reason
    return None if guideline.text.strip() else "empty"


def _assemble(
    growing: _Growing, index: int, guidelines: _Guidelines, judgments: _Judgments, seed: int, readout: Readout
) -> EvaluationTree:
    criteria = []
    for rank, text, cost in growing.criteria:
        base = f"{growing.comparison.id}/c{rank}"
        nodes = []
        for number, guideline in enumerate(guidelines.get((index, rank), [])):
            leaves = [
                _leaf(f"{base}/g{number}/{order}{i}", order, completion, growing.failures, readout)
                for order in ("AB", "BA")
                for i, completion in enumerate(judgments.get((index, rank, number, order), []))  # type: ignore[arg-type]
            ]
            nodes.append(
                GuidelineNode(
                    f"{base}/g{number}",
                    guideline.text.strip(),
                    guideline.prompt_tokens,
                    guideline.generated_tokens,
                    guideline.finish_reason,
                    tuple(leaves),
                )
            )
        criteria.append(CriterionNode(base, text, rank, cost, tuple(nodes)))
    return EvaluationTree(
        growing.comparison,
        growing.criteria_text,
        growing.prompt_tokens,
        growing.generated_tokens,
        tuple(criteria),
        seed,
        dict(sorted(growing.failures.items())),
    )


def _leaf(
    identifier: str, order: str, completion: Completion, failures: Counter[str], readout: Readout
) -> JudgmentNode:
    if completion.finish_reason in ("too_long", "error"):
        scores: tuple[float | None, float | None] = (None, None)
        failure: str | None = completion.finish_reason
    else:
        parsed = readout.read(completion)
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


def tree_tokens(tree: EvaluationTree) -> tuple[int, int]:
    """Prompt and generated tokens of a whole tree."""
    prompt, generated = tree.criteria_prompt_tokens, tree.criteria_generated_tokens
    for criterion in tree.criteria:
        for guideline in criterion.guidelines:
            prompt += guideline.prompt_tokens + sum(j.prompt_tokens for j in guideline.judgments)
            generated += guideline.generated_tokens + sum(j.generated_tokens for j in guideline.judgments)
    return prompt, generated


def sample_criteria(seed: int, number: int) -> Choose:
    """A chooser of ``number`` criteria at random, the same for a comparison in every run."""

    def choose(comparison: Comparison, criteria: list[str]) -> list[int]:
        rng = random.Random(derive_seed(seed, comparison.id))
        return rng.sample(range(len(criteria)), min(number, len(criteria)))

    return choose
