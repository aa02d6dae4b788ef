"""Score lines of a judgment: where they stand and what is written after the number.

A line is read in two steps: its beginning (``Response A Score:`` and a number), then the rest of the line, which may
complete the scale, go on to the other response's score, explain, or take the number back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

LOWEST, HIGHEST = 1.0, 5.0
"""The range of scores (branching paper, table 10)."""

_SIDE = r"response[ \t]+(?P<side>[ab])\b[ \t*_'\u2019s\]]*score\b[ \t*_\]]*"
_NAMES = r"(?:[:\uff1a=\-]|is\b[ \t]*:?)"
_OPENS = r"(?:[ \t*_\[(`\"'\u201c\u2018$]|\\boxed\{)*"
_CLOSES = r"[ \t*_\])`\"'\u201d\u2019}$]*"
_NUMBER = r"[-+\u2212]?\d+(?:,\d{3})+(?!\d)|[-+\u2212]?\d+(?:\.\d+|,\d{1,2})?(?!\d)"
_SCALE = rf"{_CLOSES}[(\[]?(?:[/\u2044\u2215\uff0f]|out[ \t]+of\b|of\b)[ \t*_]*(?P<scale>\d+(?:\.\d+)?|five\b|ten\b)"

HEAD = re.compile(
    rf"^[ \t#*_\-\u2022\[]*(?:\(?\d{{1,2}}[.)][ \t]+[*_\[]*)?{_SIDE}(?:{_NAMES}|(?=\r?$))",
    re.IGNORECASE | re.MULTILINE,
)
"""The beginning of a score line. A line that begins with ``>`` or quotation marks is a quotation, never one of them."""

_NEXT = re.compile(rf"[ \t,;|.&*_]*(?:and[ \t]+)?[*_\[]*{_SIDE}{_NAMES}", re.IGNORECASE)
"""The other response's score on the same line, with nothing but marks between."""
_HERE = re.compile(rf"{_OPENS}(?P<score>{_NUMBER})", re.IGNORECASE)
_BELOW = re.compile(
    rf"{_CLOSES}(?:\r?\n[ \t]*)+{_OPENS}(?P<score>{_NUMBER})(?=(?:{_SCALE})?{_CLOSES}\.?\r?(?:\n|\Z))", re.IGNORECASE
)
_UNIT = re.compile(rf"{_CLOSES}(?:(?:points?|pts?|stars?|marks?)\b|[\u5206\u70b9\u9ede\uc810])", re.IGNORECASE)
_WITH_SCALE = re.compile(_SCALE, re.IGNORECASE)
_AGAIN = re.compile(rf"{_CLOSES}[(=\[][ \t]*(?P<again>{_NUMBER})[ \t]*[/\u2044\u2215\uff0f][ \t]*(?P<scale>\d+)")
_CLOSING = re.compile(_CLOSES)

_WORD = r"(?:\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten)\b)"
_SENTENCE = re.compile(r"[.;!\u3002\uff1b]+(?:[ \t*_]+[^\W\d]|$)")
_CLAUSE = re.compile(r"(?:[,:(\-\u2013\u2014\uff0c\uff1a\uff08/|\u3002\uff1b]|\.\.+)+[ \t*_(]*[^\W\d]")
_HEDGE = re.compile(
    rf"\b(?:or|maybe|perhaps|possibly|rather|actually|almost|nearly|even|sorry)\b(?:\W{{1,4}}[^\W\d]+){{0,2}}?\W{{0,4}}{_WORD}",
    re.IGNORECASE,
)
_BARE = (
    r"(?:[1-5](?:[.,]\d+)?(?![.,]?\d)|\b(?:one|two|three|four|five)\b)"
    r"(?![ \t]+(?!(?:for|because|since|as|instead|then|now|out|points?|stars?)\b)[^\W\d])"
)
"""A number that could be a score: none that counts something, as in ``corrected 3 mistakes``."""
_REVISED = re.compile(
    r"\b(?:(?:no(?=[ \t]*[^\w\s]|[ \t]+(?:\d|wait\b|i\b))|wait|revised|corrected|on[ \t]+reflection)\b"
    r"(?:\W{1,4}[^\W\d]+){0,6}?|(?:changed?|instead|now)\b(?:\W{1,4}[^\W\d]+){0,2}?)"
    rf"\W{{1,4}}{_BARE}",
    re.IGNORECASE,
)
_RANGE = re.compile(
    rf"\W*(?:to|till|until|through|and|or|up|plus|minus)\b.*?{_WORD}|\W*(?:or|times|more|less|higher|lower)\b",
    re.IGNORECASE,
)
_OTHER_SCALE = re.compile(
    r"(?:(?:[/\u2044\u2215\uff0f]|\bout[ \t]+of)[ \t]*|"
    r"(?P<named>\bscale\b(?:[ \t]+(?:of|from))?(?:[ \t]+\d+[ \t]+to)?[ \t]+))"
    r"(?P<top>\d+)(?![ \t]*to\b)",
    re.IGNORECASE,
)

_NUMBER_ENDS = re.compile(rf"{_WORD}[ \t*_]{{0,9}}$", re.IGNORECASE)
_SIGNS = frozenset("+~%\u00b1\u2248^<>=\u301c\uff5e")


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
        top = {"five": "5", "ten": "10"}.get(scale["scale"].lower(), scale["scale"])
        failure = "out_of_range" if float(top) != HIGHEST else failure
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
        failure=failure or _taken_back(rest),
    )
    return score, following


def _taken_back(rest: str) -> str | None:
    """``out_of_range`` or ``ambiguous`` if the text after a score names another scale or score, else None.

    After the end of a sentence, or after punctuation, words explain, and may hold numbers; a number that follows at
    once, or a second thought (``3 or maybe 4``, ``3. No wait: 4``), leaves open which score is meant.
    """
    closing = _CLOSING.match(rest)
    tail = rest[closing.end() :] if closing else rest
    sentence = _SENTENCE.match(tail)
    clause = _CLAUSE.match(tail)
    for match in _OTHER_SCALE.finditer(tail):
        explained = sentence or (clause and _counts(tail, match.start()))
        if float(match["top"]) != HIGHEST and (match["named"] or not explained):
            return "out_of_range"
    if _HEDGE.search(tail) or _REVISED.search(tail) or (not sentence and _RANGE.match(tail)):
        return "ambiguous"
    if sentence or clause:
        return None
    return "ambiguous" if re.search(r"\d", tail) or tail[:1] in _SIGNS else None


def _counts(tail: str, at: int) -> bool:
    """Whether a number stands directly before ``out of N``, as in ``meets 3 out of 4 criteria``: that is no scale."""
    return bool(_NUMBER_ENDS.search(tail[max(0, at - 16) : at]))
