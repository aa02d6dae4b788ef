"""Second thoughts outside the score lines: other scores for the same responses, said in words.

Only statements about a score count: ``Final score: 2``, ``Correction: 3``, ``I lower it to 3``, ``A deserves a 2``,
or a score of a response by name. What stands in quotation marks, or in the texts that are judged, is a quotation.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache

from judgetrain.engines.lookalikes import fold
from judgetrain.judges.prompting.numbers import scores_meant
from judgetrain.judges.prompting.scores import QUALIFIER, Score

_SCORE = r"(?:scores?|ratings?|grades?|marks?)"
_MOVES = (
    r"(?:revis|chang|correct|adjust|lower|rais|reduc|increas|decreas|updat|downgrad|upgrad|amend|bump|drop|mov|cut|bring|"
    r"set|reconsider)\w*"
)
_MOVED = r"(?:chang\w+|(?:revis|lower|rais|reduc|increas|decreas|correct|adjust|upgrad|downgrad|amend)ed)"
_NAME = r"(?:response[ ]+[ab]|(?<!response[ ])(?-i:[AB]))"
_ANNOUNCED = re.compile(
    rf"""
    (?<!of[ ])(?<![^\s(\[*_\"'])response[ ]+[ab]\b(?:['\u2019]s)?[ *_]*
        (?:{QUALIFIER}[ ]+)?(?:{_SCORE}[ *_]*)?(?:\([^()\n]{{0,30}}\)[ ]*)?
        (?:[:=](?=[^\w\n]{{0,6}}(?:only[ ]+|now[ ]+|an?[ ]+)?[1-5])|is[ ]+now\b|to\b|{_MOVED})
    | (?<![^\s(\[*_\"'])\b{_NAME}(?:['\u2019]s)?[ *_]+(?:{QUALIFIER}[ ]+)?{_SCORE}[ *_]*
        (?:[:=]|is\b|should\b|must\b|becomes\b|{_MOVED})
    | \b{_SCORE}[ ]+(?:of|for)[ ]+{_NAME}\b[ ]*(?:[:=]|is\b|should\b|{_MOVED})
    | \b{QUALIFIER}[ ]+(?:{_SCORE}|verdict|assessment)\b
    | (?<!\w)(?:correction|erratum|revision|revised|edit|update|updated|amended|corrected|adjusted|final)
        [ *_]*(?:[:=\u2013\u2014]|-[ ])
    | ^[ *_\-]*(?:overall|{_SCORE})[ *_]*[:=]
    | ^[ *_\-]*(?-i:[AB])[ *_]*[:=](?=[^\w\n]{{0,6}}[1-5])
    | \b(?:i|i['\u2019](?:d|ll|ve|m)|let[ ]me|let['\u2019]s|we)[ ]+(?:\w+[ ]+){{0,4}}?
        (?:{_MOVES}|mean|meant|settle|giv\w+|award|assign|(?:now|would)[ ]+(?:think|say|call|see|judge|rate))\b
    | (?<!\w)(?:on[ ]+(?:further[ ]+|second[ ]+)?(?:reflection|thoughts?|consideration)|(?:scratch|strike)[ ]+that
        |i[ ]+take[ ]+(?:that|it)[ ]+back|(?:no[ ,]+)?wait(?=[ ]*[,.:;!\-\u2013\u2014])|oops|sorry(?=[ ]*[,.:;!]))
    | \b(?:the|its|that)[ ]+{_SCORE}\b[ ]+
        (?:should|must|ought|becomes?|(?:is|was)[ ]+(?:now|{_MOVED})|drops?|falls?|rises?|goes)\b
    | \b{_MOVES}[ ]+(?:\w+[ '\u2019]+){{0,4}}?(?:{_SCORE}|it|{_NAME}|this|that)\b
    | ^[ (\[*_\-]*(?:{_MOVED}|now)\b
    | \b{_NAME}[ ]+(?:only[ ]+|really[ ]+|just[ ]+)?(?:deserve|merit|warrant|earn|get|receive)s?\b
    | \b{_NAME}[ ]+(?:is|should[ ]+(?:be|get|receive|score|have))
        (?:[ ]+(?:an?|only|just|really|rated|scored|given|at)\b)+
        (?=[ ]+[1-5\w])
    | \b{_NAME}[ ]+should[ ]+(?:be|get|receive|score)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""Words that announce a score."""
_BETWEEN = re.compile(r"(?:[^\w\n]{0,6}(?:[^\W\d]+|\d(?:\.\d)?)){0,9}[^\w\n]{0,6}$")
"""What may stand between those words and the number."""
REACH = 200
"""How far before a number the words that announce it may end, in characters."""
_NUMBERED = re.compile(r"[1-5]|one|two|three|four|five", re.IGNORECASE)
_SIDE = re.compile(
    r"\bresponse[ ]+([ab])\b|\b((?-i:[AB]))\b(?=[ *_]*['\u2019:=,)]|[ ]+(?:to|at|is|should|only"
    r"|really|just|from|down|up|"
    r"an?|(?:deserve|merit|warrant|earn|get|receive)s?|\d))",
    re.IGNORECASE,
)
_FROM = re.compile(r"\bfrom[ ]+(?:an?[ ]+)?$", re.IGNORECASE)
_CONDITIONAL = re.compile(r"\b(?:if|unless|when|whenever|guideline|rubric|criterion)\b", re.IGNORECASE)
_SENTENCE = re.compile(r"(?:[^.!?;\n]|[.!?;](?=[^\s]))+[.!?;]?")
_QUOTED = re.compile(
    r"\"[^\"\n]{1,400}\"|\u201c[^\u201d\n]{1,400}\u201d|`[^`\n]{1,400}`|\u00ab[^\u00bb\n]{1,400}\u00bb|"
    r"(?<!\w)'[^'\n]{1,400}'(?!\w)|(?:^|:)[ \t]*>.*$",
    re.MULTILINE,
)


def words(text: str) -> str:
    """The words and numbers of a text with single spaces, case folded: what a quotation keeps."""
    return " ".join(re.findall(r"\w+", text.casefold()))


@lru_cache(maxsize=64)
def known_words(material: str) -> str:
    """The :func:`words` of a text that is judged; the judgments of a tree ask for the same few again and again."""
    return words(fold(material).text)


def contradicted(text: str, scores: Sequence[Score], material: Sequence[str]) -> bool:
    """Whether words after the first score give a response another score than its line does.

    A statement that names no response is about the one whose line stands before it. ``text`` is as it looks
    (:func:`~judgetrain.engines.lookalikes.fold`); ``material``: the texts that are judged.
    """
    free = _QUOTED.sub(lambda match: " " * len(match[0]), text)
    ordered = sorted(scores, key=lambda score: score.at)
    for score in ordered:
        free = free[: score.start] + " " * (score.end - score.start) + free[score.end :]
    given = {score.side: score.value for score in scores}
    for start, sentence in _sentences(free, ordered[0].end):
        nearest = next(score for score in reversed(ordered) if score.end <= start or score is ordered[0])
        if _differs(sentence, given, nearest.side) and not _stands_in(sentence, material):
            return True
    return False


def _sentences(text: str, start: int) -> Iterator[tuple[int, str]]:
    """The sentences from ``start`` on that announce a score, and where each begins."""
    for match in _SENTENCE.finditer(text, start):
        if _NUMBERED.search(match[0]) and _ANNOUNCED.search(match[0].strip()):
            yield match.start(), match[0].strip()


def _differs(sentence: str, given: dict[str, float], nearest: str) -> bool:
    """Whether a number that a sentence announces is another than the response's score."""
    numbers = [(value, at) for value, at in scores_meant(sentence) if not _FROM.search(sentence[max(0, at - 16) : at])]
    if [value for value, _ in numbers] == [*given.values()] or _CONDITIONAL.search(sentence):
        return False
    announced = [match.end() for match in _ANNOUNCED.finditer(sentence)]
    sides = [(match.end(), (match[1] or match[2]).lower()) for match in _SIDE.finditer(sentence)]
    named = [end for end, _ in sides]
    for value, at in numbers:
        ends = announced[bisect_left(announced, at - REACH) : bisect_right(announced, at)]
        before = bisect_right(named, at)
        side = sides[before - 1][1] if before else nearest
        if value != given[side] and any(_BETWEEN.match(sentence[end:at]) for end in ends):
            return True
    return False


def _stands_in(sentence: str, material: Sequence[str]) -> bool:
    said = words(sentence)
    return any(said in known_words(text) for text in material)
