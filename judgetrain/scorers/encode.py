"""Samples, their token ids and token statistics; and the prompts of scorers.

A prompt set is a YAML file with the pool of system prompts, the revision prompts and the self-rating prompt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from judgetrain.engines.answer_tokens import answer_ids, token_ids
from judgetrain.engines.prompting import neutralise, render
from judgetrain.errors import ConfigError, EngineError
from judgetrain.schema import Dialogue
from judgetrain.yaml_text import load_yaml

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerBase

Messages = tuple[Mapping[str, str], ...]
"""A chat: messages with ``role`` and ``content``."""


@dataclass(frozen=True)
class Sample:
    """A response to be scored.

    Args:
        prompt: a chat that the model's template renders, the last message the user's.
        response: the text to be scored.
        reference: a right answer to the same prompt, if there is one.
        temperature: the temperature that the response was sampled at, if it is known.
    """

    prompt: Messages
    response: str
    reference: str | None = None
    temperature: float | None = None


@dataclass(frozen=True)
class Tokens:
    """The token ids of a sample. The last prompt token predicts the first response token."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.prompt) + len(self.response)


@dataclass(frozen=True)
class Unscored:
    """The absence of a score.

    Args:
        reason: ``empty_response``, ``empty_prompt``, ``too_long`` (prompt and response exceed the context: nothing is
            cut), ``outside_vocabulary`` (a token id that the model has no logit for), ``refused_prompt`` (by the chat
            template), ``non_finite`` (the model's logits hold NaN or infinity), ``no_reference``, ``no_revision`` or
            ``unreadable_rating``.
    """

    reason: str


COLUMNS = ("logprob", "entropy")
"""The statistics of one step of a softmax, in the order in which tables hold them.

``logprob``: log-probability of the target token, nats. ``entropy``: of the softmax, nats.
"""

DEPTHS = (1 / 3, 1 / 2, 2 / 3, 5 / 6, 1.0)
"""How deep in a model hidden states are read, as shares of its layers."""
PLACES = ("mean", "last")
"""The two states of a layer that are read: the mean over the response's tokens, and its last token's."""


@dataclass(frozen=True, eq=False)
class TokenStatistics:
    """Statistics of one response of T tokens.

    Args:
        prompt_tokens: the number of tokens before the response.
        steps: float32 array [T] for each name of :data:`COLUMNS`, of the steps that predict the response's tokens.
        attention_entropy: float array [heads] for each layer, nats; None in a pass that does not collect it.
    """

    prompt_tokens: int
    steps: Mapping[str, NDArray[np.float32]]
    attention_entropy: tuple[NDArray[np.float32], ...] | None = None

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        """Return a statistic of every step [T]."""
        return self.steps[name]

    @property
    def mean_logprob(self) -> float:
        """Return the mean log-probability per response token, nats (ProbDiff paper, equation 1 with its log)."""
        return float(self["logprob"].mean(dtype="float64"))


Result = TokenStatistics | Unscored


@dataclass(frozen=True)
class Usage:
    """The cost of a scorer.

    Args:
        prompt_tokens: tokens read, without padding.
        generated_tokens: tokens generated.
        calls: responses scored or generated.
    """

    prompt_tokens: int = 0
    generated_tokens: int = 0
    calls: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            generated_tokens=self.generated_tokens + other.generated_tokens,
            calls=self.calls + other.calls,
        )

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            prompt_tokens=self.prompt_tokens - other.prompt_tokens,
            generated_tokens=self.generated_tokens - other.generated_tokens,
            calls=self.calls - other.calls,
        )


def sample_of(dialogue: Dialogue, response: str) -> Sample:
    """Return the sample of a response to a dialogue; all turns are its prompt."""
    messages = tuple({"role": message.role, "content": message.content} for message in dialogue.messages)
    return Sample(messages, response, dialogue.reference)


@dataclass(frozen=True)
class _Prompt:
    """A prompt as the model's chat template renders it, and its token ids."""

    text: str
    ids: tuple[int, ...]


def encode_samples(
    samples: Sequence[Sample], tokenizer: PreTrainedTokenizerBase, vocabulary: int, max_context: int
) -> list[Tokens | Unscored]:
    """Return the token ids of every sample, or the reason why it cannot be scored.

    No token spans the boundary of prompt and response, what the chat template writes between the two is read as it is
    there (:func:`~judgetrain.engines.answer_tokens.answer_ids`), and no end token is added.

    Args:
        samples: prompts and responses.
        tokenizer: renders and encodes them.
        vocabulary: the number of the model's logits.
        max_context: the most tokens of prompt and response.
    """
    # Several responses answer one prompt; rendering it is what takes time.
    prompts: dict[str, _Prompt | Unscored] = {}
    encoded: list[Tokens | Unscored] = []
    for sample in samples:
        # Mappings cannot be keys themselves.
        key = repr(sample.prompt)
        if key not in prompts:
            prompts[key] = _rendered(sample.prompt, tokenizer)
        prompt = prompts[key]
        if isinstance(prompt, Unscored):
            encoded.append(prompt)
        elif not sample.response.strip():
            encoded.append(Unscored("empty_response"))
        else:
            # A response may hold the text of a special token, which must not become that token.
            response = neutralise(sample.response, tokenizer)
            tokens = Tokens(*answer_ids(tokenizer, prompt.text, prompt.ids, response))
            encoded.append(_checked(tokens, vocabulary, max_context))
    return encoded


def _rendered(prompt: Messages, tokenizer: PreTrainedTokenizerBase) -> _Prompt | Unscored:
    """Return a prompt as the model reads it, or the reason why it cannot be scored."""
    if not prompt:
        return Unscored("empty_prompt")
    try:
        text = render(prompt, tokenizer)
    except EngineError:
        # Templates refuse chats that their model was not trained on, as one with a system message.
        return Unscored("refused_prompt")
    return _Prompt(text, token_ids(tokenizer, text))


def _checked(tokens: Tokens, vocabulary: int, max_context: int) -> Tokens | Unscored:
    """Return the token ids of a sample, or the reason why the model cannot score them."""
    if not tokens.prompt:
        return Unscored("empty_prompt")
    if not tokens.response:
        return Unscored("empty_response")
    # Nothing is cut: half of a response is another response.
    if len(tokens) > max_context:
        return Unscored("too_long")
    # A tokenizer may have tokens that were added after the model was trained.
    if max(*tokens.prompt, *tokens.response) >= vocabulary:
        return Unscored("outside_vocabulary")
    return tokens


PACKAGED = Path(__file__).parent / "prompt_sets"
"""The directory of packaged prompt sets."""
_SLOT = re.compile(r"\{(\w+)\}")
"""A slot of a template."""
_SLOTS = {"prompt", "response"}
"""The slots that every template has."""


@dataclass(frozen=True)
class ScorerPrompts:
    """A prompt set.

    Args:
        system_prompts: the pool that ensembles draw from.
        self_generation: the template that asks for a rating.
        revision: the templates that ask for a better response, by name.
        again: asks for the same answer once more.
    """

    system_prompts: tuple[str, ...]
    self_generation: str
    revision: Mapping[str, str]
    again: str


def load_scorer_prompts(name_or_path: str = "default") -> ScorerPrompts:
    """Return a packaged prompt set by its name, or one from a YAML file.

    Raises:
        ConfigError: there is no such set, it is no valid YAML, or a part is missing or lacks a slot; names file and
            part.
    """
    path = prompt_file(name_or_path)
    try:
        raw = load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"scorer prompts: {path} cannot be read: {' '.join(str(error).split())}") from error
    # An empty file is reported by its first missing part.
    if not isinstance(raw, dict):
        raw = {}

    pool = raw.get("system_prompts")
    if not isinstance(pool, list) or not pool or not all(isinstance(text, str) and text.strip() for text in pool):
        raise ConfigError(f"{path}: system_prompts: expected a list of texts, at least one")
    revision = raw.get("revision")
    if not isinstance(revision, dict) or not revision:
        raise ConfigError(f"{path}: revision: expected templates by name, at least one")
    return ScorerPrompts(
        system_prompts=tuple(pool),
        self_generation=_template(raw.get("self_generation"), f"{path}: self_generation"),
        revision={str(name): _template(text, f"{path}: revision.{name}") for name, text in revision.items()},
        # Younger than the other parts: sets of users that lack it keep working.
        again=str(raw.get("again") or "Please answer the same question once more."),
    )


def revision_prompt(name_or_path: str, name: str) -> str:
    """Return the prompt of a set that ProbDiff revises with.

    Raises:
        ConfigError: the set has none of this name, or :func:`load_scorer_prompts` refuses the set.
    """
    templates = load_scorer_prompts(name_or_path).revision
    if name not in templates:
        raise ConfigError(f"scorer.revision_prompt={name!r}: allowed are {', '.join(templates)}")
    return templates[name]


def prompt_file(name_or_path: str) -> Path:
    """Return the file of a prompt set: the packaged one of this name, else the path itself."""
    packaged = PACKAGED / f"{name_or_path}.yaml"
    # A name before a path, so that a file of the same name in the working directory changes nothing.
    if packaged.exists():
        return packaged
    return Path(name_or_path).expanduser()


def _template(text: Any, where: str) -> str:
    """Return a template, or refuse (ConfigError) a value that is none; ``where`` names file and part."""
    if not isinstance(text, str) or set(_SLOT.findall(text)) != _SLOTS:
        raise ConfigError(f"{where}: expected a text with the slots {{prompt}} and {{response}} and no others")
    return text


def fill(template: str, prompt: Messages, response: str) -> Messages:
    """Return the chat that asks about a response: one user message.

    The prompt stands in it as text: the query of a single turn, else every turn as ``Role: text``.
    """
    # Without the names of roles where they would tell nothing: the papers' prompts are single questions.
    if len(prompt) > 1:
        prompt_text = "\n".join(f"{message['role'].capitalize()}: {message['content']}" for message in prompt)
    else:
        prompt_text = prompt[0]["content"]
    values = {"prompt": prompt_text, "response": response}
    # Both slots in one pass: braces in the prompt or the response are no slots.
    content = _SLOT.sub(lambda slot: values[slot[1]], template)
    return ({"role": "user", "content": content},)


def with_system(sample: Sample, system: str) -> Sample:
    """Return a sample under a system prompt; its own system message follows in the same message."""
    rest = sample.prompt
    if rest and rest[0]["role"] == "system":
        # Chat templates allow one system message.
        system = f"{system}\n\n{rest[0]['content']}"
        rest = rest[1:]
    return Sample(({"role": "system", "content": system}, *rest), sample.response, sample.reference)


def with_illustration(sample: Sample) -> Sample:
    """Return a sample with its own query and reference as an example before it (glass-box paper, section 3.1).

    The example stands right before the last user message, as one more exchange. The sample must have a reference.
    """
    assert sample.reference is not None
    *before, query = sample.prompt
    example = ({"role": "user", "content": query["content"]}, {"role": "assistant", "content": sample.reference})
    return Sample((*before, *example, query), sample.response, sample.reference)
