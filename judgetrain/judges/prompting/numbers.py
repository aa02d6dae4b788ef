"""Numbers in what a judge writes: in digits and words, as the ends of a scale, and as what may be meant as a score."""

from __future__ import annotations

import re
from collections.abc import Iterator

LOWEST, HIGHEST = 1.0, 5.0
"""The range of scores (branching paper, table 10)."""

_VALUES = dict(zip("one two three four five six seven eight nine ten".split(), range(1, 11), strict=True))
_VALUES |= {"zero": 0, "twelve": 12, "twenty": 20, "fifty": 50, "hundred": 100, "thousand": 1000}
WORDS = "|".join(_VALUES)
"""Number words, as alternatives of a regular expression."""


def _scale(pattern: str) -> re.Pattern[str]:
    """A pattern with TOP for a scale's upper end and SPAN for both or the upper one."""
    number = rf"(?P<%s>\d+(?:\.\d+)?|\b(?:{WORDS})\b)"
    low, top = number % "low", rf"(?:a[ \t]+)?{number % 'top'}(?![.,]?\d)"
    aside = r"(?:[ \t]*\([^()\n]{0,30}\))?"
    span = rf"(?:{low}{aside}[ \t]*(?:to|through|[-\u2013\u2014~]|\.\.+)[ \t]*)?{top}"
    both = rf"{low}[ \t]*(?:to|[-\u2013\u2014])[ \t]*{top}"
    return re.compile(pattern.replace("SPAN", span).replace("BOTH", both).replace("TOP", top), re.IGNORECASE)


_SCALES = (
    _scale(r"\b(?:scale|range)\b[ \t:=]*(?:(?:of|from|is|goes|runs)[ \t]+){0,2}SPAN(?:[ \t]*\([^()\n]{0,30}\))?"),
    _scale(r"(?<![\w.,])SPAN[ \t-]*(?:points?|stars?)?[ \t-]+(?:likert[ \t-]+)?(?:scale|system|range)\b"),
    _scale(r"^[ \t*_]*[(\[][ \t]*BOTH[ \t]*[)\]]"),
    _scale(
        r"(?<![\w.,])TOP[ \t]*(?:is|being|=|means)[ \t]*(?:the[ \t]+)?(?:best|highest|top|max\w*|perfect|excellent)\b"
    ),
    _scale(r"(?<![\w.,])TOP[ \t]+max(?:imum)?\b"),
    _scale(r"\bmax(?:imum)?\b[ \t.:=]*(?:(?:of|is)[ \t]+)?TOP"),
    _scale(r"^[ \t*_(]*in[ \t]+(?P<top>ten|a hundred)\b"),
)

_HOLE = "\x00"
_AROUND = re.compile(
    rf"[ \t]*[(\[]?[ \t]*(?:\b(?:on|using|in|with|of|where)[ \t]+(?:an?[ \t]+|the[ \t]+)?)?{_HOLE}[ \t]*[)\]]?",
    re.IGNORECASE,
)
"""A scale that was taken out, with the words and brackets around it."""
_COUNTED = re.compile(
    r"\b(?:step|point|part|item|line|section|chapter|example|option|number|figure|table|page|level|question|version|"
    r"paragraph|claim|rule|criterion|sentence|fact|reason|case|answer|result|problem|exercise|note"
    r"|day|week|year)s?[ \t#.:*_]*$",
    re.IGNORECASE,
)
"""What is counted with the number that follows, which is then no score."""
_MEANT = re.compile(
    r"(?<![\w.,/\-])(?<![.,/]\d)(?P<value>[1-5](?:[.,]\d+)?|one|two|three|four|five)(?![.,]?\d|\w|["
    r" \t]*/[ \t]*\d*[^5\D]|[ \t]*%)"
    r"(?![ \t\-]+(?!(?:for|because|since|as|instead|then|now|out|points?|pts?|stars?|marks?|here"
    r"|overall|too|also|rather|"
    r"and|or|but|if|given|due|at|on|in|would|seems?|feels?|fits?|might|may|though|although|again|respectively|"
    r"[ab]|response)\b)[^\W\d])(?![ \t]+out[ \t]+of[ \t]+(?!5\b|five\b))",
    re.IGNORECASE,
)


def value_of(text: str) -> float:
    """The value of a number in digits or as one of :data:`WORDS`."""
    word = text.lower().removeprefix("a ").strip()
    return float(_VALUES[word]) if word in _VALUES else float(word.replace(",", "."))


def without_scales(text: str) -> tuple[str, bool]:
    """A text without the scales that it names (``scale 1-5``, ``on a ten-point scale``), and whether all are 1 to 5."""
    right = True
    for pattern in _SCALES:
        for match in pattern.finditer(text):
            ends = match.groupdict()
            low = ends.get("low")
            right &= value_of(ends["top"]) == HIGHEST and (low is None or value_of(low) == LOWEST)
        text = pattern.sub(_HOLE, text)
    return _AROUND.sub("", text), right


def scores_meant(text: str, start: int = 0) -> Iterator[tuple[float, int]]:
    """Numbers from 1 to 5 that could be scores, and where each begins; none that counts or numbers something."""
    for match in _MEANT.finditer(text, start):
        if not _COUNTED.search(text[max(0, match.start() - 16) : match.start()]):
            yield value_of(match["value"]), match.start()
