"""Score lines of a judgment: where they stand and what is written after the number.

A line is read in two steps: its beginning (``Response A Score:`` and a number), then the rest of the line, which may
complete the scale, go on to the other response's score, explain, or take the number back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from judgetrain.judges.prompting.numbers import HIGHEST, LOWEST, WORDS, value_of
from judgetrain.judges.prompting.remainders import CLOSES, taken_back

QUALIFIER = r"(?:final|revised|updated|corrected|adjusted|amended|reconsidered|definitive|actual|new|overall)"
_SIDE = (
    rf"(?:(?:my|the)[ \t]+)?(?:{QUALIFIER}[ \t*_]+)?response[ \t]+(?P<side>[ab])\b[ \t*_'\u2019s\]]*"
    rf"(?:{QUALIFIER}[ \t*_]+)?score\b[ \t*_\]]*"
)
_NAMES = r"(?:[:=\-]|is\b[ \t]*:?)"
_OPENS = r"(?:[ \t*_\[(`\"'\u201c\u2018$]|\\boxed\{)*"
_NUMBER = r"[-+\u2212]?\d+(?:,\d{3})+(?!\d)|[-+\u2212]?\d+(?:\.\d+|,\d{1,2})?(?!\d)"
_SCALE = (
    rf"{CLOSES}[(\[]?(?:[/\u2044\u2215]|out[ \t]+of\b|of\b)[ \t*_]*(?:an?[ \t]+)?(?:(?:possible"
    rf"|maximum(?:[ \t]+of)?)[ \t]+)?"
    rf"(?P<scale>\d+(?:\.\d+)?|(?:{WORDS})\b)"
)

HEAD = re.compile(
    rf"^[ \t#*_\-\u2022\[]*(?:\(?\d{{1,2}}[.)][ \t]+[*_\[]*)?{_SIDE}(?:{_NAMES}|(?=\r?$))",
    re.IGNORECASE | re.MULTILINE,
)
"""The beginning of a score line. A line that begins with ``>`` or quotation marks is a quotation, never one of them."""

_NEXT = re.compile(rf"[ \t,;|.&*_]*(?:and[ \t]+)?[*_\[]*{_SIDE}{_NAMES}", re.IGNORECASE)
"""The other response's score on the same line, with nothing but marks between."""
_HERE = re.compile(rf"{_OPENS}(?P<score>{_NUMBER})", re.IGNORECASE)
_BELOW = re.compile(
    rf"{CLOSES}(?:\r?\n[ \t]*)+{_OPENS}(?P<score>{_NUMBER})(?=(?:{_SCALE})?{CLOSES}\.?\r?(?:\n|\Z))", re.IGNORECASE
)
_UNIT = re.compile(rf"{CLOSES}(?:(?:points?|pts?|stars?|marks?)\b|[\u5206\u70b9\u9ede\uc810])", re.IGNORECASE)
_WITH_SCALE = re.compile(_SCALE, re.IGNORECASE)
_AGAIN = re.compile(rf"{CLOSES}[(=\[][ \t]*(?P<again>{_NUMBER})[ \t]*[/\u2044\u2215][ \t]*(?P<scale>\d+)")


@dataclass(frozen=True, kw_only=True)
class Score:
    """A score as written: of which response (``a``, ``b``), where the number stands and the text ends.

    ``start`` is where its line begins, ``at`` the number's first character, ``end`` the end of its text, in
    characters. ``failure``: ``out_of_range`` (another scale), ``ambiguous`` (a further number), or None.
    """

    side: str
    value: float
    start: int
    at: int
    end: int
    failure: str | None


def scores_in(text: str, start: int = 0) -> Iterator[Score]:
    """The scores of a judgment from ``start`` on, in order; lines that name no number are passed over."""
    upto = start
    for head in HEAD.finditer(text, start):
        if head.start() < upto:
            continue
        begin: re.Match[str] | None = head
        while begin and (number := _HERE.match(text, begin.end()) or _BELOW.match(text, begin.end())):
            score, begin = _score(text, begin, number, head.start())
            upto = score.end
            yield score


def _score(text: str, begin: re.Match[str], number: re.Match[str], start: int) -> tuple[Score, re.Match[str] | None]:
    """One score, and the beginning of the next one where it follows on the same line."""
    written = number["score"].replace("\u2212", "-")
    value = float(re.sub(r",(?=\d{3})", "", written).replace(",", "."))
    at, failure = number.end(), None
    line = at + len(text[at:].partition("\n")[0])
    if unit := _UNIT.match(text, at, line):
        at = unit.end()
    scale = _AGAIN.match(text, at, line) or _WITH_SCALE.match(text, at, line)
    if scale:
        again = scale.groupdict().get("again")
        failure = None if again is None or float(again.replace(",", ".")) == value else "ambiguous"
        failure = "out_of_range" if value_of(scale["scale"]) != HIGHEST else failure
        at = scale.end()
        if unit := _UNIT.match(text, at, line):
            at = unit.end()
    following = _NEXT.match(text, at, line)
    if not following and at == number.end() and text[at : at + 1].isalpha():
        failure = "ambiguous"  # 4th, 4x
    rest = "" if following else text[at:line].rstrip()
    end = at if following else line
    if not LOWEST <= value <= HIGHEST:
        failure = "out_of_range"
    score = Score(
        side=begin["side"].lower(),
        value=value,
        start=start,
        at=number.start("score"),
        end=end,
        failure=failure or taken_back(rest, value),
    )
    return score, following
