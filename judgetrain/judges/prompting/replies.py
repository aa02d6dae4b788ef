"""Asking a model questions whose answers are read off its replies: verdicts, ratings, preferences."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any

from judgetrain.amounts import amount
from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import UNANSWERED, Completion, Engine, Form, FormLine, Request, Sampling, Step
from judgetrain.engines.config import SamplingConfig
from judgetrain.judges.prompting.parsing import LINE_END
from judgetrain.judges.prompting.prompts import PromptSet
from judgetrain.judges.prompting.verdicts import Reading

# A frame's line as it stands in the expression: "Score: [1-5]" or "Analysis: [^\n]{1,{width}}".
_LINE = re.compile(r"\A(?P<label>[\w ()/-]+): (?:(?P<score>\[1-5\])|\[\^\\n\]\{1,\{width\}\})")
# The line of free text before a mark.
_EXPLAINED = FormLine("explanation", "{}")
_MARKED: dict[Step, Form] = {
    "pairwise": (_EXPLAINED, FormLine("verdict", "[[{}]]", tuple("ABC"))),
    "preference": (FormLine("preference", "[[{}]]", tuple("XY")),),
}


def form_of(prompts: PromptSet, step: Step) -> Form:
    """Return the form of a step's reply; empty where no line for line form describes it."""
    if step in prompts.frames:
        return _of_frame(prompts.frames[step])
    # The model has a form of its own, which only its reader knows.
    if prompts.reply_form:
        return ()
    if step == "pointwise" and prompts.scale:
        lowest, highest = prompts.scale
        ratings = tuple(str(rating) for rating in range(lowest, highest + 1))
        return _EXPLAINED, FormLine("rating", "[[{}]]", ratings)
    return _MARKED.get(step, ())


# A prompt set has few frames, and a form is asked for with every request.
@lru_cache
def _of_frame(frame: str) -> Form:
    """Return the lines of a frame; empty where one is not a label with a score or a text."""
    labels: Counter[str] = Counter()
    form: list[FormLine] = []
    for line in LINE_END.split(frame):
        match = _LINE.fullmatch(line)
        if match is None:
            return ()
        label = match["label"]
        labels[label] += 1
        name = label
        if labels[label] > 1:
            # Names are keys of the value: a label that comes again gets a number.
            name = f"{label} {labels[label]}"
        scores: tuple[str, ...] = ()
        if match["score"]:
            scores = tuple("12345")
        form.append(FormLine(name, f"{label}: {{}}", scores))
    return tuple(form)


Read = Callable[..., Reading[Any]]
"""Reads a generated text; the keyword ``material`` is the text that is judged."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One reply to a question.

    Args:
        shown: an order (``AB``, ``BA``), or the one response (``A``, ``B``) that was asked about.
        answer: a verdict in the comparison's own order, whatever order was shown, or a rating; None when the text could
            not be read.
        failure: why it could not be read.
        text: what the model generated.
        prompt_tokens: tokens read.
        generated_tokens: tokens written.
        finish_reason: why the text ends.
        error: the engine's message where it gave up on the request.
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
        """Return a JSON-ready dictionary, whose items are the arguments of the class."""
        return asdict(self)


@dataclass(frozen=True)
class Question:
    """One thing to ask.

    Args:
        shown: the order, or the one response, that the slots show.
        slots: of the prompt.
        translate: returns the answer as of the comparison's own order.
        examples: turns before the question: other questions, each with its right answer.
        marked: True: the reply is over where a line ends with a mark (``[[A]]``), as those of the examples are.
    """

    shown: str
    slots: Mapping[str, str]
    translate: Callable[[Any], str | float] = lambda answer: answer
    examples: tuple[Mapping[str, str], ...] = ()
    marked: bool = False


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
        """Return the replies to each group of questions, in order, all asked as one batch.

        The last reply to a question is the one that counts; what was unreadable stays before it.

        Args:
            groups: the questions about each comparison.
            step: the prompt set's step that asks them.
            read: reads a reply.
            seed: of what is sampled.
            numbers: what decides the groups' random numbers, where groups are of one size; None: each question's place
                among those that are asked.
        """
        # One flat batch for the engine; the groups are put together again at the end.
        questions = [question for group in groups for question in group]
        places = _places(groups, numbers)
        form = form_of(self.prompts, step)
        replies: list[list[Reply]] = [[] for _ in questions]
        waiting = list(range(len(questions)))
        attempts = self.attempts
        if self.sampling.temperature == 0:
            # Greedy sampling would only repeat a text that cannot be read.
            attempts = 1
        for attempt in range(attempts):
            if not waiting:
                break
            requests = []
            for index in waiting:
                request = Request(
                    messages=self._messages(step, questions[index]),
                    sampling=self._limits(questions[index]),
                    step=step,
                    slots=questions[index].slots,
                    attempt=attempt,
                    place=places[index],
                    form=form,
                )
                requests.append(request)
            # The attempt is part of the seed, or the same text would come again.
            completions = self.engine.generate(requests, derive_seed(seed, step, attempt))
            for index, completion in zip(waiting, completions, strict=True):
                replies[index].append(_reply(questions[index], completion, read))
            waiting = [index for index in waiting if _is_worth_asking_again(replies[index][-1])]

        return list(_grouped(replies, groups))

    def _limits(self, question: Question) -> Sampling:
        """Return the sampling of one question's reply."""
        sampling = Sampling.of(self.sampling)
        if question.marked:
            # The line break too: a mark within a line is no verdict.
            return replace(sampling, stop=("]]\n",))
        return sampling

    def _messages(self, step: Step, question: Question) -> tuple[Mapping[str, str], ...]:
        """Return the messages of a question, with its examples before the last one."""
        # The system message stands first and the question last; examples are turns between them.
        *system, user = self.prompts.render(step, question.slots)
        return (*system, *question.examples, user)


def _places(groups: Sequence[Sequence[Question]], numbers: Sequence[int] | None) -> list[int | None]:
    """Return the place of each question, which decides its random numbers; None: its place in the batch."""
    places: list[int | None] = []
    if numbers is None:
        for group in groups:
            places.extend([None] * len(group))
        return places
    for number, group in zip(numbers, groups, strict=True):
        for index in range(len(group)):
            places.append(number * len(group) + index)
    return places


def _grouped(replies: Sequence[Sequence[Reply]], groups: Sequence[Sequence[Question]]) -> Iterator[list[Reply]]:
    """Yield the replies to each group of questions, given those to every question in the groups' order."""
    remaining = iter(replies)
    for group in groups:
        # A group's replies stand in one list, those to a question that was asked again one after the other.
        of_group: list[Reply] = []
        for of_question in islice(remaining, len(group)):
            of_group.extend(of_question)
        yield of_group


def _is_worth_asking_again(reply: Reply) -> bool:
    """Return whether a reply could not be read, and the engine had an answer at all."""
    return reply.failure is not None and reply.finish_reason not in UNANSWERED


def _reply(question: Question, completion: Completion, read: Read) -> Reply:
    """Return a completion as a reply, read where it reached its normal end."""
    text = completion.text
    if question.marked and text.count("[[") > text.count("]]"):
        # A stop string is no part of the text.
        text += "]]"

    if completion.finish_reason in UNANSWERED:
        reading: Reading[Any] = Reading(None, completion.finish_reason)
    elif completion.finish_reason != "stop":
        # A mark may stand in a text that is cut off, but it was not meant to be the end.
        reading = Reading(None, "cut_off")
    else:
        # Marks of the judged texts are no answer, which the reader has to know.
        reading = read(text, material="\n".join(question.slots.values()))
    answer = None
    if reading.value is not None:
        answer = question.translate(reading.value)
    return Reply(
        shown=question.shown,
        answer=answer,
        failure=reading.failure,
        text=text,
        prompt_tokens=completion.prompt_tokens,
        generated_tokens=completion.generated_tokens,
        finish_reason=completion.finish_reason,
        error=completion.error or "",
    )


def errors_sentence(replies: Iterable[Reply]) -> str:
    """Return a line with the number of replies that an engine gave up on, and its first message; empty without any."""
    errors = []
    for reply in replies:
        if reply.error or reply.finish_reason == "error":
            errors.append(reply.error or "no reason was given")
    if not errors:
        return ""
    return f"{amount(len(errors), 'reply')} failed with an error; the first: {errors[0]}"


def failures_of(replies: Iterable[Reply]) -> Counter[str]:
    """Return the number of replies that could not be read, by reason."""
    return Counter(reply.failure for reply in replies if reply.failure)
