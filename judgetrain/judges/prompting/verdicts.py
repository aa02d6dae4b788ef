"""Reading judges that are asked once: a mark in double square brackets. Generated text only, never the prompt.

A text may hold the same mark several times; two different ones are ambiguous, as taking the first or the last would be
a guess. What stands in a reply's reasoning is left out; a reply that ends within it fails as ``no_answer``.

A mark that is only spoken of is no verdict (``mentioned``): one in quotation marks, one that words such as ``it says``
or ``cannot`` come before, or ``would be`` or ``if`` after. Where ``material``, the text that is judged, holds the mark,
too, it has to end its line or to follow a word of verdict (``I choose [[A]]``), else it is ``quoted``. Texts are read
as they look (:func:`~judgetrain.engines.lookalikes.fold`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, Literal, TypeVar

from judgetrain.engines.lookalikes import fold
from judgetrain.engines.thinking import NO_ANSWER, answer_of
from judgetrain.judges.prompting.quotations import TELLS
from judgetrain.schema import Verdict

T = TypeVar("T")

_MARK = re.compile(r"\\?\[\\?\[([^\[\]\n]{1,60})\\?\]\\?\]")
_WORDS = re.compile(r"\b(?:assistant|response|answer|critique|option|verdict|rating|score|is)\b[\s:=]*", re.IGNORECASE)
_NUMBER = re.compile(r"(?P<value>[-+]?\d+(?:[.,]\d+)?)(?:\s*(?:/|out of)\s*(?P<scale>\d+))?")

_OPENED = re.compile(
    r"[\"\u201c\u201e\u00ab`][^\"\u201c\u201d\u201e\u00ab\u00bb`]*$|(?<!\w)['\u2018][^'\u2018\u2019]*$"
)
_CLOSED = re.compile(r"[^\"\u201c\u201d\u00ab\u00bb`\n]*[\"\u201d\u00bb`]|[^'\u2018\u2019\n]*['\u2019](?!\w)")
_DENIED = (
    r"(?:cannot|can(?:no|['\u2019])t|could(?:n['\u2019]t| not)|won['\u2019]t|would(?:n['\u2019]t|"
    r" not)|should(?:n['\u2019]t| not)|"
    r"must not|do(?:es)? not|don['\u2019]t|doesn['\u2019]t|not|never|neither|nor|without|instead of"
    r"|rather than|would be|might be|"
    r"could be|may be|tempted|refuse|either|such as|e\.g\.|called|named)"
)
_SPOKEN_OF = re.compile(
    rf"\b(?:(?<!\bi would )(?<!\bi['\u2019]d )(?<!\bi )(?:{TELLS})|{_DENIED})\b"
    r"(?:[^\w.,;\n]+(?:an?|the|its?|own|this|that|with|to|as|for|in|me|us|judge|give|say|write|"
    r"choose|pick|output|end|answer|verdict|mark|be|is|was|out|up|down|here|literally|only|just)\b){0,5}[^\w.;\n]*$",
    re.IGNORECASE,
)
"""Words before a mark that make it another's, or none."""
_SUPPOSED = re.compile(
    r"[^\w.\n]*(?:if|unless|when|would|could|might|should|is (?:what|not|only|written|embedded|part|claimed|no|quoted)|"
    r"appears?|stands?|that (?:is|stands|appears|it|the response)|in (?:the|its|his|her|their)"
    r" (?:response|answer|text|query)|"
    r"(?:which|and) (?:is|was|tries|attempts|tells|asks) )\b",
    re.IGNORECASE,
)
"""Words after a mark by which it is only supposed, or another's."""
_VERDICT = re.compile(
    r"\b(?:verdict|decision|conclusion|conclude|winner|choice|choose|prefer|pick|final|therefore|thus|hence|so|overall|rating|"
    r"rate|score|judgment|judgement|preference|better)\b[^.;\n]{0,40}$",
    re.IGNORECASE,
)

REACH = 200
"""How far around a mark its line is looked at, in characters."""

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
    passed over. ``failure`` is ``no_verdict``, ``unknown_verdict`` (marks, but none of these), ``ambiguous`` (several
    different ones), ``mentioned`` or ``quoted`` (none of them is the judge's verdict).
    """
    return _one_of(text, material, _VERDICTS)


def read_letter(text: str, material: str = "") -> Reading[Verdict]:
    """The verdict of a reply that is one letter, ``A`` or ``B``; ``failure`` is ``no_letter``."""
    found: Mapping[str, Verdict] = {"A": "A", "B": "B"}
    value = found.get(text.strip())
    return Reading(value, None if value else "no_letter")


def read_preference(text: str, material: str = "") -> Reading[Literal["X", "Y"]]:
    """Which critique is preferred: ``[[X]]`` or ``[[Y]]``; fails as :func:`read_verdict` does."""
    return _one_of(text, material, _CRITIQUES)


def read_rating(text: str, lowest: int, highest: int, material: str = "") -> Reading[float]:
    """The rating in a text: ``[[7]]``; also ``[[7.5]]``, ``[[7/10]]`` and ``[[Rating: 7]]``.

    ``failure`` is ``no_rating``, ``out_of_range`` (also for another scale than ``highest``), ``ambiguous`` (several
    different ratings), ``mentioned`` or ``quoted``.
    """
    answer = answer_of(text, material)
    if answer is None:
        return Reading(None, NO_ANSWER)
    looks = fold(answer).text
    given = [(mark, m) for mark in _MARK.finditer(looks) if (m := _NUMBER.fullmatch(_bare(mark)))]
    numbers = [number for _, number in given]
    if not numbers:
        return Reading(None, "no_rating")
    if any(m["scale"] is not None and int(m["scale"]) != highest for m in numbers):
        return Reading(None, "out_of_range")
    values = {float(m["value"].replace(",", ".")) for m in numbers}
    if len(values) > 1:
        return Reading(None, "ambiguous")
    value = values.pop()
    if why := not_given(looks, [mark for mark, _ in given], material):
        return Reading(None, why)
    return Reading(value) if lowest <= value <= highest else Reading(None, "out_of_range")


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
        found, failure = self._last(text, material, "no_verdict")
        if found is None:
            return Reading(None, failure)
        value = self.verdicts.get(" ".join(found.casefold().split()))
        return Reading(value, None if value else "unknown_verdict")

    def rating(self, text: str, lowest: int, highest: int, material: str = "") -> Reading[float]:
        """The rating; ``failure`` is ``no_rating``, ``out_of_range`` or ``no_answer``."""
        found, failure = self._last(text, material, "no_rating")
        if found is None or not _NUMBER.fullmatch(found.strip()):
            return Reading(None, failure or "no_rating")
        value = float(found)
        return Reading(value) if lowest <= value <= highest else Reading(None, "out_of_range")

    def _last(self, text: str, material: str, failure: str) -> tuple[str | None, str | None]:
        answer = answer_of(text, material)
        if answer is None:
            return None, NO_ANSWER
        matches = list(self.pattern.finditer(answer))
        return (matches[-1][1], None) if matches else (None, failure)


def quotes(text: str, material: str) -> bool:
    """Whether a mark in ``text`` stands in ``material``, too, so that it may be a quotation."""
    held = _held(material)
    return any(_bare(match) in held for match in _MARK.finditer(fold(text).text))


def _one_of(text: str, material: str, known: Mapping[str, T]) -> Reading[T]:
    answer = answer_of(text, material)
    if answer is None:
        return Reading(None, NO_ANSWER)
    marks = list(_MARK.finditer(looks := fold(answer).text))
    given = [match for match in marks if _bare(match) in known]
    found = {known[_bare(match)] for match in given}
    if len(found) == 1:
        return Reading(None, why) if (why := not_given(looks, given, material)) else Reading(found.pop())
    return Reading(None, "ambiguous" if found else "unknown_verdict" if marks else "no_verdict")


def not_given(text: str, marks: Sequence[re.Match[str]], material: str) -> str | None:
    """``mentioned`` or ``quoted`` where none of these marks of a text is the judge's verdict, else None.

    ``text`` is as it looks; ``marks`` all say the same.
    """
    own = [match for match in marks if not _mentioned(text, match)]
    if not own:
        return "mentioned"
    held = _held(material)
    if all(_bare(match) in held and not _stated(text, match) for match in own):
        return "quoted"
    return None


def _around(text: str, mark: re.Match[str]) -> tuple[str, str]:
    """What stands before and after a mark on its line, as far as it is looked at."""
    before, after = text[max(0, mark.start() - REACH) : mark.start()], text[mark.end() : mark.end() + REACH]
    return before.rpartition("\n")[2], after.partition("\n")[0]


def _mentioned(text: str, mark: re.Match[str]) -> bool:
    """Whether the words around a mark speak of it."""
    before, after = _around(text, mark)
    opened, closed = _OPENED.search(before), _CLOSED.match(after)
    if opened and closed and re.search(r"\w", opened[0] + closed[0]):  # a verdict may stand in quotation marks alone
        return True
    quoted = re.compile(r"\s*>").match(text, text.rfind("\n", 0, mark.start()) + 1)
    return bool(_SPOKEN_OF.search(before) or _SUPPOSED.match(after) or quoted)


def _stated(text: str, mark: re.Match[str]) -> bool:
    """Whether a mark stands where a verdict does: at the end of a line, or after a word of verdict."""
    before, after = _around(text, mark)
    return not re.search(r"\w", after) or bool(_VERDICT.search(before))


@lru_cache(maxsize=64)
def _held(material: str) -> frozenset[str]:
    return frozenset(_bare(match) for match in _MARK.finditer(fold(material).text))


def _bare(mark: re.Match[str]) -> str:
    """What stands between double square brackets, without bold, case and the words around the mark itself."""
    return _WORDS.sub("", mark[1].replace("*", "").replace("\\", "")).strip().casefold()
