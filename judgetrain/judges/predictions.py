"""What judges answer: predictions on two responses, scores of one, their reasons and what they cost."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any, Literal

from judgetrain.judges.deciding import Decision
from judgetrain.rubrics import Source, criterion_key, label_of_criterion, share, share_on, without_rounding
from judgetrain.schema import ORDERS, RESPONSES, Comparison, Order, Verdict


@dataclass(frozen=True)
class Cost:
    """The cost of a verdict in one order.

    It is half of what was spent on both orders, and all of it where no order is shown (judgments of one response,
    ratings, scorers). A number that is not known is NaN.

    Args:
        prompt_tokens: tokens read.
        generated_tokens: tokens written.
        calls: requests to the model.
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
        return {"prompt_tokens": _whole(self.prompt_tokens), "generated_tokens": _whole(self.generated_tokens)}


def _whole(number: float) -> int:
    """Return a number of tokens as an integer; 0 for NaN."""
    # A shard's marker holds integers: half a token is no number that anybody counts.
    if math.isnan(number):
        return 0
    return round(number)


def _cost_in(row: Mapping[str, Any]) -> Cost:
    """Return the cost that :func:`as_data` wrote into a row."""
    cost: dict[str, float] = {}
    for name, value in row["cost"].items():
        cost[name] = value
        # JSON has no NaN: as_data writes null.
        if value is None:
            cost[name] = math.nan
    return Cost(**cost)


def _steps_in(row: Mapping[str, Any]) -> tuple[Step, ...]:
    """Return the members' answers in a row of :func:`as_data`; rows that were made before there were any have none."""
    return tuple(Step.from_row(step) for step in row.get("steps", ()))


Plan = Literal["shared", "independent"]
"""The plan of both orders: one list of criteria and its guidelines, or a list for each order."""

BothOrders = Literal["A", "B", "tie", "inconsistent", "unreadable"]

SHARES: dict[str, float] = {"A": 1.0, "tie": 0.5, "B": 0.0}
"""The share of a comparison that response A wins, by the verdict."""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """One branch of a verdict: the judgment in one order, the criterion and the guideline it was made by.

    Of a judge that is asked once it is a reply, with empty criterion and guideline; of one that rates, the rating of
    one response, on its own scale. Text, scores and verdict are in the comparison's own order, whatever was shown
    first.

    Args:
        order: what the judgment was shown.
        criterion: the criterion's text.
        guideline: the scoring guideline.
        text: the judgment; in order A or B it speaks of that response alone.
        score_a: of response A, 1 to 5; None where it could not be read.
        score_b: of response B.
        verdict: of the two scores.
        failure: why the text could not be read; None where it could.
        name: the criterion's.
        weight: the criterion's.
        source: who wrote the criterion.
        levels: the probabilities of the scores 1 to 5, where one response was judged by them; None elsewhere.
        scale: the scores of the criterion's own levels, the worst first; None where they are evenly spread.
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
    levels: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Step:
    """The answer of one member of a cascade or a jury.

    Args:
        judge: the member's name.
        answer: its verdict; of a single response None.
        share: how far A is ahead, 0 to 1, or the single response's score; None where nothing could be read.
        decision: whether it was taken as it is, by a cascade; None in a jury.
        passes: of a single response, whether it passes by the member's thresholds, where that is decided.
        passes_from: the name of the lowest level that passes; empty without thresholds of scores.
        cost: of the member, as of the whole answer.
    """

    judge: str
    answer: BothOrders | None
    share: float | None
    decision: Decision | None = None
    passes: bool | None = None
    passes_from: str = ""
    cost: Cost = Cost()

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Step:
        """Return the step that :func:`as_data` wrote."""
        return cls(**{**row, "cost": _cost_in(row)})


@dataclass(frozen=True, kw_only=True)
class Score:
    """The score of one response by a judge's criteria.

    Args:
        value: the weighted mean of its scores, from 0 (the lowest level of every criterion) to 1; None where no
            judgment of it could be read.
        reasons: its judgments.
        failures: how many of them could not be read, by reason.
        cost: of its judgments, with an even part of the list and the guidelines that it shares with the other
            responses.
        decision: whether the value is certain enough to be taken, by thresholds of stage calibrate; None: the judge has
            none, or the response is empty.
        passes: whether the response passes, where that is decided.
        passes_from: the name of the lowest level of people's labels that passes; empty without thresholds.
        steps: the members' answers, of a cascade or a jury.
    """

    value: float | None
    reasons: tuple[Reason, ...] = ()
    failures: dict[str, int] = field(default_factory=dict)
    cost: Cost = field(default_factory=Cost)
    decision: Decision | None = None
    passes: bool | None = None
    passes_from: str = ""
    steps: tuple[Step, ...] = ()

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Score:
        """Return the score that :func:`as_data` wrote; a cost that is not known is NaN."""
        reasons = tuple(Reason(**reason) for reason in row["reasons"])
        return cls(**{**row, "cost": _cost_in(row), "reasons": reasons, "steps": _steps_in(row)})

    @property
    def note(self) -> str:
        """Return why there is no score; empty where there is one."""
        if self.value is not None:
            return ""
        return listed(self.failures)

    @property
    def by_criterion(self) -> dict[str, float]:
        """Return the score by each criterion that could be read, 0 to 1, by the name of :func:`criterion_key`."""
        scores: dict[str, list[float]] = {}
        for reason in self.reasons:
            if reason.score_a is None:
                continue
            place = share(reason.score_a)
            if reason.scale is not None:
                place = share_on(reason.scale, reason.score_a)
            scores.setdefault(criterion_key(reason.name or reason.criterion), []).append(place)
        return {name: fmean(of_criterion) for name, of_criterion in scores.items()}

    def by_label(self, name: str) -> float | None:
        """Return the score by the criterion that labels of this name are of, 0 to 1; None where there is none.

        A criterion without a name may have the label's before a colon in its text, if it alone has, and if people gave
        it: what a judge lists by itself differs from row to row.
        """
        label = criterion_key(name)
        scores = self.by_criterion
        if label in scores:
            return scores[label]
        criteria = set()
        for reason in self.reasons:
            if reason.source == "given" and label_of_criterion(reason.name, reason.criterion, [label]):
                criteria.add(criterion_key(reason.name or reason.criterion))
        if len(criteria) != 1:
            return None
        return scores.get(criteria.pop())

    def __str__(self) -> str:
        head = "unreadable"
        if self.note:
            head += f": {self.note}"
        if self.value is not None:
            head = f"score {self.value:.2f}"
        if self.decision is not None:
            head += f", {self.decision}"
        if self.passes:
            head += ": pass"
        elif self.passes is not None:
            head += ": fail"
        return "\n".join([head, *_reason_lines(self.reasons, "A")])

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON has them."""
        return as_data(self)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A judge's answer to one comparison.

    Both verdicts are in the comparison's own order, so that a consistent judge gives the same twice. Predictions are
    compared without their reasons.

    Args:
        comparison_id: of the comparison.
        method: the method's name.
        branches: how many criteria the judge went by; 0 for a judge without branches.
        verdict_ab: with the responses shown as they are; None: no branch could be read.
        verdict_ba: with the responses shown exchanged.
        margin: the mean score of A minus that of B over the readable branches of both orders.
        cost: of a verdict in one order.
        judgments: how many were sampled.
        failures: how many of them could not be read, by reason.
        merged: the two orders are known only as one verdict or as a conflict (A, B), so that nothing can be said of a
            single order.
        reasons: the branches, order AB first, or the replies of a judge that is asked once.
        asked: how the judge was asked, as ``greedy`` or ``T=1``; None where there is nothing to say.
        plan: whether both orders shared a plan; None where no order was shown.
        asked_again: how many times the judge was asked anew, since its first branch could not be read.
        summed: the likelier side by fitted weights, where they decide and both orders could be read; else None.
        score_a: the weighted mean of A's scores over all that was read, 0 to 1; None without scores.
        score_b: the same of B.
        share_read: the share of given criteria's weight that was read in the order that was read least, 0 to 1; None
            where no criterion is given. Below ``judge.least_read`` the order has no verdict.
        decision: whether the verdict is certain enough to be taken, by thresholds of stage calibrate; None: the judge
            has none, or a response is empty and loses.
        steps: the members' answers, of a cascade or a jury.
        not_judged: criteria that the judge named and did not judge by, since no score by them could change the verdict
            (``judge.early_stop``).
        forfeit: a response has no text and loses, whatever was judged; two without a text tie.
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
    share_read: float | None = None
    decision: Decision | None = None
    steps: tuple[Step, ...] = field(default=(), compare=False)
    not_judged: tuple[str, ...] = field(default=(), compare=False)
    forfeit: bool = field(default=False, compare=False)

    @classmethod
    def of(
        cls, comparison: Comparison, method: str, ab: Verdict | None = None, ba: Verdict | None = None, **fields: Any
    ) -> Prediction:
        """Return a judge's prediction on a comparison.

        A response without a text loses, whatever the judge says, and that is no failure.

        Args:
            comparison: what was judged.
            method: the method's name.
            ab: the verdict of order AB; None: it could not be read.
            ba: the verdict of order BA, in the comparison's own order.
            fields: the other fields of the class.
        """
        winner = comparison.forfeit
        # What the judge said of it is no failure and no doubt: the verdict is certain.
        if winner:
            ab = winner
            ba = winner
            fields.update(failures={}, margin=None, summed=None, decision=None, forfeit=True)
        # Where the orders contradict each other its side decides: one of rounding alone would be a coin's.
        if fields.get("margin") is not None:
            fields["margin"] = without_rounding(fields["margin"])
        return cls(comparison_id=comparison.id, method=method, verdict_ab=ab, verdict_ba=ba, **fields)

    @classmethod
    def by_margin(
        cls,
        comparison: Comparison,
        method: str,
        margin: float | None,
        cost: Cost,
        failures: Mapping[str, int] | None = None,
    ) -> Prediction:
        """Return the prediction of a method that reads each response by itself, and writes nothing.

        No order is shown, so that both have the same verdict.

        Args:
            comparison: what was judged.
            method: the method's name.
            margin: how far A is ahead; None: it is not known.
            cost: of both responses.
            failures: how many responses could not be read, by reason.
        """
        verdict = verdict_of(margin)
        return cls.of(
            comparison,
            method,
            verdict,
            verdict,
            margin=margin,
            cost=cost,
            judgments=len(RESPONSES),
            failures=dict(failures or {}),
        )

    def __str__(self) -> str:
        head: str = self.verdict
        if self.note:
            head += f": {self.note}"
        if self.margin is not None:
            head += f" (margin {self.margin:+.2f})"
        if self.decision is not None:
            head += f", {self.decision}"
        return "\n".join([head, *_reason_lines(self.reasons, "AB"), *_not_judged_lines(self)])

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON has them, the verdict first."""
        return {"verdict": self.verdict, "consistent": self.consistent, **as_data(self)}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Prediction:
        """Return the prediction that :func:`as_data` wrote; a cost that is not known is NaN."""
        reasons = tuple(Reason(**reason) for reason in row["reasons"])
        not_judged = tuple(row.get("not_judged", ()))
        own = {"cost": _cost_in(row), "reasons": reasons, "steps": _steps_in(row), "not_judged": not_judged}
        return cls(**{**row, **own})

    @property
    def note(self) -> str:
        """Return why there is no verdict that counts, or why it needs no reading; empty for any other verdict."""
        if self.verdict == "inconsistent":
            return f"{self.verdict_ab} ({_SHOWN['AB']}), {self.verdict_ba} ({_SHOWN['BA']})"
        if self.forfeit and self.verdict == "tie":
            return "neither response has a text"
        if self.forfeit:
            return "the other response has no text"
        # Other verdicts may hold failures, too, which did not decide.
        if self.failures and self.verdict == "unreadable":
            return listed(self.failures)
        return ""

    @property
    def decided(self) -> tuple[Verdict | None, Verdict | None]:
        """Return the verdicts of order AB and of order BA that count.

        Where fitted weights decide over both orders, their verdict stands for either.
        """
        if self.summed is not None:
            return self.summed, self.summed
        return self.verdict_ab, self.verdict_ba

    @property
    def verdict(self) -> BothOrders:
        """Return the verdict over both orders: the one that both give, or the side of their margin.

        ``inconsistent``: the orders give different verdicts, so that by the strict rule neither counts;
        ``unreadable``: in one of them no branch could be read, or too little of the given criteria's weight.
        """
        first, second = self.decided
        if first is None or second is None:
            return "unreadable"
        if first != second:
            return "inconsistent"
        return first

    @property
    def consistent(self) -> bool | None:
        """Return whether both orders give one verdict, whatever decides; None where one of them could not be read."""
        if self.verdict_ab is None or self.verdict_ba is None:
            return None
        return self.verdict_ab == self.verdict_ba

    @property
    def whole_cost(self) -> Cost:
        """Return the cost of both orders together."""
        # Without a plan no order was shown, and ``cost`` is all that was spent.
        if self.plan is None:
            return self.cost
        return self.cost * len(ORDERS)


def logistic(margin: float) -> float:
    """Return the share of a comparison, 0 to 1, that response A wins by a margin: 0.73 by one point, 0.88 by two."""
    # SciPy is slow to import, and most judges need no logistic function.
    from scipy.special import expit

    return float(expit(margin))


def verdict_of(margin: float | None, tie: float = 0.0) -> Verdict | None:
    """Return the verdict of a margin (score of A minus that of B); None for an unknown margin (None or NaN).

    Args:
        margin: points of the scale, or log-odds.
        tie: a margin of at most this, either way, is a tie.
    """
    if margin is None or math.isnan(margin):
        return None
    if abs(margin) <= tie:
        return "tie"
    if margin > 0:
        return "A"
    return "B"


# A response's letter, but not the beginning of a word or of a grade such as A-.
_LETTER = r"[AB](?![\w-])"
# Before the letter "response", "than" and the like, or behind it "is better"; or nothing but the letter.
_NAMED = re.compile(
    r"(?:(?<=[Rr]esponse )|(?<=[Rr]esponses )|(?<=[Aa]ssistant )|(?<=[Aa]nswer )|(?<=\[\[)|(?<=\bthan )"
    rf"|(?<=[AB] and )){_LETTER}|(?<![\w-]){_LETTER}(?= is (?:better|worse)\b| and [AB]\b|'s\b)|\A[AB]\Z"
)
"""A letter that names a response, beyond doubt."""
# Any letter A or B by itself, whatever it names.
_ANY = re.compile(rf"(?<![\w-]){_LETTER}")
EXCHANGED = "(written with the responses exchanged: its A is B) "
"""The words before a text with a letter that may name a response or not, as in "A gives an amount"."""
_OTHER = {"A": "B", "B": "A"}
_SCORE_ALONE = re.compile(r"\s*Score: *\d+\s*")
_SHOWN = {"AB": "A shown first", "BA": "B shown first", "A": "A by itself", "B": "B by itself"}


def in_own_order(text: str, order: str) -> str:
    """Return a judge's text with the comparison's own names of the responses, whatever order it was shown.

    Applied twice it returns the text as the judge wrote it.

    A text with a letter that may or may not name a response is returned whole, behind :data:`EXCHANGED`.
    """
    if order != "BA" or text.startswith(EXCHANGED):
        return text.removeprefix(EXCHANGED)
    # With half of its letters exchanged a text would say nonsense: all of them, or none.
    if _ANY.search(_NAMED.sub("", text)):
        return EXCHANGED + text
    return _NAMED.sub(lambda letter: _OTHER[letter[0]], text)


MEANINGS = {
    "off_frame": "a line that the form does not have",
    "no_scores": "no score where the form has it",
    "no_score_a": "no score of A",
    "no_score_b": "no score of B",
    "out_of_range": "a score on another scale",
    "ambiguous": "two scores, or more than a score, on a score's line",
    "cut_off": "cut at its limit of tokens",
    "repeated": "a criterion named twice",
    "too_long": "longer than the model's context",
}
"""The meanings of reasons of unreadable judgments (docs/prompts.md has more)."""


def listed(counts: Mapping[str, int]) -> str:
    """Return counts by name on one line; a reason of unreadable judgments is followed by its meaning."""
    parts = []
    for name, count in counts.items():
        # A reason may stand behind its step, as in ``judgment:no_score_a``.
        meaning = MEANINGS.get(name.rpartition(":")[2])
        if meaning:
            parts.append(f"{count} {name} ({meaning})")
        else:
            parts.append(f"{count} {name}")
    return ", ".join(parts)


def _reason_lines(reasons: tuple[Reason, ...], sides: str) -> Iterator[str]:
    """Yield the lines that show reasons, those of one criterion and guideline together.

    Args:
        reasons: of one prediction or score.
        sides: the responses whose scores are shown: ``AB``, or ``A`` where one response was judged.
    """
    # Reasons come order by order; a reader looks at one criterion in both orders.
    branches: dict[tuple[str, str], list[Reason]] = {}
    for reason in reasons:
        branches.setdefault((reason.criterion, reason.guideline), []).append(reason)

    for (criterion, guideline), of_branch in branches.items():
        # A judge that is asked once has neither criterion nor guideline.
        if criterion:
            yield f"- {criterion}"
        if guideline:
            yield f"  {guideline}"
        for reason in of_branch:
            yield f"  {_judged_line(reason, sides)}"
            # A text that is nothing but a score says less than the score above it, which may be a mean.
            if _SCORE_ALONE.fullmatch(reason.text):
                continue
            for line in reason.text.splitlines():
                if line.strip():
                    yield f"    {line}"


def _judged_line(reason: Reason, sides: str) -> str:
    """Return the scores of a judgment on one line, or why it has none, behind what it was shown."""
    # One response alone was shown in no order that a reader would ask for.
    shown = f"{_SHOWN[reason.order]}: " if len(sides) > 1 else ""
    if reason.failure:
        return f"{shown}{reason.failure}"
    scores = {"A": reason.score_a, "B": reason.score_b}
    own = scores.get(reason.order)
    if shown and own is not None:
        # A response that was read by itself: the other one's score stands with its own judgment.
        return f"{shown}{_number_shown(own)}"
    told = []
    for side in sides:
        score = scores[side]
        if score is not None:
            told.append(f"{side} {_number_shown(score)}")
    return f"{shown}{', '.join(told) or reason.verdict}"


def _number_shown(score: float) -> str:
    """Return a score with at most two decimals."""
    return f"{round(score, 2):g}"


def _not_judged_lines(prediction: Prediction) -> Iterator[str]:
    """Yield a line for each criterion that was named and not judged by."""
    for criterion in prediction.not_judged:
        yield f"- {criterion} (not judged: no score by it could change the verdict)"


def as_data(result: Prediction | Score) -> dict[str, Any]:
    """Return all fields of a judge's answer as JSON has them; a number that is not known is None."""
    return {name: _json(value) for name, value in asdict(result).items()}


def _json(value: Any) -> Any:
    """Return a value as JSON has it: tuples are lists, and NaN and infinity are None."""
    if isinstance(value, dict):
        return {key: _json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
