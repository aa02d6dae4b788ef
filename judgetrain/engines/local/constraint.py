"""Constrained decoding: only tokens that keep a text on the way to matching a pattern can be drawn (XGrammar).

A text is brought to its end before its tokens run out: once those left are few, only the shortest way to complete the
pattern is admitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from judgetrain.engines.local.closing import SPARE, Plan, Speller, dead_ends, detour, fixed_part, shortest_way
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
        self._ends = sorted(ends)
        self._speller = Speller(info.decoded_vocab, {*tokenizer.all_special_ids, *ends})
        self._lengths: dict[str, tuple[int, int]] = {}
        self._dead: dict[tuple[str, str], torch.Tensor] = {}

    def matcher(self, pattern: str, limit: int) -> Matcher:
        """A fresh matcher of a pattern, for a text of at most ``limit`` tokens.

        Raises:
            EngineError: the pattern is not a regular expression that XGrammar knows.
        """
        if pattern not in self._compiled:
            try:
                self._compiled[pattern] = self._compiler.compile_regex(pattern)
            except RuntimeError as error:
                raise EngineError(f"not a pattern for constrained decoding: {pattern!r}: {error}") from error
        made = self._matcher(self._compiled[pattern])

        def close() -> Plan | None:
            return shortest_way(made, pattern, self._speller, self._ends)

        def dead() -> torch.Tensor:
            fixed = fixed_part(made)
            if (pattern, fixed) not in self._dead:
                found = dead_ends(made, fixed, pattern, self._speller) if fixed else []
                self._dead[pattern, fixed] = torch.tensor(sorted(found), dtype=torch.long)
            return self._dead[pattern, fixed]

        if pattern not in self._lengths:
            self._lengths[pattern] = len(close() or ()), SPARE + detour(made, pattern, self._speller)
        whole = self._speller.has_bytes(pattern.encode())
        return Matcher(pattern, made, self._never, close, None if whole else dead, limit, *self._lengths[pattern])


class Matcher:
    """How far one row's text has come on its pattern.

    Args:
        pattern: as written, for messages.
        matcher: XGrammar's.
        never: ids that are no text.
        close: the shortest way to the pattern's end from where the matcher stands.
        dead: the ids of tokens after which the pattern cannot be completed; None if there are never any.
        left: tokens that may still be drawn.
        shortest: length of the shortest way from the beginning.
        spare: tokens kept back beyond the shortest way.
    """

    def __init__(
        self,
        pattern: str,
        matcher: Any,
        never: torch.Tensor,
        close: Callable[[], Plan | None],
        dead: Callable[[], torch.Tensor] | None,
        left: int,
        shortest: int,
        spare: int,
    ) -> None:
        self._matcher, self._never, self._close, self._dead = matcher, never, close, dead
        self._pattern, self._left = pattern, left
        self._spare = spare
        self._look_at = shortest + spare
        self._plan: Plan = []

    def forbid(self, logits: torch.Tensor) -> None:
        """Set the logits ``[vocabulary]`` of all tokens that the pattern does not admit to minus infinity.

        Raises:
            EngineError: no token is left.
        """
        import xgrammar

        bitmask = xgrammar.allocate_token_bitmask(1, logits.shape[-1])
        self._matcher.fill_next_token_bitmask(bitmask)
        xgrammar.apply_token_bitmask_inplace(logits[None], bitmask.to(logits.device))
        logits[self._never.to(logits.device)] = float("-inf")
        if admitted := self._on_the_way(bitmask):
            kept = logits[admitted]
            logits.fill_(float("-inf"))
            logits[admitted] = kept
        elif self._dead:
            logits[self._dead().to(logits.device)] = float("-inf")
        if torch.isneginf(logits).all():
            raise EngineError(
                f"no token of this tokenizer goes on with the pattern {self._pattern!r}: change the words of 'frame' "
                "in the prompt set's step 'judgment', or leave out tree.constrained"
            )

    def accept(self, token: int) -> None:
        """Go on by the token that was drawn."""
        accepted = self._matcher.accept_token(token)
        self._left -= 1
        self._plan = self._plan[1:] if accepted else []

    def _on_the_way(self, bitmask: torch.Tensor) -> list[int]:
        """The tokens that may come next where the text must be closed now; none while it is free.

        Several choices of a plan together may lead off the pattern, though each alone does not: a plan none of whose
        tokens the ``bitmask`` ``[1, words]`` admits is made anew.
        """
        for _ in range(2):
            if not self._plan and self._left <= self._look_at:
                plan = self._close() or []
                self._look_at = len(plan) + self._spare
                if self._left <= self._look_at:
                    self._plan = plan
            if not self._plan:
                return []
            if admitted := [i for i in self._plan[0] if int(bitmask[0, i // 32]) >> (i % 32) & 1]:
                return admitted
            self._plan = []
        return []
