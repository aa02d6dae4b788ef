"""Groups of responses to one prompt, judged by a mode: the one driver of every reward."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from judgetrain.errors import ConfigError
from judgetrain.judges.base import SHARES, Prediction, logistic
from judgetrain.schema import Comparison, Prompt
from judgetrain.serving.rewards.modes import MODES, Members, Pair, Rounds, Scalar, Share

Ask = Callable[[Sequence[Comparison]], Sequence[Prediction]]
"""Judges comparisons: a prediction each, in their order. A judge's ``compare_all`` is one."""


@dataclass(frozen=True)
class Group:
    """Responses to one prompt that are compared with one another, or, in mode ``anchor``, with a reference."""

    prompt: Prompt
    responses: Sequence[str]
    reference: str | None = None


def hard_share(prediction: Prediction) -> Share:
    """What response A won by the strict rule: 1 or 0 where both orders say so, 0.5 for a tie or a contradiction.

    None where one of the orders cannot be read.
    """
    return None if prediction.verdict == "unreadable" else SHARES.get(prediction.verdict, 0.5)


def soft_share(prediction: Prediction) -> Share:
    """What response A won, in degrees: the logistic function of the margin.

    A judge without margins gives the mean of its orders' verdicts. None where one of the orders cannot be read.
    """
    if prediction.verdict_ab is None or prediction.verdict_ba is None:
        return None
    if prediction.margin is not None and not math.isnan(prediction.margin):
        return logistic(prediction.margin)
    return (SHARES[prediction.verdict_ab] + SHARES[prediction.verdict_ba]) / 2


READINGS: Mapping[str, Callable[[Prediction], Share]] = {
    "round_robin": hard_share,
    "anchor": soft_share,
    "bradley_terry": soft_share,
}
"""How each mode reads a prediction. With one comparison a member, degrees are worth more than what errs least often."""


def scalars(groups: Sequence[Group], ask: Ask, mode: str = "round_robin") -> list[list[Scalar]]:
    """What each response of each group is worth: lists of the groups' lengths, None where nothing could be read.

    All pairs of a round, of all groups, are asked in one call; ``round_robin`` and ``bradley_terry`` have one round,
    ``anchor`` one with references and else two. The same texts are asked about
    once, and in an order that depends on them alone. Nothing is asked about equal responses, which are equally good,
    nor about one without text, which loses to every one that has some.

    Raises:
        ConfigError: no such mode.
        DataError: a prompt that is none.
    """
    if mode not in MODES:
        raise ConfigError(f"mode={mode!r}: expected one of {', '.join(MODES)}")
    running = [_Running(group, mode) for group in groups]
    while asked := list(chain.from_iterable(each.asked.values() for each in running)):
        comparisons = sorted({c.id: c for c in asked}.values(), key=lambda c: c.id)
        found = {c.id: READINGS[mode](p) for c, p in zip(comparisons, ask(comparisons), strict=True)}
        for each in running:
            each.answer(found)
    return [each.of_responses() for each in running]


class _Running:
    """A group whose mode is under way: ``asked`` are the comparisons that it waits for, by their pairs."""

    def __init__(self, group: Group, mode: str) -> None:
        self._group, counts = group, Counter(group.responses)
        self._texts = sorted(counts, key=lambda text: hashlib.sha256(text.encode()).digest())
        self._rounds: Rounds = MODES[mode](
            Members(tuple(counts[text] for text in self._texts), group.reference is not None)
        )
        self._pairs: list[Pair] = []
        self._scalars: list[Scalar] = []
        self.asked: dict[Pair, Comparison] = {}
        if self._texts:
            self._go_on(None)

    def answer(self, shares: dict[str, Share]) -> None:
        """Take the shares of the comparisons, by their ids, and go on to the next ones."""
        if self.asked:
            self._go_on([shares[self.asked[p].id] if p in self.asked else self._known(*p) for p in self._pairs])

    def _go_on(self, shares: list[Share] | None) -> None:
        """Send the shares of the last round; rounds in which there is nothing to ask are over at once."""
        self.asked = {}
        try:
            while not self.asked:
                self._pairs = next(self._rounds) if shares is None else self._rounds.send(shares)
                shares = [self._known(*pair) for pair in self._pairs]
                unknown = [pair for pair, share in zip(self._pairs, shares, strict=True) if share is None]
                self.asked = {pair: self._comparison(*pair) for pair in unknown}
        except StopIteration as done:
            self._scalars = done.value

    def _known(self, first: int, second: int) -> Share:
        """What the first of two members wins, where nobody has to be asked; else None."""
        one, other = self._text(first), self._text(second)
        if one == other:
            return 0.5
        if one.strip() and other.strip():
            return None
        return (bool(one.strip()) - bool(other.strip()) + 1) / 2

    def _comparison(self, first: int, second: int) -> Comparison:
        return Comparison.of(self._group.prompt, self._text(first), self._text(second))

    def _text(self, number: int) -> str:
        return self._texts[number] if number < len(self._texts) else self._group.reference or ""

    def of_responses(self) -> list[Scalar]:
        """The scalars of the group's responses, equal ones alike."""
        by_text = dict(zip(self._texts, self._scalars, strict=True))
        return [by_text[response] for response in self._group.responses]
