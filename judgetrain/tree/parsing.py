"""Reading what a judge wrote: criteria lists and judgments. Generated text only, never the prompt."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field

LOWEST, HIGHEST = 1.0, 5.0
"""The range of scores (branching paper, table 10)."""

_NUMBERED = re.compile(
    r"^[\s>#]*(?:[-*\u2022]\s+)?(?:\*\*|__)?\s*(?:criterion\s*)?\(?\d+\s*\\?[.):\u3001\uff0e\uff1a](?!\d)\s*(.+)$",
    re.IGNORECASE,
)
_BULLET = re.compile(r"^\s*(?:\*\*|__)?\s*[-*\u2022](?!\*)\s*(.+)$")
_PREFIX = re.compile(r"^criterion\s*:\s*(?=\w)", re.IGNORECASE)
_SCORE = re.compile(
    r"^[ \t>#*_\-\u2022\[]*response[ \t]+(?P<side>[ab])\b[ \t*_'\u2019s\]]*score[ \t*_\]]*[:\uff1a=\-][ \t*_\[(]*"
    r"(?P<score>[-+]?\d+(?:[.,]\d+)?|\s*[*_\[(]*\d(?:\.\d+)?(?=[ \t*_\])]*(?:/[ \t]*\d+)?[ \t*_\])]*$))?"
    r"(?:[ \t*_\])]*(?:(?:/|out of)[ \t]*(?P<scale>\d+)|(?P<range>(?:[-\u2013]|to|or)[ \t]*\d)))?",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True)
class ParsedJudgment:
    """Scores of the responses in the order shown, or the reason why they could not be read.

    ``places``: where in the text the two scores stand, in characters.
    """

    first: float | None
    second: float | None
    failure: str | None = None
    places: tuple[int, int] | None = field(default=None, compare=False)


def normalise(criterion: str) -> str:
    """A criterion's name for finding repeats: the words before the first colon, case- and width-folded."""
    name = re.split(r"[:\u2014]|\s[-\u2013]\s", unicodedata.normalize("NFKC", criterion), maxsplit=1)[0]
    return " ".join(re.findall(r"\w+", name.casefold()))


def parse_criteria(text: str, limit: int) -> list[str]:
    """The criteria of a numbered or bulleted list, in order, without repeats; at most ``limit``.

    Bullets under a numbered list are remarks on its items, not criteria of their own.
    """
    criteria: dict[str, str] = {}
    lines = text.splitlines()
    found = [m for line in lines if (m := _NUMBERED.match(line))]
    for match in found or [m for line in lines if (m := _BULLET.match(line))]:
        content = _PREFIX.sub("", match[1].replace("**", "").replace("__", "").strip())
        name = normalise(content)
        if name and name not in criteria:
            criteria[name] = content
    return list(criteria.values())[:limit]


def parse_judgment(text: str) -> ParsedJudgment:
    """The two scores of a judgment.

    Score lines stand at the start of a line as ``Response A Score: 3`` (case, bold, ``3/5`` and ``3.5`` are
    accepted; a number on the line below counts where it stands alone). ``failure`` is ``no_score_a``,
    ``no_score_b``, ``no_scores``, ``out_of_range`` (also for another scale, ``3/10``) or ``ambiguous`` (a response
    scored twice, differently, or with a range, ``3-4``). Nothing is guessed.
    """
    found: dict[str, float] = {}
    places: dict[str, int] = {}
    for match in _SCORE.finditer(text):
        if match["score"] is None:
            continue
        if match["scale"] is not None and float(match["scale"]) != HIGHEST:
            return ParsedJudgment(None, None, "out_of_range")
        written = match["score"].lstrip(" \n\r\t*_[(")
        side, score = match["side"].lower(), float(written.replace(",", "."))
        places.setdefault(side, match.end("score") - len(written))
        if match["range"] is not None or found.setdefault(side, score) != score:
            return ParsedJudgment(None, None, "ambiguous")
    missing = [side for side in "ab" if side not in found]
    if missing:
        return ParsedJudgment(None, None, "no_scores" if len(missing) == 2 else f"no_score_{missing[0]}")
    if not all(LOWEST <= score <= HIGHEST for score in found.values()):
        return ParsedJudgment(None, None, "out_of_range")
    return ParsedJudgment(found["a"], found["b"], places=(places["a"], places["b"]))


def render_criteria(criteria: list[str]) -> str:
    """A numbered list, as a judge is taught to write it."""
    return "\n".join(f"{i}. {criterion}" for i, criterion in enumerate(criteria, start=1))


def render_judgment(first: float, second: float, analysis_a: str, analysis_b: str, comparison: str) -> str:
    """A judgment in the output contract; :func:`parse_judgment` reads its scores back."""
    return (
        f"Response A Score: {first:g}\nAnalysis of Response A: {analysis_a}\n"
        f"Response B Score: {second:g}\nAnalysis of Response B: {analysis_b}\nComparison: {comparison}"
    )
