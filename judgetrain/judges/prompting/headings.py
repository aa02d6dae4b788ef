"""A prompt set's own section headings in other people's text: marked as quoted, so that no line of a dialogue or a
response can pass for the start of another section of the prompt, for a turn of the dialogue, or for a verdict.

Texts are searched as they look (:func:`~judgetrain.engines.confusables.fold`): a line is one after any line break that
Unicode has, and a heading one in any width, with invisible characters in it, or in look-alike letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from judgetrain.engines.confusables import fold

OUTSIDE = frozenset({"query", "context", "reference", "response", "response_a", "response_b", "pairs"})
"""The slots that people and other models fill; the rest is the judge's own text."""

QUOTE = "> "
"""What is put before a line that reads like a heading."""

_SLOT = re.compile(r"\{(\w+)\}")
_BLOCKS = re.compile(r"^(?:\{(?:context|reference)_block\})+")
_BRACKETS = re.compile(r"\[[^\[\]\n]{2,60}\]")
_LABEL = re.compile(r"(?P<label>[^\W\d_][\w ]{0,40}:)[ ]*(?=\{\w+\})")
_ANY = "\ue000"
"""A private-use character that stands for what fills a slot within a heading."""
_DRESS = r"[ \t#*_\-`~|=+\u2022\u00b7]*+"
"""What may stand before a heading, or between its words, and leave it one to a reader. Possessive: none of it
is part of what follows, so that a long row of marks is read once."""
_TURN = re.compile(rf"^(?={_DRESS}(?:user|assistant|system|human){_DRESS}:)", re.IGNORECASE | re.MULTILINE)
_SCORE = re.compile(
    rf"^{_DRESS}[\[(]?(?:\d{{1,2}}[.)]{_DRESS})?(?:\w{{1,12}}[ \t*_]{{1,3}}){{0,2}}response[ \t]++[ab]\b"
    r"[ \t*_'\u2019s\]]{0,9}(?:\w{1,12}[ \t*_]{1,3})?score\b[ \t*_\]]*+(?:[:=\-]|is\b|(?=\r?$))",
    re.IGNORECASE | re.MULTILINE,
)
"""The beginning of a score line, or of what looks like one."""
_VERDICT = re.compile(
    rf"^(?={_DRESS}(?:[\w' ]{{1,40}}[:=]{_DRESS})?\[[ ]?\[[ *]*+(?:\w{{1,20}}[ :=]{{1,3}}){{0,2}}(?:[abcxy]|tie"
    r"|\d{1,2}(?:[./]\d{1,9})?)[ *]*+\][ ]?\][^\w\n]*+$)",
    re.IGNORECASE | re.MULTILINE,
)
"""A line that is a mark of :mod:`~judgetrain.judges.prompting.verdicts` and nothing more."""


def headings_of(templates: Iterable[str]) -> re.Pattern[str] | None:
    """A pattern of the lines that begin like one of the templates' own sections; None if they have no headings.

    Headings are words in square brackets that begin a line (``[Query]``, ``[{count} criteria]``, ``[Query]: {query}``)
    and labels before a slot (``Query: {query}``). Case, spacing and Markdown around them make no difference.
    """
    found: dict[str, None] = {}
    for line in (line.strip() for text in templates for line in text.splitlines()):
        bare = _BLOCKS.sub("", line)
        if match := _BRACKETS.match(bare) or _LABEL.match(bare):
            words = [w for w in re.findall(r"\w+|[^\w\s]", _SLOT.sub(_ANY, match[0])) if not re.fullmatch(_DRESS, w)]
            found[_DRESS.join(r"[^\n]{1,20}" if word == _ANY else re.escape(word) for word in words)] = None
    if not found:
        return None
    return re.compile(rf"^(?={_DRESS}(?:{'|'.join(found)}))", re.IGNORECASE | re.MULTILINE)


def quoted(slots: Mapping[str, str], headings: re.Pattern[str] | None) -> dict[str, str]:
    """The slots with :data:`QUOTE` before every line of outside text that reads like a heading; done twice is once.

    So are lines that read like a verdict and, where the prompt shows earlier turns, like a turn (but for the slot
    ``context``, whose own turns are: :func:`turns_quoted`).
    """
    patterns = [_SCORE, _VERDICT, *([headings] if headings else [])]
    turns = [_TURN] if slots.get("context") else []
    return {
        name: _marked(text, patterns + (turns if name != "context" else [])) if name in OUTSIDE else text
        for name, text in slots.items()
    }


def turns_quoted(content: str) -> str:
    """A message with :data:`QUOTE` before every line that reads like the beginning of another turn."""
    return _marked(content, [_TURN])


def _marked(text: str, patterns: Iterable[re.Pattern[str]]) -> str:
    looks = fold(text)
    found = {looks.line_start(match.start()) for pattern in patterns for match in pattern.finditer(looks.text)}
    for place in sorted(found, reverse=True):
        text = f"{text[:place]}{QUOTE}{text[place:]}"
    return text
