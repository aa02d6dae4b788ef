"""The interface of engines, which generate text whatever runs the model: requests, completions and what they hold."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from judgetrain.artifacts.stage_run import ShardResult, tokens_of
from judgetrain.engines.config import SamplingConfig
from judgetrain.errors import EngineError

Step = Literal[
    "criteria",
    "guideline",
    "judgment",
    "score",
    "response",
    "correction",
    "pairwise",
    "pointwise",
    "preference",
    "rubric",
    "pair",
]
"""The step of a judge, or of another user of engines, that a request belongs to."""
FinishReason = Literal["stop", "length", "no_content", "reasoning_alone", "too_long", "error"]
LOGPROBS = 20
"""How many of the likeliest tokens are requested for candidates' probabilities; most servers allow no more."""
UNANSWERED = frozenset({"no_content", "reasoning_alone", "too_long", "error"})
"""Finish reasons without a text. Asking again does not help: the engine has retried what can be."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How to sample.

    Args:
        temperature: 0 is greedy.
        top_p: the nucleus' mass, from 0 to 1.
        max_new_tokens: the most tokens of the text.
        stop: strings that end the text and are not part of it.
        pattern: a regular expression that the whole text must match (constrained decoding); empty: any text.
        candidates: texts of one token whose probabilities are wanted wherever one of them is generated.
        top_k: above 0, only the k most probable tokens are left, before ``top_p`` is applied to them.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    max_new_tokens: int = 256
    stop: tuple[str, ...] = ()
    pattern: str = ""
    candidates: tuple[str, ...] = ()
    top_k: int = 0

    @classmethod
    def of(cls, settings: SamplingConfig) -> "Sampling":
        """Return the sampling that a configuration sets for one step."""
        return cls(temperature=settings.temperature, top_p=settings.top_p, max_new_tokens=settings.max_new_tokens)


class FormLine(NamedTuple):
    """A line of a reply.

    Args:
        name: the value's name.
        written: the line with ``{}`` in place of the value.
        values: the values allowed; empty: any text.
    """

    name: str
    written: str
    values: tuple[str, ...] = ()


Form = tuple[FormLine, ...]
"""The lines of a reply, in their order."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One prompt, and how to sample its completion.

    Args:
        messages: chat messages with ``role`` and ``content``.
        sampling: how to sample.
        step: what the request is for.
        slots: the values that filled the prompt's template. Engines without a language model (the annotator of the
            synthetic world) read them in place of the text.
        place: chooses the request's random numbers; None: its index in the call. A request that keeps its place is
            sampled alike whatever else the call holds.
        attempt: how often the same was requested before without use. Kept answers to earlier attempts are not reused.
        form: the form of the reply, for engines that ask for JSON; empty: the prompt alone says it.
        begins: how the reply begins, for engines that run a model here (:attr:`EngineConfig.continues`): the model
            reads it behind the prompt and goes on from there with one of ``sampling.candidates``. It is no part of the
            completion's text.
    """

    messages: tuple[Mapping[str, str], ...]
    sampling: Sampling
    step: Step = "response"
    slots: Mapping[str, str] = field(default_factory=dict)
    place: int | None = None
    attempt: int = 0
    form: Form = ()
    begins: str = ""


@dataclass(frozen=True)
class Choice:
    """The candidates' probabilities where the model wrote one of ``Sampling.candidates``.

    Args:
        at: the place of the written candidate in the completion, in characters.
        probabilities: the candidates' probabilities in their order, at temperature 1. They sum to 1.
    """

    at: int
    probabilities: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Completion:
    """Generated text without the prompt.

    Finish reasons are:

    - ``stop``: the end token or a stop string.
    - ``length``: ``max_new_tokens`` was reached, or something else kept the text from its normal end.
    - ``too_long``: the prompt and ``max_new_tokens`` exceed the context; nothing was generated, and nothing was cut.
    - ``no_content``: the answer holds nothing, as a refusal; it is paid for where answers are.
    - ``reasoning_alone``: all of the answer stands in the reasoning, which the server shows apart; it is paid for, too.
    - ``error``: the engine gave up on this request.

    Args:
        text: the generated text; empty where there is none.
        prompt_tokens: how many tokens the model read.
        generated_tokens: how many tokens the model wrote, the end token included.
        finish_reason: why the text ends.
        error: why there is no text.
        choices: the probabilities of ``Sampling.candidates``; empty from an engine that reports none.
        estimated: the token counts are estimates, since the server reported none that can be right.
        model: the name of the model that answered, where the server says it.
        read_tokens: how many of the prompt's tokens a server says that it read, with those in its cache; None where it
            says nothing of them.
    """

    text: str = ""
    prompt_tokens: int = 0
    generated_tokens: int = 0
    finish_reason: FinishReason
    error: str | None = None
    choices: tuple[Choice, ...] = ()
    estimated: bool = False
    model: str = field(default="", compare=False)
    read_tokens: int | None = field(default=None, compare=False)


def shard_of(rows: Sequence[Mapping[str, Any]], completions: Sequence[Completion]) -> ShardResult:
    """Return rows with their completions' texts as a finished shard; completions without a text count as dropped."""
    completed_rows = []
    dropped: Counter[str] = Counter()
    for row, completion in zip(rows, completions, strict=True):
        reason = completion.finish_reason
        completed_rows.append({**row, "text": completion.text, "finish_reason": reason, "error": completion.error})
        # They stay among the rows, with their reason, so that rows and items correspond.
        if reason in UNANSWERED:
            dropped[reason] += 1
    return ShardResult(completed_rows, len(completed_rows), dropped, **tokens_of(completions))


def cut_at_stop(text: str, stops: Sequence[str]) -> str | None:
    """Return the text before the earliest stop string; None where the text holds none."""
    # The earliest in the text, whatever the order in which stop strings are given.
    positions = [text.find(stop) for stop in stops if stop and stop in text]
    if not positions:
        return None
    return text[: min(positions)]


def no_beginnings(name: str) -> str:
    """Return the message that an engine of this name cannot go on from the beginning of a reply."""
    return (
        f"{name} cannot have its model go on from the beginning of a reply, which scores without reasons need "
        "(judge.reasons=false): choose engine.type=transformers or vllm"
    )


def refuse_beginnings(requests: Iterable[Request], name: str) -> None:
    """Refuse (EngineError) requests whose reply has a beginning, for engines that cannot go on from one.

    Args:
        requests: of a call.
        name: the engine's.
    """
    if any(request.begins for request in requests):
        raise EngineError(no_beginnings(name))


RankedTokens = Sequence[tuple[str, float]]
"""The likeliest tokens at one position, with their log-probabilities (nats)."""


def choices_of(
    tokens: Iterable[tuple[bytes, RankedTokens]], candidates: Sequence[str], text: str
) -> tuple[Choice, ...]:
    """Return a choice wherever one of the candidates was generated, from the log-probabilities that servers report.

    Places outside the completion's text are left out: a model may have reasoned before it.

    Args:
        tokens: the bytes of each generated token, and the likeliest tokens at its position.
        candidates: texts of one token; those that are not among the likeliest tokens have probability 0.
        text: the completion's text, which is looked for from the end of everything that was generated.
    """
    # Places are found in bytes, as a token may hold a part of a character.
    all_tokens = [*tokens]
    text_bytes = text.encode("utf-8", "replace")
    # From the end, since a model may have quoted its answer while it reasoned.
    text_start = max(0, b"".join(token for token, _ in all_tokens).rfind(text_bytes))

    choices: list[Choice] = []
    token_start = -text_start
    # Places are counted in characters, from the choice before on.
    counted_bytes = 0
    characters = 0
    for token, ranked in all_tokens:
        # A token often begins with the blank before its word, and a candidate is the word.
        blanks = len(token) - len(token.lstrip())
        start = token_start + blanks
        token_start += len(token)
        candidate = token.strip().decode("utf-8", "replace")
        is_in_text = start >= 0 and text_bytes[start : start + len(candidate)] == candidate.encode()
        if candidate not in candidates or not is_in_text:
            continue

        characters += len(text_bytes[counted_bytes:start].decode("utf-8", "replace"))
        counted_bytes = start
        probabilities = _relative_probabilities(ranked, candidates)
        if probabilities:
            choices.append(Choice(characters, probabilities))
    return tuple(choices)


def _relative_probabilities(ranked: RankedTokens, candidates: Sequence[str]) -> tuple[float, ...]:
    """Return the candidates' probabilities, which sum to 1; empty where none of them is among the likeliest tokens."""
    masses = []
    for candidate in candidates:
        # A candidate may be several tokens, which differ in the blanks around it.
        masses.append(math.fsum(math.exp(logprob) for token, logprob in ranked if token.strip() == candidate))

    # Only the candidates count: what the model would have written instead of any of them is left out.
    total = math.fsum(masses)
    if total <= 0:
        return ()
    return tuple(round(mass / total, 6) for mass in masses)


def places(requests: Sequence[Request]) -> list[int]:
    """Return the place of each request: the one that it names, else its index."""
    chosen_places = []
    for index, request in enumerate(requests):
        place = request.place
        if place is None:
            place = index
        chosen_places.append(place)
    return chosen_places


class Engine(Protocol):
    """Generates one completion per request, in the order of the requests."""

    name: str
    continues: bool
    """Whether its model goes on from the beginning of a reply (:attr:`Request.begins`)."""

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """Return a completion for every request; equal requests and seeds give equal completions on one machine."""
        ...

    def close(self) -> None:
        """Free the model's memory or the connection."""
        ...


@runtime_checkable
class KeepsBeginnings(Protocol):
    """An engine that can keep what prompts begin with for its next calls."""

    def keeping_beginnings(self) -> AbstractContextManager[None]:
        """Return the context in which it does so."""
        ...


def keeping_beginnings(engine: Engine) -> AbstractContextManager[None]:
    """Return a context for calls whose prompts begin like those of the calls before; the model must not change in it.

    An engine that cannot share between calls, or always does, is left alone.
    """
    if isinstance(engine, KeepsBeginnings):
        return engine.keeping_beginnings()
    return nullcontext()
