"""Samples as token ids, with the exact boundary between prompt and response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from judgetrain.engines.prompting import neutralise, render
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
    right answer to the same prompt, where there is one.
    """

    prompt: str | Messages
    response: str
    reference: str | None = None

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


def turns(messages: Sequence[Mapping[str, str]]) -> list[Sample]:
    """One sample for each assistant turn of a conversation, all turns before it its prompt (multi-turn scoring)."""
    return [Sample(tuple(messages[:i]), m["content"]) for i, m in enumerate(messages) if m["role"] == "assistant" and i]


def encode_samples(
    samples: Sequence[Sample], tokenizer: PreTrainedTokenizerBase, vocabulary: int, max_context: int
) -> list[Tokens | Unscored]:
    """Token ids of every sample, or why it cannot be scored.

    Prompt and response are tokenised as one text. Where that text's first tokens are the prompt's, the rest are the
    response's; where a token would span the boundary, the response is tokenised alone, since a model that has
    read the prompt's tokens could not have written that token. No end token is added.
    """
    prompts: dict[object, tuple[str, bool] | Unscored] = {}
    rendered: list[tuple[str, bool] | Unscored] = []
    for sample in samples:
        key = _key(sample.prompt)
        if key not in prompts:
            prompts[key] = _prompt(sample.prompt, tokenizer)
        rendered.append(prompts[key])
    read = _Reader(tokenizer)
    result: list[Tokens | Unscored] = []
    for sample, prompt in zip(samples, rendered, strict=True):
        if isinstance(prompt, Unscored) or not sample.response.strip():
            result.append(prompt if isinstance(prompt, Unscored) else Unscored("empty_response"))
            continue
        tokens = read(*prompt, neutralise(sample.response, tokenizer))
        result.append(_checked(tokens, vocabulary, max_context))
    return result


class _Reader:
    """Tokenises prompt and response; equal prompts are tokenised once."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._prompts: dict[tuple[str, bool], tuple[int, ...]] = {}

    def __call__(self, prompt: str, special: bool, response: str) -> Tokens:
        if (prompt, special) not in self._prompts:
            self._prompts[prompt, special] = self._ids(prompt, special)
        head = self._prompts[prompt, special]
        whole = self._ids(prompt + response, special)
        if whole[: len(head)] == head and len(whole) > len(head):
            return Tokens(head, whole[len(head) :])
        return Tokens(head, self._ids(response, False))

    def _ids(self, text: str, special: bool) -> tuple[int, ...]:
        return tuple(self._tokenizer(text, add_special_tokens=special)["input_ids"])


def _key(prompt: str | Messages) -> object:
    return prompt if isinstance(prompt, str) else tuple((m["role"], m["content"]) for m in prompt)


def _prompt(prompt: str | Messages, tokenizer: PreTrainedTokenizerBase) -> tuple[str, bool] | Unscored:
    """The prompt's text, and whether the tokenizer adds its special tokens to it (a chat template writes its own)."""
    if isinstance(prompt, str):
        return prompt, True
    if not prompt:
        return Unscored("empty_prompt")
    try:
        return render(prompt, tokenizer), False
    except EngineError:
        return Unscored("refused_prompt")


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
