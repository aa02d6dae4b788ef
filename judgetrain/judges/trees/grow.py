"""Breadth-first growth of evaluation trees (branching paper, section 4.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import UNANSWERED, Completion, Engine, Request, Sampling, Step
from judgetrain.engines.config import SamplingConfig
from judgetrain.engines.thinking import answer_of
from judgetrain.judges.config import AskingConfig
from judgetrain.judges.prompting.headings import OUTSIDE
from judgetrain.judges.prompting.parsing import ParsedJudgment
from judgetrain.judges.prompting.prompts import PromptSet, judgment_slots, slots_of
from judgetrain.judges.prompting.readout import Readout
from judgetrain.judges.trees.growing import Choose, GrowingCriterion, GrowingGuideline, GrowingTree, material_of
from judgetrain.judges.trees.sampled import Sampled, retry, sample
from judgetrain.judges.trees.schema import EvaluationTree, GuidelineNode, JudgmentNode
from judgetrain.schema import Comparison, Order

Wave = Mapping[int, Sequence[Order]]
"""Which criteria to judge next, by rank, and in which orders."""

Steer = Callable[[EvaluationTree], Wave]
"""Given a tree as far as it has grown, what to grow next; an empty wave ends it. No criterion comes twice."""


@dataclass(frozen=True, kw_only=True)
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
    def of(cls, settings: AskingConfig) -> StepSampling:
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
    trees = [GrowingTree(comparison=c) for c in comparisons]
    grower = _Grower(engine, prompts, shape, sampling, seed)
    grower.list_criteria(trees)
    if choose:
        for tree in trees:
            kept = set(choose(tree.comparison, [c.text for c in tree.criteria]))
            tree.criteria = [c for i, c in enumerate(tree.criteria) if i in kept]
    for position, criterion in enumerate(c for tree in trees for c in tree.criteria):
        criterion.position = position
    steer = steer or (lambda tree: {c.rank: shape.orders for c in tree.criteria if not c.guidelines})
    while True:
        grown = [tree.finished(seed) for tree in trees]
        waves = list(zip(trees, map(steer, grown), strict=True))
        due = [_Due(tree, c, wave[c.rank]) for tree, wave in waves for c in tree.criteria if c.rank in wave]
        if not due:
            return grown
        grower.write_guidelines(due)
        grower.judge(due)


@dataclass(frozen=True)
class _Due:
    """A criterion whose branches grow next, and the orders in which they are judged."""

    tree: GrowingTree
    criterion: GrowingCriterion
    orders: Sequence[Order]


@dataclass(frozen=True)
class _Question:
    """A judgment prompt: by one guideline, in one order."""

    tree: GrowingTree
    guideline: GrowingGuideline
    order: Order


@dataclass(frozen=True)
class _Grower:
    """Samples one level of many trees at a time."""

    engine: Engine
    prompts: PromptSet
    shape: Shape
    sampling: StepSampling
    seed: int

    def list_criteria(self, trees: Sequence[GrowingTree]) -> None:
        """List criteria; where ``shape.top_up``, ask once more for trees that came back short."""
        shape, waiting = self.shape, trees
        stop = (f"\n{shape.criteria + 1}.",) if shape.criteria < shape.count else ()
        limits = replace(Sampling.of(self.sampling.criteria), stop=stop)
        for attempt in range(2 if shape.top_up else 1):
            slots = [slots_of(t.comparison) | {"count": str(shape.count)} for t in waiting]
            requests = [
                Request(
                    messages=self.prompts.render("criteria", s),
                    sampling=limits,
                    step="criteria",
                    slots=s,
                    attempt=attempt,
                )
                for s in slots
            ]
            sampled = sample(requests, self.engine, derive_seed(self.seed, "criteria", attempt))
            for tree, each in zip(waiting, sampled, strict=True):
                tree.take_criteria(each, shape.count, shape.criteria)
            waiting = [t for t in waiting if len(t.criteria) < shape.criteria and not t.beyond_context]
        for tree in waiting:
            if tree.criteria:
                tree.failures["criteria:short"] += 1
            elif tree.criteria_text or not tree.failures:  # what never came is counted by its own reason
                tree.failures["criteria:none"] += 1

    def write_guidelines(self, due: Sequence[_Due]) -> None:
        """Sample the guidelines of each criterion, without the reasoning before them."""
        number, limits = self.shape.guidelines, Sampling.of(self.sampling.guideline)
        requests: list[Request] = []
        for each in due:
            slots = slots_of(each.tree.comparison) | {"criterion": each.criterion.text}
            requests += self._requests("guideline", slots, limits, each.criterion.position, number)
        sampled = iter(sample(requests, self.engine, derive_seed(self.seed, "guideline")))
        for each in due:
            for i, found in enumerate(islice(sampled, number)):
                answer = answer_of(found.completion.text, material_of(each.tree.comparison))
                text = (answer or "").strip()  # empty: the reasoning never ended
                name = f"{each.tree.comparison.id}/c{each.criterion.rank}/g{i}"
                guideline = GuidelineNode(id=name, text=text, **found.record)
                each.criterion.guidelines.append(GrowingGuideline(guideline))
                if reason := guideline.failure:
                    each.tree.failures[f"guideline:{reason}"] += 1
                elif guideline.finish_reason == "length":  # judged by, but not taught
                    each.tree.failures["guideline:cut_off"] += 1

    def judge(self, due: Sequence[_Due]) -> None:
        """Sample the judgments by each usable guideline, in the orders due."""
        shape, readout = self.shape, self.sampling.readout
        limits = readout.sampling(self.sampling.judgment, self.prompts)
        questions: list[_Question] = []
        requests: list[Request] = []
        for each in due:
            for i, guideline in enumerate(each.criterion.guidelines):
                first = (each.criterion.position * shape.guidelines + i) * len(shape.orders)
                for group, order in enumerate(shape.orders, start=first):
                    if guideline.node.failure is None and order in each.orders:
                        shown = each.tree.comparison, order, each.criterion.text, guideline.node.text
                        questions.append(_Question(each.tree, guideline, order))
                        requests += self._requests("judgment", judgment_slots(*shown), limits, group, shape.judgments)
        seed, attempts = derive_seed(self.seed, "judgment"), shape.retries if limits.temperature > 0 else 0
        sampled = sample(requests, self.engine, seed)
        found = zip(requests, retry(sampled, requests, self.engine, seed, attempts, self._unreadable), strict=True)
        for question in questions:
            for i, (request, judgment) in enumerate(islice(found, shape.judgments)):
                parsed = self._read(request, judgment.completion)
                question.guideline.judgments.append(self._judgment(question, i, judgment, parsed))
                if parsed.failure:
                    question.tree.failures[f"judgment:{parsed.failure}"] += 1

    def _requests(self, step: Step, slots: dict[str, str], limits: Sampling, group: int, number: int) -> list[Request]:
        """The same prompt ``number`` times; ``group`` numbers the prompts and decides their random numbers."""
        messages, places = self.prompts.render(step, slots), range(group * number, (group + 1) * number)
        return [Request(messages=messages, sampling=limits, step=step, slots=slots, place=place) for place in places]

    def _judgment(self, question: _Question, number: int, sampled: Sampled, parsed: ParsedJudgment) -> JudgmentNode:
        shown = parsed.first, parsed.second
        score_a, score_b = shown if question.order == "AB" else shown[::-1]
        return JudgmentNode(
            id=f"{question.guideline.node.id}/{question.order}{number}",
            order=question.order,
            text=sampled.completion.text,
            score_a=score_a,
            score_b=score_b,
            failure=parsed.failure,
            tie=self.sampling.readout.tie,
            retried=sampled.retried,
            **sampled.record,
        )

    def _read(self, request: Request, completion: Completion) -> ParsedJudgment:
        if completion.finish_reason in UNANSWERED:
            return ParsedJudgment(None, None, completion.finish_reason)
        return self.sampling.readout.read(completion, [t for slot, t in request.slots.items() if slot in OUTSIDE])

    def _unreadable(self, request: Request, completion: Completion) -> str | None:
        """Why a judgment cannot be read though there is one, or None."""
        return None if completion.finish_reason in UNANSWERED else self._read(request, completion).failure
