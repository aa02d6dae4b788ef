"""Turn chat messages into the text a model reads, with special tokens in user text kept from being interpreted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from judgetrain.errors import EngineError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BREAK = "\u200b"
"""Zero-width space: put inside a special token's literal, it leaves the text readable and the token unmatched."""


MARKUP = re.compile(r"<\S+>|\[\S+\]")


class SpecialLiterals:
    """Finds the literals that a tokenizer would read as control tokens in a text.

    These are its special tokens, and its other added tokens that the chat template writes (as ``<think>``).
    Added tokens that are plain content, such as Gemma's HTML tags, are left alone.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        template = str(tokenizer.chat_template or "")
        added = tokenizer.added_tokens_decoder.values()
        literals = {t.content for t in added if t.special or (MARKUP.fullmatch(t.content) and t.content in template)}
        literals |= set(tokenizer.all_special_tokens)
        self._literals = frozenset(text for text in literals if len(text) > 1)
        self._lengths = sorted({len(text) for text in self._literals})
        first = "".join(sorted({re.escape(text[0]) for text in self._literals}))
        self._first = re.compile(f"[{first}]") if first else None

    def neutralise(self, text: str) -> str:
        """The text with every literal broken by :data:`BREAK` after its first character."""
        if self._first is None:
            return text
        starts = [m.start() for m in self._first.finditer(text) if self._is_literal(text, m.start())]
        for start in reversed(starts):
            text = text[: start + 1] + BREAK + text[start + 1 :]
        return text

    def _is_literal(self, text: str, start: int) -> bool:
        return any(text[start : start + length] in self._literals for length in self._lengths)


_LITERALS: WeakKeyDictionary[PreTrainedTokenizerBase, SpecialLiterals] = WeakKeyDictionary()


def neutralise(text: str, tokenizer: PreTrainedTokenizerBase) -> str:
    """``text`` with every literal of a special token broken, so that the tokenizer reads it as plain text."""
    if tokenizer not in _LITERALS:
        _LITERALS[tokenizer] = SpecialLiterals(tokenizer)
    return _LITERALS[tokenizer].neutralise(text)


def neutralise_messages(
    messages: Sequence[Mapping[str, str]], tokenizer: PreTrainedTokenizerBase
) -> list[dict[str, str]]:
    """The messages with :func:`neutralise` applied to every content; the inputs stay unchanged."""
    return [{**message, "content": neutralise(message["content"], tokenizer)} for message in messages]


def accepted_messages(
    messages: Sequence[Mapping[str, str]], tokenizer: PreTrainedTokenizerBase
) -> list[dict[str, str]]:
    """The messages as the chat template takes them, neutralised.

    A template that knows no system role gets the system text before the first user turn.

    Raises:
        EngineError: the chat template refuses the messages; its reason is given.
    """
    from jinja2 import TemplateError

    chat = neutralise_messages(messages, tokenizer)
    try:
        tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    except TemplateError as error:
        if chat[0]["role"] != "system" or len(chat) < 2:
            raise EngineError(f"the chat template refuses the messages: {error}") from error
        merged = {**chat[1], "content": f"{chat[0]['content']}\n\n{chat[1]['content']}"}
        return accepted_messages([merged, *chat[2:]], tokenizer)
    return chat


def render(messages: Sequence[Mapping[str, str]], tokenizer: PreTrainedTokenizerBase) -> str:
    """The prompt text of :func:`accepted_messages`, ending where the assistant's answer begins.

    Raises:
        EngineError: as :func:`accepted_messages`.
    """
    chat = accepted_messages(messages, tokenizer)
    return str(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))


def encode(
    conversations: Sequence[Sequence[Mapping[str, str]]], tokenizer: PreTrainedTokenizerBase
) -> list[tuple[int, ...] | EngineError]:
    """Prompt token ids of every conversation as :func:`render` writes it; equal ones are encoded once.

    In place of a conversation that the chat template refuses stands the error.

    Raises:
        EngineError: the chat template refuses all of them.
    """
    keys = [tuple((m["role"], m["content"]) for m in messages) for messages in conversations]
    texts: dict[Any, str] = {}
    refused: dict[Any, EngineError] = {}
    for key in dict.fromkeys(keys):
        try:
            texts[key] = render([{"role": role, "content": content} for role, content in key], tokenizer)
        except EngineError as error:
            refused[key] = error
    if refused and not texts:
        raise next(iter(refused.values()))
    read = tokenizer(list(texts.values()), add_special_tokens=False)["input_ids"] if texts else []
    ids: dict[Any, tuple[int, ...] | EngineError] = {**refused}
    ids.update((key, tuple(row)) for key, row in zip(texts, read, strict=True))
    return [ids[key] for key in keys]
