"""The common part of the kinds whose judges are asked once, by one prompt: ``pairwise`` and ``pointwise``."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from judgetrain.artifacts.stage_run import ShardResult, tokens_of
from judgetrain.engines.base import Engine, Step
from judgetrain.engines.config import SamplingConfig
from judgetrain.judges.base import Judge
from judgetrain.judges.kinds.kind import Arguments, KindResults, Parts, Use
from judgetrain.judges.method import Method
from judgetrain.judges.once_config import OnceConfig
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.predictions import Cost, Plan, Prediction, Reason, in_own_order, verdict_of
from judgetrain.judges.prompting.prompts import FILE, Dialect, PromptSet, has_step, load_prompt_set, slots_of
from judgetrain.judges.prompting.replies import Asker, Question, Read, Reply, errors_sentence, failures_of
from judgetrain.judges.settings import ModelSettings, check_model, unread_hint
from judgetrain.keys import changed
from judgetrain.schema import Comparison, Order, Verdict, mirror

if TYPE_CHECKING:
    from judgetrain.artifacts.fingerprint import ContentHashes
    from judgetrain.judges.factory import Models


class PromptedJudge(Judge):
    """The common part of judges with a single prompt.

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
        self.engine = engine
        self.sampling = sampling or OnceConfig().sampling
        # The packaged set of a dialect has the dialect's name.
        self.prompts = prompts or load_prompt_set(self.dialect, self.dialect)
        self.name = name or self.dialect

    def compare_batch(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        """Return the verdicts on many comparisons, all of them one batch."""
        groups = self.ask(comparisons, seed, [comparison.number for comparison in comparisons])
        predictions = []
        for comparison, replies in zip(comparisons, groups, strict=True):
            predictions.append(prediction_of(self.dialect, self.name, comparison, replies, self.sampling))
        return predictions

    def ask(
        self,
        comparisons: Sequence[Comparison],
        seed: int,
        numbers: Sequence[int] | None = None,
        examples: Sequence[Sequence[Comparison]] = (),
    ) -> list[list[Reply]]:
        """Return the replies that each comparison's prediction is made of: one in each order, or one a response.

        Args:
            comparisons: what to judge.
            seed: of what is sampled.
            numbers: what decides the comparisons' random numbers; None: their places in the call.
            examples: by comparison the labelled pairs that are shown before its questions; empty: none. A reply then
                ends at its mark, as theirs do.
        """
        groups = [self.questions(comparison) for comparison in comparisons]
        if examples:
            for place, (questions, pairs) in enumerate(zip(groups, examples, strict=True)):
                turns: list[Mapping[str, str]] = []
                for number, pair in enumerate(pairs):
                    turns.extend(self._example(pair, number))
                groups[place] = [replace(q, examples=tuple(turns), marked=bool(turns)) for q in questions]
        return self._ask(groups, seed, numbers)

    def _example(self, comparison: Comparison, number: int) -> list[Mapping[str, str]]:
        """Return a labelled pair as a question and its answer."""
        shown = comparison
        # Right answers are A and B in turn, so that the examples favour neither.
        if comparison.label != "AB"[number % 2]:
            shown = comparison.swapped()
        question = self.prompts.render(cast(Step, self.dialect), self.questions(shown)[0].slots)[-1]
        return [question, {"role": "assistant", "content": f"[[{shown.label}]]"}]

    def questions(self, comparison: Comparison) -> list[Question]:
        """Return the questions about a comparison."""
        return pairwise_questions(comparison)

    @abstractmethod
    def read(self) -> Read:
        """Return the function that reads a reply."""

    def _ask(self, groups: Sequence[Sequence[Question]], seed: int, numbers: Sequence[int] | None) -> list[list[Reply]]:
        """Return the replies to groups of questions."""
        asker = Asker(self.engine, self.prompts, self.sampling)
        return asker.ask(groups, cast(Step, self.dialect), self.read(), seed, numbers)

    def close(self) -> None:
        """Free the model."""
        self.engine.close()


def pairwise_questions(comparison: Comparison) -> list[Question]:
    """Return the question which response is better, with the two as they are and exchanged."""

    def slots(shown: Comparison) -> dict[str, str]:
        return slots_of(shown) | {"response_a": shown.response_a, "response_b": shown.response_b}

    # The answer to the exchanged question names the responses as shown.
    translate = cast(Callable[[Any], str], mirror)
    return [Question("AB", slots(comparison)), Question("BA", slots(comparison.swapped()), translate)]


def _reason(reply: Reply) -> Reason:
    """Return a reply as the one reason that there is."""
    verdict = None
    # A rating is the score of the one response that was shown.
    scores: dict[str, float | None] = {"A": None, "B": None}
    if isinstance(reply.answer, str):
        verdict = cast(Verdict, reply.answer)
    elif reply.shown in scores:
        scores[reply.shown] = reply.answer
    order: Order = "AB"
    # A rating is of one response, in no order, and stands with AB.
    if reply.shown == "BA":
        order = "BA"
    return Reason(
        order=order,
        criterion="",
        guideline="",
        text=in_own_order(reply.text, reply.shown),
        score_a=scores["A"],
        score_b=scores["B"],
        verdict=verdict,
        failure=reply.failure,
    )


def verdicts_in(replies: Sequence[Reply], order: str) -> list[Verdict]:
    """Return the readable verdicts given in one order, in the comparison's own order."""
    verdicts = []
    for reply in replies:
        if reply.shown == order and reply.answer is not None:
            verdicts.append(cast(Verdict, reply.answer))
    return verdicts


def prediction_of(
    dialect: str, method: str, comparison: Comparison, replies: Sequence[Reply], sampling: SamplingConfig
) -> Prediction:
    """Return the prediction of a judge that is asked once.

    ``branches`` is 0, as for every method without. The margin is that of ratings; ``pairwise`` gives none.

    Args:
        dialect: ``pairwise`` or ``pointwise``.
        method: the method's name.
        comparison: what was judged.
        replies: those on the comparison; of several in one order the last that could be read counts.
        sampling: of the replies.
    """
    tokens = tokens_of(replies)
    cost = Cost(tokens["prompt_tokens"], tokens["generated_tokens"], len(replies))
    # Two ratings have a margin, and judgments of a pair have a plan.
    margin = None
    plan: Plan | None = None
    if dialect == "pointwise":
        ratings = {reply.shown: float(reply.answer) for reply in replies if reply.answer is not None}
        # With one rating there is nothing to compare.
        if len(ratings) == 2:
            margin = ratings["A"] - ratings["B"]
        verdict_ab = verdict_of(margin)
        verdict_ba = verdict_ab
    else:
        verdict_ab = next(reversed(verdicts_in(replies, "AB")), None)
        verdict_ba = next(reversed(verdicts_in(replies, "BA")), None)
        plan = "independent"
        # A verdict takes the replies of one order; a rating's takes both.
        cost = cost * 0.5
    return Prediction.of(
        comparison,
        method,
        verdict_ab,
        verdict_ba,
        margin=margin,
        cost=cost,
        judgments=len(replies),
        failures=dict(failures_of(replies)),
        reasons=tuple(map(_reason, replies)),
        asked=sampling.shown,
        plan=plan,
    )


def check(settings: ModelSettings, method: Method, use: Use) -> None:
    """Refuse a model that cannot be asked, and a prompt set of another dialect."""
    # The model first: without one the prompts do not matter.
    check_model(settings, method, use.key)
    dialect = cast(Dialect, method.kind)
    load_prompt_set(getattr(settings, dialect).prompts, dialect, f"evaluate.{dialect}.prompts")


def options(models: Models, method: Method, branches: int) -> JudgeOptions:
    """Return how such a judge is asked in a run: as ``evaluate.pairwise`` or ``evaluate.pointwise`` says."""
    return JudgeOptions(once=getattr(models.settings, method.kind))


def arguments(method: Method, directory: Path | None, call: Arguments) -> JudgeOptions:
    """Return how such a judge is asked by a caller in Python, who may change its sampling and its prompts."""
    sampling = changed(OnceConfig().sampling, call.changes, "")
    return JudgeOptions(once=OnceConfig(str(call.prompts or method.kind), sampling))


def prompts(method: Method, options: JudgeOptions, directory: Path | None, others: str | Path) -> PromptSet:
    """Return the prompts of a model's directory that has such a step, else those of the options."""
    assert options.once is not None
    dialect = cast(Dialect, method.kind)
    # A trained judge's directory has a prompt set for branches, which such a question is none of.
    if method.is_directory and directory is not None and has_step(directory / FILE, dialect):
        return load_prompt_set(directory / FILE, dialect, method.text)
    return load_prompt_set(options.once.prompts, dialect, f"evaluate.{dialect}.prompts")


def build_by(judge: type[PromptedJudge]) -> Callable[[Method, JudgeOptions, Parts], Judge]:
    """Return a function that makes judges of a class."""

    def build(method: Method, options: JudgeOptions, parts: Parts) -> Judge:
        assert options.once is not None
        # Prompts before the engine: an error in them is found before a model is loaded.
        prompt_set = parts.prompts()
        return judge(parts.engine(), prompt_set, options.once.sampling, method.name)

    return build


def identity(models: Models, method: Method, hashes: ContentHashes, branches: int) -> dict[str, Any]:
    """Return what replies depend on besides the model."""
    name = None
    # A directory's name is no part of it: its model's content is.
    if not method.is_directory:
        name = method.text
    return {"kind": method.kind, "name": name, "asked": getattr(models.settings, method.kind)}


def ask_once(judge: Any, comparisons: Sequence[Comparison], seed: int, branches: int = 0) -> ShardResult:
    """Return the replies on comparisons as a finished shard."""
    return replies_shard(comparisons, judge.ask(comparisons, seed))


def replies_shard(comparisons: Sequence[Comparison], replies: Sequence[Sequence[Reply]]) -> ShardResult:
    """Return a finished shard of the replies on each comparison."""
    rows = []
    failures: Counter[str] = Counter()
    all_replies: list[Reply] = []
    for comparison, of_comparison in zip(comparisons, replies, strict=True):
        # Replies and not predictions, which stage evaluate makes of them when it reads the shard.
        rows.append({"comparison_id": comparison.id, "replies": [reply.to_row() for reply in of_comparison]})
        failures.update(f"reply:{reply.failure}" for reply in of_comparison if reply.failure)
        all_replies.extend(of_comparison)
    return ShardResult(rows, len(rows), failures, **tokens_of(all_replies))


def read_by(dialect: Dialect) -> Callable[..., KindResults]:
    """Return a function that reads the rows of :func:`replies_shard`."""

    def read(
        rows: Sequence[Mapping[str, Any]],
        comparisons: Sequence[Comparison],
        options: JudgeOptions,
        name: str,
        branches: Sequence[int],
    ) -> KindResults:
        assert options.once is not None
        predictions = []
        all_replies: list[Reply] = []
        for row, comparison in zip(rows, comparisons, strict=True):
            replies = [Reply(**reply) for reply in row["replies"]]
            predictions.append(prediction_of(dialect, name, comparison, replies, options.once.sampling))
            all_replies.extend(replies)
        lines = [errors_sentence(all_replies), unread_hint(failures_of(all_replies))]
        return KindResults(predictions={0: predictions}, message="; ".join(line for line in lines if line))

    return read
