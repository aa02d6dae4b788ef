"""Reads verdicts, ratings and preferences off replies.

The answer is a mark in double square brackets that ends the last line. Nothing stands before it there but a finished
sentence or a label with a colon (``It is short. [[A]]``, ``Verdict: [[A]]``). A mark that the judged text holds, too,
must stand alone: after a colon it may be a quotation. What stands above the last line, and in a reply's reasoning,
counts for nothing.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, Literal, TypeVar

from judgetrain.engines.confusables import fold
from judgetrain.engines.prompting import NO_ANSWER, answer_of
from judgetrain.schema import Verdict

T = TypeVar("T")

_MARK = re.compile(r"\[\[([^\[\]\n]{1,60})\]\]")
_RATING = re.compile(r"(?P<value>[-+]?\d{1,9}(?:[.,]\d{1,9})?)(?:\s?/\s?(?P<scale>\d{1,9}))?")
_DRESS = "*`\\_"
"""Emphasis and escapes, which make no difference to a mark."""
_SENTENCE_ENDS = (".", "!", "?", "\u3002")
_VERDICTS: dict[str, Verdict] = {"a": "A", "b": "B", "c": "tie", "tie": "tie"}
_CRITIQUES: dict[str, Literal["X", "Y"]] = {"x": "X", "y": "Y"}


@dataclass(frozen=True)
class Reading(Generic[T]):
    """What was read, or the reason why nothing was."""

    value: T | None
    failure: str | None = None


def read_verdict(text: str, material: str = "") -> Reading[Verdict]:
    """The verdict of a pairwise comparison, on the responses as shown: ``[[A]]``, ``[[B]]``, or ``[[C]]`` for a tie.

    Case, bold, escaped brackets and ``[[tie]]`` are accepted. ``failure`` is ``no_verdict`` (no mark at all),
    ``mentioned`` (a mark, but not as the end of the reply), ``ambiguous`` (several on the last line), ``quoted`` (the
    judged text's, not alone on its line), ``unknown_verdict`` (another mark) or ``no_answer``.
    """
    return _known(_mark(text, material, "no_verdict"), _VERDICTS)


def read_preference(text: str, material: str = "") -> Reading[Literal["X", "Y"]]:
    """Which critique is preferred: ``[[X]]`` or ``[[Y]]``; fails as :func:`read_verdict` does."""
    return _known(_mark(text, material, "no_verdict"), _CRITIQUES)


def read_rating(text: str, lowest: int, highest: int, material: str = "") -> Reading[float]:
    """The rating in a text: ``[[7]]``, also ``[[7.5]]`` and ``[[7/10]]``; it stands as a verdict's mark does.

    ``failure`` is ``no_rating``, ``out_of_range`` (another scale than ``highest``, too), or a verdict's.
    """
    return _rating(_mark(text, material, "no_rating"), lowest, highest)


@dataclass(frozen=True)
class Reads:
    """How the replies of a model that has a form of its own are read, as a prompt set says under ``reads``.

    ``pattern``: its last match counts, as these models' own readers have it; what its group holds says the
    verdict, in small letters by ``verdicts``, or is the rating, where these are empty.
    """

    pattern: re.Pattern[str]
    verdicts: Mapping[str, Verdict]

    def verdict(self, text: str, material: str = "") -> Reading[Verdict]:
        """The verdict; ``failure`` is ``no_verdict``, ``unknown_verdict`` or ``no_answer``."""
        return _known(self._last(text, material, "no_verdict"), self.verdicts)

    def rating(self, text: str, lowest: int, highest: int, material: str = "") -> Reading[float]:
        """The rating; ``failure`` is ``no_rating``, ``out_of_range`` or ``no_answer``."""
        return _rating(self._last(text, material, "no_rating"), lowest, highest)

    def _last(self, text: str, material: str, failure: str) -> Reading[str]:
        answer = answer_of(text, material)
        if answer is None:
            return Reading(None, NO_ANSWER)
        found = [match[1] or "" for match in self.pattern.finditer(answer)]
        return Reading(found[-1]) if found else Reading(None, failure)


def _known(said: Reading[str], known: Mapping[str, T]) -> Reading[T]:
    if said.value is None:
        return Reading(None, said.failure)
    value = known.get(" ".join(said.value.casefold().split()))
    return Reading(value, None if value else "unknown_verdict")


def _rating(said: Reading[str], lowest: int, highest: int) -> Reading[float]:
    if said.value is None:
        return Reading(None, said.failure)
    match = _RATING.fullmatch(said.value.strip())
    if match is None:
        return Reading(None, "no_rating")
    value = float(match["value"].replace(",", "."))
    right = lowest <= value <= highest and int(match["scale"] or highest) == highest
    return Reading(value) if right else Reading(None, "out_of_range")


def _mark(text: str, material: str, none: str) -> Reading[str]:
    """What the mark says that ends a reply, in small letters; ``none`` is the failure where there is no mark at all."""
    answer = answer_of(text, material)
    if answer is None:
        return Reading(None, NO_ANSWER)
    looks = _bare(answer)
    last = looks.rstrip().rpartition("\n")[2].strip().rstrip(".!\u3002").rstrip()
    marks = list(_MARK.finditer(last))
    if not marks or marks[-1].end() < len(last):
        return Reading(None, "mentioned" if _MARK.search(looks) else none)
    said = marks[-1][1].strip().casefold()
    if any(mark[1].strip().casefold() != said for mark in marks):
        return Reading(None, "ambiguous")
    before = last[: marks[-1].start()].rstrip()
    if before.endswith((":", "\uff1a")):
        return Reading(None, "quoted") if said in _held(material) else Reading(said)
    return Reading(said) if not before or before.endswith(_SENTENCE_ENDS) else Reading(None, "mentioned")


@lru_cache(maxsize=64)
def _held(material: str) -> frozenset[str]:
    """What the marks in a judged text say; the judgments of a comparison ask for the same few again and again."""
    return frozenset(match[1].strip().casefold() for match in _MARK.finditer(_bare(material)))


def _bare(text: str) -> str:
    """A text as it looks, without emphasis and escapes."""
    return fold(text).text.translate(dict.fromkeys(map(ord, _DRESS)))
