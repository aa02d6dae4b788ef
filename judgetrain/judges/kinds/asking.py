"""Asking a judge once for what it thinks: which of two responses is better, or how good one is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, cast

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import UNANSWERED, Completion, Engine, Request, Sampling, Step
from judgetrain.engines.config import SamplingConfig
from judgetrain.judges.prompting.prompts import PromptSet
from judgetrain.judges.prompting.verdicts import Reading, quotes, read_rating, read_verdict
from judgetrain.judges.trees.grow import slots_of
from judgetrain.schema import Comparison, Verdict, mirror

Read = Callable[..., Reading[Any]]
"""Reads a generated text; the keyword ``material`` is the text that is judged."""


@dataclass(frozen=True)
class Reply:
    """One reply of a judge that is asked once.

    ``shown`` is what it was asked about: an order (``AB``, ``BA``) or one response (``A``, ``B``). ``answer`` is a
    verdict in the comparison's own order, whatever order was shown, or a rating; None when the text could not be
    read, and ``failure`` says why; ``error`` is what the engine said where it gave up on the request.
    """

    shown: str
    answer: str | float | None
    failure: str | None
    text: str
    prompt_tokens: int
    generated_tokens: int
    finish_reason: str
    error: str = ""

    def to_row(self) -> dict[str, Any]:
        """A JSON-ready dictionary; its items are the arguments of the class."""
        return asdict(self)


@dataclass(frozen=True)
class Question:
    """One thing to ask: the slots of a prompt, what they show, and how the answer is translated back."""

    shown: str
    slots: Mapping[str, str]
    translate: Callable[[Any], str | float] = lambda answer: answer


def ask(
    questions: Sequence[Question],
    step: Step,
    read: Read,
    engine: Engine,
    prompts: PromptSet,
    sampling: SamplingConfig,
    seed: int,
    attempts: int = 1,
) -> list[list[Reply]]:
    """The replies to every question, in order, as one batch; the last reply of a question is the one that counts.

    A text that cannot be read is asked for again with other random numbers, up to ``attempts`` times in all; greedy
    sampling would only repeat it, so it is asked once. What was unreadable stays among the replies.
    """
    limits = Sampling.of(sampling)
    replies: list[list[Reply]] = [[] for _ in questions]
    waiting = list(range(len(questions)))
    for attempt in range(attempts if sampling.temperature > 0 else 1):
        requests = [
            Request(messages=prompts.render(step, q.slots), sampling=limits, step=step, slots=q.slots, attempt=attempt)
            for q in (questions[i] for i in waiting)
        ]
        completions = engine.generate(requests, derive_seed(seed, step, attempt)) if requests else []
        for index, completion in zip(waiting, completions, strict=True):
            replies[index].append(_reply(questions[index], completion, read))
        waiting = [i for i in waiting if replies[i][-1].failure and replies[i][-1].finish_reason not in UNANSWERED]
    return replies


def _reply(question: Question, completion: Completion, read: Read) -> Reply:
    material = "\n".join(question.slots.values())
    if completion.finish_reason in UNANSWERED:
        reading: Reading[Any] = Reading(None, completion.finish_reason)
    else:
        reading = read(completion.text, material=material)
    cut_off = completion.finish_reason == "length"
    if cut_off and reading.value is not None and quotes(completion.text, material):
        reading = Reading(None, "quoted")  # the verdict, due at the end, never came; this one was in what is judged
    return Reply(
        question.shown,
        None if reading.value is None else question.translate(reading.value),
        reading.failure,
        completion.text,
        completion.prompt_tokens,
        completion.generated_tokens,
        completion.finish_reason,
        completion.error or "",
    )


def errors_told(replies: Iterable[Reply]) -> str:
    """How many replies an engine gave up on, and what it said of the first; empty where there are none."""
    errors = [r.error or "no reason was given" for r in replies if r.finish_reason == "error"]
    return f"{len(errors)} replies failed with an error; the first: {errors[0]}" if errors else ""


def ask_verdicts(
    comparisons: Sequence[Comparison],
    engine: Engine,
    prompts: PromptSet,
    sampling: SamplingConfig,
    seed: int,
    samples: int = 1,
    attempts: int = 1,
) -> list[list[Reply]]:
    """One-step verdicts on every comparison, ``samples`` in each order; a list of replies for each comparison."""
    questions = [q for c in comparisons for q in _both_orders(c) for _ in range(samples)]
    return _by_item(ask(questions, "one_step", read_verdict, engine, prompts, sampling, seed, attempts), 2 * samples)


def ask_ratings(
    comparisons: Sequence[Comparison], engine: Engine, prompts: PromptSet, sampling: SamplingConfig, seed: int
) -> list[list[Reply]]:
    """A rating of each response by itself, on the prompt set's scale; two replies for each comparison."""
    assert prompts.scale is not None
    lowest, highest = prompts.scale
    questions = [
        Question(side, slots_of(c) | {"response": response, "lowest": str(lowest), "highest": str(highest)})
        for c in comparisons
        for side, response in (("A", c.response_a), ("B", c.response_b))
    ]
    read = partial(read_rating, lowest=lowest, highest=highest)
    return _by_item(ask(questions, "rating", read, engine, prompts, sampling, seed), 2)


def _both_orders(comparison: Comparison) -> list[Question]:
    def slots(shown: Comparison) -> dict[str, str]:
        return slots_of(shown) | {"response_a": shown.response_a, "response_b": shown.response_b}

    back = cast(Callable[[Any], str], mirror)
    return [Question("AB", slots(comparison)), Question("BA", slots(comparison.swapped()), back)]


def _by_item(replies: Sequence[Sequence[Reply]], each: int) -> list[list[Reply]]:
    """Replies of ``each`` questions in a row put together."""
    return [[r for q in replies[i : i + each] for r in q] for i in range(0, len(replies), each)]


def verdicts_in(replies: Sequence[Reply], order: str) -> list[Verdict]:
    """The readable verdicts given in one order, in the comparison's own order."""
    return [cast(Verdict, r.answer) for r in replies if r.shown == order and r.answer is not None]
