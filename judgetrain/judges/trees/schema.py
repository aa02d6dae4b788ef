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
from judgetrain.judges.predictions import Cost, verdict_of
from judgetrain.rubrics import Criterion, criterion_of
from judgetrain.schema import ORDERS, RESPONSES, Comparison, Order, Verdict

Wave = Mapping[int, Sequence[Order]]
"""The criteria to judge next, by rank, and the orders to judge each in."""


@dataclass(frozen=True, kw_only=True)
class JudgmentNode:
    """A leaf: one sampled judgment of the two responses in one order, or of one of them.

    Scores and verdict belong to the comparison's own responses A and B, whatever order was shown. A judgment of one
    response (order A or B) has the other's score from its sibling, the judgment of the other response with the same
    number: None where there is none, or that one could not be read.

    Seed and place fix an engine's random numbers, but for servers whose answers are kept, which get a seed made from
    the request's content (``engines/answers.py``).

    Args:
        id: unique in its tree.
        order: what was shown.
        text: the judgment as sampled.
        score_a: of response A, 1 to 5; None where the text could not be read.
        score_b: of response B.
        failure: why it could not be read; None where it could.
        prompt_tokens: tokens read.
        generated_tokens: tokens written.
        finish_reason: why the text ends.
        inverted: the criterion says what a response must not do, so that the lower score is the better one.
        seed: of the batch; None where nothing was sampled.
        place: of the request in the batch.
        levels: the probabilities of the scores 1 to 5, of a judgment of one response by them; None elsewhere.
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
    levels: tuple[float, ...] | None = None

    @property
    def verdict(self) -> Verdict | None:
        """Return the verdict in the comparison's own order; None if the judgment could not be read."""
        # Without a band for ties: whoever wants one looks at the margin.
        return verdict_of(self.margin)

    def score_of(self, side: str) -> float | None:
        """Return the score of response ``A`` or ``B``, 1 to 5; None where it could not be read."""
        if side == "A":
            return self.score_a
        return self.score_b

    @property
    def margin(self) -> float | None:
        """Return how far A is better, -4 to 4; None if the judgment could not be read."""
        if self.score_a is None or self.score_b is None:
            return None
        # Of what a response must not do, more is worse.
        if self.inverted:
            return self.score_b - self.score_a
        return self.score_a - self.score_b


def both_sides(judgment: str) -> str:
    """Return one id for the two judgments that read one response each; any other judgment's id as it is."""
    # Ids end with the order and a number, as in "/A0" and "/B0".
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
        """Return why nothing can be judged by it (``too_long``, ``error``, ``empty``); None if it is usable."""
        if self.finish_reason in UNANSWERED:
            return self.finish_reason
        if not self.text.strip():
            return "empty"
        return None


NOT_SAMPLED: dict[str, Any] = {"prompt_tokens": 0, "generated_tokens": 0, "finish_reason": "stop"}
"""The cost and the end of a node that no model was asked for."""
DISCOUNT = 1 / 3
"""The weight of a criterion of a judge's own list as a share of the weight of the one before it.

A judge names first what matters most. At a third, all later criteria together weigh half of an earlier one: they decide
where it sees little difference.
"""


@dataclass(frozen=True, kw_only=True)
class CriterionNode:
    """One criterion of the judge's list, or of a rubric.

    Args:
        id: unique in its tree.
        text: the criterion as listed.
        rank: counts from 0, in the order the judge named them.
        generated_tokens: its part of what its list cost.
        guidelines: by which it was judged.
        listed_in: its list is ``lists[listed_in]`` of the tree, with prompt tokens, seed and stop reason.
        given: the criterion of a rubric, which no list names; None: the judge named it.
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
        """Return the criterion: a given one, or the judge's own, which weighs the less the later it was named."""
        return self.given or Criterion(text=self.text, weight=DISCOUNT**self.rank, source="judge")

    def wrote(self, guideline: GuidelineNode) -> bool:
        """Return whether the judge wrote one of the criterion's guidelines, which else stands in a rubric."""
        return self.given is None or guideline.generated_tokens > 0

    @property
    def judgments(self) -> list[JudgmentNode]:
        """Return the judgments by all its guidelines, in order."""
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

    Args:
        comparison: what was judged.
        criteria_text: the judge's lists as sampled, under each other.
        criteria_prompt_tokens: tokens read for the lists.
        criteria_generated_tokens: tokens written for the lists.
        criteria: those that were grown.
        seed: of the shard that grew it.
        failures: how much could not be read or not be used whole, by reason (``criteria:none``, ``criteria:repeated``,
            ``guideline:cut_off``, ``judgment:no_score_a``, ...).
        lists: generation by generation, a second one where the first fell short; empty where no list was sampled.
        earlier: trees of the same comparison that could not be read, in whose place this one was grown
            (``judge.retries``).
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
        """Return whether any of its criteria comes from a rubric."""
        return any(criterion.given is not None for criterion in self.criteria)

    def can_be_read(self, orders: Sequence[Order]) -> bool:
        """Return whether the first branch can be read in all ``orders``, so that asking again is not needed.

        It is also True where the engine gave no answer: it has retried what it could, and asking again is no use.
        """
        nodes: list[CriteriaList | GuidelineNode | JudgmentNode] = list(self.lists)
        readable_orders: set[Order] = set()
        if self.criteria:
            first = self.criteria[0]
            nodes.extend(first.guidelines)
            nodes.extend(first.judgments)
            readable_orders = {judgment.order for judgment in first.judgments if judgment.failure is None}
        if any(node.finish_reason in UNANSWERED for node in nodes):
            return True
        return bool(self.criteria) and set(orders) <= readable_orders

    def guidelines(self) -> Iterator[tuple[CriterionNode, GuidelineNode]]:
        """Yield all guidelines with their criteria, in order."""
        for criterion in self.criteria:
            for guideline in criterion.guidelines:
                yield criterion, guideline

    def judgments(self) -> Iterator[tuple[CriterionNode, GuidelineNode, JudgmentNode]]:
        """Yield all branches (paths from the root to a leaf), in order."""
        for criterion, guideline in self.guidelines():
            for judgment in guideline.judgments:
                yield criterion, guideline, judgment

    def to_row(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary; the inverse of :meth:`from_row`."""
        # Emptied first, since the earlier trees are written as rows of their own.
        row = asdict(replace(self, earlier=()))
        row["comparison"] = self.comparison.to_row()
        # Most trees have no earlier one; the key is last in the rows of those that have.
        del row["earlier"]
        if self.earlier:
            row["earlier"] = [tree.to_row() for tree in self.earlier]
        return row

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> "EvaluationTree":
        """Read back what :meth:`to_row` wrote."""
        fields = dict(row)
        fields["comparison"] = Comparison.from_row(row["comparison"])
        fields["criteria"] = tuple(map(_criterion, row["criteria"]))
        fields["lists"] = tuple(CriteriaList(**criteria_list) for criteria_list in row["lists"])
        fields["earlier"] = tuple(map(EvaluationTree.from_row, row.get("earlier", ())))
        return cls(**fields)


OTHER = "other"
"""The key of the tree of order BA in the row of order AB's tree, where plans are independent."""


def trees_of(row: Mapping[str, Any]) -> list[EvaluationTree]:
    """Return the tree of a row, or the trees of order AB and of order BA."""
    # The second tree stands inside the first one's row, so that a row is a comparison.
    first = {name: value for name, value in row.items() if name != OTHER}
    trees = [EvaluationTree.from_row(first)]
    other = row.get(OTHER)
    if other:
        trees.append(EvaluationTree.from_row(other))
    return trees


def _criterion(row: dict[str, Any]) -> CriterionNode:
    """Return the criterion of a row."""
    fields = dict(row)
    fields["guidelines"] = tuple(map(_guideline, row["guidelines"]))
    fields["given"] = None
    # Absent or null where the judge named the criterion itself.
    if row.get("given"):
        fields["given"] = criterion_of(row["given"])
    return CriterionNode(**fields)


def _guideline(row: dict[str, Any]) -> GuidelineNode:
    """Return the guideline of a row."""
    fields = dict(row)
    fields["judgments"] = tuple(JudgmentNode(**judgment) for judgment in row["judgments"])
    return GuidelineNode(**fields)


def cost_of(tree: EvaluationTree, used: Sequence[CriterionNode] = ()) -> Cost:
    """Return what a tree cost, with the trees before it that could not be read, which are paid for whole.

    Args:
        tree: the tree.
        used: the criteria that count, with the list as far as it goes to the last of them; none: the whole tree.
    """
    listed_tokens = tree.criteria_generated_tokens
    if used:
        listed_tokens = sum(criterion.generated_tokens for criterion in used)

    nodes: list[GuidelineNode | JudgmentNode] = []
    unsampled = 0
    for criterion in used or tree.criteria:
        for guideline in criterion.guidelines:
            nodes.append(guideline)
            nodes.extend(guideline.judgments)
            # A guideline that stands in a rubric was no call to the model.
            if criterion.given and guideline.seed is None:
                unsampled += 1

    # A list is a call, and so is every node that was sampled.
    cost = Cost(
        tree.criteria_prompt_tokens + sum(node.prompt_tokens for node in nodes),
        listed_tokens + sum(node.generated_tokens for node in nodes),
        len(tree.lists) + len(nodes) - unsampled,
    )
    # Whatever is used of this tree, the earlier ones were grown for it.
    return sum(map(cost_of, tree.earlier), cost)


def shard_of(trees: Sequence[EvaluationTree]) -> ShardResult:
    """Return trees as a finished shard, with their failures counted as dropped by reason."""
    failures: Counter[str] = Counter()
    for tree in trees:
        failures.update(tree.failures)
    asked_again = sum(len(tree.earlier) for tree in trees)
    # Told with what was dropped, since it was paid for and its text is not used.
    if asked_again:
        failures["asked_again"] += asked_again
    spent = sum(map(cost_of, trees), Cost())
    return ShardResult([tree.to_row() for tree in trees], len(trees), failures, **spent.tokens)


def _verdicts(guideline: GuidelineNode, order: Order) -> list[Verdict | None]:
    """Return the verdicts by a guideline in one order; None for what could not be read."""
    return [judgment.verdict for judgment in guideline.judgments if judgment.order == order]


def self_consistent(guideline: GuidelineNode, order: Order) -> bool:
    """Return whether all judgments by a guideline in one order can be read and give one verdict (paper, 4.3)."""
    # No judgments at all are no agreement: the set is empty then.
    verdicts = set(_verdicts(guideline, order))
    return len(verdicts) == 1 and None not in verdicts


def positionally_consistent(guideline: GuidelineNode) -> bool:
    """Return whether exchanging the responses leaves the verdict as it is (paper, 4.3).

    The majority verdicts of the two orders are compared, both in the comparison's own order; an order without a
    majority, or with nothing readable, is not consistent. Judgments of one response have no order to exchange.
    """
    # By majority, as single judgments vary with what was sampled, whatever the order.
    verdict_ab, verdict_ba = (majority(filter(None, _verdicts(guideline, order))) for order in ORDERS)
    return verdict_ab is not None and verdict_ab == verdict_ba


@dataclass(frozen=True)
class PrunedBranch:
    """One branch, and whether it satisfies the two constraints."""

    judgment: JudgmentNode
    self_consistent: bool
    positionally_consistent: bool

    @property
    def kept(self) -> bool:
        """Return whether the branch can be read and satisfies both constraints."""
        return self.reason == "kept"

    @property
    def reason(self) -> str:
        """Return ``kept``, or the first rule that the branch breaks."""
        if self.judgment.verdict is None:
            return "unreadable"
        if not self.self_consistent:
            return "self_inconsistent"
        if not self.positionally_consistent:
            return "position_inconsistent"
        return "kept"


def prune(tree: EvaluationTree) -> dict[str, PrunedBranch]:
    """Return every branch with the result of both constraints, by the id of its judgment."""
    branches = {}
    for _, guideline in tree.guidelines():
        # Both constraints are of a guideline, and hold for or against all of its judgments.
        consistent_in = {order: self_consistent(guideline, order) for order in (*ORDERS, *RESPONSES)}
        consistent_by_position = positionally_consistent(guideline)
        for judgment in guideline.judgments:
            # A judgment of one response has no position that could sway it.
            position = consistent_by_position or judgment.order in RESPONSES
            branches[judgment.id] = PrunedBranch(judgment, consistent_in[judgment.order], position)
    return branches
