"""Responses that people rated one by one: what a label says, and which two of them make a comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from judgetrain.data.cells import RowError, label_text
from judgetrain.schema import Comparison, Verdict

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
    told = f"label {label!r} of one response is not one of {known}"
    raise RowError("unknown_label", f"{told}: say what labels mean, as in labels={{1: 0, 10: 1}}")


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
        for other in waiting:
            if made := _pair(other, rated):
                waiting.remove(other)
                self._number -= 1
                yield self._named(made)
                break
        else:
            waiting.append(rated)
            self._number += 1
        if not waiting:
            del self._waiting[prompt]
        yield from self.left(WAITING)

    def left(self, most: int = 0) -> Iterator[Comparison]:
        """The responses that stay alone, in their order, until no more than so many wait."""
        while self._number > most:
            first = self._waiting.pop(next(iter(self._waiting)))
            self._number -= len(first)
            yield from map(self._named, first)

    def _named(self, found: Comparison) -> Comparison:
        """Under an id of its own: rows on one prompt may have the prompt's id."""
        self._seen[found.id] += 1
        own = f"{found.id}#{n}" if (n := self._seen[found.id]) > 1 else found.id
        return replace(found, id=own, dialogue=replace(found.dialogue, id=own))


def _pair(one: Comparison, other: Comparison) -> Comparison | None:
    """The comparison of two rated responses; None where neither is rated higher, or they say the same."""
    a, b = one.rating_a, other.rating_a
    if not a or not b or a.score == b.score or one.response_a.strip() == other.response_a.strip():
        return None
    label: Verdict = "A" if a.score > b.score else "B"
    return replace(one, response_b=other.response_a, model_b=other.model_a, label=label, rating_b=b)
