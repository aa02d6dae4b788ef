"""A cascade, which asks its next member about what is undecided, and a jury, which takes the mean of its members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TypeVar

from judgetrain.amounts import amount
from judgetrain.errors import ConfigError
from judgetrain.judges.base import Judge
from judgetrain.judges.deciding import BRANCHES, Decision, Thresholds
from judgetrain.judges.kinds.kind import Parts
from judgetrain.judges.kinds.tree_scores import decided_score
from judgetrain.judges.method import Method
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.panels_config import MemberConfig
from judgetrain.judges.predictions import SHARES, Cost, Prediction, Score, Step, logistic, verdict_of
from judgetrain.rubrics import EQUAL, HIGHEST, LOWEST, without_rounding
from judgetrain.schema import ORDERS, Candidates, Comparison, Verdict

Answer = TypeVar("Answer", Prediction, Score)

SCALE = HIGHEST - LOWEST
"""The largest margin, points."""


@dataclass
class Member:
    """One judge of several, which is loaded when it is first asked.

    Args:
        method: names it.
        load: loads it.
        thresholds: by which its answers are decided; None: it says so itself, or each readable verdict is.
    """

    method: Method
    load: Callable[[str], Judge]
    thresholds: Thresholds | None = None
    _judge: Judge | None = None

    @property
    def judge(self) -> Judge:
        """Return the judge."""
        if self._judge is None:
            self._judge = self.load(self.method.text)
            self._check_thresholds(self._judge)
        return self._judge

    def _check_thresholds(self, judge: Judge) -> None:
        """Raise ConfigError where the thresholds were chosen for a judge that was asked otherwise."""
        options = getattr(judge, "options", None)
        if self.thresholds is None or not isinstance(options, JudgeOptions):
            return
        differences = "; ".join(self.thresholds.differences(options.way))
        if not self.thresholds.holds_for(options.branches):
            differences = f"it has {amount(options.branches, 'branch')}, and had {self.thresholds.asked[BRANCHES]}"
        if differences:
            raise ConfigError(
                f"decided of {self.method.text!r}: what it promises was measured on a judge that was asked otherwise "
                f"({differences}): run stage calibrate with the settings that the member is now asked with"
            )

    @property
    def name(self) -> str:
        """Return its name in tables."""
        return self.method.name

    def writing_reasons(self) -> Member:
        """Return the member that writes its reasons, with the same model."""
        return Member(self.method, lambda _: self.judge.writing(True), self.thresholds)

    def close(self) -> None:
        """Free its model, if it was loaded."""
        if self._judge is not None:
            self._judge.close()

    def compare(self, comparisons: Sequence[Comparison], seed: int) -> list[Prediction]:
        """Return its predictions on comparisons, by its own criteria unless it is asked by given ones."""
        # A rubric that comes with the rows is for members whose names ask for it (``dpo+given``).
        if self.method.criteria == "own":
            comparisons = [replace(comparison, rubric=None) for comparison in comparisons]
        return self.judge.compare_batch(comparisons, seed)

    def score(self, groups: Sequence[Candidates], seed: int) -> list[Score]:
        """Return its scores of single responses, each alone in its group."""
        if self.method.criteria == "own":
            groups = [replace(group, rubric=None) for group in groups]
        return [score for (score,) in self.judge.score_batch(groups, seed)]

    def share(self, prediction: Prediction) -> float | None:
        """Return how far A is ahead, 0 to 1: by fitted weights its probability, else by scores, else by the verdict."""
        if prediction.verdict == "unreadable":
            return None
        margin = prediction.margin
        if margin is None:
            # Pairwise judges and baselines give no margin. Where their orders differ, neither response is ahead.
            return SHARES.get(prediction.verdict, 0.5)

        # Only branching judges have weights. Their margin is then in nats, and the logistic function is what the
        # weights were fitted through.
        options = getattr(self.judge, "options", None)
        fitted = getattr(options, "fitted", None)
        if fitted is not None and not fitted.single:
            return logistic(margin)

        # A margin of -4 to 4 points is spread evenly over 0 to 1.
        return 0.5 + margin / (2 * SCALE)

    def decision(self, prediction: Prediction) -> Decision:
        """Return whether a verdict is taken without asking anybody else."""
        # Inconsistent and unreadable: there is no verdict that could be taken.
        if prediction.verdict not in ("A", "B", "tie"):
            return "undecided"

        # Thresholds that the panel's entry names come before those of the judge's own directory.
        if self.thresholds is not None:
            return self.thresholds.of_margin(prediction.margin)

        # A judge without thresholds says nothing of that: each verdict of it is taken.
        return prediction.decision or "decided"

    def decided_score(self, score: Score) -> Score:
        """Return a score with whether it is taken without asking anybody else."""
        if self.thresholds is not None:
            # Thresholds of margins decide no score: it goes to the next member.
            return decided_score(replace(score, decision="undecided"), self.thresholds)
        if score.decision is not None:
            return score

        # A judge without thresholds: whatever it could read is its answer.
        if score.value is None:
            return replace(score, decision="undecided")
        return replace(score, decision="decided")


class _Panel(Judge):
    """Several judges as one."""

    def __init__(self, members: Sequence[Member], name: str) -> None:
        self.members = members
        self.name = name

    def close(self) -> None:
        """Free the members' models."""
        for member in self.members:
            member.close()

    def writing(self, reasons: bool) -> Judge:
        """Return the same judge whose members write their reasons (ConfigError: they are not to)."""
        if not reasons:
            # A member that is loaded later may be unable to, which could not be said here.
            raise ConfigError(
                f"reasons=false: {self.name} asks several judges; put +scores behind the names of its members"
            )
        return type(self)([member.writing_reasons() for member in self.members], self.name)

    def score_batch(self, groups: Sequence[Candidates], seed: int = 0) -> list[list[Score]]:
        """Return the score of each response of each group; each is asked about by itself."""
        single = [replace(group, responses=(text,)) for group in groups for text in group.responses]

        # One by one and back into groups, so that a cascade can ask on about one response of a group alone.
        scores = iter(self._scores(single, seed))
        return [[next(scores) for _ in group.responses] for group in groups]

    def _scores(self, groups: Sequence[Candidates], seed: int) -> list[Score]:
        """Return the scores of single responses."""
        raise NotImplementedError


class CascadeJudge(_Panel):
    """Asks its first member about everything, and each further one about what is undecided until then.

    The last member's answer is taken as it is. An answer costs all the members that were asked.
    """

    def compare_batch(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        """Return a prediction for each comparison, of the first member that decides it."""

        def ask(member: Member, places: Sequence[int]) -> Iterator[tuple[Prediction, Step]]:
            predictions = member.compare([comparisons[place] for place in places], seed)
            for place, prediction in zip(places, predictions, strict=True):
                decision = member.decision(prediction)
                if comparisons[place].forfeit:
                    # An empty response loses, whoever judges.
                    decision = "decided"
                yield replace(prediction, decision=decision), _step(member, prediction, decision)

        return [_combined(answer, steps, self.name) for answer, steps in self._escalated(len(comparisons), ask)]

    def _scores(self, groups: Sequence[Candidates], seed: int) -> list[Score]:
        """Return the scores of single responses, of the first member that decides each."""

        def ask(member: Member, places: Sequence[int]) -> Iterator[tuple[Score, Step]]:
            scores = member.score([groups[place] for place in places], seed)
            for place, score in zip(places, scores, strict=True):
                decided = member.decided_score(score)
                # An empty response is worth nothing, whoever judges.
                if not groups[place].responses[0].strip():
                    decided = replace(score, decision="decided")
                step = Step(
                    judge=member.name,
                    answer=None,
                    share=score.value,
                    decision=decided.decision,
                    passes=decided.passes,
                    passes_from=decided.passes_from,
                    cost=score.cost,
                )
                yield decided, step

        return [
            replace(answer, steps=tuple(steps), cost=_sum(step.cost for step in steps))
            for answer, steps in self._escalated(len(groups), ask)
        ]

    def _escalated(
        self, number: int, ask: Callable[[Member, Sequence[int]], Iterable[tuple[Answer, Step]]]
    ) -> list[tuple[Answer, list[Step]]]:
        """Return the last answer to each of so many questions, and the steps of all members that were asked it.

        Args:
            number: of questions.
            ask: returns a member's answers to the questions at some places, each with its step.
        """
        # By place in the call, since each member sees a smaller part of the questions.
        answers: dict[int, Answer] = {}
        steps: dict[int, list[Step]] = {place: [] for place in range(number)}
        waiting = list(steps)
        for member in self.members:
            if not waiting:
                break
            undecided = []

            # A later member's answer takes the place of the earlier one; the steps keep both.
            for place, (answer, step) in zip(waiting, ask(member, waiting), strict=True):
                answers[place] = answer
                steps[place].append(step)
                if step.decision == "undecided":
                    undecided.append(place)
            waiting = undecided
        return [(answers[place], steps[place]) for place in steps]


class JuryJudge(_Panel):
    """Asks all of its members, and goes by the mean of their probabilities, or of their scores.

    More than half of them must be readable.
    """

    def compare_batch(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        """Return a prediction for each comparison; its margin is in points, -4 to 4."""
        # Member by member and not row by row: each has all rows in one batch.
        by_member = [member.compare(comparisons, seed) for member in self.members]
        predictions = []
        for place, comparison in enumerate(comparisons):
            answers = [of_member[place] for of_member in by_member]
            predictions.append(self._verdict(comparison, answers))
        return predictions

    def _verdict(self, comparison: Comparison, answers: Sequence[Prediction]) -> Prediction:
        """Return the jury's prediction by its members'."""
        steps = []
        shares = []
        for member, answer in zip(self.members, answers, strict=True):
            # No decision: nobody is asked after a jury's member.
            step = _step(member, answer, None)
            steps.append(step)
            if step.share is not None:
                shares.append(step.share)
        # Without a majority of readable members every verdict stays None, so that the jury is unreadable as a whole:
        # the rest would be another, smaller jury.
        margin = None
        summed = None
        verdict_ab = None
        verdict_ba = None
        if 2 * len(shares) > len(answers):
            # From a mean share back to points, as other judges' margins are written.
            margin = (fmean(shares) - 0.5) * 2 * SCALE

            # ``summed`` is the verdict that counts. Those of single orders only say how consistent the jury is.
            summed = verdict_of(margin, SCALE * EQUAL)
            verdict_ab = _majority([answer.verdict_ab for answer in answers])
            verdict_ba = _majority([answer.verdict_ba for answer in answers])
        failures: Counter[str] = Counter()
        for answer in answers:
            failures.update(answer.failures)
        prediction = Prediction.of(
            comparison,
            self.name,
            verdict_ab,
            verdict_ba,
            margin=margin,
            summed=summed,
            judgments=sum(answer.judgments for answer in answers),
            failures=dict(failures),
            reasons=tuple(reason for answer in answers for reason in answer.reasons),
        )

        # One member that was shown orders is enough for the cost to be of both of them.
        shown = any(answer.plan is not None for answer in answers)
        return _with_steps(prediction, steps, self.name, shown)

    def _scores(self, groups: Sequence[Candidates], seed: int) -> list[Score]:
        """Return the mean scores of single responses."""
        # Member by member and not row by row: each has all responses in one batch.
        by_member = [member.score(groups, seed) for member in self.members]
        scores = []
        for place in range(len(groups)):
            answers = [of_member[place] for of_member in by_member]
            values = [answer.value for answer in answers if answer.value is not None]
            # As for pairs: fewer than a majority would be another jury.
            value = None
            if 2 * len(values) > len(answers):
                value = without_rounding(fmean(values))
            failures: Counter[str] = Counter()
            steps = []
            for member, answer in zip(self.members, answers, strict=True):
                failures.update(answer.failures)
                steps.append(Step(judge=member.name, answer=None, share=answer.value, cost=answer.cost))
            scores.append(
                Score(
                    value=value,
                    reasons=tuple(reason for answer in answers for reason in answer.reasons),
                    failures=dict(failures),
                    cost=_sum(answer.cost for answer in answers),
                    steps=tuple(steps),
                )
            )
        return scores


def _majority(verdicts: Sequence[Verdict | None]) -> Verdict | None:
    """Return the side that more verdicts of one order are for, a tie where as many are; None where none is readable."""
    shares = [SHARES[verdict] for verdict in verdicts if verdict is not None]
    if not shares:
        return None

    # A third and two thirds have no exact halves: equal up to rounding is a tie.
    return verdict_of(fmean(shares) - 0.5, EQUAL)


def _step(member: Member, prediction: Prediction, decision: Decision | None) -> Step:
    """Return a member's answer on a comparison; its cost is that of both orders."""
    return Step(
        judge=member.name,
        answer=prediction.verdict,
        share=member.share(prediction),
        decision=decision,
        cost=prediction.whole_cost,
    )


def _combined(prediction: Prediction, steps: Sequence[Step], name: str) -> Prediction:
    """Return a cascade's prediction, which is its last member's that was asked."""
    return _with_steps(prediction, steps, name, prediction.plan is not None)


def _with_steps(prediction: Prediction, steps: Sequence[Step], name: str, orders_shown: bool) -> Prediction:
    """Return a prediction under a name, with its steps and their cost, half of it for either order that was shown."""
    cost = _sum(step.cost for step in steps)

    # A prediction's cost is that of one order (whole_cost doubles it), the steps' are whole.
    if orders_shown:
        return replace(prediction, method=name, steps=tuple(steps), plan="shared", cost=cost * (1 / len(ORDERS)))
    return replace(prediction, method=name, steps=tuple(steps), plan=None, cost=cost)


def _sum(costs: Iterable[Cost]) -> Cost:
    """Return the sum of costs."""
    return sum(costs, Cost())


def _members(configs: Sequence[MemberConfig], parts: Parts) -> list[Member]:
    """Return the members of a configuration."""
    members = []
    for config in configs:
        thresholds = None
        if config.decided is not None:
            thresholds = Thresholds.load(config.decided, "decided")
        members.append(Member(Method.parse(config.judge), parts.judge, thresholds))
    return members


def build_cascade(method: Method, options: JudgeOptions, parts: Parts) -> Judge:
    """Return the cascade of a method."""
    return CascadeJudge(_members(options.members, parts), method.name)


def build_jury(method: Method, options: JudgeOptions, parts: Parts) -> Judge:
    """Return the jury of a method."""
    return JuryJudge(_members(options.members, parts), method.name)
