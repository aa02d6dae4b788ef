"""Token ids of a text that a model writes after a prompt, as it would have written them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def token_ids(tokenizer: PreTrainedTokenizerBase, text: str, special: bool = False) -> tuple[int, ...]:
    """The text's token ids; ``special``: with what the tokenizer puts around every text."""
    return tuple(tokenizer(text, add_special_tokens=special)["input_ids"])


def continuation(
    tokenizer: PreTrainedTokenizerBase, prompt: str, prompt_ids: tuple[int, ...], text: str, special: bool = False
) -> tuple[int, ...]:
    """The ids of ``text`` after ``prompt``, whose own ids stay what they are when the model is asked.

    Both are tokenised as one text. Where that text's first tokens are the prompt's, the rest are the continuation's;
    where a token would span the boundary, the continuation is tokenised alone, since a model that has read the
    prompt's tokens could not have written that token.
    """
    whole, length = token_ids(tokenizer, prompt + text, special), len(prompt_ids)
    if whole[:length] == prompt_ids and len(whole) > length:
        return whole[length:]
    return token_ids(tokenizer, text)
