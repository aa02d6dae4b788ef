"""The one interface of everything that compares two responses."""

from __future__ import annotations

import math
from collections.abc import Sequence, Sized
from dataclasses import dataclass, field
from typing import Literal, Protocol, cast, overload

from judgetrain.errors import DataError
from judgetrain.schema import ORDERS, Comparison, Order, Prompt, Verdict


@dataclass(frozen=True)
class Cost:
    """What a verdict in one order cost: half of what was spent on both, all where no order is shown (ratings, scorers).

    NaN where it is not known.
    """

    prompt_tokens: float = 0.0
    generated_tokens: float = 0.0
    calls: float = 0.0


Plan = Literal["shared", "independent"]
"""Whether both orders are judged by one list of criteria and its guidelines, or each order by a plan of its own."""

BothOrders = Literal["A", "B", "tie", "inconsistent", "unreadable"]

SHARES: dict[str, float] = {"A": 1.0, "tie": 0.5, "B": 0.0}
"""What response A won by a verdict."""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """One branch of a verdict: the judgment in one order, the criterion and the guideline it was made by.

    Of a judge that is asked once it is a reply, with empty criterion and guideline; of one that rates, the rating of
    one response, on its own scale.

    ``text`` is as the judge wrote it, and speaks of the responses as they were shown: in order BA its "Response A" is
    the comparison's B. ``score_a``, ``score_b`` (1 to 5) and ``verdict`` are in the comparison's own order, and None
    where the text could not be read, for the reason ``failure``.
    """

    order: Order
    criterion: str
    guideline: str
    text: str
    score_a: float | None
    score_b: float | None
    verdict: Verdict | None
    failure: str | None


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A judge's answer to one comparison.

    ``verdict_ab`` is the verdict when the responses were shown as they are, ``verdict_ba`` when they were
    shown exchanged; both are in the comparison's own order, so a consistent judge gives the same twice. None
    means that no branch could be read in that order. ``margin`` is the mean score of A minus that of B over the
    readable branches of both orders, ``margin_ab`` and ``margin_ba`` that of one order. ``failures`` counts unreadable
    judgments by reason; ``judgments`` is how many were sampled. ``merged``: the two orders are known only as one
    verdict or as a conflict (A, B), so that nothing can be said of a single order. ``spread`` is the chance that two of
    the branches that were read in one
    order say different things; None with fewer than two. ``reasons``: the branches of a branching judge, order AB
    first, or the replies of one that is asked once; predictions are compared without them. ``asked``: how the judge
    was asked, as ``greedy`` or ``T=1``; ``plan``: whether both orders shared a plan; both are None where there is
    nothing to say. ``asked_again``: how many times it was asked about anew, since its first branch could not be read.
    ``summed``: the side of the margin, where that is the judge's verdict (``dpo+summed``) and both orders
    could be read; else None.
    """

    comparison_id: str
    method: str
    branches: int = 0
    verdict_ab: Verdict | None
    verdict_ba: Verdict | None
    margin: float | None = None
    margin_ab: float | None = None
    margin_ba: float | None = None
    cost: Cost = field(default_factory=Cost)
    judgments: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    merged: bool = False
    spread: float | None = None
    reasons: tuple[Reason, ...] = field(default=(), compare=False, repr=False)
    asked: str | None = None
    plan: Plan | None = None
    asked_again: int = 0
    summed: Verdict | None = None

    @property
    def decided(self) -> tuple[Verdict | None, Verdict | None]:
        """What each order counts for: its own verdict, or, where the margin of both decides, its side for either."""
        return (self.verdict_ab, self.verdict_ba) if self.summed is None else (self.summed, self.summed)

    @property
    def verdict(self) -> BothOrders:
        """The verdict over both orders: by the strict rule what both of them say, or the side of their margin.

        ``inconsistent``: they say different things, so that by the strict rule nothing can be said of the responses;
        ``unreadable``: in one of them no branch could be read.
        """
        first, second = self.decided
        if first is None or second is None:
            return "unreadable"
        return first if first == second else "inconsistent"

    @property
    def consistent(self) -> bool | None:
        """Whether both orders say the same, whatever decides; None where one of them could not be read."""
        return None if None in (self.verdict_ab, self.verdict_ba) else self.verdict_ab == self.verdict_ba

    @property
    def whole_cost(self) -> Cost:
        """What both orders cost together: no more than one where no order is shown, which ``plan`` says."""
        orders, cost = 1 if self.plan is None else len(ORDERS), self.cost
        return Cost(orders * cost.prompt_tokens, orders * cost.generated_tokens, orders * cost.calls)


def logistic(margin: float) -> float:
    """The part of a comparison, from 0 to 1, that a margin of response A stands for: a point is 0.73, two are 0.88."""
    from scipy.special import expit

    return float(expit(margin))


Strings = list[str] | tuple[str, ...]


class Judge(Protocol):
    """Compares two responses, both orders asked. A class that inherits from it implements ``compare_all``."""

    name: str

    @overload
    def __call__(self, prompt: Prompt, response_a: str, response_b: str, *, seed: int = 0) -> Prediction: ...

    @overload
    def __call__(
        self, prompt: Sequence[Prompt], response_a: Strings, response_b: Strings, *, seed: int = 0
    ) -> list[Prediction]: ...

    def __call__(
        self, prompt: Prompt | Sequence[Prompt], response_a: str | Strings, response_b: str | Strings, *, seed: int = 0
    ) -> Prediction | list[Prediction]:
        """The verdict on two responses to a prompt, or where lists of responses are given, one for each row.

        ``prompt`` is the query, or the messages up to it; for lists of responses, a list of those.

        Raises:
            DataError: lists of different lengths, or a prompt that is none.
        """
        if isinstance(response_a, str) and isinstance(response_b, str):
            return self.compare_all([Comparison.of(cast(Prompt, prompt), response_a, response_b)], seed)[0]
        given = (prompt, response_a, response_b)
        if any(isinstance(each, str) or not isinstance(each, Sized) for each in given):
            found = ", ".join(type(each).__name__ for each in given)
            raise DataError(f"expected one prompt and two responses, or three lists of the same length; found {found}")
        if not len(prompt) == len(response_a) == len(response_b):
            lengths = f"{len(prompt)}, {len(response_a)} and {len(response_b)}"
            raise DataError(f"expected as many prompts as responses on both sides, found {lengths}")
        rows = zip(cast(Sequence[Prompt], prompt), response_a, response_b, strict=True)
        return self.compare_all([Comparison.of(*row) for row in rows], seed)

    def compare(self, comparison: Comparison) -> Prediction:
        """The verdict on one comparison, with seed 0."""
        return self.compare_all([comparison], 0)[0]

    def compare_all(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        """The verdicts on many comparisons, batched; the same length and order as the input.

        What is sampled for a row follows from the seed and the row's texts alone: the same row gets the same answer
        whatever is judged with it, up to rounding (:attr:`~judgetrain.schema.Comparison.number`).
        """
        ...

    def close(self) -> None:
        """Free the model, if there is one."""


def verdict_of(margin: float | None, tie: float = 0.0) -> Verdict | None:
    """The verdict of a margin (score of A minus that of B): a tie where it is at most ``tie``; None if unknown."""
    if margin is None or math.isnan(margin):
        return None
    return "tie" if abs(margin) <= tie else "A" if margin > 0 else "B"
