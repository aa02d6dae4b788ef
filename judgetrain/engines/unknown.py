"""Find text that a tokenizer has no tokens for.

It becomes the unknown token, which stands for any text, or is left out. Either way the model does not see it, and
cannot write it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_RARE = "\ue001"
"""A private-use character, which no vocabulary has: bytes or the unknown token stand for it, or nothing does."""

_KEPT: WeakKeyDictionary[PreTrainedTokenizerBase, dict[str, bool]] = WeakKeyDictionary()
"""By tokenizer in use, the characters that were tried, and whether it keeps them."""


class UnknownText:
    """Counts texts in which a tokenizer has no tokens for some part.

    Args:
        tokenizer: the model's.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._texts = 0
        self._with_unknown = 0
        self._example = ""

    def add(self, text: str, ids: Sequence[int]) -> None:
        """Count a text with its token ids."""
        self._texts += 1
        pieces = unknown_pieces(self._tokenizer, text, ids)
        if pieces:
            self._with_unknown += 1
            self._example = self._example or pieces[0]

    def remark(self, texts: str) -> str:
        """Return a sentence with the counts and an example, empty where all was known; ``texts`` says what they are."""
        if not self._with_unknown:
            return ""
        return (
            f"{self._with_unknown} of {self._texts} {texts} hold text that the tokenizer has no token for, as "
            f"{self._example[:40]!r}: the model does not see it and cannot write it"
        )


def unknown_pieces(tokenizer: PreTrainedTokenizerBase, text: str, ids: Sequence[int] | None = None) -> list[str]:
    """Return the pieces of a text that a tokenizer has no tokens for.

    The unknown token's own name is known, since several tokenizers end their texts with that token.

    Args:
        tokenizer: the model's.
        text: the text.
        ids: its token ids, by which most texts need not be tokenised again.
    """
    # What is left out has no token, so that no id tells of it.
    pieces = _left_out(tokenizer, text)
    if ids is not None and tokenizer.unk_token_id not in ids:
        return pieces
    # Only tokenizers in Rust tell where in the text a token is from.
    if not tokenizer.is_fast:
        return pieces + _unknown_words(tokenizer, text)
    # A text that is too long is refused elsewhere: Transformers' warning that the model will fail over it is false.
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    for token, (start, end) in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
        piece = text[start:end]
        # A blank more or less says nothing; a line break does.
        is_blank = piece.isspace() and "\n" not in piece
        if token == tokenizer.unk_token_id and piece != tokenizer.unk_token and not is_blank:
            pieces.append(piece)
    return pieces


def _unknown_words(tokenizer: PreTrainedTokenizerBase, text: str) -> list[str]:
    """Return the words with the unknown token, for a tokenizer that does not tell where its tokens are from."""
    words = []
    for word in text.split():
        ids = tokenizer(word, add_special_tokens=False)["input_ids"]
        if tokenizer.unk_token_id in ids and str(tokenizer.unk_token) not in word:
            words.append(word)
    return words


def _left_out(tokenizer: PreTrainedTokenizerBase, text: str) -> list[str]:
    """Return the characters of a text that a tokenizer leaves out, each once."""
    is_kept = _KEPT.setdefault(tokenizer, {})
    # Most tokenizers leave nothing out.
    if _is_kept(tokenizer, _RARE, is_kept):
        return []
    return [
        character
        for character in dict.fromkeys(text)
        if _is_seen(character) and not _is_kept(tokenizer, character, is_kept)
    ]


def _is_kept(tokenizer: PreTrainedTokenizerBase, character: str, is_kept: dict[str, bool]) -> bool:
    """Return whether a character changes what a tokenizer makes of a text; what was tried stands in ``is_kept``."""
    if character not in is_kept:
        # Between two letters, where no tokenizer strips it as it may at the ends of a text.
        ids = tokenizer(f"a{character}a", add_special_tokens=False)["input_ids"]
        ids_without = tokenizer("aa", add_special_tokens=False)["input_ids"]
        # The unknown token stands for it, and is seen by itself.
        is_unknown = tokenizer.unk_token_id in ids
        is_kept[character] = is_unknown or _letters(tokenizer, ids) != _letters(tokenizer, ids_without)
    return is_kept[character]


def _letters(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    """Return the text of token ids without blanks."""
    return "".join(str(tokenizer.decode(ids)).split())


def _is_seen(character: str) -> bool:
    """Return whether a reader would miss a character: no blank, accent, control or format character."""
    return not character.isspace() and unicodedata.category(character) not in ("Cc", "Cf", "Mn")
