"""Judges that one prompt asks for a verdict: pairwise, or pointwise by rating (branching paper, section 5.1)."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, cast

from judgetrain.artifacts.stage_run import tokens_of
from judgetrain.engines.base import Engine, Step
from judgetrain.engines.config import SamplingConfig
from judgetrain.judges.base import Cost, Judge, Prediction, Reason, in_own_order, verdict_of
from judgetrain.judges.config import OnceConfig
from judgetrain.judges.prompting.prompts import Dialect, PromptSet, load_prompt_set, slots_of
from judgetrain.judges.prompting.replies import Asker, Question, Read, Reply, failures_of
from judgetrain.judges.prompting.verdicts import read_rating, read_verdict
from judgetrain.schema import ORDERS, Comparison, Verdict, mirror


class PromptedJudge(Judge):
    """What judges with a single prompt have in common.

    Args:
        engine: generates the text.
        prompts: a set of the judge's :attr:`dialect`; None takes the packaged one of this name.
        sampling: of the reply; None: greedy.
        name: the method's name in predictions; None takes the dialect's.
    """

    dialect: ClassVar[Dialect]

    def __init__(
        self,
        engine: Engine,
        prompts: PromptSet | None = None,
        sampling: SamplingConfig | None = None,
        name: str | None = None,
    ) -> None:
        self.engine, self.sampling = engine, sampling or OnceConfig().sampling
        self.prompts = prompts or load_prompt_set(self.dialect, self.dialect)
        self.name = name or self.dialect

    def compare_all(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        """The verdicts on many comparisons, all of them one batch."""
        asked = self.ask(comparisons, seed, [c.number for c in comparisons])
        how = self.dialect, self.name
        return [prediction_of(*how, c, each, self.sampling) for c, each in zip(comparisons, asked, strict=True)]

    def ask(
        self,
        comparisons: Sequence[Comparison],
        seed: int,
        numbers: Sequence[int] | None = None,
        examples: Sequence[Sequence[Comparison]] = (),
    ) -> list[list[Reply]]:
        """The replies that each comparison's prediction is made of: one in each order, or one for each response.

        ``numbers`` decide the comparisons' random numbers; None: those of their places in the call. ``examples``:
        labelled pairs that each comparison's questions are asked after; a reply then ends at its mark, as theirs do.
        """
        groups = list(map(self.questions, comparisons))
        if examples:
            turns = [tuple(turn for i, c in enumerate(each) for turn in self._example(c, i)) for each in examples]
            groups = [
                [replace(q, examples=t, marked=bool(t)) for q in group] for group, t in zip(groups, turns, strict=True)
            ]
        return self._ask(groups, seed, numbers)

    def _example(self, comparison: Comparison, number: int) -> list[Mapping[str, str]]:
        """A labelled pair as a question and its answer; right answers are A and B in turn."""
        shown = comparison if comparison.label == "AB"[number % 2] else comparison.swapped()
        question = self.prompts.render(cast(Step, self.dialect), self.questions(shown)[0].slots)[-1]
        return [question, {"role": "assistant", "content": f"[[{shown.label}]]"}]

    def questions(self, comparison: Comparison) -> list[Question]:
        """What is asked about a comparison."""
        return pairwise_questions(comparison)

    @abstractmethod
    def read(self) -> Read:
        """What reads a reply."""

    def _ask(self, groups: Sequence[Sequence[Question]], seed: int, numbers: Sequence[int] | None) -> list[list[Reply]]:
        asker = Asker(self.engine, self.prompts, self.sampling)
        return asker.ask(groups, cast(Step, self.dialect), self.read(), seed, numbers)

    def close(self) -> None:
        self.engine.close()


class PairwiseJudge(PromptedJudge):
    """The pairwise judge: shows both responses and asks which is better (``[[A]]``, ``[[B]]``, ``[[C]]``, or as the
    prompt set says under ``reads``), once in each order."""

    dialect = "pairwise"

    def read(self) -> Read:
        return self.prompts.reads.verdict if self.prompts.reads else read_verdict


class PointwiseJudge(PromptedJudge):
    """The pointwise judge: rates each response by itself (``[[7]]``); the higher rating wins, equal ones are a tie.

    It sees no order: each response is rated once, both verdicts are the same, and its consistency of 100% (less what
    cannot be read) says nothing. A verdict costs both ratings.
    """

    dialect = "pointwise"

    def read(self) -> Read:
        assert self.prompts.scale is not None
        lowest, highest = self.prompts.scale
        reader = self.prompts.reads.rating if self.prompts.reads else read_rating
        return partial(reader, lowest=lowest, highest=highest)

    def questions(self, comparison: Comparison, sides: str = "AB") -> list[Question]:
        """How good the response on each of the sides is, on the prompt set's scale."""
        assert self.prompts.scale is not None
        slots = slots_of(comparison) | dict(zip(("lowest", "highest"), map(str, self.prompts.scale), strict=True))
        texts = {"A": comparison.response_a, "B": comparison.response_b}
        return [Question(side, slots | {"response": texts[side]}) for side in sides]

    def rate(self, rated: Sequence[Comparison], seed: int = 0) -> list[Reply]:
        """The rating of each comparison's first response alone, a reply each; ``answer`` is None if none was read."""
        asked = self._ask([self.questions(c, "A") for c in rated], seed, [c.number for c in rated])
        return [reply for replies in asked for reply in replies]


PROMPTED: dict[str, type[PromptedJudge]] = {judge.dialect: judge for judge in (PairwiseJudge, PointwiseJudge)}
"""The judges with a single prompt, by the prefix of their methods' names (``pairwise:base``)."""


def pairwise_questions(comparison: Comparison) -> list[Question]:
    """Which response is better, with the two as they are and exchanged."""

    def slots(shown: Comparison) -> dict[str, str]:
        return slots_of(shown) | {"response_a": shown.response_a, "response_b": shown.response_b}

    back = cast(Callable[[Any], str], mirror)
    return [Question("AB", slots(comparison)), Question("BA", slots(comparison.swapped()), back)]


def _reason(reply: Reply) -> Reason:
    """A reply as the one reason that there is; a rating is of one response, in no order (AB)."""
    answer, shown = reply.answer, reply.shown
    rating = answer if isinstance(answer, (int, float)) else None
    return Reason(
        order="BA" if shown == "BA" else "AB",
        criterion="",
        guideline="",
        text=in_own_order(reply.text, shown),
        score_a=rating if shown == "A" else None,
        score_b=rating if shown == "B" else None,
        verdict=cast(Verdict, answer) if isinstance(answer, str) else None,
        failure=reply.failure,
    )


def verdicts_in(replies: Sequence[Reply], order: str) -> list[Verdict]:
    """The readable verdicts given in one order, in the comparison's own order."""
    return [cast(Verdict, r.answer) for r in replies if r.shown == order and r.answer is not None]


def prediction_of(
    dialect: str, method: str, comparison: Comparison, replies: Sequence[Reply], sampling: SamplingConfig
) -> Prediction:
    """The prediction of a judge that is asked once (``dialect``), from its replies on one comparison, so sampled.

    ``branches`` is 0, as for every method without. The margin is that of ratings; ``pairwise`` gives none.
    """
    margin = None
    verdicts: list[Verdict | None] = [next(reversed(verdicts_in(replies, order)), None) for order in ORDERS]
    pointwise = dialect == "pointwise"
    if pointwise:
        ratings = {r.shown: float(r.answer) for r in replies if r.answer is not None}
        margin = ratings["A"] - ratings["B"] if len(ratings) == 2 else None
        verdicts = [verdict_of(margin)] * 2
    tokens = tokens_of(replies)
    spent = Cost(tokens["prompt_tokens"], tokens["generated_tokens"], len(replies))
    return Prediction.of(
        comparison,
        method,
        *verdicts,
        margin=margin,
        cost=spent * (1.0 if pointwise else 0.5),  # a verdict takes the replies of one order, or both ratings
        judgments=len(replies),
        failures=dict(failures_of(replies)),
        reasons=tuple(map(_reason, replies)),
        asked=sampling.shown,
        plan=None if pointwise else "independent",
    )
