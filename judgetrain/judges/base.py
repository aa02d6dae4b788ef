"""The one interface of everything that compares two responses."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypedDict, Unpack, overload

from judgetrain.errors import ConfigError, DataError
from judgetrain.rubrics import Rubric, Source
from judgetrain.schema import ORDERS, Candidates, Comparison, Order, Prompt, Verdict


@dataclass(frozen=True)
class Cost:
    """What a verdict in one order cost: half of what was spent on both, all where no order is shown (judgments of one
    response, ratings, scorers).

    NaN where it is not known.
    """

    prompt_tokens: float = 0.0
    generated_tokens: float = 0.0
    calls: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.prompt_tokens + other.prompt_tokens,
            self.generated_tokens + other.generated_tokens,
            self.calls + other.calls,
        )

    def __mul__(self, times: float) -> Cost:
        return Cost(times * self.prompt_tokens, times * self.generated_tokens, times * self.calls)

    @property
    def tokens(self) -> dict[str, Any]:
        """Return whole tokens as the arguments of a finished shard, which counts what is not known as 0."""
        tokens = {"prompt_tokens": self.prompt_tokens, "generated_tokens": self.generated_tokens}
        return {name: 0 if math.isnan(number) else round(number) for name, number in tokens.items()}


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

    ``text``, ``score_a``, ``score_b`` (1 to 5) and ``verdict`` are in the comparison's own order, whatever was shown
    first; in order A or B the text speaks of that response alone. Scores and verdict are None where the text could not
    be read, for the reason ``failure``. ``name``, ``weight`` and ``source`` are the criterion's
    (:class:`~judgetrain.rubrics.Criterion`).
    """

    order: Order
    criterion: str
    guideline: str
    text: str
    score_a: float | None
    score_b: float | None
    verdict: Verdict | None
    failure: str | None
    name: str = ""
    weight: float = 1.0
    source: Source = "judge"


@dataclass(frozen=True, kw_only=True)
class Score:
    """How good one response is by a judge's criteria.

    ``value``: the weighted mean of its scores, from 0 (the lowest level of every criterion) to 1; None where no
    judgment of it could be read. ``cost``: its judgments', with an even part of the list and the guidelines that it
    shares with the other responses.
    """

    value: float | None
    reasons: tuple[Reason, ...] = ()
    failures: dict[str, int] = field(default_factory=dict)
    cost: Cost = field(default_factory=Cost)

    def __str__(self) -> str:
        head = "unreadable" if self.value is None else f"score {self.value:.2f}"
        return "\n".join([head, *_by_criterion(self.reasons, "A")])

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        return as_data(self)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A judge's answer to one comparison.

    ``verdict_ab`` is the verdict when the responses were shown as they are, ``verdict_ba`` when they were shown
    exchanged; both are in the comparison's own order, so a consistent judge gives the same twice. None means that no
    branch could be read in that order. ``margin`` is the mean score of A minus that of B over the readable branches of
    both orders. ``failures`` counts unreadable judgments by reason; ``judgments`` is how many were sampled. ``merged``:
    the two orders are known only as one verdict or as a conflict (A, B), so that nothing can be said of a single order.
    ``reasons``: the branches of a branching judge, order AB first, or the replies of one that is asked once;
    predictions are compared without them. ``asked``: how the judge was asked, as ``greedy`` or ``T=1``; ``plan``:
    whether both orders shared a plan; both are None where there is nothing to say. ``asked_again``: how many times it
    was asked about anew, since its first branch could not be read. ``score_a`` and ``score_b``: how good each response
    is, the weighted mean of its scores over all that was read, from 0 to 1; None without scores. ``summed``: the
    likelier side by fitted weights, where they decide and both orders could be read; else None.
    """

    comparison_id: str
    method: str
    branches: int = 0
    verdict_ab: Verdict | None = None
    verdict_ba: Verdict | None = None
    margin: float | None = None
    cost: Cost = Cost()
    judgments: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    merged: bool = False
    reasons: tuple[Reason, ...] = field(default=(), compare=False, repr=False)
    asked: str | None = None
    plan: Plan | None = None
    asked_again: int = 0
    summed: Verdict | None = None
    score_a: float | None = None
    score_b: float | None = None

    @classmethod
    def of(
        cls, comparison: Comparison, method: str, ab: Verdict | None = None, ba: Verdict | None = None, **said: Any
    ) -> Prediction:
        """What a judge said of a comparison; but a response without a text loses, whoever judges, and is no failure."""
        if won := comparison.forfeit:
            ab = ba = won
            said |= {"failures": {}, "margin": None, "summed": None}
        return cls(comparison_id=comparison.id, method=method, verdict_ab=ab, verdict_ba=ba, **said)

    def __str__(self) -> str:
        head: str = self.verdict
        if self.verdict == "inconsistent":
            head += f": {self.verdict_ab} ({_SHOWN['AB']}), {self.verdict_ba} ({_SHOWN['BA']})"
        elif self.failures and self.verdict == "unreadable":
            head += f": {listed(self.failures)}"
        if self.margin is not None:
            head += f" (margin {self.margin:+.2f})"
        return "\n".join([head, *_by_criterion(self.reasons, "AB")])

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON has it, the verdict first."""
        return {"verdict": self.verdict, "consistent": self.consistent, **as_data(self)}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Prediction:
        """Return the prediction that :func:`as_data` wrote; a cost that is not known is NaN."""
        cost = {name: math.nan if value is None else value for name, value in row["cost"].items()}
        reasons = tuple(Reason(**reason) for reason in row["reasons"])
        return cls(**{**row, "cost": Cost(**cost), "reasons": reasons})

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
        return self.cost * (1 if self.plan is None else len(ORDERS))


def logistic(margin: float) -> float:
    """The part of a comparison, from 0 to 1, that a margin of response A stands for: a point is 0.73, two are 0.88."""
    from scipy.special import expit

    return float(expit(margin))


Given = Rubric | str | Path | Sequence[Any] | Mapping[str, Any] | None


class How(TypedDict, total=False):
    """What a call of a judge may say besides the texts.

    ``criteria``: a rubric, its criteria in any shape that is read from files
    (:func:`~judgetrain.data.rubrics.rubric_of`), or a file's name; without, the judge's own. ``reference``: a reference
    answer. ``seed``: of what is sampled.
    """

    criteria: Given
    reference: str | None
    seed: int


class Judge(Protocol):
    """Compares two responses, both orders asked. A class that inherits from it implements ``compare_all``."""

    name: str
    goes_by_criteria: ClassVar[bool] = False
    """Whether it judges by criteria, so that they may be given."""

    @overload
    def __call__(self, prompt: Prompt, response_a: str, response_b: None = None, **how: Unpack[How]) -> Score: ...

    @overload
    def __call__(self, prompt: Prompt, response_a: str, response_b: str, **how: Unpack[How]) -> Prediction: ...

    def __call__(
        self, prompt: Prompt, response_a: str, response_b: str | None = None, **how: Unpack[How]
    ) -> Score | Prediction:
        """The verdict on two responses to a prompt, or the score of one; of many, :meth:`compare_all`.

        Args:
            prompt: the query, or the messages up to it.
            response_a: a response.
            response_b: the other one; None: the first is scored by itself.
            how: a reference, criteria and a seed (:class:`How`).

        Raises:
            DataError: a prompt or a response that is none, or criteria that cannot be read.
            ConfigError: one response for a judge that reads two, or criteria for one that goes by none.
        """
        from judgetrain.data.rubrics import given_rubric

        rubric, reference, seed = given_rubric(how.get("criteria")), how.get("reference"), how.get("seed", 0)
        if rubric is not None and not self.goes_by_criteria:
            raise ConfigError(f"{self.name} goes by no criteria; judges that branch do")
        if not isinstance(response_a, str) or not isinstance(response_b, (str, type(None))):
            found = ", ".join(type(each).__name__ for each in (prompt, response_a, response_b))
            raise DataError(f"expected a prompt and one or two responses, which are texts; found {found}")
        if response_b is None:
            return self.score_all([Candidates.of(prompt, [response_a], reference, rubric)], seed)[0][0]
        asked = Comparison.of(prompt, response_a, response_b, reference, rubric=rubric)
        return self.compare_all([asked], seed)[0]

    def compare(self, comparison: Comparison) -> Prediction:
        """The verdict on one comparison, with seed 0."""
        return self.compare_all([comparison], 0)[0]

    def compare_all(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        """The verdicts on many comparisons, batched; the same length and order as the input.

        What is sampled for a row follows from the seed and the row's texts alone: the same row gets the same answer
        whatever is judged with it, up to rounding (:attr:`~judgetrain.schema.Comparison.number`).
        """
        ...

    def score_all(self, groups: Sequence[Candidates], seed: int = 0) -> list[list[Score]]:
        """How good each response of each group is; a ConfigError of a judge that compares two responses."""
        raise ConfigError(f"{self.name} compares two responses, and gives no score to one: give it two")

    def close(self) -> None:
        """Free the model, if there is one."""


def verdict_of(margin: float | None, tie: float = 0.0) -> Verdict | None:
    """The verdict of a margin (score of A minus that of B): a tie where it is at most ``tie``; None if unknown."""
    if margin is None or math.isnan(margin):
        return None
    return "tie" if abs(margin) <= tie else "A" if margin > 0 else "B"


_LETTER = r"[AB](?![\w-])"
_NAMED = re.compile(
    r"(?:(?<=[Rr]esponse )|(?<=[Rr]esponses )|(?<=[Aa]ssistant )|(?<=[Aa]nswer )|(?<=\[\[)|(?<=\bthan )"
    rf"|(?<=[AB] and )){_LETTER}|(?<![\w-]){_LETTER}(?= is (?:better|worse)\b| and [AB]\b|'s\b)|\A[AB]\Z"
)
"""A letter that names a response, beyond doubt."""
_ANY = re.compile(rf"(?<![\w-]){_LETTER}")
EXCHANGED = "(written with the responses exchanged: its A is B) "
"""Before a text with a letter that may name a response or not, as in "A gives an amount" and "vitamin A"."""
_OTHER = {"A": "B", "B": "A"}
_SHOWN = {"AB": "A shown first", "BA": "B shown first", "A": "A by itself", "B": "B by itself"}


def in_own_order(text: str, order: str) -> str:
    """What a judge wrote in an order, with the comparison's own names of the responses; twice is what it wrote.

    A text in which one letter might stay as it was is left whole, and says so (:data:`EXCHANGED`).
    """
    if order != "BA" or text.startswith(EXCHANGED):
        return text.removeprefix(EXCHANGED)
    if _ANY.search(_NAMED.sub("", text)):
        return EXCHANGED + text
    return _NAMED.sub(lambda found: _OTHER[found[0]], text)


MEANINGS = {
    "off_frame": "a line that the form does not have",
    "no_scores": "no score where the form has it",
    "no_score_a": "no score of A",
    "no_score_b": "no score of B",
    "out_of_range": "a score on another scale",
    "ambiguous": "two scores, or more than a score, on a score's line",
    "cut_off": "cut at its limit of tokens",
    "repeated": "a criterion named twice",
}
"""What reasons of unreadable judgments mean (docs/prompts.md has more)."""


def listed(counts: Mapping[str, int]) -> str:
    """Numbers by name in a line; reasons of unreadable judgments with what they mean."""
    told = ((n, name, MEANINGS.get(name.rpartition(":")[2])) for name, n in counts.items())
    return ", ".join(f"{n} {name}" + (f" ({meaning})" if meaning else "") for n, name, meaning in told)


def _by_criterion(reasons: tuple[Reason, ...], sides: str) -> Iterator[str]:
    branches: dict[tuple[str, str], list[Reason]] = {}
    for reason in reasons:
        branches.setdefault((reason.criterion, reason.guideline), []).append(reason)
    for (criterion, guideline), found in branches.items():
        yield from (line for line in (criterion and f"- {criterion}", guideline and f"  {guideline}") if line)
        for reason in found:
            scores = zip(sides, (reason.score_a, reason.score_b), strict=False)
            said = ", ".join(f"{side} {score:g}" for side, score in scores if score is not None)
            shown = f"{_SHOWN[reason.order]}: " if len(sides) > 1 else ""
            yield f"  {shown}{reason.failure or said or reason.verdict}"
            yield from (f"    {line}" for line in reason.text.splitlines() if line.strip())


def as_data(found: Prediction | Score) -> dict[str, Any]:
    """All fields as JSON has them; what is not known is None."""
    return {name: _json(value) for name, value in asdict(found).items()}


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
