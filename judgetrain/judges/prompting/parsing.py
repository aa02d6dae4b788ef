"""Reading what a judge wrote: criteria lists and judgments. Generated text only, never the prompt."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from judgetrain.engines.prompting import NO_ANSWER, answer_start
from judgetrain.judges.prompting.frames import FRAME, VERDICT_FIRST, frame_of

# Quantifiers are possessive (``*+``) where what follows could match the same characters: a line of blanks is read once.
_NUMBERED = re.compile(
    r"^(?P<indent>\s*+)#*+\s*+(?:[-*\u2022]\s++)?(?P<mark>\*\*|__)?\s*+(?:criterion\s*+)?"
    r"\(?\d++\s*+\\?[.):\u3001\uff0e\uff1a](?!\d)\s*+(?P<content>.+)$",
    re.IGNORECASE,
)
_BULLET = re.compile(r"^(?P<indent>\s*+)(?P<mark>\*\*|__)?\s*+(?:[-\u2022]\s*+|\*\s++)(?P<content>.+)$")
_PREFIX = re.compile(r"^criterion\s*+:\s*+(?=\w)", re.IGNORECASE)
_EMPHASIS = re.compile(r"(?P<mark>\*{1,3}|__)(?=[^\s*])(?P<name>(?:(?!(?P=mark)).)*?[^\s*])(?P=mark)")
_AFTER_NAME = re.compile(r"\s*+(?:[:\uff1a\u2013\u2014(\-]|$)")
_DUNDER = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*")
NESTED = 2
"""Columns by which a line stands deeper than the first item of its list and is a remark on the one above."""


@dataclass(frozen=True)
class ParsedJudgment:
    """Scores of the responses in the order shown, or the reason why they could not be read.

    ``second`` is None where one response is shown. ``places``: where in the text the scores stand, in characters.
    """

    first: float | None
    second: float | None
    failure: str | None = None
    places: tuple[int, ...] | None = field(default=None, compare=False)


def normalise(criterion: str) -> str:
    """A criterion's name for finding repeats: the words before the first colon, case- and width-folded."""
    name = re.split(r"[:\u2014]|\s[-\u2013]\s", unicodedata.normalize("NFKC", criterion), maxsplit=1)[0]
    return " ".join(re.findall(r"\w+", name.casefold()))


def parse_criteria(text: str, limit: int, material: str = "") -> list[str]:
    """The criteria of a numbered or bulleted list, in order, without repeats; at most ``limit``.

    Left out are reasoning before the list (:func:`answer_start`; ``material`` is the dialogue), bullets under a
    numbered list and lines that stand deeper than its first item, lines quoted with ``>``, emphasis around a whole
    name, and ``Criterion:`` before the names of several items.
    """
    return [criterion for criterion, _ in listed_criteria(text, material)[:limit]]


def listed_criteria(text: str, material: str = "") -> list[tuple[str, int]]:
    """What :func:`parse_criteria` reads, without a limit, and where in ``text`` each criterion's line ends."""
    criteria: dict[str, tuple[str, int]] = {}
    for content, end in listed_items(text, material):
        criteria.setdefault(normalise(content), (content, end))
    return list(criteria.values())


def listed_items(text: str, material: str = "") -> list[tuple[str, int]]:
    """Every item of a list of criteria, repeated ones too, and where in ``text`` its line ends."""
    start = answer_start(text, material)
    lines = text[start:].splitlines(keepends=True) if start is not None else []
    ends = list(accumulate((len(line) for line in lines), initial=start or 0))[1:]
    placed = [(line.rstrip("\r\n"), end) for line, end in zip(lines, ends, strict=True)]
    found = [(m, end) for line, end in placed if (m := _NUMBERED.match(line))]
    found = found or [(m, end) for line, end in placed if (m := _BULLET.match(line))]
    depths = [len(match["indent"].expandtabs()) for match, _ in found]
    items = [(_content(m), end) for (m, end), depth in zip(found, depths, strict=True) if depth < depths[0] + NESTED]
    if sum(bool(_PREFIX.match(content)) for content, _ in items) > 1:
        items = [(_plain(_PREFIX.sub("", content)), end) for content, end in items]
    return [(content, end) for content, end in items if normalise(content)]


def _content(match: re.Match[str]) -> str:
    """A list item's text; emphasis that began before its number is closed in it."""
    content = match["content"]
    return _plain((content.replace(match["mark"], "", 1) if match["mark"] else content).strip())


def _plain(content: str) -> str:
    """A criterion without emphasis around its whole name; ``__init__`` is a name and stays."""
    while match := _EMPHASIS.match(content):
        name, rest = match["name"], content[match.end() :]
        whole = name.endswith((":", "\uff1a")) or _AFTER_NAME.match(rest)
        if not whole or (match["mark"] == "__" and _DUNDER.fullmatch(name)):
            break
        content = f"{name}{rest}".strip()
    return content


def parse_judgment(text: str, material: Iterable[str] = (), frame: str = FRAME, responses: int = 2) -> ParsedJudgment:
    """The scores of a judgment that follows its prompt set's ``frame`` from the first line to the last.

    Reasoning before the answer is left out; ``material`` are the texts that are judged, which may hold marks of
    reasoning. ``failure`` is ``no_answer`` (the reasoning never ended) or one of
    :meth:`~judgetrain.judges.prompting.frames.Frame.read`.
    """
    own = frame_of(frame, responses)
    first = frame_of(VERDICT_FIRST) if responses == 2 else own
    start = 0 if own.begins(text) or first.begins(text) else answer_start(text, "\n".join(material))
    if start is None:
        return ParsedJudgment(None, None, NO_ANSWER)
    answer = text[start:]
    read = (first if first.begins(answer) and not own.begins(answer) else own).read(answer)
    if read.failure:
        return ParsedJudgment(None, None, read.failure)
    a, b = (*read.values, None)[:2]
    return ParsedJudgment(a, b, places=tuple(start + at for at in read.places))


def render_criteria(criteria: list[str]) -> str:
    """A numbered list, as a judge is taught to write it; :func:`parse_criteria` reads it back."""
    return "\n".join(f"{i}. {' '.join(criterion.splitlines())}" for i, criterion in enumerate(criteria, start=1))


def read_by_frames(level: str, text: str, frames: Mapping[str, str]) -> str:
    """What is read of a reply at a level (``criteria``, ``guideline``, ``judgment``) by a prompt set's frames."""
    if level == "criteria":
        return f"{len(listed_criteria(text))} criteria"
    if level == "guideline":
        return "a guideline" if text.strip() else "nothing"
    found = parse_judgment(text, frame=frames["judgment"])
    if found.failure:
        found = parse_judgment(text, frame=frames["score"], responses=1)
    return found.failure or " and ".join(f"{score:g}" for score in (found.first, found.second) if score is not None)
