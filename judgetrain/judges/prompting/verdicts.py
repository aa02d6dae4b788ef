"""Reading judges that are asked once: a mark in double square brackets. Generated text only, never the prompt.

A text may hold the same mark several times; two different ones are ambiguous, as taking the first or the last would be
a guess. What stands in a reply's reasoning is left out; a reply that ends within it fails as ``no_answer``.
``material`` is the text that is judged (:func:`answer_start`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from judgetrain.engines.thinking import NO_ANSWER, answer_of
from judgetrain.schema import Verdict

T = TypeVar("T")

_MARK = re.compile(r"\\?\[\\?\[([^\[\]\n]{1,60})\\?\]\\?\]")
_WORDS = re.compile(r"\b(?:assistant|response|answer|critique|option|verdict|rating|score|is)\b[\s:=]*", re.IGNORECASE)
_NUMBER = re.compile(r"(?P<value>[-+]?\d+(?:[.,]\d+)?)(?:\s*(?:/|out of)\s*(?P<scale>\d+))?")

_VERDICTS: dict[str, Verdict] = {"a": "A", "b": "B", "c": "tie", "tie": "tie"}
_CRITIQUES: dict[str, Literal["X", "Y"]] = {"x": "X", "y": "Y"}


@dataclass(frozen=True)
class Reading(Generic[T]):
    """What was read, or the reason why nothing was."""

    value: T | None
    failure: str | None = None


def read_verdict(text: str, material: str = "") -> Reading[Verdict]:
    """The verdict of a one-step comparison, on the responses as shown: ``[[A]]``, ``[[B]]``, or ``[[C]]`` for a tie.

    Case, bold, escaped brackets, ``[[tie]]`` and ``[[Assistant A]]`` are accepted; other marks (``[[Python]]``) are
    passed over. ``failure`` is ``no_verdict``, ``unknown_verdict`` (marks, but none of these) or ``ambiguous``
    (several different ones).
    """
    return _one_of(text, material, _VERDICTS)


def read_preference(text: str, material: str = "") -> Reading[Literal["X", "Y"]]:
    """Which critique is preferred: ``[[X]]`` or ``[[Y]]``; fails as :func:`read_verdict` does."""
    return _one_of(text, material, _CRITIQUES)


def read_rating(text: str, lowest: int, highest: int, material: str = "") -> Reading[float]:
    """The rating in a text: ``[[7]]``; also ``[[7.5]]``, ``[[7/10]]`` and ``[[Rating: 7]]``.

    ``failure`` is ``no_rating``, ``out_of_range`` (also for another scale than ``highest``) or ``ambiguous`` (several
    different ratings).
    """
    answer = answer_of(text, material)
    if answer is None:
        return Reading(None, NO_ANSWER)
    numbers = [m for m in (_NUMBER.fullmatch(mark) for mark in _marks(answer)) if m]
    if not numbers:
        return Reading(None, "no_rating")
    if any(m["scale"] is not None and int(m["scale"]) != highest for m in numbers):
        return Reading(None, "out_of_range")
    values = {float(m["value"].replace(",", ".")) for m in numbers}
    if len(values) > 1:
        return Reading(None, "ambiguous")
    value = values.pop()
    return Reading(value) if lowest <= value <= highest else Reading(None, "out_of_range")


def quotes(text: str, material: str) -> bool:
    """Whether a mark in ``text`` stands in ``material``, too, so that it may be a quotation."""
    return any(match[0] in material for match in _MARK.finditer(text))


def _one_of(text: str, material: str, known: Mapping[str, T]) -> Reading[T]:
    answer = answer_of(text, material)
    if answer is None:
        return Reading(None, NO_ANSWER)
    marks = _marks(answer)
    found = {known[mark.casefold()] for mark in marks if mark.casefold() in known}
    if len(found) == 1:
        return Reading(found.pop())
    return Reading(None, "ambiguous" if found else "unknown_verdict" if marks else "no_verdict")


def _marks(text: str) -> list[str]:
    """What stands between double square brackets, without bold and without the words around the mark itself."""
    return [_WORDS.sub("", m[1].replace("*", "").replace("\\", "")).strip() for m in _MARK.finditer(text)]
