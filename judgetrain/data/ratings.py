"""Responses that people rated one by one: what a label says, and which two of them make a comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from judgetrain.data.cells import RowError, label_text
from judgetrain.schema import Comparison

WORDS = {"pass": 1.0, "fail": 0.0, "true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "correct": 1.0, "incorrect": 0.0}
SCALE = {"1": 0.0, "5": 1.0}
WAITING = 100_000
"""Rated responses that wait for another one to their prompt; then the first of them stands alone."""


def score_of(label: Any, scale: Mapping[str, float]) -> float:
    """How good a label says that a response is, 0 to 1.

    ``scale``: labels and what they say, as ``{"1": 0, "10": 1}``; a number between two others stands evenly between
    what they say. Empty: :data:`WORDS`, and numbers from 1 to 5.
    """
    named = {text.casefold(): score for text, score in (scale or WORDS | SCALE).items()}
    for text in (str(label), label_text(label)):
        if (score := named.get(text.strip().casefold())) is not None:
            return score
    numbers = sorted((number, score) for text, score in named.items() if (number := _number(text)) is not None)
    value = _number(label)
    for (low, worse), (high, better) in pairwise(numbers):
        if value is not None and low <= value <= high:
            return worse + (better - worse) * (value - low) / (high - low)
    known = ", ".join(scale or [*WORDS, "1 to 5"])
    raise RowError(
        "unknown_label",
        f"label {label!r} of one response is not one of {known}: say what labels mean, as in labels={{1: 0, 10: 1}}",
    )


def _number(value: Any) -> float | None:
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None


class Pairing:
    """Puts rated responses to one prompt together two by two, where one is rated higher; the others stay alone."""

    def __init__(self) -> None:
        self._waiting: dict[object, list[Comparison]] = {}
        self._number, self._seen = 0, Counter[str]()

    def add(self, rated: Comparison) -> Iterator[Comparison]:
        """Take a rated response; yields the comparison that it makes, or one that waited too long."""
        prompt = rated.dialogue.messages, rated.rubric
        waiting = self._waiting.setdefault(prompt, [])
        if other := next((each for each in waiting if _differ(each, rated)), None):
            waiting.remove(other)
            self._number -= 1
            yield self._named(_pair(other, rated))
        else:
            waiting.append(rated)
            self._number += 1
        if not waiting:
            del self._waiting[prompt]
        if self._number > WAITING:
            yield from self._give_up()

    def left(self) -> Iterator[Comparison]:
        """The responses that stay alone, in their order."""
        while self._waiting:
            yield from self._give_up()

    def _give_up(self) -> Iterator[Comparison]:
        first = self._waiting.pop(next(iter(self._waiting)))
        self._number -= len(first)
        yield from map(self._named, first)

    def _named(self, found: Comparison) -> Comparison:
        """Under an id of its own: rows on one prompt may have the prompt's id."""
        self._seen[found.id] += 1
        number = self._seen[found.id]
        own = found.id if number == 1 else f"{found.id}#{number}"
        return replace(found, id=own, dialogue=replace(found.dialogue, id=own))


def _differ(one: Comparison, other: Comparison) -> bool:
    assert one.rating_a and other.rating_a
    return one.rating_a.score != other.rating_a.score and one.response_a.strip() != other.response_a.strip()


def _pair(first: Comparison, second: Comparison) -> Comparison:
    assert first.rating_a and second.rating_a
    return replace(
        first,
        response_b=second.response_a,
        model_b=second.model_a,
        label="A" if first.rating_a.score > second.rating_a.score else "B",
        rating_b=second.rating_a,
    )
