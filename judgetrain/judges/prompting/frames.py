"""The frame of a judgment: what each of its lines begins with, and which of them hold a score.

A prompt set gives its frame as one regular expression. Constrained decoding enforces it; :class:`Frame` reads by it.
It is strict: a reply that departs from it is unreadable, by reason. What words mean is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from judgetrain.engines.confusables import fold
from judgetrain.rubrics import HIGHEST, LOWEST

FRAME = (
    r"Response A Score: [1-5]\nAnalysis of Response A: [^\n]{1,{width}}\n"
    r"Response B Score: [1-5]\nAnalysis of Response B: [^\n]{1,{width}}\nComparison: [^\n]{1,{width}}"
)
"""The form of a judgment of two responses; a set's step ``judgment`` may carry its own as ``frame``."""

SCORE_FRAME = r"Score: [1-5]\nAnalysis: [^\n]{1,{width}}"
"""The form of a judgment of one response; a set's step ``score`` may carry its own as ``frame``."""

VERDICT_FIRST = (
    r"Comparison: (?:[AB] is better|both are equal)\.\n"
    r"Response A Score: [1-5]\nResponse B Score: [1-5]\nReason: [^\n]{1,{width}}"
)
"""The form that ``teacher=given`` teaches, whatever the prompt set; read beside the set's own."""

_SCORE = "[1-5]"
"""What stands for a score in a frame. The first is the score of the response shown first."""
LINE_END = re.compile(r"(?<!\^)\\n")
_NUMBER = re.compile(r"(?P<score>[-+]?\d{1,9}(?:\.\d{1,18})?)(?: ?/ ?(?P<scale>\d{1,9}))?")


@dataclass(frozen=True)
class _Line:
    """A line of a frame; ``side`` is the response whose score it holds, ``label`` what stands before that score."""

    pattern: re.Pattern[str]
    label: re.Pattern[str] | None = None
    side: str = ""


@dataclass(frozen=True)
class Scores:
    """The scores in the order shown and where each begins, in characters; or why there are none."""

    values: tuple[float, ...] = ()
    places: tuple[int, ...] = ()
    failure: str | None = None


@dataclass(frozen=True)
class Frame:
    """Reads judgments by a frame.

    Raises:
        ValueError: ``source`` is no regular expression line by line, or has not one line with a score a response.
    """

    source: str
    responses: int = 2

    def __post_init__(self) -> None:
        try:
            sides = [line.side for line in self._lines if line.side]
        except re.error as error:
            raise ValueError(f"expected a regular expression, line by line: {error}") from error
        if sides != ["a", "b"][: self.responses]:
            wanted = "two lines with one {} each, A's first" if self.responses == 2 else "one line with a {}"
            raise ValueError(f"expected {wanted.format(_SCORE)}; found {len(sides)}")

    @cached_property
    def _lines(self) -> tuple[_Line, ...]:
        found: list[_Line] = []
        sides = iter("abc")
        for line in LINE_END.split(self.source):
            loose = line.replace("{1,{width}}", "*").replace(": ", ": ?")
            label, score, _ = loose.partition(_SCORE)
            if not score:
                found.append(_Line(re.compile(loose, re.IGNORECASE)))
                continue
            whole = re.compile(loose.replace(_SCORE, _NUMBER.pattern), re.IGNORECASE)
            found.append(_Line(whole, re.compile(label, re.IGNORECASE), next(sides, "c")))
        return tuple(found)

    def begins(self, text: str) -> bool:
        """Whether a text's first line is one that the frame may begin with."""
        first = next(_lines_of(fold(text).text), None)
        return first is not None and self._next(first[1], 0) is not None

    def read(self, text: str) -> Scores:
        """The scores of an answer (without the reasoning before it), as it looks.

        Every line must be the frame's next one. Lines without a score may be left out; blank lines, emphasis, case and
        ``/5`` after a score make no difference. ``failure`` is ``no_scores`` (none at all), ``no_score_a``,
        ``no_score_b``, ``out_of_range`` (another scale, too), ``ambiguous`` (more on a score's line than the score, or
        another line for a score) or ``off_frame`` (a line that the frame does not have there).
        """
        looks, due = fold(text), 0
        values: list[float] = []
        places: list[int] = []
        for start, line, kept in _lines_of(looks.text):
            found = self._next(line, due)
            if found is None:
                return Scores(failure=self._departure(looks.text, line, len(values)))
            due, match = found
            if match.re.groupindex.get("score"):
                if not _in_range(match):
                    return Scores(failure="out_of_range")
                values.append(float(match["score"]))
                places.append(looks.places[start + kept[match.start("score")]])
        if len(values) < self.responses:
            return Scores(failure="no_score_b" if values else "no_scores")
        return Scores(tuple(values), tuple(places))

    def _next(self, line: str, due: int) -> tuple[int, re.Match[str]] | None:
        """The frame's line that this is, from ``due`` on, and the number of the one after it."""
        for number, expected in enumerate(self._lines[due:], start=due + 1):
            if match := expected.pattern.fullmatch(line):
                return number, match
            if expected.side:  # a score cannot be left out
                return None
        return None

    def _departure(self, text: str, line: str, given: int) -> str:
        """Why a line that is not the frame's next one leaves a judgment unread."""
        labels = [each.label for each in self._lines if each.label]
        if not any(label.match(other) for _, other, _ in _lines_of(text) for label in labels):
            return "no_scores"
        for side, label in enumerate(labels):
            if begun := label.match(line):
                number = _NUMBER.match(line, begun.end())
                if number and not _in_range(number):
                    return "out_of_range"
                if side > given or (side == given and not number):
                    return f"no_score_{'ab'[given]}" if self.responses > 1 else "no_scores"
                return "ambiguous"
        return "off_frame"


@lru_cache(maxsize=64)
def frame_of(source: str, responses: int = 2) -> Frame:
    """The :class:`Frame` of a regular expression, made once."""
    return Frame(source, responses)


def _in_range(match: re.Match[str]) -> bool:
    return LOWEST <= float(match["score"]) <= HIGHEST and float(match["scale"] or HIGHEST) == HIGHEST


def _lines_of(text: str) -> Iterator[tuple[int, str, list[int]]]:
    """The lines of a text that are not blank, without emphasis and with single blanks: where each begins in the text,
    what it says, and where in the line each of its characters stood."""
    start = 0
    for line in text.split("\n"):
        kept: list[int] = []
        for at, char in enumerate(line):
            blank = char in " \t"
            if char not in "*`" and not (blank and (not kept or line[kept[-1]] in " \t")):
                kept.append(at)
        bare = "".join(line[at] for at in kept).replace("\t", " ").rstrip()
        if bare:
            yield start, bare, kept
        start += len(line) + 1
