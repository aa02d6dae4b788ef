"""Breadth-first growth of evaluation trees (branching paper, section 4.3)."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import Any

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import UNANSWERED, Completion, Engine, Request, Sampling, Step, places
from judgetrain.engines.prompting import answer_of
from judgetrain.judges.config import StepsConfig
from judgetrain.judges.prompting.parsing import (
    LINE_END,
    SCORES,
    SIDES,
    ParsedJudgment,
    listed_criteria,
    listed_items,
    normalise,
    read_judgment,
)
from judgetrain.judges.prompting.prompts import OUTSIDE, PromptSet, judgment_slots, judgment_step, slots_of
from judgetrain.judges.prompting.replies import form_of
from judgetrain.judges.trees.schema import (
    NOT_SAMPLED,
    CriteriaList,
    CriterionNode,
    EvaluationTree,
    GuidelineNode,
    JudgmentNode,
    Wave,
)
from judgetrain.rubrics import Rubric
from judgetrain.schema import ORDERS, RESPONSES, Comparison, Order

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
    """The completion's tokens shared out over criteria whose lines end at ``ends``, by characters: engines do not say
    where a line ends. Words before the list count for the first, those after it for the last, repeats for the next."""
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


Steer = Callable[[EvaluationTree], Wave]
"""Given a tree as far as it has grown, what to grow next; an empty wave ends it. No criterion comes twice."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How wide a tree grows. ``count`` criteria are asked for, ``criteria`` of them are grown, and all given ones.

    ``orders``: what its judgments are shown.
    """

    count: int
    criteria: int
    guidelines: int = 1
    judgments: int = 1
    orders: tuple[Order, ...] = ORDERS
    top_up: bool = False
    """Ask once more where fewer than ``criteria`` different criteria came back."""
    attempt: int = 0
    """How many trees of the same comparisons were of no use: answers that were kept for those are not wanted."""


def grow(
    comparisons: Sequence[Comparison],
    engine: Engine,
    prompts: PromptSet,
    shape: Shape,
    asking: StepsConfig,
    seed: int,
    choose: Choose | None = None,
    steer: Steer | None = None,
    numbers: Sequence[int] | None = None,
) -> list[EvaluationTree]:
    """One evaluation tree per comparison; every level is one batch over all comparisons.

    A complete tree has ``criteria × guidelines × judgments × orders`` branches. Whatever cannot be read is
    counted in the tree's ``failures`` by reason; nothing is guessed. ``asking``: the sampling at each level, and how
    judgments are read; how many criteria are asked for is the shape's. With ``steer`` the branches grow in waves, two
    batches each, until it wants no more; those that do grow are the ones of the complete tree.

    A tree's random numbers follow from the seed and its number alone, whatever the others hold: ``numbers`` are those
    of the trees (None: their indices), so that a batch grows the same trees in one call as in several.
    """
    trees = [PartialTree(comparison=c) for c in comparisons]
    numbers = range(len(trees)) if numbers is None else numbers
    grower = _Grower(engine, prompts, shape, asking, seed, numbers)
    grower.list_criteria(trees)
    if choose:
        for tree in trees:
            kept = set(choose(tree.comparison, [c.text for c in tree.criteria]))
            tree.criteria = [c for i, c in enumerate(tree.criteria) if i in kept]
    steer = steer or (lambda tree: {c.rank: shape.orders for c in tree.criteria if not c.guidelines})
    while True:
        grown = [tree.finished(seed) for tree in trees]
        waves = [steer(tree) for tree in grown]
        due = [
            _Due(tree, index, criterion, _position(number, index, shape.criteria), wave[criterion.rank])
            for number, tree, wave in zip(numbers, trees, waves, strict=True)
            for index, criterion in enumerate(tree.criteria)
            if criterion.rank in wave
        ]
        if not due:
            return grown
        for each, guidelines in zip(due, grower.judge(due, grower.write_guidelines(due)), strict=True):
            each.tree.criteria[each.index] = replace(each.criterion, guidelines=tuple(guidelines))


WITHOUT = "5 if it holds throughout, 3 if it holds in part, 1 if it does not hold."
"""What a judge is shown in the place of a guideline where a criterion is to be judged by its text alone."""


def _position(number: int, index: int, most: int) -> int:
    """A place for the ``index``-th criterion of a tree, whatever the others of a call hold: what a rubric has beyond
    the length of lists stands behind all lists' places."""
    return number * most + index if index < most else (1 << 50) + number * 1000 + index


@dataclass(frozen=True)
class _Due:
    """A criterion whose branches grow next, by ``position``, which decides its random numbers, in the ``orders``."""

    tree: PartialTree
    index: int
    criterion: CriterionNode
    position: int
    orders: Sequence[Order]


@dataclass(frozen=True)
class _Grower:
    """Samples one level of many trees at a time."""

    engine: Engine
    prompts: PromptSet
    shape: Shape
    asking: StepsConfig
    seed: int
    numbers: Sequence[int]

    def list_criteria(self, trees: Sequence[PartialTree]) -> None:
        """List criteria, unless they are given; where ``shape.top_up``, ask once more for trees that came short."""
        shape = self.shape
        for tree in trees:
            tree.take_given(tree.comparison.rubric)
        alone = self.asking.rubric == "only"
        waiting = [
            (number, tree)
            for number, tree in zip(self.numbers, trees, strict=True)
            if len(tree.criteria) < (1 if alone else shape.criteria)
        ]
        stop = (f"\n{shape.criteria + 1}.",) if shape.criteria < shape.count else ()
        limits = replace(Sampling.of(self.asking.criteria_sampling), stop=stop)
        for attempt in range(2 if shape.top_up else 1):
            requests: list[Request] = []
            for number, tree in waiting:
                slots = slots_of(tree.comparison, self.asking.reference) | {"count": str(shape.count)}
                requests += self._requests("criteria", slots, limits, number, 1)
            requests = [replace(request, attempt=2 * shape.attempt + attempt) for request in requests]
            sampled = self._sample(requests, "criteria", attempt)
            for (_, tree), each in zip(waiting, sampled, strict=True):
                tree.take_criteria(each, shape.count, shape.criteria)
            # A prompt that is too long stays so.
            short = [(n, t) for n, t in waiting if len(t.criteria) < shape.criteria]
            waiting = [(n, t) for n, t in short if t.lists[-1].finish_reason != "too_long"]
        for _, tree in waiting:
            if tree.criteria:
                tree.failures["criteria:short"] += 1
            elif tree.criteria_text or not tree.failures:  # what never came is counted by its own reason
                tree.failures["criteria:none"] += 1

    def write_guidelines(self, due: Sequence[_Due]) -> list[list[GuidelineNode]]:
        """Sample the guidelines of each criterion that has none given, without the reasoning before them."""
        number, limits = self.shape.guidelines, Sampling.of(self.asking.guideline_sampling)
        requests: list[Request] = []
        for each in due:
            if self._stated(each) is None:
                slots = slots_of(each.tree.comparison, self.asking.reference) | {"criterion": each.criterion.text}
                requests += self._requests("guideline", slots, limits, each.position, number)
        sampled = iter(self._sample(requests, "guideline"))
        return [
            [self._guideline(each, i, found) for i, found in enumerate(islice(sampled, number))]
            if (stated := self._stated(each)) is None
            else [GuidelineNode(id=f"{each.criterion.id}/g0", text=self.prompts.quoted(stated), **NOT_SAMPLED)]
            for each in due
        ]

    def _stated(self, due: _Due) -> str | None:
        """The guideline that is given with a criterion; None where the judge writes one."""
        given = due.criterion.given
        if given is None:
            return None
        return given.stated_guideline or (None if self.asking.write_guidelines else WITHOUT)

    def _guideline(self, due: _Due, number: int, sampled: Sampled) -> GuidelineNode:
        answer = answer_of(sampled.completion.text, material_of(due.tree.comparison))
        text = (answer or "").strip()  # empty: the reasoning never ended
        node = GuidelineNode(id=f"{due.criterion.id}/g{number}", text=text, **sampled.record)
        # One that was cut off is judged by, but not taught.
        if reason := node.failure or ("cut_off" if node.finish_reason == "length" else None):
            due.tree.failures[f"guideline:{reason}"] += 1
        return node

    def judge(self, due: Sequence[_Due], written: Sequence[Sequence[GuidelineNode]]) -> list[list[GuidelineNode]]:
        """Sample the judgments by each usable guideline, in the orders due; the guidelines with their judgments."""
        shape = self.shape
        limits = {step: judgment_sampling(self.asking, self.prompts, step) for step in map(judgment_step, shape.orders)}
        requests: list[Request] = []
        for each, guidelines in zip(due, written, strict=True):
            for i, guideline in enumerate(guidelines):
                for order in self._orders(each, guideline):
                    shown = each.tree.comparison, order, each.criterion.text, guideline.text, self.asking.reference
                    group = (each.position * shape.guidelines + i) * len(shape.orders) + shape.orders.index(order)
                    step = judgment_step(order)
                    requests += self._requests(step, judgment_slots(*shown), limits[step], group, shape.judgments)
        found = zip(requests, self._sample(requests, "judgment"), strict=True)

        def judged(each: _Due, guideline: GuidelineNode) -> GuidelineNode:
            nodes = [
                self._judgment(each, f"{guideline.id}/{order}{i}", order, *answer)
                for order in self._orders(each, guideline)
                for i, answer in enumerate(islice(found, shape.judgments))
            ]
            return replace(guideline, judgments=tuple(_with_siblings(nodes)))

        return [
            [judged(each, guideline) for guideline in guidelines] for each, guidelines in zip(due, written, strict=True)
        ]

    def _orders(self, due: _Due, guideline: GuidelineNode) -> list[Order]:
        """In which orders to judge by a guideline: none where it failed."""
        return [order for order in self.shape.orders if guideline.failure is None and order in due.orders]

    def _requests(self, step: Step, slots: dict[str, str], limits: Sampling, group: int, number: int) -> list[Request]:
        """The same prompt ``number`` times; ``group`` numbers the prompts and decides their random numbers."""
        messages, places = self.prompts.render(step, slots), range(group * number, (group + 1) * number)
        form = form_of(self.prompts, step)
        asked = Request(
            messages=messages, sampling=limits, step=step, slots=slots, attempt=self.shape.attempt, form=form
        )
        return [replace(asked, place=place) for place in places]

    def _judgment(self, due: _Due, id_: str, order: Order, request: Request, sampled: Sampled) -> JudgmentNode:
        parsed = self._read(request, sampled)
        if parsed.failure:
            due.tree.failures[f"judgment:{parsed.failure}"] += 1
        shown = parsed.first, parsed.second
        score_a, score_b = shown if order in ("AB", "A") else shown[::-1]
        return JudgmentNode(
            id=id_,
            order=order,
            text=sampled.completion.text,
            score_a=score_a,
            score_b=score_b,
            failure=parsed.failure,
            inverted=due.criterion.criterion.weight < 0,
            **sampled.record,
        )

    def _read(self, request: Request, sampled: Sampled) -> ParsedJudgment:
        if sampled.completion.finish_reason in UNANSWERED:
            return ParsedJudgment(None, None, sampled.completion.finish_reason)
        judged = [text for slot, text in request.slots.items() if slot in OUTSIDE]
        frame, responses = self.prompts.frames[request.step], 1 if request.step == "score" else 2
        return read_judgment(sampled.completion, self.asking.score, judged, frame, responses)

    def _sample(self, requests: Sequence[Request], step: Step, *attempt: int) -> list[Sampled]:
        """Every request's completion, in their order; an engine that has nothing to do is not called."""
        if not requests:
            return []
        seed = derive_seed(self.seed, step, *attempt)
        done = zip(self.engine.generate(requests, seed), places(requests), strict=True)
        return [Sampled(completion, seed, place) for completion, place in done]


def _with_siblings(nodes: Sequence[JudgmentNode]) -> Iterator[JudgmentNode]:
    """The judgments of a guideline; each of one response with the other's score, from the judgment of its number."""
    own = {shown: [j.score_a if shown == "A" else j.score_b for j in nodes if j.order == shown] for shown in RESPONSES}
    pairs = dict(zip(RESPONSES, map(iter, (own["B"], own["A"])), strict=True))
    for node in nodes:
        other = next(pairs[node.order], None) if node.order in RESPONSES else None
        if node.failure or node.order in ORDERS:
            yield node
        else:
            yield replace(node, score_b=other) if node.order == "A" else replace(node, score_a=other)


def judgment_sampling(asking: StepsConfig, prompts: PromptSet, step: Step = "judgment") -> Sampling:
    """How to sample a judgment so that it can be read as ``asking`` says; where its frame says that all is one line and
    its end, up to that."""
    limits = asking.judgment_sampling
    return replace(
        Sampling.of(limits),
        stop=("\n",) if LINE_END.split(prompts.frames[step])[1:] == [""] else (),
        pattern=prompts.judgment_frame(step, limits.max_new_tokens) if asking.constrained else "",
        candidates=(*SCORES, *SIDES) if asking.score == "expected" else (),
    )
