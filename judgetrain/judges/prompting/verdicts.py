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
from judgetrain.engines.prompting import NO_ANSWER
from judgetrain.schema import Verdict
from judgetrain.thoughts import answer_of

T = TypeVar("T")

# "[[A]]", with any text up to 60 characters, so that a wrong one can be named.
_MARK = re.compile(r"\[\[([^\[\]\n]{1,60})\]\]")
# "7", "7.5", "7,5" and "7/10".
_RATING = re.compile(r"(?P<value>[-+]?\d{1,9}(?:[.,]\d{1,9})?)(?:\s?/\s?(?P<scale>\d{1,9}))?")
_DRESS = "*`\\_"
"""Emphasis and escapes, which make no difference to a mark."""
# The last one is the full stop of Chinese and Japanese.
_SENTENCE_ENDS = (".", "!", "?", "\u3002")
_VERDICTS: dict[str, Verdict] = {"a": "A", "b": "B", "c": "tie", "tie": "tie"}
_CRITIQUES: dict[str, Literal["X", "Y"]] = {"x": "X", "y": "Y"}


@dataclass(frozen=True)
class Reading(Generic[T]):
    """A value read off a reply, or the reason why there is none."""

    value: T | None
    failure: str | None = None


def read_verdict(text: str, material: str = "") -> Reading[Verdict]:
    """Return the verdict of a pairwise comparison, on the responses as shown.

    It is ``[[A]]``, ``[[B]]``, or ``[[C]]`` for a tie.
    Case, bold, escaped brackets and ``[[tie]]`` are accepted. ``failure`` is ``no_verdict`` (no mark at all),
    ``mentioned`` (a mark, but not as the end of the reply), ``ambiguous`` (several on the last line), ``quoted`` (the
    judged text's, not alone on its line), ``unknown_verdict`` (another mark) or ``no_answer``.
    """
    return _verdict(_mark(text, material, "no_verdict"), _VERDICTS)


def read_preference(text: str, material: str = "") -> Reading[Literal["X", "Y"]]:
    """Return the preferred critique, ``[[X]]`` or ``[[Y]]``; fails as :func:`read_verdict` does."""
    return _verdict(_mark(text, material, "no_verdict"), _CRITIQUES)


def read_rating(text: str, lowest: int, highest: int, material: str = "") -> Reading[float]:
    """Return the rating in a text: ``[[7]]``, also ``[[7.5]]`` and ``[[7/10]]``; it stands as a verdict's mark does.

    ``failure`` is ``no_rating``, ``out_of_range`` (another scale than ``highest``, too), or a verdict's.
    """
    return _rating(_mark(text, material, "no_rating"), lowest, highest)


@dataclass(frozen=True)
class ReplyForm:
    """The form of the replies of a model that has one of its own, as a prompt set says under ``reply_form``.

    Args:
        pattern: its last match counts, as these models' own readers have it, and its one group is read.
        verdicts: the verdict by the group's text in small letters; empty: the group is the rating.
    """

    pattern: re.Pattern[str]
    verdicts: Mapping[str, Verdict]

    def verdict(self, text: str, material: str = "") -> Reading[Verdict]:
        """Return the verdict; ``failure`` is ``no_verdict``, ``unknown_verdict`` or ``no_answer``."""
        return _verdict(self._last(text, material, "no_verdict"), self.verdicts)

    def rating(self, text: str, lowest: int, highest: int, material: str = "") -> Reading[float]:
        """Return the rating; ``failure`` is ``no_rating``, ``out_of_range`` or ``no_answer``."""
        return _rating(self._last(text, material, "no_rating"), lowest, highest)

    def _last(self, text: str, material: str, failure: str) -> Reading[str]:
        """Return the group of the pattern's last match in the answer; ``failure``: where there is no match."""
        answer = answer_of(text, material)
        if answer is None:
            return Reading(None, NO_ANSWER)
        matches = list(self.pattern.finditer(answer))
        if not matches:
            return Reading(None, failure)
        return Reading(matches[-1][1] or "")


def _verdict(mark: Reading[str], verdicts: Mapping[str, T]) -> Reading[T]:
    """Return the verdict that a mark stands for, by the ``verdicts`` of marks in small letters."""
    if mark.value is None:
        return Reading(None, mark.failure)
    verdict = verdicts.get(" ".join(mark.value.casefold().split()))
    if not verdict:
        return Reading(None, "unknown_verdict")
    return Reading(verdict)


def _rating(mark: Reading[str], lowest: int, highest: int) -> Reading[float]:
    """Return the rating that a mark holds, on the scale from ``lowest`` to ``highest``."""
    if mark.value is None:
        return Reading(None, mark.failure)
    match = _RATING.fullmatch(mark.value.strip())
    if match is None:
        return Reading(None, "no_rating")
    rating = float(match["value"].replace(",", "."))
    # 7/10 is a rating of 7 only where 10 is the highest.
    has_other_scale = match["scale"] is not None and int(match["scale"]) != highest
    if has_other_scale or not lowest <= rating <= highest:
        return Reading(None, "out_of_range")
    return Reading(rating)


def _mark(text: str, material: str, missing: str) -> Reading[str]:
    """Return the content of the mark that ends a reply, in small letters.

    Args:
        text: the reply.
        material: the text that is judged, whose marks are no answer.
        missing: the failure where there is no mark at all.
    """
    answer = answer_of(text, material)
    if answer is None:
        return Reading(None, NO_ANSWER)
    bare = _bare(answer)
    # A full stop behind the mark makes no difference.
    last_line = bare.rstrip().rpartition("\n")[2].strip().rstrip(".!\u3002").rstrip()
    marks = list(_MARK.finditer(last_line))
    if not marks or marks[-1].end() < len(last_line):
        # A mark that text follows is spoken of, and not given.
        if _MARK.search(bare):
            return Reading(None, "mentioned")
        return Reading(None, missing)

    content = _content(marks[-1])
    # The same mark twice says one thing.
    if any(_content(mark) != content for mark in marks):
        return Reading(None, "ambiguous")
    before = last_line[: marks[-1].start()].rstrip()
    if before.endswith((":", "\uff1a")):
        # After a colon it may be a quotation of what is judged.
        if content in _contents_of_marks(material):
            return Reading(None, "quoted")
        return Reading(content)
    if before and not before.endswith(_SENTENCE_ENDS):
        return Reading(None, "mentioned")
    return Reading(content)


def _content(mark: re.Match[str]) -> str:
    """Return what stands between a mark's brackets, in small letters."""
    return mark[1].strip().casefold()


# Kept, as the judgments of a comparison ask for the same few texts again and again.
@lru_cache(maxsize=64)
def _contents_of_marks(material: str) -> frozenset[str]:
    """Return the contents of all marks in a judged text."""
    return frozenset(_content(mark) for mark in _MARK.finditer(_bare(material)))


def _bare(text: str) -> str:
    """Return a text as it looks, without emphasis and escapes."""
    return fold(text).text.translate(dict.fromkeys(map(ord, _DRESS)))
