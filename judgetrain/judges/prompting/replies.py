"""Asking a model questions whose answers are read off its replies: verdicts, ratings, preferences."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import UNANSWERED, Completion, Engine, Form, FormLine, Request, Sampling, Step
from judgetrain.engines.config import SamplingConfig
from judgetrain.judges.prompting.parsing import LINE_END
from judgetrain.judges.prompting.prompts import PromptSet
from judgetrain.judges.prompting.verdicts import Reading

_LINE = re.compile(r"\A(?P<label>[\w ()/-]+): (?:(?P<score>\[1-5\])|\[\^\\n\]\{1,\{width\}\})")
_EXPLAINED = FormLine("explanation", "{}")
_MARKED: dict[Step, Form] = {
    "pairwise": (_EXPLAINED, FormLine("verdict", "[[{}]]", tuple("ABC"))),
    "preference": (FormLine("preference", "[[{}]]", tuple("XY")),),
}


def form_of(prompts: PromptSet, step: Step) -> Form:
    """The form of a step's reply, which is read as the prompt set reads it; empty where it has another."""
    if step in prompts.frames:
        return _of_frame(prompts.frames[step])
    if prompts.reads:  # a form of the model's own
        return ()
    if step == "pointwise" and prompts.scale:
        low, high = prompts.scale
        return _EXPLAINED, FormLine("rating", "[[{}]]", tuple(map(str, range(low, high + 1))))
    return _MARKED.get(step, ())


@lru_cache
def _of_frame(frame: str) -> Form:
    """A frame's lines, if each is a label with a score or a text; a label that comes again has a number."""
    labels, form = Counter[str](), list[FormLine]()
    for line in map(_LINE.fullmatch, LINE_END.split(frame)):
        if line is None:
            return ()
        labels[label := line["label"]] += 1
        name = label if labels[label] == 1 else f"{label} {labels[label]}"
        form.append(FormLine(name, f"{label}: {{}}", tuple("12345") if line["score"] else ()))
    return tuple(form)


Read = Callable[..., Reading[Any]]
"""Reads a generated text; the keyword ``material`` is the text that is judged."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One reply to a question.

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
    examples: tuple[Mapping[str, str], ...] = ()
    """Turns before the question: other questions, each with its right answer."""
    marked: bool = False
    """Whether the reply is over where a line ends with a mark (``[[A]]``), as those of the examples are."""


@dataclass(frozen=True)
class Asker:
    """Asks a model, with a prompt set and a sampling.

    A text that cannot be read is asked for again with other random numbers, up to ``attempts`` times in all; greedy
    sampling would only repeat it, so it is asked once.
    """

    engine: Engine
    prompts: PromptSet
    sampling: SamplingConfig
    attempts: int = 1

    def ask(
        self,
        groups: Sequence[Sequence[Question]],
        step: Step,
        read: Read,
        seed: int,
        numbers: Sequence[int] | None = None,
    ) -> list[list[Reply]]:
        """The replies to each group of questions, in order, all asked as one batch.

        The last reply to a question is the one that counts; what was unreadable stays before it. ``numbers`` decide the
        groups' random numbers, where groups are of one size; None: each question's place among those that are asked.
        """
        questions = [question for group in groups for question in group]
        places: list[int | None] = [None] * len(questions)
        if numbers is not None:
            places = [n * len(group) + i for n, group in zip(numbers, groups, strict=True) for i in range(len(group))]
        limits = [replace(Sampling.of(self.sampling), stop=("]]\n",) if q.marked else ()) for q in questions]
        form, replies = form_of(self.prompts, step), list[list[Reply]]([] for _ in questions)
        waiting = list(range(len(questions)))
        for attempt in range(self.attempts if self.sampling.temperature > 0 else 1):
            requests = [
                Request(
                    messages=self._messages(step, q),
                    sampling=limits[i],
                    step=step,
                    slots=q.slots,
                    attempt=attempt,
                    place=places[i],
                    form=form,
                )
                for i, q in ((i, questions[i]) for i in waiting)
            ]
            completions = self.engine.generate(requests, derive_seed(seed, step, attempt)) if requests else []
            for index, completion in zip(waiting, completions, strict=True):
                replies[index].append(_reply(questions[index], completion, read))
            waiting = [i for i in waiting if replies[i][-1].failure and replies[i][-1].finish_reason not in UNANSWERED]
        each = iter(replies)
        return [[reply for _ in group for reply in next(each)] for group in groups]

    def _messages(self, step: Step, question: Question) -> tuple[Mapping[str, str], ...]:
        *system, asked = self.prompts.render(step, question.slots)
        return (*system, *question.examples, asked)


def _reply(question: Question, completion: Completion, read: Read) -> Reply:
    text = completion.text
    if question.marked and text.count("[[") > text.count("]]"):  # stop strings are no part of it
        text += "]]"
    if completion.finish_reason in UNANSWERED:
        reading: Reading[Any] = Reading(None, completion.finish_reason)
    elif completion.finish_reason != "stop":
        reading = Reading(None, "cut_off")
    else:
        reading = read(text, material="\n".join(question.slots.values()))
    return Reply(
        shown=question.shown,
        answer=None if reading.value is None else question.translate(reading.value),
        failure=reading.failure,
        text=text,
        prompt_tokens=completion.prompt_tokens,
        generated_tokens=completion.generated_tokens,
        finish_reason=completion.finish_reason,
        error=completion.error or "",
    )


def errors_told(replies: Iterable[Reply]) -> str:
    """How many replies an engine gave up on, and what it said of the first; empty where there are none."""
    errors = [r.error or "no reason was given" for r in replies if r.error or r.finish_reason == "error"]
    return f"{len(errors)} replies failed with an error; the first: {errors[0]}" if errors else ""


def failures_of(replies: Iterable[Reply]) -> Counter[str]:
    """How many replies could not be read, by reason."""
    return Counter(r.failure for r in replies if r.failure)
