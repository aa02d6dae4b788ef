"""Evaluation trees: criterion -> scoring guideline -> judgment, and their pruning (branching paper, 3.1 and 4.3)."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from judgetrain.artifacts.stage_run import ShardResult
from judgetrain.data.cells import majority
from judgetrain.engines.base import UNANSWERED
from judgetrain.judges.base import Cost, verdict_of
from judgetrain.rubrics import Criterion, criterion_of
from judgetrain.schema import ORDERS, RESPONSES, Comparison, Order, Verdict

Wave = Mapping[int, Sequence[Order]]
"""Which criteria to judge next, by rank, and in which orders."""


@dataclass(frozen=True, kw_only=True)
class JudgmentNode:
    """A leaf: one sampled judgment of the two responses in one order, or of one of them.

    ``score_a`` and ``score_b`` (1 to 5) belong to the comparison's own response A and B whatever order was
    shown; so does ``verdict``. All three are None when the text could not be read, and ``failure`` says why. A judgment
    of one response (order A or B) has the other's score from its sibling, the judgment of the other response with the
    same number: None where there is none, or that one could not be read. ``inverted``: the criterion says what a
    response must not do, so that the lower score is the better one.

    ``seed`` is that of the batch and ``place`` the request's place in it; the two fix an engine's random numbers, but
    for servers whose answers are kept, which get a seed made from the request's content (``engines/answers.py``). None
    where nothing was sampled.
    """

    id: str
    order: Order
    text: str
    score_a: float | None
    score_b: float | None
    failure: str | None
    prompt_tokens: int
    generated_tokens: int
    finish_reason: str
    inverted: bool = False
    seed: int | None = None
    place: int | None = None

    @property
    def verdict(self) -> Verdict | None:
        """The verdict in the comparison's own order, or None if the judgment could not be read."""
        return verdict_of(self.margin)

    @property
    def margin(self) -> float | None:
        """How far A is better, from -4 to 4: ``score_a - score_b``; None if not readable."""
        if self.score_a is None or self.score_b is None:
            return None
        return self.score_b - self.score_a if self.inverted else self.score_a - self.score_b


def both_sides(judgment: str) -> str:
    """What the ids of the two judgments that read one response each have in common; any other id as it is."""
    return re.sub(r"/[AB](\d+)$", r"/\1", judgment)


@dataclass(frozen=True, kw_only=True)
class GuidelineNode:
    """A scoring guideline sampled for one criterion (without reasoning before it), and the judgments made by it.

    ``seed`` and ``place``: as of a :class:`JudgmentNode`.
    """

    id: str
    text: str
    prompt_tokens: int
    generated_tokens: int
    finish_reason: str
    judgments: tuple[JudgmentNode, ...] = ()
    seed: int | None = None
    place: int | None = None

    @property
    def failure(self) -> str | None:
        """Why nothing can be judged by it, or None: ``too_long``, ``error`` or ``empty``."""
        if self.finish_reason in UNANSWERED:
            return self.finish_reason
        return None if self.text.strip() else "empty"


NOT_SAMPLED: dict[str, Any] = {"prompt_tokens": 0, "generated_tokens": 0, "finish_reason": "stop"}
"""What a node cost that no model was asked for."""
DISCOUNT = 1 / 3
"""What a criterion of a judge's own list weighs, of the one before it. A judge names first what matters most; at a
third all later ones together weigh half of an earlier one: they decide where it sees little difference."""


@dataclass(frozen=True, kw_only=True)
class CriterionNode:
    """One criterion of the judge's list (``rank`` counts from 0, in the order the judge named them).

    ``generated_tokens`` is its part of what its list cost; the list itself, with prompt tokens, seed and stop reason,
    is ``lists[listed_in]`` of the tree. ``given``: the criterion of a rubric, which no list names.
    """

    id: str
    text: str
    rank: int
    generated_tokens: int
    guidelines: tuple[GuidelineNode, ...]
    listed_in: int = 0
    given: Criterion | None = None

    @cached_property
    def criterion(self) -> Criterion:
        """The criterion: a given one, or the judge's own, which weighs the less the later it was named."""
        return self.given or Criterion(text=self.text, weight=DISCOUNT**self.rank, source="judge")

    def wrote(self, guideline: GuidelineNode) -> bool:
        """Whether the judge wrote one of its guidelines: it did not where that stands in a rubric."""
        return self.given is None or guideline.generated_tokens > 0

    @property
    def judgments(self) -> list[JudgmentNode]:
        """The judgments by all its guidelines, in order."""
        return [j for guideline in self.guidelines for j in guideline.judgments]


@dataclass(frozen=True, kw_only=True)
class CriteriaList:
    """One generation of a list of criteria as sampled; ``seed`` and ``place``: as of a :class:`JudgmentNode`."""

    text: str
    finish_reason: str
    prompt_tokens: int
    generated_tokens: int
    seed: int | None = None
    place: int | None = None


@dataclass(frozen=True, kw_only=True)
class EvaluationTree:
    """All branches of one comparison.

    ``criteria_text`` is what the judge listed as sampled; ``lists`` holds it generation by generation, a second one
    where the first fell short (empty where no list was sampled). ``seed`` is the seed of the shard that grew it.
    ``failures`` counts what could not be read or not be used whole, by reason (``criteria:none``,
    ``criteria:repeated``, ``guideline:cut_off``, ``judgment:no_score_a``, ...). ``earlier``: trees of the same
    comparison that could not be read, in whose place this one was grown (``judge.retries``).
    """

    comparison: Comparison
    criteria_text: str
    criteria_prompt_tokens: int
    criteria_generated_tokens: int
    criteria: tuple[CriterionNode, ...]
    seed: int
    failures: dict[str, int]
    lists: tuple[CriteriaList, ...] = ()
    earlier: "tuple[EvaluationTree, ...]" = ()

    @property
    def given(self) -> bool:
        """Whether criteria of a rubric are among its own."""
        return any(criterion.given is not None for criterion in self.criteria)

    def can_be_read(self, orders: Sequence[Order]) -> bool:
        """Whether its first branch says something in each of the orders, or asking again is no use: no answer came."""
        first = self.criteria[0] if self.criteria else None
        ends = [*self.lists, *(first.guidelines if first else ()), *(first.judgments if first else ())]
        if any(node.finish_reason in UNANSWERED for node in ends):
            return True
        return first is not None and {*orders} <= {j.order for j in first.judgments if j.failure is None}

    def guidelines(self) -> Iterator[tuple[CriterionNode, GuidelineNode]]:
        """All guidelines with their criteria, in order."""
        return ((criterion, guideline) for criterion in self.criteria for guideline in criterion.guidelines)

    def judgments(self) -> Iterator[tuple[CriterionNode, GuidelineNode, JudgmentNode]]:
        """All branches (paths from the root to a leaf), in order."""
        return ((c, g, judgment) for c, g in self.guidelines() for judgment in g.judgments)

    def to_row(self) -> dict[str, Any]:
        """A JSON-ready dictionary; the inverse of :meth:`from_row`."""
        row = asdict(replace(self, earlier=())) | {"comparison": self.comparison.to_row()}
        del row["earlier"]
        return row | ({"earlier": [tree.to_row() for tree in self.earlier]} if self.earlier else {})

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> "EvaluationTree":
        """Read back what :meth:`to_row` wrote."""
        return cls(
            **row
            | {
                "comparison": Comparison.from_row(row["comparison"]),
                "criteria": tuple(map(_criterion, row["criteria"])),
                "lists": tuple(CriteriaList(**each) for each in row["lists"]),
                "earlier": tuple(map(EvaluationTree.from_row, row.get("earlier", ()))),
            }
        )


OTHER = "other"
"""Where plans are independent, a row is the tree of order AB, and the tree of order BA stands under this name."""


def trees_of(row: Mapping[str, Any]) -> list[EvaluationTree]:
    """The tree of a row, or the trees of order AB and of order BA."""
    rows = [{k: v for k, v in row.items() if k != OTHER}, *([row[OTHER]] if row.get(OTHER) else [])]
    return [EvaluationTree.from_row(each) for each in rows]


def _criterion(row: dict[str, Any]) -> CriterionNode:
    given = criterion_of(row["given"]) if row.get("given") else None
    return CriterionNode(**row | {"guidelines": tuple(map(_guideline, row["guidelines"])), "given": given})


def _guideline(row: dict[str, Any]) -> GuidelineNode:
    return GuidelineNode(**row | {"judgments": tuple(JudgmentNode(**each) for each in row["judgments"])})


def cost_of(tree: EvaluationTree, used: Sequence[CriterionNode] = ()) -> Cost:
    """What a tree cost, and those that could not be read before it, which are paid for whole.

    ``used``: the criteria that count, with the list as far as it goes to the last of them; none: the whole tree.
    """
    grown = used or tree.criteria
    guidelines = [g for c in grown for g in c.guidelines]
    nodes: list[GuidelineNode | JudgmentNode] = [*guidelines, *(j for g in guidelines for j in g.judgments)]
    stated = sum(g.seed is None for c in grown if c.given for g in c.guidelines)  # by a rubric: nobody was asked
    listed = sum(c.generated_tokens for c in used) if used else tree.criteria_generated_tokens
    own = Cost(
        tree.criteria_prompt_tokens + sum(node.prompt_tokens for node in nodes),
        listed + sum(node.generated_tokens for node in nodes),
        len(tree.lists) + len(nodes) - stated,
    )
    return sum(map(cost_of, tree.earlier), own)


def shard_of(trees: Sequence[EvaluationTree]) -> ShardResult:
    """Trees as a finished shard, with their failures counted as dropped by reason."""
    failures = sum((Counter(t.failures) for t in trees), Counter[str]())
    failures += Counter({"asked_again": sum(len(t.earlier) for t in trees)})  # adding leaves out what is 0
    spent = sum(map(cost_of, trees), Cost())
    return ShardResult([tree.to_row() for tree in trees], len(trees), failures, **spent.tokens)


def _verdicts(guideline: GuidelineNode, order: Order) -> list[Verdict | None]:
    return [j.verdict for j in guideline.judgments if j.order == order]


def self_consistent(guideline: GuidelineNode, order: Order) -> bool:
    """Whether all judgments by one criterion and guideline, in one order, are readable and say the same."""
    verdicts = set(_verdicts(guideline, order))
    return len(verdicts) == 1 and None not in verdicts


def positionally_consistent(guideline: GuidelineNode) -> bool:
    """Whether exchanging the responses leaves the verdict as it is.

    Compares the two orders' majority verdicts (both in the comparison's own order); an order with no majority,
    or with nothing readable, is not consistent. Judgments of one response have no order to exchange.
    """
    first, second = (majority(filter(None, _verdicts(guideline, order))) for order in ORDERS)
    return first is not None and first == second


@dataclass(frozen=True)
class PrunedBranch:
    """One branch and what the two constraints say of it."""

    judgment: JudgmentNode
    self_consistent: bool
    positionally_consistent: bool

    @property
    def kept(self) -> bool:
        """Whether the branch can be read and satisfies both constraints."""
        return self.reason == "kept"

    @property
    def reason(self) -> str:
        """``kept``, or the first rule that the branch breaks."""
        if self.judgment.verdict is None:
            return "unreadable"
        if not self.self_consistent:
            return "self_inconsistent"
        return "kept" if self.positionally_consistent else "position_inconsistent"


def prune(tree: EvaluationTree) -> dict[str, PrunedBranch]:
    """What the constraints say of every branch, by the id of its judgment."""
    result = {}
    for _, guideline in tree.guidelines():
        consistent = {order: self_consistent(guideline, order) for order in (*ORDERS, *RESPONSES)}
        position = positionally_consistent(guideline)
        for judgment in guideline.judgments:
            kept = position or judgment.order in RESPONSES
            result[judgment.id] = PrunedBranch(judgment, consistent[judgment.order], kept)
    return result
