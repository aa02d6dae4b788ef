"""When a generated text ends: end tokens and stop strings, without decoding every row at every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from judgetrain.engines.local.batch_state import ENDS, MAY_STOP

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerBase


class StopWatch:
    """Says which rows have to be looked at after a step.

    A stop string can only be completed by a token whose text holds the string's last character, so a table over
    the vocabulary, made once per set of stop strings, leaves few rows to decode.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vocabulary: int, ends: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._ends = [end for end in ends if end < vocabulary]
        self._pieces: list[str] | None = None
        self._tables: dict[tuple[str, ...], NDArray[np.int8]] = {}

    def table(self, stops: tuple[str, ...]) -> NDArray[np.int8]:
        """What each token id ``[vocabulary]`` does: ENDS the text, MAY_STOP (complete one of ``stops``), or 0."""
        if stops not in self._tables:
            table = np.zeros(self._vocabulary, dtype=np.int8)
            last = {stop[-1] for stop in stops if stop}
            if last:
                # An undecodable piece (part of a character) or an empty one may complete anything.
                last.add("\ufffd")
                marks = [bool(last.intersection(piece)) or not piece for piece in self._decoded()]
                table[: len(marks)] = np.where(marks, MAY_STOP, 0)
            table[self._ends] = ENDS
            self._tables[stops] = table
        return self._tables[stops]

    def spelling(self, text: str) -> tuple[int, ...]:
        """Ids of the tokens that write ``text``, with or without space around it."""
        return tuple(i for i, piece in enumerate(self._decoded()) if piece.strip() == text)

    def _decoded(self) -> list[str]:
        """Each token's text; markers of a leading space count as that space."""
        if self._pieces is None:
            size = min(self._vocabulary, len(self._tokenizer))
            texts = self._tokenizer.batch_decode([[i] for i in range(size)], clean_up_tokenization_spaces=False)
            tokens = self._tokenizer.convert_ids_to_tokens(list(range(size)))
            self._pieces = [
                f"{text} " if token and token[0] in "▁Ġ" and text else text
                for text, token in zip(texts, tokens, strict=True)
            ]
        return self._pieces
