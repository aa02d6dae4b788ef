"""Reading what a judge wrote: criteria lists and judgments. Generated text only, never the prompt.

A prompt set gives the frame of its judgments as one regular expression: what each line begins with, and which hold a
score. Constrained decoding enforces it; :class:`Frame` reads by it. It is strict: a reply that departs from it is
unreadable, by reason. What words mean is never guessed. Scores are read off the text, or expected under the model's own
probabilities.
"""

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import accumulate

from judgetrain.engines.base import Completion
from judgetrain.engines.confusables import fold
from judgetrain.engines.prompting import NO_ANSWER, answer_start
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
class ParsedJudgment:
    """Scores of the responses in the order shown, or the reason why they could not be read.

    ``second`` is None where one response is shown. ``places``: where in the text the scores stand, in characters.
    """

    first: float | None
    second: float | None
    failure: str | None = None
    places: tuple[int, ...] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Frame:
    """Reads judgments by a frame: a regular expression with one line for each response's score (else a ValueError)."""

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

    def read(self, text: str) -> ParsedJudgment:
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
                return ParsedJudgment(None, None, self._departure(looks.text, line, len(values)))
            due, match = found
            if match.re.groupindex.get("score"):
                if not _in_range(match):
                    return ParsedJudgment(None, None, "out_of_range")
                values.append(float(match["score"]))
                places.append(looks.places[start + kept[match.start("score")]])
        if len(values) < self.responses:
            return ParsedJudgment(None, None, "no_score_b" if values else "no_scores")
        return ParsedJudgment(values[0], values[1] if self.responses > 1 else None, places=tuple(places))

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
    :meth:`~judgetrain.judges.prompting.parsing.Frame.read`.
    """
    own = frame_of(frame, responses)
    first = frame_of(VERDICT_FIRST) if responses == 2 else own
    start = 0 if own.begins(text) or first.begins(text) else answer_start(text, "\n".join(material))
    if start is None:
        return ParsedJudgment(None, None, NO_ANSWER)
    answer = text[start:]
    read = (first if first.begins(answer) and not own.begins(answer) else own).read(answer)
    return replace(read, places=read.places and tuple(start + at for at in read.places))


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


SCORES = tuple(str(score) for score in range(int(LOWEST), int(HIGHEST) + 1))
"""The score tokens whose probabilities the expected score weighs."""
SIDES = ("A", "B")
"""The letters whose probabilities are weighed where a judgment says who is better before it scores."""
_WHOLE = {float(score) for score in SCORES}
_SAID = re.compile(r"(?<!\w)(?P<side>[AB]) is better\b")


def read_judgment(
    completion: Completion, score: str, material: Iterable[str] = (), frame: str = FRAME, responses: int = 2
) -> ParsedJudgment:
    """The scores in the order shown, or why there are none.

    With ``score=expected`` a score is the mean of 1 to 5 weighted by the probabilities of their tokens at its
    position, a real number, so that fewer judgments are ties. A judgment that says who is better before it scores
    ("Comparison: A is better.") has its doubt in that letter, from which its scores follow: they are mixed with the
    same scores exchanged, by the letters' probabilities. Reasons are those of :func:`parse_judgment`; ``cut_off``, a
    reply that did not reach its normal end; and ``no_probabilities``, an engine that reported none for a score.

    ``material``: the texts that are judged; ``frame``: the prompt set's.
    """
    if completion.finish_reason != "stop":
        return ParsedJudgment(None, None, "cut_off")
    parsed = parse_judgment(completion.text, material, frame, responses)
    if parsed.places is None or score == "parsed":
        return parsed
    chances = {choice.at: choice.probabilities for choice in completion.choices}
    at_scores = [chances.get(place) for place in parsed.places]
    whole = {parsed.first, parsed.second} <= {*_WHOLE, None}  # a digit of 3.5 says nothing of the rest
    found = [_mean(each) for each in at_scores if each is not None]
    if len(found) < responses or not whole:
        return ParsedJudgment(None, None, "no_probabilities")
    if responses == 1:
        return ParsedJudgment(found[0], None, places=parsed.places)
    own, other = found
    sure = _sure(completion.text[: min(parsed.places)], chances, "A" if own > other else "B")
    return ParsedJudgment(_mixed(own, other, sure), _mixed(other, own, sure), places=parsed.places)


def _mixed(score: float, exchanged: float, sure: float) -> float:
    return round(sure * score + (1.0 - sure) * exchanged, 6)


def _sure(before: str, chances: Mapping[int, tuple[float, ...]], better: str) -> float:
    """The probability of the letter that says the better one before the scores; 1 where none is said, or another."""
    said = _SAID.search(before)
    letters = chances.get(said.start(), ())[len(SCORES) :] if said and said["side"] == better else ()
    return letters[SIDES.index(better)] / total if (total := math.fsum(letters)) > 0.0 else 1.0


def _mean(chances: tuple[float, ...]) -> float:
    digits = chances[: len(SCORES)]
    return round(math.fsum(int(s) * p for s, p in zip(SCORES, digits, strict=True)) / math.fsum(digits), 6)
