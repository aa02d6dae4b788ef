"""Samples as token ids, what a model tells of them token by token; and the prompts of scorers, as data.

A prompt set has the pool of system prompts, the revision prompts and the self-rating prompt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from judgetrain.engines.prompting import continuation, neutralise, render, token_ids
from judgetrain.errors import ConfigError, EngineError
from judgetrain.schema import Dialogue

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerBase

Messages = tuple[Mapping[str, str], ...]


@dataclass(frozen=True)
class Sample:
    """A response to be scored.

    ``prompt`` is a chat (``role``/``content`` messages, the last one the user's; earlier turns may be the
    assistant's) that the model's chat template renders. ``reference`` is a right answer to the same prompt, where there
    is one; ``temperature`` that which the response was sampled at, where it is known.
    """

    prompt: Messages
    response: str
    reference: str | None = None
    temperature: float | None = None


@dataclass(frozen=True)
class Tokens:
    """Token ids of a sample; the first response token is predicted by the last prompt token."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.prompt) + len(self.response)


@dataclass(frozen=True)
class Unscored:
    """Why there is no score.

    ``empty_response``, ``empty_prompt``, ``too_long`` (prompt and response exceed the context: nothing is cut),
    ``outside_vocabulary`` (a token id that the model has no logit for), ``refused_prompt`` (by the chat template),
    ``non_finite`` (the model's logits hold NaN or infinity), ``no_reference``, ``no_revision``, ``unreadable_rating``.
    """

    reason: str


COLUMNS = ("logprob", "entropy")
"""The statistics of one step of a softmax, in the order in which tables hold them.

``logprob``: log-probability of the target token, nats. ``entropy``: of the softmax, nats.
"""


@dataclass(frozen=True, eq=False)
class TokenStatistics:
    """Statistics of one response of T tokens.

    ``steps``: by name of :data:`COLUMNS` a float32 array ``[T]`` of the steps that predict the response's tokens.
    ``attention_entropy``: for each layer a float array ``[heads]``, nats; None where it was not asked for.
    """

    prompt_tokens: int
    steps: Mapping[str, NDArray[np.float32]]
    attention_entropy: tuple[NDArray[np.float32], ...] | None = None

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        """A statistic of every step, ``[T]``."""
        return self.steps[name]

    @property
    def mean_logprob(self) -> float:
        """Mean log-probability per response token, nats (ProbDiff paper, equation 1 with its log)."""
        return float(self["logprob"].mean(dtype="float64"))


Result = TokenStatistics | Unscored


@dataclass(frozen=True)
class Usage:
    """What a scorer has cost: tokens read (padding left out), tokens generated, and responses scored or generated."""

    prompt_tokens: int = 0
    generated_tokens: int = 0
    calls: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Usage) -> Usage:
        return Usage(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))


def sample_of(dialogue: Dialogue, response: str) -> Sample:
    """The sample of a response to a dialogue, all its turns read."""
    messages = tuple({"role": m.role, "content": m.content} for m in dialogue.messages)
    return Sample(messages, response, dialogue.reference)


def encode_samples(
    samples: Sequence[Sample], tokenizer: PreTrainedTokenizerBase, vocabulary: int, max_context: int
) -> list[Tokens | Unscored]:
    """Token ids of every sample, or why it cannot be scored.

    No token spans the boundary of prompt and response (:func:`~judgetrain.engines.prompting.continuation`), and no
    end token is added.
    """
    prompts: dict[str, tuple[str, tuple[int, ...]] | Unscored] = {}
    result: list[Tokens | Unscored] = []
    for sample in samples:
        key = repr(sample.prompt)
        if key not in prompts:
            prompts[key] = _prompt(sample.prompt, tokenizer)
        prompt = prompts[key]
        if isinstance(prompt, Unscored):
            result.append(prompt)
        elif not sample.response.strip():
            result.append(Unscored("empty_response"))
        else:
            (text, ids), response = prompt, neutralise(sample.response, tokenizer)
            tokens = Tokens(ids, continuation(tokenizer, text, ids, response))
            result.append(_checked(tokens, vocabulary, max_context))
    return result


def _prompt(prompt: Messages, tokenizer: PreTrainedTokenizerBase) -> tuple[str, tuple[int, ...]] | Unscored:
    if not prompt:
        return Unscored("empty_prompt")
    try:
        text = render(prompt, tokenizer)
    except EngineError:
        return Unscored("refused_prompt")
    return text, token_ids(tokenizer, text)


def _checked(tokens: Tokens, vocabulary: int, max_context: int) -> Tokens | Unscored:
    if not tokens.prompt:
        return Unscored("empty_prompt")
    if not tokens.response:
        return Unscored("empty_response")
    if len(tokens) > max_context:
        return Unscored("too_long")
    if max(*tokens.prompt, *tokens.response) >= vocabulary:
        return Unscored("outside_vocabulary")
    return tokens


PACKAGED = Path(__file__).parent / "prompt_sets"
_SLOT = re.compile(r"\{(\w+)\}")
_SLOTS = {"prompt", "response"}


@dataclass(frozen=True)
class ScorerPrompts:
    """``system_prompts``: the pool; ``self_generation`` and each ``revision``: templates with prompt and response.

    ``again`` asks for the same answer once more.
    """

    system_prompts: tuple[str, ...]
    self_generation: str
    revision: Mapping[str, str]
    again: str


def load_scorer_prompts(name_or_path: str = "default") -> ScorerPrompts:
    """A packaged prompt set by name, or one from a YAML file (ConfigError: no such set, not valid YAML, or a part that
    is missing or lacks a slot; names file and part)."""
    path = prompt_file(name_or_path)
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"scorer prompts: {path} cannot be read: {' '.join(str(error).split())}") from error
    raw = raw if isinstance(raw, dict) else {}
    pool, revision = raw.get("system_prompts"), raw.get("revision")
    if not isinstance(pool, list) or not pool or not all(isinstance(p, str) and p.strip() for p in pool):
        raise ConfigError(f"{path}: system_prompts: expected a list of texts, at least one")
    if not isinstance(revision, dict) or not revision:
        raise ConfigError(f"{path}: revision: expected templates by name, at least one")
    return ScorerPrompts(
        tuple(pool),
        _template(raw.get("self_generation"), f"{path}: self_generation"),
        {str(name): _template(text, f"{path}: revision.{name}") for name, text in revision.items()},
        str(raw.get("again") or "Please answer the same question once more."),
    )


def revision_prompt(name_or_path: str, name: str) -> str:
    """The prompt of a set that ProbDiff revises with (ConfigError: the set has none of this name)."""
    found = load_scorer_prompts(name_or_path).revision
    if name not in found:
        raise ConfigError(f"scorer.revision_prompt={name!r}: allowed are {', '.join(found)}")
    return found[name]


def prompt_file(name_or_path: str) -> Path:
    """The file of a prompt set."""
    packaged = PACKAGED / f"{name_or_path}.yaml"
    return packaged if packaged.exists() else Path(name_or_path).expanduser()


def _template(text: Any, where: str) -> str:
    if not isinstance(text, str) or set(_SLOT.findall(text)) != _SLOTS:
        raise ConfigError(f"{where}: expected a text with the slots {{prompt}} and {{response}} and no others")
    return text


def fill(template: str, prompt: Messages, response: str) -> Messages:
    """The chat that asks about a response: one user message; braces in the values stay as they are.

    The prompt stands in it as text: the query of a single turn, else every turn as ``Role: text``.
    """
    turns = (f"{m['role'].capitalize()}: {m['content']}" for m in prompt)
    values = {"prompt": "\n".join(turns) if prompt[1:] else prompt[0]["content"], "response": response}
    return ({"role": "user", "content": _SLOT.sub(lambda match: values[match[1]], template)},)


def with_system(sample: Sample, system: str) -> Sample:
    """The same sample under a system prompt; one that is there already is put after it, in the same message."""
    rest = sample.prompt
    if rest and rest[0]["role"] == "system":
        system, rest = f"{system}\n\n{rest[0]['content']}", rest[1:]
    return Sample(({"role": "system", "content": system}, *rest), sample.response, sample.reference)


def with_illustration(sample: Sample) -> Sample:
    """The sample with its own query and reference put before it as an example (glass-box paper, section 3.1).

    The example stands right before the last user message, as one more exchange.
    """
    assert sample.reference is not None
    *before, query = sample.prompt
    shown = ({"role": "user", "content": query["content"]}, {"role": "assistant", "content": sample.reference})
    return Sample((*before, *shown, query), sample.response, sample.reference)
