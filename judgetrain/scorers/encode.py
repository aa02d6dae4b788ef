"""Samples as token ids, with the exact boundary between prompt and response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from judgetrain.engines.prompting import continuation, neutralise, render, token_ids
from judgetrain.errors import EngineError
from judgetrain.schema import Dialogue

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Messages = tuple[Mapping[str, str], ...]


@dataclass(frozen=True)
class Sample:
    """A response to be scored.

    ``prompt`` is a chat (``role``/``content`` messages, the last one the user's; earlier turns may be the
    assistant's) that the model's chat template renders, or plain text that is read as it is. ``reference`` is a
    right answer to the same prompt, where there is one; ``temperature`` that which the response was sampled at, where
    it is known.
    """

    prompt: str | Messages
    response: str
    reference: str | None = None
    temperature: float | None = None

    @property
    def chat(self) -> Messages:
        """The prompt as messages; plain text as one of the user's."""
        return ({"role": "user", "content": self.prompt},) if isinstance(self.prompt, str) else self.prompt


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
        key, plain = repr(sample.prompt), isinstance(sample.prompt, str)
        if key not in prompts:
            prompts[key] = _prompt(sample.prompt, tokenizer)
        prompt = prompts[key]
        if isinstance(prompt, Unscored):
            result.append(prompt)
        elif not sample.response.strip():
            result.append(Unscored("empty_response"))
        else:
            (text, ids), response = prompt, neutralise(sample.response, tokenizer)
            tokens = Tokens(ids, continuation(tokenizer, text, ids, response, plain))
            result.append(_checked(tokens, vocabulary, max_context))
    return result


def _prompt(prompt: str | Messages, tokenizer: PreTrainedTokenizerBase) -> tuple[str, tuple[int, ...]] | Unscored:
    """A prompt's text and ids; the tokenizer adds its special tokens to plain text (a chat template writes its own)."""
    if not prompt and not isinstance(prompt, str):
        return Unscored("empty_prompt")
    try:
        text = prompt if isinstance(prompt, str) else render(prompt, tokenizer)
    except EngineError:
        return Unscored("refused_prompt")
    return text, token_ids(tokenizer, text, isinstance(prompt, str))


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
