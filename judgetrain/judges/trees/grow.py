"""Breadth-first growth of evaluation trees (branching paper, section 4.3)."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, pairwise
from typing import Any

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import UNANSWERED, Completion, Engine, Request, Sampling, Step, keeping_beginnings, places
from judgetrain.errors import ConfigError
from judgetrain.judges.prompting.parsing import (
    LINE_END,
    SCORES,
    SIDES,
    ParsedJudgment,
    listed_criteria,
    listed_items,
    normalise,
    read_judgment,
    read_score,
)
from judgetrain.judges.prompting.prompts import OUTSIDE, PromptSet, judgment_slots, judgment_step, slots_of
from judgetrain.judges.prompting.replies import form_of
from judgetrain.judges.trees.config import StepsConfig
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
from judgetrain.schema import ORDERS, Comparison, Order
from judgetrain.thoughts import answer_of

Choose = Callable[[Comparison, list[str]], list[int]]
"""Returns which criteria of a list to expand, by index; the others stay in ``criteria_text`` only."""


@dataclass(frozen=True)
class Sampled:
    """A completion and the random numbers that made it: the batch's ``seed`` and the request's ``place`` in it."""

    completion: Completion
    seed: int
    place: int

    @property
    def record(self) -> dict[str, Any]:
        """Return the fields of the node that it becomes, but for its text."""
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
        self.criteria = []
        if rubric is not None:
            for rank, criterion in enumerate(rubric.criteria):
                self.criteria.append(self._node(rank, criterion.line, given=criterion))

    def take_criteria(self, sampled: Sampled, listed_at_most: int, most: int) -> None:
        """Add the new criteria of a list, and count what could not be used.

        Args:
            sampled: the list.
            listed_at_most: how many of its items count.
            most: how many criteria the tree may have in all.
        """
        completion = sampled.completion
        reason = completion.finish_reason
        # Also one that cannot be read: it was paid for.
        self.lists.append(CriteriaList(text=completion.text, **sampled.record))
        if reason in UNANSWERED:
            self.failures[f"criteria:{reason}"] += 1
            return
        # Lists stand under each other, as if they were one.
        self.criteria_text = f"{self.criteria_text}\n{completion.text}".strip("\n")

        material = material_of(self.comparison)
        complete_text = _without_cut_line(completion.text, reason)
        # A line that was cut counts where there is no other.
        items = listed_criteria(complete_text, material) or listed_criteria(completion.text, material)
        items = items[:listed_at_most]
        if reason == "length" and items:
            self.failures["criteria:cut_off"] += 1

        earlier_names = {normalise(criterion.text) for criterion in self.criteria}
        # A judge that repeats itself is told apart from one that names few criteria.
        names = [normalise(item) for item, _ in listed_items(complete_text, material)]
        repeats = len(names) - len(set(names) - earlier_names)
        if repeats:
            self.failures["criteria:repeated"] += repeats

        new_items = [(text, end) for text, end in items if normalise(text) not in earlier_names]
        costs = _costs(completion, [end for _, end in new_items])

        # A list may name more than the tree takes. Those beyond stay in its text alone, with their part of its tokens.
        free_places = most - len(self.criteria)
        for (text, _), cost in list(zip(new_items, costs, strict=True))[:free_places]:
            self.criteria.append(self._node(len(self.criteria), text, cost, listed_in=len(self.lists) - 1))

    def _node(self, rank: int, text: str, generated_tokens: int = 0, **fields: Any) -> CriterionNode:
        """Return a criterion of this tree that has not grown yet."""
        return CriterionNode(
            id=f"{self.comparison.id}/c{rank}",
            text=text,
            rank=rank,
            generated_tokens=generated_tokens,
            guidelines=(),
            **fields,
        )

    def finished(self, seed: int) -> EvaluationTree:
        """Return the tree as it has grown, which a batch of this seed grew."""
        return EvaluationTree(
            comparison=self.comparison,
            criteria_text=self.criteria_text,
            criteria_prompt_tokens=sum(criteria_list.prompt_tokens for criteria_list in self.lists),
            criteria_generated_tokens=sum(criteria_list.generated_tokens for criteria_list in self.lists),
            criteria=tuple(self.criteria),
            seed=seed,
            # Sorted, so that equal trees are equal rows, whatever failed first.
            failures=dict(sorted(self.failures.items())),
            lists=tuple(self.lists),
        )


def whole_criteria(text: str, finish_reason: str, limit: int, comparison: Comparison) -> list[str]:
    """Return the criteria of a list, at most ``limit``, without the line that the token limit cut."""
    items = listed_criteria(_without_cut_line(text, finish_reason), material_of(comparison))
    return [criterion for criterion, _ in items[:limit]]


def material_of(comparison: Comparison) -> str:
    """Return the dialogue, which a list's reasoning may quote."""
    return f"{comparison.dialogue.context}\n{comparison.dialogue.query}"


def _without_cut_line(text: str, finish_reason: str) -> str:
    """Return a list without the line that the token limit cut."""
    if finish_reason != "length" or text.endswith("\n"):
        return text
    return "".join(text.splitlines(keepends=True)[:-1])


def _costs(completion: Completion, ends: list[int]) -> list[int]:
    """Return a list's tokens shared out over its criteria.

    They are shared by characters, as engines do not say with which token a line ends. Words before the list count for
    the first criterion, those after it for the last, and a repeat for the criterion after it.

    Args:
        completion: the list.
        ends: where each criterion's line ends, characters.
    """
    if not ends:
        return []
    characters = len(completion.text) or 1
    bounds = [0]
    for end in ends[:-1]:
        bounds.append(round(completion.generated_tokens * end / characters))
    bounds.append(completion.generated_tokens)
    return [after - before for before, after in pairwise(bounds)]


def sample_criteria(seed: int, number: int) -> Choose:
    """Return a chooser of ``number`` criteria at random, which chooses the same for a comparison in every run."""

    def choose(comparison: Comparison, criteria: list[str]) -> list[int]:
        # The comparison's id is part of the seed, so that the choice hangs on no other comparison.
        rng = random.Random(derive_seed(seed, comparison.id))
        return rng.sample(range(len(criteria)), min(number, len(criteria)))

    return choose


Steer = Callable[[EvaluationTree], Wave]
"""Returns what to grow next of a tree as far as it has grown; an empty wave ends it. No criterion comes twice."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The shape of a tree: how wide it is, and which of its branches grow.

    Args:
        count: how many criteria are asked for.
        criteria: how many of these are grown; given ones are all grown.
        guidelines: per criterion.
        judgments: per guideline and order.
        orders: what its judgments are shown.
        top_up: ask once more where fewer than ``criteria`` different criteria came back.
        choose: which listed criteria to expand; None: all.
        steer: grows the branches in waves, two batches each, until it wants no more. Those that do grow are the ones of
            the complete tree. None: all at once.
    """

    count: int
    criteria: int
    guidelines: int = 1
    judgments: int = 1
    orders: tuple[Order, ...] = ORDERS
    top_up: bool = False
    choose: Choose | None = None
    steer: Steer | None = None


@dataclass(frozen=True)
class TreeModel:
    """The model that grows trees, and how it is asked.

    Args:
        engine: generates the text.
        prompts: the prompts of each level.
        asking: the sampling at each level, and how judgments are read. How many criteria are asked for is the shape's.
        reasons: judgments are written whole; False: of one response the score alone, which takes one pass of the model.
        unreadable_before: how many trees of the same comparisons could not be read. Answers that were kept for those
            are not used again.
    """

    engine: Engine
    prompts: PromptSet
    asking: StepsConfig
    reasons: bool = True
    unreadable_before: int = 0


def grow(
    comparisons: Sequence[Comparison], model: TreeModel, shape: Shape, seed: int, numbers: Sequence[int] | None = None
) -> list[EvaluationTree]:
    """Return one evaluation tree per comparison; every level is one batch over all comparisons.

    A complete tree has ``criteria × guidelines × judgments × orders`` branches. Whatever cannot be read is counted in
    the tree's ``failures`` by reason; nothing is guessed.

    A tree's random numbers follow from the seed and its number alone, whatever is grown beside it, so that a batch
    grows the same trees in one call as in several.

    Args:
        comparisons: what the trees are about.
        model: writes them.
        shape: how wide a tree grows.
        seed: of what is sampled.
        numbers: the trees' numbers; None: their places in the call.
    """
    trees = [PartialTree(comparison=comparison) for comparison in comparisons]
    if numbers is None:
        numbers = range(len(trees))
    steer = shape.steer or _all_at_once(shape)
    grower = _Grower(model, shape, seed, numbers)

    grower.list_criteria(trees)
    if shape.choose is not None:
        for tree in trees:
            # The others stay in the list's text, as the judge that learns from it has to write all of them.
            chosen = set(shape.choose(tree.comparison, [criterion.text for criterion in tree.criteria]))
            tree.criteria = [criterion for index, criterion in enumerate(tree.criteria) if index in chosen]

    # The second and third levels, wave by wave: without a steer in one.
    with ExitStack() as stack:
        if shape.steer is not None:
            # Each wave asks about the same texts as the one before.
            stack.enter_context(keeping_beginnings(model.engine))
        while True:
            grown = [tree.finished(seed) for tree in trees]
            # Each tree says itself what it needs; the batch is over all of them.
            waves = [steer(tree) for tree in grown]
            due = list(_due_criteria(trees, waves, numbers, shape))
            if not due:
                return grown
            written = grower.write_guidelines(due)
            for entry, guidelines in zip(due, grower.judge(due, written), strict=True):
                entry.tree.criteria[entry.index] = replace(entry.criterion, guidelines=tuple(guidelines))


def _all_at_once(shape: Shape) -> Steer:
    """Return a steer that grows all criteria in one wave."""

    def steer(tree: EvaluationTree) -> Wave:
        return {criterion.rank: shape.orders for criterion in tree.criteria if not criterion.guidelines}

    return steer


WITHOUT = "5 if it holds throughout, 3 if it holds in part, 1 if it does not hold."
"""The guideline of a criterion that is judged by its text alone."""


def _position(number: int, index: int, list_length: int) -> int:
    """Return a place for the ``index``-th criterion of a tree that no other criterion has, whatever is in the call.

    Args:
        number: the tree's.
        index: the criterion's in the tree.
        list_length: how many criteria of a list are grown.
    """
    if index < list_length:
        return number * list_length + index
    # A rubric may be longer than a list: its further criteria stand behind the places of all lists.
    return (1 << 50) + number * 1000 + index


@dataclass(frozen=True)
class _DueCriterion:
    """A criterion whose branches grow next.

    Args:
        tree: the criterion's.
        index: its place in the tree.
        criterion: the criterion.
        position: decides its random numbers.
        orders: in which it is judged.
    """

    tree: PartialTree
    index: int
    criterion: CriterionNode
    position: int
    orders: Sequence[Order]


def _due_criteria(
    trees: Sequence[PartialTree], waves: Sequence[Wave], numbers: Sequence[int], shape: Shape
) -> Iterator[_DueCriterion]:
    """Yield the criteria of trees that their waves name, tree by tree."""
    for number, tree, wave in zip(numbers, trees, waves, strict=True):
        for index, criterion in enumerate(tree.criteria):
            if criterion.rank in wave:
                position = _position(number, index, shape.criteria)
                yield _DueCriterion(tree, index, criterion, position, wave[criterion.rank])


@dataclass(frozen=True)
class _Grower:
    """Samples one level of many trees at a time."""

    model: TreeModel
    shape: Shape
    seed: int
    numbers: Sequence[int]

    def list_criteria(self, trees: Sequence[PartialTree]) -> None:
        """List criteria, unless they are given; where ``shape.top_up``, ask once more for trees that came short."""
        shape = self.shape
        for tree in trees:
            tree.take_given(tree.comparison.rubric)
        # A given rubric is all that is judged by, or the head of a list that the judge goes on with.
        enough = shape.criteria
        if self.model.asking.rubric == "only":
            enough = 1
        waiting = []
        for number, tree in zip(self.numbers, trees, strict=True):
            if len(tree.criteria) < enough:
                waiting.append((number, tree))

        limits = Sampling.of(self.model.asking.criteria_sampling)
        if shape.criteria < shape.count:
            # What stands behind the criteria that are grown would be paid for and thrown away.
            limits = replace(limits, stop=(f"\n{shape.criteria + 1}.",))
        attempts = 1
        if shape.top_up:
            attempts = 2
        for attempt in range(attempts):
            requests: list[Request] = []
            for number, tree in waiting:
                slots = slots_of(tree.comparison, self.model.asking.reference)
                slots["count"] = str(shape.count)
                requests.extend(self._requests("criteria", slots, limits, number, 1))
            # Each attempt has a number of its own, so that no kept answer of an earlier one is taken for it.
            requests = [replace(request, attempt=2 * self.model.unreadable_before + attempt) for request in requests]
            lists = self._sample(requests, "criteria", attempt)
            for (_, tree), sampled in zip(waiting, lists, strict=True):
                tree.take_criteria(sampled, shape.count, shape.criteria)
            waiting = [(number, tree) for number, tree in waiting if self._is_worth_asking_again(tree)]

        for _, tree in waiting:
            if tree.criteria:
                tree.failures["criteria:short"] += 1
            elif tree.criteria_text or not tree.failures:
                # A list that never came is counted by its own reason.
                tree.failures["criteria:none"] += 1

    def _is_worth_asking_again(self, tree: PartialTree) -> bool:
        """Return whether a tree lacks criteria that another list could bring."""
        # A prompt that is too long stays so.
        return len(tree.criteria) < self.shape.criteria and tree.lists[-1].finish_reason != "too_long"

    def write_guidelines(self, due: Sequence[_DueCriterion]) -> list[list[GuidelineNode]]:
        """Return the guidelines of each criterion: the one given with it, or sampled ones without reasoning."""
        number = self.shape.guidelines
        limits = Sampling.of(self.model.asking.guideline_sampling)
        requests: list[Request] = []
        for entry in due:
            if self._stated(entry) is None:
                slots = slots_of(entry.tree.comparison, self.model.asking.reference)
                slots["criterion"] = entry.criterion.text
                requests.extend(self._requests("guideline", slots, limits, entry.position, number))

        # Criteria with a stated guideline have no request: the answers are taken in turn by the others.
        sampled = iter(self._sample(requests, "guideline"))
        written = []
        for entry in due:
            stated = self._stated(entry)
            if stated is None:
                texts = islice(sampled, number)
                guidelines = [self._guideline(entry, place, text) for place, text in enumerate(texts)]
            else:
                identifier = f"{entry.criterion.id}/g0"
                guidelines = [GuidelineNode(id=identifier, text=self.model.prompts.quoted(stated), **NOT_SAMPLED)]
            written.append(guidelines)
        return written

    def _stated(self, entry: _DueCriterion) -> str | None:
        """Return the guideline that is given with a criterion; None where the judge writes one."""
        criterion = entry.criterion.given
        if criterion is None:
            return None
        if criterion.stated_guideline:
            return criterion.stated_guideline
        if self.model.asking.write_guidelines:
            return None
        return WITHOUT

    def _guideline(self, entry: _DueCriterion, number: int, sampled: Sampled) -> GuidelineNode:
        """Return a sampled guideline, and count it where it cannot be used whole."""
        # Nothing is left where the reasoning never ended.
        answer = answer_of(sampled.completion.text, material_of(entry.tree.comparison)) or ""
        node = GuidelineNode(id=f"{entry.criterion.id}/g{number}", text=answer.strip(), **sampled.record)
        reason = node.failure
        if reason is None and node.finish_reason == "length":
            # One that was cut off is judged by, but not taught.
            reason = "cut_off"
        if reason:
            entry.tree.failures[f"guideline:{reason}"] += 1
        return node

    def judge(
        self, due: Sequence[_DueCriterion], written: Sequence[Sequence[GuidelineNode]]
    ) -> list[list[GuidelineNode]]:
        """Return the guidelines with sampled judgments by each usable one, in the orders due.

        Args:
            due: the criteria.
            written: the guidelines of each.
        """
        shape = self.shape
        # By step, as judgments of one response have a frame of their own.
        limits = {}
        for order in shape.orders:
            step = judgment_step(order)
            limits[step] = SCORE_ALONE
            if self.model.reasons:
                limits[step] = judgment_sampling(self.model.asking, self.model.prompts, step)

        requests: list[Request] = []
        for entry, guidelines in zip(due, written, strict=True):
            for place, guideline in enumerate(guidelines):
                for order in self._orders(entry, guideline):
                    slots = judgment_slots(
                        entry.tree.comparison, order, entry.criterion.text, guideline.text, self.model.asking.reference
                    )
                    # Numbered as in the complete tree, so that a part of it has the same random numbers.
                    guideline_number = entry.position * shape.guidelines + place
                    group = guideline_number * len(shape.orders) + shape.orders.index(order)
                    step = judgment_step(order)
                    requests.extend(self._requests(step, slots, limits[step], group, shape.judgments))

        # The same loops as above take the answers in turn, so that none needs a number to be found by.
        answers = zip(requests, self._sample(requests, "judgment"), strict=True)
        judged = []
        for entry, guidelines in zip(due, written, strict=True):
            judged.append([self._with_judgments(entry, guideline, answers) for guideline in guidelines])
        return judged

    def _with_judgments(
        self, entry: _DueCriterion, guideline: GuidelineNode, answers: Iterator[tuple[Request, Sampled]]
    ) -> GuidelineNode:
        """Return a guideline with its judgments, which are next in ``answers``."""
        nodes = []
        for order in self._orders(entry, guideline):
            for number, (request, sampled) in enumerate(islice(answers, self.shape.judgments)):
                nodes.append(self._judgment(entry, f"{guideline.id}/{order}{number}", order, request, sampled))
        # Only now are the judgments of both responses there.
        return replace(guideline, judgments=tuple(_with_siblings(nodes)))

    def _orders(self, entry: _DueCriterion, guideline: GuidelineNode) -> list[Order]:
        """Return the orders in which to judge by a guideline: none where it failed."""
        if guideline.failure:
            return []
        return [order for order in self.shape.orders if order in entry.orders]

    def _requests(self, step: Step, slots: dict[str, str], limits: Sampling, group: int, number: int) -> list[Request]:
        """Return ``number`` requests of one prompt; ``group`` numbers the prompts and decides their random numbers."""
        begins = ""
        if step == "score":
            begins = self._before_score
        request = Request(
            messages=self.model.prompts.render(step, slots),
            sampling=limits,
            step=step,
            slots=slots,
            attempt=self.model.unreadable_before,
            form=form_of(self.model.prompts, step),
            begins=begins,
        )
        return [replace(request, place=place) for place in range(group * number, (group + 1) * number)]

    @cached_property
    def _before_score(self) -> str:
        """Return the words before a score that is asked for alone; empty where judgments are written whole."""
        if self.model.reasons:
            return ""
        return beginning_of(self.model.prompts, "score")

    def _judgment(
        self, entry: _DueCriterion, identifier: str, order: Order, request: Request, sampled: Sampled
    ) -> JudgmentNode:
        """Return a sampled judgment, and count it where it cannot be read."""
        parsed = self._read(request, sampled)
        text = sampled.completion.text
        if request.begins:
            # The model has read the beginning, and a blank before the score may be the score's own.
            text = request.begins + text.lstrip()
        if parsed.failure:
            entry.tree.failures[f"judgment:{parsed.failure}"] += 1
        score_a = parsed.first
        score_b = parsed.second
        # Order BA shows the responses exchanged, and order B shows B alone.
        if order in ("BA", "B"):
            score_a = parsed.second
            score_b = parsed.first
        return JudgmentNode(
            id=identifier,
            order=order,
            text=text,
            score_a=score_a,
            score_b=score_b,
            failure=parsed.failure,
            inverted=entry.criterion.criterion.weight < 0,
            levels=parsed.levels,
            **sampled.record,
        )

    def _read(self, request: Request, sampled: Sampled) -> ParsedJudgment:
        """Return the scores of a judgment in the order shown, or why there are none."""
        if request.begins:
            return read_score(sampled.completion)
        if sampled.completion.finish_reason in UNANSWERED:
            return ParsedJudgment(None, None, sampled.completion.finish_reason)
        # Users' and models' texts may hold marks of reasoning; the prompt set's own words do not.
        judged = [text for slot, text in request.slots.items() if slot in OUTSIDE]
        frame = self.model.prompts.frames[request.step]
        responses = 2
        if request.step == "score":
            responses = 1
        return read_judgment(sampled.completion, self.model.asking.score, judged, frame, responses)

    def _sample(self, requests: Sequence[Request], step: Step, *attempt: int) -> list[Sampled]:
        """Return every request's completion, in their order; an engine that has nothing to do is not called."""
        if not requests:
            return []
        # A seed a level: else the first tokens of all levels would be drawn alike.
        seed = derive_seed(self.seed, step, *attempt)
        completions = self.model.engine.generate(requests, seed)
        pairs = zip(completions, places(requests), strict=True)
        return [Sampled(completion, seed, place) for completion, place in pairs]


def _with_siblings(nodes: Sequence[JudgmentNode]) -> Iterator[JudgmentNode]:
    """Yield the judgments of a guideline; each of one response gets the other's score.

    The n-th judgment of response A and the n-th of response B are siblings. One that could not be read keeps no score.
    """
    scores_of_a = iter([node.score_a for node in nodes if node.order == "A"])
    scores_of_b = iter([node.score_b for node in nodes if node.order == "B"])
    for node in nodes:
        # The sibling's score is drawn for an unreadable judgment too, so that the numbers go on matching.
        changes: dict[str, Any] = {}
        if node.order == "A":
            changes["score_b"] = next(scores_of_b, None)
        elif node.order == "B":
            changes["score_a"] = next(scores_of_a, None)
        if node.failure or not changes:
            yield node
        else:
            yield replace(node, **changes)


SCORE_ALONE = Sampling(temperature=0.0, max_new_tokens=1, candidates=SCORES)
"""Asks for the token of a score, behind the words that a judgment begins with."""


def beginning_of(prompts: PromptSet, step: Step) -> str:
    """Return the words with which a judgment begins up to its score.

    Raises:
        ConfigError: the prompt set's judgments may give reasons before the score.
    """
    words = prompts.words_before_score(step)
    if words is None:
        raise ConfigError(
            f"judge.reasons=false: judgments of the prompt set {prompts.name!r} give reasons before the score, which "
            f"follows from them"
        )
    return words


def judgment_sampling(asking: StepsConfig, prompts: PromptSet, step: Step = "judgment") -> Sampling:
    """Return how to sample a judgment so that it can be read as ``asking`` says."""
    limits = asking.judgment_sampling
    sampling = Sampling.of(limits)
    # A frame of one line that ends with a line break is over there.
    if LINE_END.split(prompts.frames[step])[1:] == [""]:
        sampling = replace(sampling, stop=("\n",))
    if asking.constrained:
        sampling = replace(sampling, pattern=prompts.judgment_frame(step, limits.max_new_tokens))
    if asking.score == "expected":
        # Letters too: a judgment that says who is better before it scores has its doubt in that letter.
        sampling = replace(sampling, candidates=(*SCORES, *SIDES))
    return sampling
