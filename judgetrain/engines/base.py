"""The one interface behind which text is generated, whatever runs the model."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from judgetrain.artifacts.stage_run import ShardResult, tokens_of
from judgetrain.engines.config import SamplingConfig

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
FinishReason = Literal["stop", "length", "no_content", "too_long", "error"]
LOGPROBS = 20
"""Likeliest tokens asked for where candidates' probabilities are wanted: what servers commonly allow at most."""
UNANSWERED = frozenset({"no_content", "too_long", "error"})
"""Finish reasons without a text, which asking again does not help: the engine has retried what can be."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How to sample. ``temperature`` 0 is greedy. ``stop`` strings end the text and are not part of it.

    ``pattern``: a regular expression that the whole text must match (constrained decoding; empty: none).
    ``candidates``: texts of one token whose probabilities are wanted wherever one of them is generated.
    ``top_k`` above 0 leaves only the k most probable tokens, before ``top_p`` is applied to what is left.
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
        """What a configuration says of one step."""
        return cls(temperature=settings.temperature, top_p=settings.top_p, max_new_tokens=settings.max_new_tokens)


class FormLine(NamedTuple):
    """A line of a reply: what its value is called, how it is written with the value in ``{}``, and which values there
    are (empty: any text)."""

    name: str
    written: str
    values: tuple[str, ...] = ()


Form = tuple[FormLine, ...]


@dataclass(frozen=True, kw_only=True)
class Request:
    """One prompt as chat messages (``role``/``content``).

    ``slots`` are the values that filled the prompt template; engines that are no language model (the world's
    annotator) read them in place of the text.
    """

    messages: tuple[Mapping[str, str], ...]
    sampling: Sampling
    step: Step = "response"
    slots: Mapping[str, str] = field(default_factory=dict)
    place: int | None = None
    """Which random numbers the request gets; None: those of its index in the call. Requests that keep their places
    are sampled alike whatever else is asked in the same call."""
    attempt: int = 0
    """How often the same was asked before without use: kept answers to those are not what is wanted."""
    form: Form = ()
    """What the reply holds, for an engine that asks for JSON; empty: the prompt alone says so."""


@dataclass(frozen=True)
class Choice:
    """What the model thought where it wrote one of ``Sampling.candidates``.

    ``at`` is that text's place in the completion, in characters; ``probabilities`` are those of the candidates in
    their order, at temperature 1 and relative to each other: they sum to 1.
    """

    at: int
    probabilities: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Completion:
    """Generated text without the prompt.

    ``prompt_tokens`` and ``generated_tokens`` count what the model read and wrote (the end token included).
    ``finish_reason``: ``stop`` (end token or stop string), ``length`` (hit ``max_new_tokens``, or
    was kept from its normal end by something else), ``too_long`` (the prompt and ``max_new_tokens`` exceed the context:
    nothing was generated, nothing was cut),
    ``no_content`` (there was an answer, paid for where answers are, that holds nothing: a refusal, reasoning alone),
    ``error`` (the engine gave up on this request). ``error`` says why there is no text. ``choices``: see
    ``Sampling.candidates``; empty from an engine that reports no probabilities.
    """

    text: str = ""
    prompt_tokens: int = 0
    generated_tokens: int = 0
    finish_reason: FinishReason
    error: str | None = None
    choices: tuple[Choice, ...] = ()
    estimated: bool = False
    """Whether token counts are estimates, since the server reported none that can be."""
    model: str = field(default="", compare=False)
    """The name of the model that answered, where the server says it."""


def shard_of(rows: Sequence[Mapping[str, Any]], completions: Sequence[Completion]) -> ShardResult:
    """Rows with the texts that came for them, as a finished shard; what came without a text is counted as dropped."""
    texts = [
        {**row, "text": c.text, "finish_reason": c.finish_reason, "error": c.error}
        for row, c in zip(rows, completions, strict=True)
    ]
    failed = Counter(str(c.finish_reason) for c in completions if c.finish_reason in UNANSWERED)
    return ShardResult(texts, len(texts), failed, **tokens_of(completions))


def cut_at_stop(text: str, stops: Sequence[str]) -> str | None:
    """The text before the earliest stop string; None where there is none."""
    positions = [p for p in (text.find(stop) for stop in stops if stop) if p >= 0]
    return text[: min(positions)] if positions else None


def choices_of(
    tokens: Iterable[tuple[bytes, Sequence[tuple[str, float]]]], candidates: Sequence[str], text: str
) -> tuple[Choice, ...]:
    """A choice wherever one of the candidates was generated, from the log-probabilities that servers report.

    ``tokens``: each generated token's bytes with the likeliest tokens at its position and their log-probabilities
    (nats). Candidates that are not among those have probability 0. The text is looked for from the end of all that was
    generated, before which a model may have thought; positions outside it are left out.
    """
    every, found, known = [*tokens], list[Choice](), text.encode("utf-8", "replace")
    begins = max(0, b"".join(token for token, _ in every).rfind(known))
    end, shown, at = 0, 0, 0
    for token, ranked in every:
        start, end = end - begins, end + len(token)
        written = token.strip().decode("utf-8", "replace")
        start += len(token) - len(token.lstrip())
        if written not in candidates or start < 0 or known[start : start + len(written)] != written.encode():
            continue
        at, shown = at + len(known[shown:start].decode("utf-8", "replace")), start
        mass = [math.fsum(math.exp(p) for t, p in ranked if t.strip() == candidate) for candidate in candidates]
        if (total := math.fsum(mass)) > 0:
            found.append(Choice(at, tuple(round(m / total, 6) for m in mass)))
    return tuple(found)


def places(requests: Sequence[Request]) -> list[int]:
    """The place of each request: its own, else its index."""
    return [index if request.place is None else request.place for index, request in enumerate(requests)]


class Engine(Protocol):
    """Generates one completion per request, in the order of the requests."""

    name: str

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """Complete every request. The same engine, requests and seed give the same completions on one machine."""
        ...

    def close(self) -> None:
        """Free the model's memory or the connection."""
        ...
