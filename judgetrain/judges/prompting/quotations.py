"""Whether scores or verdicts in a reply are the judge's own, or shown from the texts that it judges.

A quotation may stand on one line where the original has several, leave parts out, and differ in marks, width and
letters that look alike: both texts are compared as they look, word by word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from judgetrain.engines.lookalikes import fold
from judgetrain.judges.prompting.numbers import value_of
from judgetrain.judges.prompting.revisions import known_words, words
from judgetrain.judges.prompting.scores import Score

_SPEAKS = (
    r"(?:says?|said|claims?|claimed|claiming|writes?|wrote|states?|stating|reads?|contains?|containing|includes?|including|"
    r"ends?|ending|begins?|quotes?|quoting|inserts?|inserted|embeds?|embedded|asserts?|pretends?|mentions?|mentioning|"
    r"forg\w+|fak\w+|inject\w+|instruct\w*|tells?|told|asks?|demands?|declares?|announces?|copies|copied|repeats?)"
)
TELLS = rf"(?:{_SPEAKS}|text|string|marker|itself)"
"""Words by which a judge says that another speaks."""
_TOLD = re.compile(rf"\b{_SPEAKS}\b[^\n]{{0,60}}:[^\w\n]*\s*$", re.IGNORECASE)
_SHOWN = re.compile(
    r"response[ \t]+(?P<side>[ab])\b\W{0,6}(?:\w+[ \t]+)?score\b[^\w\n]{0,12}(?:is\b[^\w\n]{0,4})?\s{0,4}"
    r"(?P<value>\d+(?:\.\d+)?|one\b|two\b|three\b|four\b|five\b)",
    re.IGNORECASE,
)
_PIECES = re.compile(r"\n|\.\.+|\u2026")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[ \t]*(?:/|out[ \t]+of)[ \t]*(?:5|five)\b)?")
_LEAD = re.compile(r"response[ \t]+[ab]\b\W{0,6}(?:\w+[ \t]+)?score\b\W{0,12}(?:is\b\W{0,4})?$", re.IGNORECASE)


def quoted_scores(text: str, scores: Sequence[Score], material: Iterable[str], cut_off: bool) -> bool:
    """Whether a judgment's scores are those of a text that it judges, and no verdict of its own.

    They are if each stands in one of the texts, nothing but words of those texts stands between them, and the reply
    goes on after them (or was ``cut_off``) and has words before them. A score that follows words such as ``it says:``
    and stands in one of the texts is never the judge's own.
    """
    known = [*material]
    repeated = [score for score in scores if any((score.side, score.value) in _shown(text) for text in known)]
    if any(_TOLD.search(text[max(0, score.start - 200) : score.start]) for score in repeated):
        return True
    if len(repeated) < len(scores):
        return False
    one, other = sorted(scores, key=lambda score: score.at)
    if not text[: one.start].strip() or not (_NUMBER.sub("", text[other.at :], count=1).strip() or cut_off):
        return False
    between = _LEAD.sub("", _NUMBER.sub("", text[one.at : other.at], count=1))
    said = [f" {words(piece)} " for piece in _PIECES.split(between)]
    return all(any(piece in f" {known_words(text)} " for text in known) for piece in said if piece.strip())


@lru_cache(maxsize=64)
def _shown(material: str) -> frozenset[tuple[str, float]]:
    """The scores that a text shows, by response."""
    return frozenset((m["side"].lower(), value_of(m["value"])) for m in _SHOWN.finditer(fold(material).text))
