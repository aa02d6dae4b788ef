"""Turn chat messages into the text a model reads, with structure in user text neutralised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from judgetrain.engines.neutralise import neutralise_messages
from judgetrain.errors import EngineError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


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
