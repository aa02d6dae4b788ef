"""Constrained decoding: only tokens that keep a text on the way to matching a pattern can be drawn (XGrammar)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from judgetrain.errors import EngineError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


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
                "tree.constrained"
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
        self._matcher = xgrammar.GrammarMatcher
        self._compiled: dict[str, Any] = {}
        # A pattern such as [^\\n]* admits a special token's literal; as a token it would end or break the text.
        specials = {i for i in tokenizer.all_special_ids if i < vocabulary} - set(ends)
        self._never = torch.tensor(sorted(specials), dtype=torch.long)

    def matcher(self, pattern: str) -> Matcher:
        """A fresh matcher of a pattern.

        Raises:
            EngineError: the pattern is not a regular expression that XGrammar knows.
        """
        if pattern not in self._compiled:
            try:
                self._compiled[pattern] = self._compiler.compile_regex(pattern)
            except RuntimeError as error:
                raise EngineError(f"not a pattern for constrained decoding: {pattern!r}: {error}") from error
        return Matcher(self._matcher(self._compiled[pattern]), self._never)


class Matcher:
    """How far one row's text has come on its pattern."""

    def __init__(self, matcher: Any, never: torch.Tensor) -> None:
        self._matcher = matcher
        self._never = never

    def forbid(self, logits: torch.Tensor) -> None:
        """Set the logits ``[vocabulary]`` of all tokens that the pattern does not admit to minus infinity."""
        import xgrammar

        bitmask = xgrammar.allocate_token_bitmask(1, logits.shape[-1])
        self._matcher.fill_next_token_bitmask(bitmask)
        xgrammar.apply_token_bitmask_inplace(logits[None], bitmask.to(logits.device))
        logits[self._never.to(logits.device)] = float("-inf")

    def accept(self, token: int) -> None:
        """Go on by the token that was drawn."""
        self._matcher.accept_token(token)
