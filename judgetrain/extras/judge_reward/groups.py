"""Groups of responses to one prompt, judged by a mode: the one driver of every reward."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

from judgetrain.errors import ConfigError
from judgetrain.extras.judge_reward.modes import MODES, Members, Scalar, Share
from judgetrain.judges.base import SHARES, Prediction, logistic
from judgetrain.schema import Comparison, Prompt

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


READINGS = {"round_robin": hard_share, "anchor": soft_share, "bradley_terry": soft_share}
"""How each mode reads a prediction. With one comparison a member, degrees are worth more than what errs least often."""


def scalars(groups: Sequence[Group], ask: Ask, mode: str = "round_robin") -> list[list[Scalar]]:
    """What each response of each group is worth: lists of the groups' lengths, None where nothing could be read.

    All pairs of a round, of all groups, are asked in one call; ``round_robin`` and ``bradley_terry`` have one round,
    ``anchor`` one with references and else two. The same texts are asked about once, and in an order that depends on
    them alone. Nothing is asked about equal responses, which are equally good, nor about one without text, which loses
    to every one that has some.

    Raises:
        ConfigError: no such mode.
        DataError: a prompt that is none.
    """
    if mode not in MODES:
        raise ConfigError(f"mode={mode!r}: expected one of {', '.join(MODES)}")
    running, found = [_rounds(group, mode) for group in groups], list[list[Scalar]]([] for _ in groups)
    waiting: dict[int, list[Comparison]] = {}

    def go_on(number: int, said: Mapping[str, Share] | None) -> None:
        try:
            waiting[number] = running[number].send(said)
        except StopIteration as done:
            found[number] = done.value
            waiting.pop(number, None)

    for number in range(len(groups)):
        go_on(number, None)
    while waiting:
        asked = sorted({c.id: c for part in waiting.values() for c in part}.values(), key=lambda c: c.id)
        said = {c.id: READINGS[mode](p) for c, p in zip(asked, ask(asked), strict=True)}
        for number in list(waiting):
            go_on(number, said)
    return found


def _rounds(group: Group, mode: str) -> Generator[list[Comparison], Mapping[str, Share] | None, list[Scalar]]:
    """A group under way: yields what it asks about, is sent the shares by the comparisons' ids, gives its scalars.

    Rounds in which there is nothing to ask are over at once.
    """
    counts = Counter(group.responses)
    members = sorted(counts, key=lambda text: hashlib.sha256(text.encode()).digest())
    if not members:
        return []
    rounds = MODES[mode](Members(tuple(counts[text] for text in members), group.reference is not None))
    texts = [*members, group.reference or ""]
    try:
        pairs = next(rounds)
        while True:
            shares = [_known(texts[i], texts[j]) for i, j in pairs]
            unknown = [pair for pair, share in zip(pairs, shares, strict=True) if share is None]
            asked = {(i, j): Comparison.of(group.prompt, texts[i], texts[j]) for i, j in unknown}
            if asked:
                said = (yield list(asked.values())) or {}
                shares = [said[asked[p].id] if p in asked else s for p, s in zip(pairs, shares, strict=True)]
            pairs = rounds.send(shares)
    except StopIteration as done:
        worth = dict(zip(members, done.value, strict=True))
    return [worth[response] for response in group.responses]


def _known(one: str, other: str) -> Share:
    """What the first of two texts wins, where nobody has to be asked; else None."""
    if one == other:
        return 0.5
    if one.strip() and other.strip():
        return None
    return (bool(one.strip()) - bool(other.strip()) + 1) / 2
