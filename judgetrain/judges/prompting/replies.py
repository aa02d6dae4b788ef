"""Asking a model questions whose answers are read off its replies: verdicts, ratings, preferences.

The answer is a mark in double square brackets that ends the last line. Nothing stands before it there but a finished
sentence or a label with a colon (``It is short. [[A]]``, ``Verdict: [[A]]``). A mark that the judged text holds, too,
must stand alone: after a colon it may be a quotation. What stands above the last line, and in a reply's reasoning,
counts for nothing.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import UNANSWERED, Completion, Engine, Form, FormLine, Request, Sampling, Step
from judgetrain.engines.config import SamplingConfig
from judgetrain.engines.confusables import fold
from judgetrain.engines.prompting import NO_ANSWER, answer_of
from judgetrain.judges.prompting.parsing import LINE_END
from judgetrain.schema import Verdict

if TYPE_CHECKING:
    from judgetrain.judges.prompting.prompts import PromptSet

T = TypeVar("T")

_MARK = re.compile(r"\[\[([^\[\]\n]{1,60})\]\]")
_RATING = re.compile(r"(?P<value>[-+]?\d{1,9}(?:[.,]\d{1,9})?)(?:\s?/\s?(?P<scale>\d{1,9}))?")
_DRESS = "*`\\_"
"""Emphasis and escapes, which make no difference to a mark."""
_SENTENCE_ENDS = (".", "!", "?", "\u3002")
_VERDICTS: dict[str, Verdict] = {"a": "A", "b": "B", "c": "tie", "tie": "tie"}
_CRITIQUES: dict[str, Literal["X", "Y"]] = {"x": "X", "y": "Y"}


@dataclass(frozen=True)
class Reading(Generic[T]):
    """What was read, or the reason why nothing was."""

    value: T | None
    failure: str | None = None


def read_verdict(text: str, material: str = "") -> Reading[Verdict]:
    """The verdict of a pairwise comparison, on the responses as shown: ``[[A]]``, ``[[B]]``, or ``[[C]]`` for a tie.

    Case, bold, escaped brackets and ``[[tie]]`` are accepted. ``failure`` is ``no_verdict`` (no mark at all),
    ``mentioned`` (a mark, but not as the end of the reply), ``ambiguous`` (several on the last line), ``quoted`` (the
    judged text's, not alone on its line), ``unknown_verdict`` (another mark) or ``no_answer``.
    """
    return _known(_mark(text, material, "no_verdict"), _VERDICTS)


def read_letter(text: str, material: str = "") -> Reading[Verdict]:
    """The verdict of a reply that is one letter, ``A`` or ``B``; ``failure`` is ``no_letter``."""
    found: Mapping[str, Verdict] = {"A": "A", "B": "B"}
    value = found.get(text.strip())
    return Reading(value, None if value else "no_letter")


def read_preference(text: str, material: str = "") -> Reading[Literal["X", "Y"]]:
    """Which critique is preferred: ``[[X]]`` or ``[[Y]]``; fails as :func:`read_verdict` does."""
    return _known(_mark(text, material, "no_verdict"), _CRITIQUES)


def read_rating(text: str, lowest: int, highest: int, material: str = "") -> Reading[float]:
    """The rating in a text: ``[[7]]``, also ``[[7.5]]`` and ``[[7/10]]``; it stands as a verdict's mark does.

    ``failure`` is ``no_rating``, ``out_of_range`` (another scale than ``highest``, too), or a verdict's.
    """
    return _rating(_mark(text, material, "no_rating"), lowest, highest)


@dataclass(frozen=True)
class Reads:
    """How the replies of a model that has a form of its own are read, as a prompt set says under ``reads``.

    ``pattern``: its last match counts, as these models' own readers have it; what its group holds says the
    verdict, in small letters by ``verdicts``, or is the rating, where these are empty.
    """

    pattern: re.Pattern[str]
    verdicts: Mapping[str, Verdict]

    def verdict(self, text: str, material: str = "") -> Reading[Verdict]:
        """The verdict; ``failure`` is ``no_verdict``, ``unknown_verdict`` or ``no_answer``."""
        return _known(self._last(text, material, "no_verdict"), self.verdicts)

    def rating(self, text: str, lowest: int, highest: int, material: str = "") -> Reading[float]:
        """The rating; ``failure`` is ``no_rating``, ``out_of_range`` or ``no_answer``."""
        return _rating(self._last(text, material, "no_rating"), lowest, highest)

    def _last(self, text: str, material: str, failure: str) -> Reading[str]:
        answer = answer_of(text, material)
        if answer is None:
            return Reading(None, NO_ANSWER)
        found = [match[1] or "" for match in self.pattern.finditer(answer)]
        return Reading(found[-1]) if found else Reading(None, failure)


def _known(said: Reading[str], known: Mapping[str, T]) -> Reading[T]:
    if said.value is None:
        return Reading(None, said.failure)
    value = known.get(" ".join(said.value.casefold().split()))
    return Reading(value, None if value else "unknown_verdict")


def _rating(said: Reading[str], lowest: int, highest: int) -> Reading[float]:
    if said.value is None:
        return Reading(None, said.failure)
    match = _RATING.fullmatch(said.value.strip())
    if match is None:
        return Reading(None, "no_rating")
    value = float(match["value"].replace(",", "."))
    right = lowest <= value <= highest and int(match["scale"] or highest) == highest
    return Reading(value) if right else Reading(None, "out_of_range")


def _mark(text: str, material: str, none: str) -> Reading[str]:
    """What the mark says that ends a reply, in small letters; ``none`` is the failure where there is no mark at all."""
    answer = answer_of(text, material)
    if answer is None:
        return Reading(None, NO_ANSWER)
    looks = _bare(answer)
    last = looks.rstrip().rpartition("\n")[2].strip().rstrip(".!\u3002").rstrip()
    marks = list(_MARK.finditer(last))
    if not marks or marks[-1].end() < len(last):
        return Reading(None, "mentioned" if _MARK.search(looks) else none)
    said = marks[-1][1].strip().casefold()
    if any(mark[1].strip().casefold() != said for mark in marks):
        return Reading(None, "ambiguous")
    before = last[: marks[-1].start()].rstrip()
    if before.endswith((":", "\uff1a")):
        return Reading(None, "quoted") if said in _held(material) else Reading(said)
    return Reading(said) if not before or before.endswith(_SENTENCE_ENDS) else Reading(None, "mentioned")


@lru_cache(maxsize=64)
def _held(material: str) -> frozenset[str]:
    """What the marks in a judged text say; the judgments of a comparison ask for the same few again and again."""
    return frozenset(match[1].strip().casefold() for match in _MARK.finditer(_bare(material)))


def _bare(text: str) -> str:
    """A text as it looks, without emphasis and escapes."""
    return fold(text).text.translate(dict.fromkeys(map(ord, _DRESS)))


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


LEAST = 5e-7
"""Half of the last digit that a probability is kept with (:class:`~judgetrain.engines.base.Choice`)."""

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
    margin: float | None = None
    """Of one letter alone: the log-odds of the comparison's A over its B, nats."""

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
    letters: tuple[str, ...] = ()
    """The whole reply is to be one of these, A's first; each reply has their log-odds."""

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
        limits = Sampling.of(self.sampling)
        if self.letters:
            limits = replace(limits, pattern=f"({'|'.join(self.letters)})", candidates=self.letters)
        form, replies = form_of(self.prompts, step), list[list[Reply]]([] for _ in questions)
        waiting = list(range(len(questions)))
        for attempt in range(self.attempts if self.sampling.temperature > 0 else 1):
            requests = [
                Request(
                    messages=self._messages(step, q),
                    sampling=limits,
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
                replies[index].append(_reply(questions[index], completion, read, bool(self.letters)))
            waiting = [i for i in waiting if replies[i][-1].failure and replies[i][-1].finish_reason not in UNANSWERED]
        each = iter(replies)
        return [[reply for _ in group for reply in next(each)] for group in groups]

    def _messages(self, step: Step, question: Question) -> tuple[Mapping[str, str], ...]:
        *system, asked = self.prompts.render(step, question.slots)
        return (*system, *question.examples, asked)


def _reply(question: Question, completion: Completion, read: Read, weighed: bool) -> Reply:
    """A completion as it is read; ``weighed``: without the letters' probabilities it cannot be."""
    # One letter that was enforced is whole, also where the reply has no room for its end.
    ended = completion.finish_reason == "stop" or weighed
    if completion.finish_reason in UNANSWERED:
        reading: Reading[Any] = Reading(None, completion.finish_reason)
    elif not ended:
        reading = Reading(None, "cut_off")
    else:
        reading = read(completion.text, material="\n".join(question.slots.values()))
    if weighed and reading.value is not None and not completion.choices:
        reading = Reading(None, "no_probabilities")
    return Reply(
        shown=question.shown,
        answer=None if reading.value is None else question.translate(reading.value),
        failure=reading.failure,
        text=completion.text,
        prompt_tokens=completion.prompt_tokens,
        generated_tokens=completion.generated_tokens,
        finish_reason=completion.finish_reason,
        error=completion.error or "",
        margin=_log_odds(completion, question.shown) if weighed and reading.value is not None else None,
    )


def _log_odds(completion: Completion, shown: str) -> float:
    """Of the comparison's A over its B; a probability that was rounded away counts as half of the last digit."""
    first, second = (max(p, LEAST) for p in completion.choices[0].probabilities[:2])
    odds = round(math.log(first / second), 6)
    return -odds if shown == "BA" else odds


def errors_told(replies: Iterable[Reply]) -> str:
    """How many replies an engine gave up on, and what it said of the first; empty where there are none."""
    errors = [r.error or "no reason was given" for r in replies if r.error or r.finish_reason == "error"]
    return f"{len(errors)} replies failed with an error; the first: {errors[0]}" if errors else ""


def failures_of(replies: Iterable[Reply]) -> Counter[str]:
    """How many replies could not be read, by reason."""
    return Counter(r.failure for r in replies if r.failure)
