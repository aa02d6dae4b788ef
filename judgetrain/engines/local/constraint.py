"""Constrained decoding: only tokens that keep a text on the way to matching a pattern can be drawn (XGrammar)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from judgetrain.errors import EngineError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Constraints:
    """Patterns compiled for one tokenizer; each is compiled once (EngineError: XGrammar is not installed, or cannot
    read the tokenizer).

    Args:
        tokenizer: of the model.
        vocabulary: width of the model's logits.
        ends: ids that end a text; allowed where the pattern is complete.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vocabulary: int, ends: Sequence[int]) -> None:
        try:
            import xgrammar
        except ImportError as error:
            told = "pip install 'judgetrain[constrained]', or leave out judge.constrained and tree.constrained"
            raise EngineError(f"constrained decoding needs XGrammar: {told}") from error
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
        """A fresh matcher of a pattern (EngineError: the pattern is not a regular expression that XGrammar knows)."""
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
        """Set the logits ``[vocabulary]`` of all tokens that the pattern does not admit to minus infinity (EngineError:
        no token begins the pattern). Where no token is left, the text can only end, incomplete."""
        import xgrammar

        bitmask = xgrammar.allocate_token_bitmask(1, logits.shape[-1])
        self._matcher.fill_next_token_bitmask(bitmask)
        bitmask &= self._text
        if bitmask.any():
            xgrammar.apply_token_bitmask_inplace(logits[None], bitmask.to(logits.device))
        elif self._begun:
            logits.fill_(float("-inf"))[self._ends.to(logits.device)] = 0.0
        else:
            told = "change the words of 'frame' in the prompt set, or leave out judge.constrained and tree.constrained"
            raise EngineError(f"no token of this tokenizer begins the pattern {self._pattern!r}: {told}")

    def accept(self, token: int) -> None:
        """Go on by the token that was drawn."""
        self._begun = True
        self._matcher.accept_token(token)
