"""Constrain decoding to a pattern: only tokens with which a text can still match it may be drawn (XGrammar)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from judgetrain.errors import EngineError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Constraints:
    """Compiles patterns for one tokenizer, each of them once.

    Args:
        tokenizer: the model's.
        vocabulary: the width of the model's logits.
        ends: token ids that end a text; they are allowed where the pattern is complete.

    Raises:
        EngineError: XGrammar is not installed, or cannot read the tokenizer.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vocabulary: int, ends: Sequence[int]) -> None:
        try:
            import xgrammar
        except ImportError as error:
            raise EngineError(
                "constrained decoding needs XGrammar: pip install 'judgetrain[constrained]', or leave out "
                "judge.constrained and tree.constrained"
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
        special_ids = {token_id for token_id in tokenizer.all_special_ids if token_id < vocabulary} - set(ends)
        # All bits are set at first, also those past the vocabulary.
        self._text = xgrammar.allocate_token_bitmask(1, vocabulary)
        past_vocabulary = range(vocabulary, 32 * self._text.shape[-1])
        for token_id in (*special_ids, *past_vocabulary):
            self._text[0, token_id // 32] &= ~(1 << token_id % 32)
        self._ends = torch.tensor(sorted(ends), dtype=torch.long)

    def matcher(self, pattern: str) -> Matcher:
        """Return a matcher of a pattern for one text.

        Raises:
            EngineError: the pattern is no regular expression that XGrammar knows.
        """
        import xgrammar

        # Compiled once: a judge has few patterns, and each is for all of its rows.
        if pattern not in self._compiled:
            try:
                self._compiled[pattern] = self._compiler.compile_regex(pattern)
            except RuntimeError as error:
                raise EngineError(f"not a pattern for constrained decoding: {pattern!r}: {error}") from error
        return Matcher(pattern, xgrammar.GrammarMatcher(self._compiled[pattern]), self._text, self._ends)


class Matcher:
    """Follows one row's text along its pattern.

    Args:
        pattern: as written, for messages.
        matcher: XGrammar's matcher.
        text: the token ids that may be drawn at all, as bits ``[1, vocabulary / 32]``.
        ends: token ids that end a text.
    """

    def __init__(self, pattern: str, matcher: Any, text: torch.Tensor, ends: torch.Tensor) -> None:
        self._pattern = pattern
        self._matcher = matcher
        self._text = text
        self._ends = ends
        self._has_begun = False

    def complete(self) -> bool:
        """Return whether the text, its end token included, matches the whole pattern."""
        return bool(self._matcher.is_terminated())

    def forbid(self, logits: torch.Tensor) -> None:
        """Set the logits ``[vocabulary]`` of all tokens that the pattern does not admit to minus infinity.

        Where no token is left, the text can only end, incomplete.

        Raises:
            EngineError: no token begins the pattern.
        """
        import xgrammar

        bitmask = xgrammar.allocate_token_bitmask(1, logits.shape[-1])
        self._matcher.fill_next_token_bitmask(bitmask)
        bitmask &= self._text
        if bitmask.any():
            xgrammar.apply_token_bitmask_inplace(logits[None], bitmask.to(logits.device))
        elif self._has_begun:
            logits.fill_(float("-inf"))[self._ends.to(logits.device)] = 0.0
        else:
            raise EngineError(
                f"no token of this tokenizer begins the pattern {self._pattern!r}: change the words of 'frame' in the "
                f"prompt set, or leave out judge.constrained and tree.constrained"
            )

    def accept(self, token: int) -> None:
        """Go on by the token that was drawn."""
        self._has_begun = True
        self._matcher.accept_token(token)
