"""Constrained decoding: only tokens that keep a text on the way to matching a pattern can be drawn (XGrammar)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from judgetrain.errors import EngineError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


FEW = 32
"""Where more tokens than these are admitted, the text is free: what can follow them is not looked at."""


class Constraints:
    """Patterns compiled for one tokenizer; each is compiled once.

    Args:
        tokenizer: of the model.
        vocabulary: width of the model's logits.
        ends: ids that end a text; allowed where the pattern is complete.

    Raises:
        EngineError: XGrammar is not installed, or cannot read the tokenizer.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vocabulary: int, ends: Sequence[int]) -> None:
        try:
            import xgrammar
        except ImportError as error:
            raise EngineError(
                "constrained decoding needs XGrammar: pip install 'judgetrain[constrained]', or leave out "
                "judge.constrained, tree.constrained and at_once:"
            ) from error
        try:
            info = xgrammar.TokenizerInfo.from_huggingface(
                tokenizer,  # type: ignore[arg-type]
                vocab_size=vocabulary,
                stop_token_ids=list(ends),
            )
        except (ValueError, RuntimeError) as error:
            raise EngineError(f"XGrammar cannot read this tokenizer: {error}") from error
        self._compiler = xgrammar.GrammarCompiler(info)
        self._compiled: dict[str, Any] = {}
        # A pattern such as [^\\n]* admits a special token's literal; as a token it would end or break the text.
        specials = {i for i in tokenizer.all_special_ids if i < vocabulary} - set(ends)
        self._text = xgrammar.allocate_token_bitmask(1, vocabulary)  # all bits set, past the vocabulary too
        for i in (*specials, *range(vocabulary, 32 * self._text.shape[-1])):
            self._text[0, i // 32] &= ~(1 << i % 32)
        self._ends = torch.tensor(sorted(ends), dtype=torch.long)

    def matcher(self, pattern: str) -> Matcher:
        """A fresh matcher of a pattern.

        Raises:
            EngineError: the pattern is not a regular expression that XGrammar knows.
        """
        import xgrammar

        if pattern not in self._compiled:
            try:
                self._compiled[pattern] = self._compiler.compile_regex(pattern)
            except RuntimeError as error:
                raise EngineError(f"not a pattern for constrained decoding: {pattern!r}: {error}") from error
        return Matcher(pattern, xgrammar.GrammarMatcher(self._compiled[pattern]), self._text, self._ends)


class Matcher:
    """How far one row's text has come on its pattern.

    Args:
        pattern: as written, for messages.
        matcher: XGrammar's.
        text: the ids that may be drawn at all, as bits ``[1, vocabulary / 32]``.
        ends: ids that end a text.
    """

    def __init__(self, pattern: str, matcher: Any, text: torch.Tensor, ends: torch.Tensor) -> None:
        self._pattern, self._matcher, self._text, self._ends = pattern, matcher, text, ends
        self._begun = False

    def complete(self) -> bool:
        """Whether the text, its end token included, matches the whole pattern."""
        return bool(self._matcher.is_terminated())

    def forbid(self, logits: torch.Tensor) -> None:
        """Set the logits ``[vocabulary]`` of all tokens that the pattern does not admit to minus infinity.

        A vocabulary of whole words may have the token ``A`` and none that goes on to ``Analysis``: of a few admitted
        tokens, those that no other can follow are forbidden too. Where no token is left, the text can only end,
        incomplete.

        Raises:
            EngineError: no token begins the pattern.
        """
        import xgrammar

        bitmask = self._next(logits.shape[-1])
        admitted = _few(bitmask)
        xgrammar.apply_token_bitmask_inplace(logits[None], bitmask.to(logits.device))
        if admitted and len(admitted) > 1:
            dead = [token for token in admitted if self._leads_nowhere(token, logits.shape[-1])]
            if len(dead) < len(admitted):
                logits[dead] = float("-inf")
        elif admitted == [] and not self._begun:
            raise EngineError(
                f"no token of this tokenizer begins the pattern {self._pattern!r}: change the words of 'frame' in "
                "the prompt set's step 'judgment', or leave out judge.constrained and tree.constrained"
            )
        elif admitted == []:
            logits[self._ends.to(logits.device)] = 0.0

    def _next(self, vocabulary: int) -> torch.Tensor:
        """The tokens that go on with the text, as bits ``[1, vocabulary / 32]``."""
        import xgrammar

        bitmask = xgrammar.allocate_token_bitmask(1, vocabulary)
        self._matcher.fill_next_token_bitmask(bitmask)
        return bitmask & self._text

    def _leads_nowhere(self, token: int, vocabulary: int) -> bool:
        """Whether the text, after a token that it may go on by, is incomplete and no other token follows."""
        self._matcher.accept_token(token)
        stuck = not self._matcher.is_terminated() and not self._next(vocabulary).any()
        self._matcher.rollback(1)
        return stuck

    def accept(self, token: int) -> None:
        """Go on by the token that was drawn."""
        self._begun = True
        self._matcher.accept_token(token)


def _few(bitmask: torch.Tensor) -> list[int] | None:
    """The tokens of a bitmask; None where they are more than a few."""
    words = bitmask[0].numpy()
    (used,) = words.nonzero()
    if len(used) > FEW:
        return None
    bits = np.unpackbits(words[used].view(np.uint8).reshape(-1, 4), axis=1, bitorder="little")
    word, bit = bits.nonzero()
    tokens: list[int] = (32 * used[word] + bit).tolist()
    return tokens if len(tokens) <= FEW else None
