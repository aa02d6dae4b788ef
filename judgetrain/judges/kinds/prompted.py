"""What kinds have in common whose judges are asked once, by one prompt: ``pairwise`` and ``pointwise``."""

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
from judgetrain.judges.base import Cost, Judge, Prediction, Reason, in_own_order, verdict_of
from judgetrain.judges.config import JudgeOptions, OnceConfig, changed
from judgetrain.judges.kinds.kind import Arguments, Outcome, Parts, Use
from judgetrain.judges.method import Method
from judgetrain.judges.prompting.prompts import FILE, Dialect, PromptSet, has_step, load_prompt_set, slots_of
from judgetrain.judges.prompting.replies import Asker, Question, Read, Reply, errors_told, failures_of
from judgetrain.judges.settings import ModelSettings, check_model
from judgetrain.schema import ORDERS, Comparison, Verdict, mirror

if TYPE_CHECKING:
    from judgetrain.artifacts.fingerprint import ContentHashes
    from judgetrain.judges.factory import Models


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


def check(settings: ModelSettings, method: Method, use: Use) -> None:
    """Refuse a model that cannot be asked, and a prompt set of another dialect."""
    check_model(settings, method, use.key)
    dialect = cast(Dialect, method.kind)
    load_prompt_set(getattr(settings, dialect).prompts, dialect, f"evaluate.{dialect}.prompts")


def options(models: Models, method: Method, branches: int) -> JudgeOptions:
    """Return how such a judge is asked in a run: as ``evaluate.pairwise`` or ``evaluate.pointwise`` says."""
    return JudgeOptions(once=getattr(models.settings, method.kind))


def arguments(method: Method, directory: Path | None, call: Arguments) -> JudgeOptions:
    """Return how such a judge is asked by a caller in Python, who may change its sampling and its prompts."""
    sampling = changed(OnceConfig().sampling, call.changes, "sampling.")
    return JudgeOptions(once=OnceConfig(str(call.prompts or method.kind), sampling))


def prompts(method: Method, options: JudgeOptions, directory: Path | None, others: str | Path) -> PromptSet:
    """Return the prompts of a model's directory that has such a step, else those of the options."""
    assert options.once is not None
    dialect = cast(Dialect, method.kind)
    if method.is_directory and directory is not None and has_step(directory / FILE, dialect):
        return load_prompt_set(directory / FILE, dialect, method.text)
    return load_prompt_set(options.once.prompts, dialect, f"evaluate.{dialect}.prompts")


def build_by(judge: type[PromptedJudge]) -> Callable[[Method, JudgeOptions, Parts], Judge]:
    """Return what makes judges of a class."""

    def build(method: Method, options: JudgeOptions, parts: Parts) -> Judge:
        assert options.once is not None
        prompt_set = parts.prompts()
        return judge(parts.engine(), prompt_set, options.once.sampling, method.name)

    return build


def identity(models: Models, method: Method, hashes: ContentHashes, branches: int) -> dict[str, Any]:
    """Return what replies depend on besides the model."""
    name = None if method.is_directory else method.text
    return {"kind": method.kind, "name": name, "asked": getattr(models.settings, method.kind)}


def ask_once(judge: Any, comparisons: Sequence[Comparison], seed: int, branches: int = 0) -> ShardResult:
    """Return the replies on comparisons as a finished shard."""
    return replies_shard(comparisons, judge.ask(comparisons, seed))


def replies_shard(comparisons: Sequence[Comparison], replies: Sequence[Sequence[Reply]]) -> ShardResult:
    """Return a finished shard of the replies on each comparison."""
    rows = []
    failures: Counter[str] = Counter()
    every: list[Reply] = []
    for comparison, of_comparison in zip(comparisons, replies, strict=True):
        rows.append({"comparison_id": comparison.id, "replies": [reply.to_row() for reply in of_comparison]})
        failures.update(f"reply:{reply.failure}" for reply in of_comparison if reply.failure)
        every.extend(of_comparison)
    return ShardResult(rows, len(rows), failures, **tokens_of(every))


def read_by(dialect: Dialect) -> Callable[..., Outcome]:
    """Return what reads the rows of :func:`replies_shard`."""

    def read(
        rows: Sequence[Mapping[str, Any]],
        comparisons: Sequence[Comparison],
        options: JudgeOptions,
        name: str,
        branches: Sequence[int],
    ) -> Outcome:
        assert options.once is not None
        predictions = []
        every: list[Reply] = []
        for row, comparison in zip(rows, comparisons, strict=True):
            replies = [Reply(**reply) for reply in row["replies"]]
            predictions.append(prediction_of(dialect, name, comparison, replies, options.once.sampling))
            every.extend(replies)
        return Outcome(predictions={0: predictions}, message=errors_told(every))

    return read
