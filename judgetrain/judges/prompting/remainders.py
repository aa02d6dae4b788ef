"""What stands after a score on its line: an explanation, a scale, or a second thought that takes the score back."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right

from judgetrain.judges.prompting.numbers import HIGHEST, WORDS, scores_meant, without_scales

CLOSES = r"[ \t*_\])`\"'\u201d\u2019}$]*"
"""What may close what was opened before a number."""
_CLOSING = re.compile(CLOSES)
_PART = re.compile(
    r"\W*(?:(?:and[ \t]+|plus[ \t]+)?(?:an?[ \t]+|one[ \t]+)?(?:half|quarter|third|three[ \t-]+quarters)\b|ish\b)"
    rf"|[ \t]*[-\u2013\u2014~/][ \t]*(?:{WORDS})\b(?![ \t]+[^\W\d])"
    r"|[-\u2212+][ \t]*$|[ \t]*per[ \t]?cent\b|[ \t]*(?:plus|minus)\b",
    re.IGNORECASE,
)
"""What makes a number another one: ``3 and a half``, ``4-``, ``3-ish``, ``3 percent``."""
_WORD = rf"(?:\d|\b(?:{WORDS})\b)"
_SENTENCE = re.compile(r"[.;!\u3002]+(?:[ \t*_]+[^\W\d]|$)")
_CLAUSE = re.compile(r"(?:[,:(\-\u2013\u2014/|\u3002]|\.\.+)+[ \t*_(]*[^\W\d]")
_HEDGE = re.compile(
    r"\b(?:or|maybe|perhaps|possibly|rather|actually|almost|nearly|even|sorry)\b(?:\W{1,4}[^\W\d]+){0,2}?\W{0,4}"
    rf"{_WORD}",
    re.IGNORECASE,
)
_AGAIN = re.compile(
    r"\b(?P<far>no(?=[ \t]*[^\w\s]|[ \t]+(?:\d|wait\b|i\b|one\b|two\b|three\b|four\b|five\b))|wait"
    r"|revis\w+|correct(?:ed|ion|ing)|erratum|edit(?:ed)?|oops|"
    r"on[ \t]+(?:further[ \t]+|second[ \t]+)?(?:reflection|thoughts?|consideration)|(?:scratch"
    r"|strike)[ \t]+that|i[ \t]+mean|"
    r"reconsider\w*|amend\w*|adjust\w*|updat\w*)\b"
    r"|\b(?:chang\w*|instead|now|reduc\w*|lower\w*|rais\w*|increas\w*|decreas\w*|downgrad\w*|upgrad\w*|bump\w*|drop\w*|cut|"
    r"make|should|final|finally|but|though|although|then|really|better|closer|nearer|rather|leaning|towards?|probably|"
    r"likely|preferably|arguably|meaning|becom\w+|down|up|so|thus|hence|namely|hmm+|well|okay|ok|i\.e)\b|[-=]+>|[\u2192\u21d2]",
    re.IGNORECASE,
)
"""Words after which a number may take the place of the score."""
_ANY = re.compile(r"(?:\W{1,4}[^\W\d]+){0,6}\W{1,4}$|\W{0,4}$")
_FILL = re.compile(
    r"(?:\W{1,4}(?:an?|the|it|its|is|was|be|to|at|as|only|just|really|rather|more|like|say|i|d|s|would|give|make|that|this|my|mind|"
    r"perhaps|maybe|probably|about|around|by|down|up|from|now|score|rating|of|should|think|believe|mean|then|instead|"
    r"better|lean|leaning|towards?|toward|deserves?|for|clarity|style|tone|slightly)){0,6}\W{0,4}$",
    re.IGNORECASE,
)
_RANGE = re.compile(
    rf"\W*(?:to|till|until|through|and|or|up|plus|minus)\b.*?{_WORD}|\W*(?:or|times|more|less|higher|lower)\b",
    re.IGNORECASE,
)
_OTHER_SCALE = re.compile(
    r"(?:[/\u2044\u2215]|\bout[ \t]+of)[ \t]*(?:a[ \t]+)?(?:(?:possible|maximum(?:[ \t]+of)?)["
    r" \t]+)?(?P<top>\d+|ten|twenty|hundred)",
    re.IGNORECASE,
)
_NUMBER_ENDS = re.compile(rf"{_WORD}[ \t*_]{{0,9}}$", re.IGNORECASE)
_SIGNS = frozenset("+~%\u00b1\u2248^<>=\u301c")
REACH = 80
"""How far before a number the word that announces it may stand, in characters."""


def taken_back(rest: str, value: float) -> str | None:
    """``out_of_range`` or ``ambiguous`` if the text after a score names another scale or another score, else None.

    After the end of a sentence, or after punctuation, words explain, and may hold numbers; a number that follows at
    once, or a second thought (``3 or maybe 4``, ``3. No wait: 4``), leaves open which score is meant.
    """
    if rest and (rest[0].isnumeric() or _PART.match(rest)):
        return "ambiguous"
    named, right = without_scales(rest)
    if not right:
        return "out_of_range"
    closing = _CLOSING.match(named)
    tail = named[closing.end() :] if closing else named
    if _PART.match(tail):
        return "ambiguous"
    sentence, clause = _SENTENCE.match(tail), _CLAUSE.match(tail)
    for match in _OTHER_SCALE.finditer(tail):
        explained = sentence or (clause and _counts(tail, match.start()))
        if match["top"] != f"{HIGHEST:g}" and not explained:
            return "out_of_range"
    if _HEDGE.search(tail) or _replaced(tail, value) or (not sentence and _RANGE.match(tail)):
        return "ambiguous"
    if sentence or clause:
        return None
    return "ambiguous" if re.search(r"\d", tail) or any(c.isnumeric() for c in tail) or tail[:1] in _SIGNS else None


def _replaced(tail: str, value: float) -> bool:
    """Whether another number that may be a score is announced by a word of second thoughts."""
    announced = list(_AGAIN.finditer(tail))
    ends = [match.end() for match in announced]
    for number, at in scores_meant(tail):
        for match in announced[bisect_left(ends, at - REACH) : bisect_right(ends, at)]:
            if number != value and (_ANY if match["far"] else _FILL).match(tail[match.end() : at]):
                return True
    return False


def _counts(tail: str, at: int) -> bool:
    """Whether a number stands directly before ``out of N``, as in ``meets 3 out of 4 criteria``: that is no scale."""
    return bool(_NUMBER_ENDS.search(tail[max(0, at - 16) : at]))
