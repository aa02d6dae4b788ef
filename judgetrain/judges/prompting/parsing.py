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

from judgetrain.amounts import amount
from judgetrain.engines.base import UNANSWERED, Completion
from judgetrain.engines.confusables import fold
from judgetrain.engines.prompting import NO_ANSWER
from judgetrain.rubrics import HIGHEST, LOWEST
from judgetrain.thoughts import answer_start

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
"""The part of a frame that stands for a score. The first is the score of the response shown first."""
_WORDS = re.compile(r"[\w :]+")
"""The part of a frame that stands for itself alone."""
LINE_END = re.compile(r"(?<!\^)\\n")
"""The line breaks of a frame; that of ``[^\\n]`` is none."""
# "4", "4.5" and "4/5", and also numbers that are out of range, so that they can be named as such.
_NUMBER = re.compile(r"(?P<score>[-+]?\d{1,9}(?:\.\d{1,18})?)(?: ?/ ?(?P<scale>\d{1,9}))?")


@dataclass(frozen=True)
class _Line:
    """A line of a frame.

    Args:
        pattern: matches the whole line.
        label: matches what stands before the line's score; None: the line holds no score.
        side: ``a`` or ``b``, the response whose score it holds; empty: none.
    """

    pattern: re.Pattern[str]
    label: re.Pattern[str] | None = None
    side: str = ""


@dataclass(frozen=True)
class ParsedJudgment:
    """Scores of the responses in the order shown, or the reason why they could not be read.

    Args:
        first: the score of the response shown first, 1 to 5.
        second: the score of the other one; None where one response is shown.
        failure: the reason; None where scores were read.
        places: where in the text the scores stand, characters.
        levels: the probabilities of 1 to 5 where one response is scored by them; None elsewhere.
    """

    first: float | None
    second: float | None
    failure: str | None = None
    places: tuple[int, ...] | None = field(default=None, compare=False)
    levels: tuple[float, ...] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Frame:
    """Reads judgments by a frame.

    Args:
        source: a regular expression with one line for each response's score.
        responses: how many responses are scored, 1 or 2.

    Raises:
        ValueError: it is no regular expression, or has too few or too many lines for scores.
    """

    source: str
    responses: int = 2

    def __post_init__(self) -> None:
        try:
            sides = [line.side for line in self._lines if line.side]
        except re.error as error:
            raise ValueError(f"expected a regular expression, line by line: {error}") from error
        # Checked when the frame is made, so that a wrong prompt set is refused before a model is asked.
        if self.responses == 2 and sides != ["a", "b"]:
            raise ValueError(f"expected two lines with one {_SCORE} each, A's first; found {len(sides)}")
        if self.responses == 1 and sides != ["a"]:
            raise ValueError(f"expected one line with a {_SCORE}; found {len(sides)}")

    @cached_property
    def _lines(self) -> tuple[_Line, ...]:
        """Return the frame's lines, which accept any case, any length and no blank after a colon."""
        lines: list[_Line] = []
        # A third score has a side of its own, so that a frame with one too many is refused.
        sides = iter("abc")
        for line in LINE_END.split(self.source):
            # The width bounds constrained decoding alone: a longer text is read, too.
            loose = line.replace("{1,{width}}", "*").replace(": ", ": ?")
            label, score, _ = loose.partition(_SCORE)
            if not score:
                lines.append(_Line(re.compile(loose, re.IGNORECASE)))
                continue
            pattern = re.compile(loose.replace(_SCORE, _NUMBER.pattern), re.IGNORECASE)
            lines.append(_Line(pattern, re.compile(label, re.IGNORECASE), next(sides, "c")))
        return tuple(lines)

    @property
    def before_score(self) -> str | None:
        """Return the words of a judgment up to its first score; None where other text may stand before it."""
        words, _, _ = self.source.partition(_SCORE)
        if _WORDS.fullmatch(words):
            return words
        return None

    def begins(self, text: str) -> bool:
        """Return whether a text's first line is one that the frame may begin with."""
        for _, line, _ in _lines_of(fold(text).text):
            return self._match_next(line, 0) is not None
        return False

    def read(self, text: str) -> ParsedJudgment:
        """Return the scores of an answer (without the reasoning before it), as it looks.

        Every line must be the frame's next one. Lines without a score may be left out; blank lines, emphasis, case and
        ``/5`` after a score make no difference. ``failure`` is ``no_scores`` (none at all), ``no_score_a``,
        ``no_score_b``, ``out_of_range`` (another scale, too), ``ambiguous`` (more on a score's line than the score, or
        another line for a score) or ``off_frame`` (a line that the frame does not have there).
        """
        # Read as it looks: full-width digits and invisible characters make no difference to a reader.
        folded = fold(text)
        next_line = 0
        values: list[float] = []
        places: list[int] = []
        for start, line, columns in _lines_of(folded.text):
            line_match = self._match_next(line, next_line)
            if line_match is None:
                return ParsedJudgment(None, None, self._departure(folded.text, line, len(values)))
            next_line, match = line_match
            if "score" not in match.re.groupindex:
                continue
            if not _in_range(match):
                return ParsedJudgment(None, None, "out_of_range")
            values.append(float(match["score"]))
            # Folding and emphasis move characters: a place is wanted in the text as it was generated.
            places.append(folded.places[start + columns[match.start("score")]])

        if not values:
            return ParsedJudgment(None, None, "no_scores")
        if len(values) < self.responses:
            # Lines must come in the frame's order, so that a score that is missing at the end is the second one.
            return ParsedJudgment(None, None, "no_score_b")
        second = None
        if self.responses > 1:
            second = values[1]
        return ParsedJudgment(values[0], second, places=tuple(places))

    def _match_next(self, line: str, start: int) -> tuple[int, re.Match[str]] | None:
        """Return the number of the frame's line after the one that a line of a text matches, and the match.

        Args:
            line: of the text.
            start: the number of the first line of the frame that it may match.
        """
        for number, expected in enumerate(self._lines[start:], start=start + 1):
            match = expected.pattern.fullmatch(line)
            if match:
                return number, match
            # A line with a score cannot be left out.
            if expected.side:
                return None
        return None

    def _departure(self, text: str, line: str, scores: int) -> str:
        """Return why a judgment is unreadable whose line is not the frame's next one.

        Args:
            text: the whole answer.
            line: the line.
            scores: how many scores were read before it.
        """
        labels = [frame_line.label for frame_line in self._lines if frame_line.label]
        # A text without a score's line anywhere is another kind of text, whatever its first odd line is.
        if not any(label.match(other) for _, other, _ in _lines_of(text) for label in labels):
            return "no_scores"

        for side, label in enumerate(labels):
            label_match = label.match(line)
            if label_match is None:
                continue
            number = _NUMBER.match(line, label_match.end())
            if number and not _in_range(number):
                return "out_of_range"
            # The line is the next score's without a number, or that of a later score: the next one is missing.
            if side > scores or (side == scores and not number):
                if self.responses == 1:
                    return "no_scores"
                return f"no_score_{'ab'[scores]}"
            return "ambiguous"
        return "off_frame"


@lru_cache(maxsize=64)
def frame_of(source: str, responses: int = 2) -> Frame:
    """Return the :class:`Frame` of a regular expression, made once."""
    return Frame(source, responses)


def _in_range(match: re.Match[str]) -> bool:
    """Return whether a score is on the scale of 1 to 5, which ``/5`` behind it may name."""
    return LOWEST <= float(match["score"]) <= HIGHEST and float(match["scale"] or HIGHEST) == HIGHEST


def _lines_of(text: str) -> Iterator[tuple[int, str, list[int]]]:
    """Yield the lines of a text that are not blank, without emphasis and with single blanks.

    Each comes as the place in the text where it begins, the line, and the column where each of its characters stood.
    """
    start = 0
    for line in text.split("\n"):
        columns: list[int] = []
        for column, character in enumerate(line):
            if character in "*`":
                continue
            follows_blank = not columns or line[columns[-1]] in " \t"
            if character in " \t" and follows_blank:
                continue
            columns.append(column)
        bare = "".join(line[column] for column in columns).replace("\t", " ").rstrip()
        if bare:
            yield start, bare, columns
        start += len(line) + 1


# Quantifiers are possessive (``*+``) where what follows could match the same characters: a line of blanks is read once.
# "1. Name", "**2)** Name", "Criterion 3: Name".
_NUMBERED = re.compile(
    r"^(?P<indent>\s*+)#*+\s*+(?:[-*\u2022]\s++)?(?P<mark>\*\*|__)?\s*+(?:criterion\s*+)?"
    r"\(?\d++\s*+\\?[.):\u3001\uff0e\uff1a](?!\d)\s*+(?P<content>.+)$",
    re.IGNORECASE,
)
# "- Name"; a star needs a blank behind it, as it may be emphasis.
_BULLET = re.compile(r"^(?P<indent>\s*+)(?P<mark>\*\*|__)?\s*+(?:[-\u2022]\s*+|\*\s++)(?P<content>.+)$")
# "Criterion: Name".
_PREFIX = re.compile(r"^criterion\s*+:\s*+(?=\w)", re.IGNORECASE)
# "**Name**" at the beginning of an item.
_EMPHASIS = re.compile(r"(?P<mark>\*{1,3}|__)(?=[^\s*])(?P<name>(?:(?!(?P=mark)).)*?[^\s*])(?P=mark)")
# What ends a name: a colon, a dash, a bracket or the end of the line.
_AFTER_NAME = re.compile(r"\s*+(?:[:\uff1a\u2013\u2014(\-]|$)")
# Between two underscores on either side: a name of Python, and no emphasis.
_DUNDER = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*")
NESTED = 2
"""Columns: a line that stands this much deeper than its list's first item is a remark on the item above."""


def normalise(criterion: str) -> str:
    """Return a criterion's name for finding repeats: the words before the first colon, case- and width-folded."""
    # Two criteria of one name are one, however they are explained.
    name = re.split(r"[:\u2014]|\s[-\u2013]\s", unicodedata.normalize("NFKC", criterion), maxsplit=1)[0]
    return " ".join(re.findall(r"\w+", name.casefold()))


def parse_criteria(text: str, limit: int, material: str = "") -> list[str]:
    """Return the criteria of a numbered or bulleted list, in order, without repeats; at most ``limit``.

    Left out are reasoning before the list (:func:`answer_start`; ``material`` is the dialogue), bullets under a
    numbered list and lines that stand deeper than its first item, lines quoted with ``>``, emphasis around a whole
    name, and ``Criterion:`` before the names of several items.
    """
    return [criterion for criterion, _ in listed_criteria(text, material)[:limit]]


def listed_criteria(text: str, material: str = "") -> list[tuple[str, int]]:
    """Return all criteria that :func:`parse_criteria` reads, each with the place in ``text`` where its line ends."""
    # By name, the first of equal ones counts.
    criteria: dict[str, tuple[str, int]] = {}
    for content, end in listed_items(text, material):
        criteria.setdefault(normalise(content), (content, end))
    return list(criteria.values())


def listed_items(text: str, material: str = "") -> list[tuple[str, int]]:
    """Return every item of a list of criteria, also a repeated one, with the place in ``text`` where its line ends."""
    start = answer_start(text, material)
    if start is None:
        return []
    lines = []
    end = start
    for line in text[start:].splitlines(keepends=True):
        end += len(line)
        lines.append((line.rstrip("\r\n"), end))

    # Bullets under a numbered list are remarks; only where nothing is numbered are they the items.
    matches = _matches(_NUMBERED, lines) or _matches(_BULLET, lines)
    if not matches:
        return []
    first_match, _ = matches[0]
    deepest = _depth(first_match) + NESTED
    items = [(_content(match), end) for match, end in matches if _depth(match) < deepest]

    # Before one item alone, "Criterion:" may be part of the name.
    prefixed = sum(bool(_PREFIX.match(content)) for content, _ in items)
    if prefixed > 1:
        items = [(_plain(_PREFIX.sub("", content)), end) for content, end in items]
    return [(content, end) for content, end in items if normalise(content)]


def _matches(pattern: re.Pattern[str], lines: Iterable[tuple[str, int]]) -> list[tuple[re.Match[str], int]]:
    """Return the matches of lines, each with the place where its line ends."""
    matches = []
    for line, end in lines:
        match = pattern.match(line)
        if match:
            matches.append((match, end))
    return matches


def _depth(match: re.Match[str]) -> int:
    """Return how many columns a list's item is indented."""
    return len(match["indent"].expandtabs())


def _content(match: re.Match[str]) -> str:
    """Return a list item's text."""
    content = match["content"]
    if match["mark"]:
        # Emphasis began before the item's number: its other end stands in the text.
        content = content.replace(match["mark"], "", 1)
    return _plain(content.strip())


def _plain(content: str) -> str:
    """Return a criterion without emphasis around its whole name; ``__init__`` is a name and stays."""
    while match := _EMPHASIS.match(content):
        name = match["name"]
        rest = content[match.end() :]
        is_whole_name = name.endswith((":", "\uff1a")) or _AFTER_NAME.match(rest)
        is_dunder = match["mark"] == "__" and _DUNDER.fullmatch(name)
        if not is_whole_name or is_dunder:
            break
        content = f"{name}{rest}".strip()
    return content


def parse_judgment(text: str, material: Iterable[str] = (), frame: str = FRAME, responses: int = 2) -> ParsedJudgment:
    """Return the scores of a judgment that follows its prompt set's ``frame`` from the first line to the last.

    ``failure`` is ``no_answer`` (the reasoning never ended) or one of
    :meth:`~judgetrain.judges.prompting.parsing.Frame.read`.

    Args:
        text: what the model generated. Reasoning before the answer is left out.
        material: the texts that are judged, which may hold marks of reasoning.
        frame: the prompt set's.
        responses: how many responses are scored, 1 or 2.
    """
    set_frame = frame_of(frame, responses)
    frames = [set_frame]
    if responses == 2:
        # A judge that teacher=given taught writes this form, whatever its prompt set.
        frames.append(frame_of(VERDICT_FIRST))

    # An answer that begins in the frame is read from its first character: marks of reasoning in it are quotations.
    start: int | None = 0
    if not any(form.begins(text) for form in frames):
        start = answer_start(text, "\n".join(material))
    if start is None:
        return ParsedJudgment(None, None, NO_ANSWER)

    answer = text[start:]
    # An answer that begins like neither is read by the set's own frame, whose reasons users know.
    chosen = next((form for form in frames if form.begins(answer)), set_frame)
    parsed = chosen.read(answer)
    if parsed.places is None:
        return parsed
    return replace(parsed, places=tuple(start + place for place in parsed.places))


def render_criteria(criteria: list[str]) -> str:
    """Return a numbered list, as a judge is taught to write it; :func:`parse_criteria` reads it back."""
    lines = []
    for number, criterion in enumerate(criteria, start=1):
        # A criterion of several lines would be read back as its first one.
        lines.append(f"{number}. {' '.join(criterion.splitlines())}")
    return "\n".join(lines)


def read_by_frames(level: str, text: str, frames: Mapping[str, str]) -> str:
    """Return in words what a reply was read as.

    Args:
        level: the reply's (``criteria``, ``guideline`` or ``judgment``).
        text: the reply.
        frames: the prompt set's, by step.
    """
    if level == "criteria":
        return amount(len(listed_criteria(text)), "criterion")
    if level == "guideline":
        if text.strip():
            return "a guideline"
        return "nothing"
    parsed = parse_judgment(text, frame=frames["judgment"])
    # A judge of single responses writes the other form.
    if parsed.failure:
        parsed = parse_judgment(text, frame=frames["score"], responses=1)
    if parsed.failure:
        return parsed.failure
    return " and ".join(f"{score:g}" for score in (parsed.first, parsed.second) if score is not None)


SCORES = tuple(str(score) for score in range(int(LOWEST), int(HIGHEST) + 1))
"""The tokens of scores, whose probabilities weigh them in an expected score."""
SIDES = ("A", "B")
"""The letters whose probabilities are weighed where a judgment says who is better before it scores."""
_WHOLE = {float(score) for score in SCORES}
_BETTER = re.compile(r"(?<!\w)(?P<side>[AB]) is better\b")


def read_judgment(
    completion: Completion, score: str, material: Iterable[str] = (), frame: str = FRAME, responses: int = 2
) -> ParsedJudgment:
    """Return the scores in the order shown, or why there are none.

    With ``score=expected`` a score is the mean of 1 to 5 weighted by the probabilities of their tokens at its
    position, a real number, so that fewer judgments are ties. A judgment that says who is better before it scores
    ("Comparison: A is better.") has its doubt in that letter, from which its scores follow: they are mixed with the
    same scores exchanged, by the letters' probabilities. Reasons are those of :func:`parse_judgment`; ``cut_off``, a
    reply that did not reach its normal end; and ``no_probabilities``, an engine that reported none for a score.

    Args:
        completion: the reply, and the probabilities that the engine reported.
        score: ``parsed`` or ``expected``.
        material: the texts that are judged.
        frame: the prompt set's.
        responses: how many responses are scored, 1 or 2.
    """
    if completion.finish_reason != "stop":
        # What ends at a limit may lack its second score.
        return ParsedJudgment(None, None, "cut_off")
    parsed = parse_judgment(completion.text, material, frame, responses)
    if parsed.places is None or score == "parsed":
        return parsed

    # The probabilities are of digits; those of the 3 in 3.5 say nothing of the rest.
    is_whole = {parsed.first, parsed.second} <= {*_WHOLE, None}
    probabilities = {choice.at: choice.probabilities for choice in completion.choices}
    means = [_mean(probabilities[place]) for place in parsed.places if place in probabilities]
    if len(means) < responses or not is_whole:
        return ParsedJudgment(None, None, "no_probabilities")
    if responses == 1:
        (place,) = parsed.places
        return ParsedJudgment(means[0], None, places=parsed.places, levels=_levels(probabilities[place]))

    first, second = means
    better = "B"
    if first > second:
        better = "A"
    before_scores = completion.text[: min(parsed.places)]
    certainty = _certainty(before_scores, probabilities, better)
    return ParsedJudgment(_mixed(first, second, certainty), _mixed(second, first, certainty), places=parsed.places)


def read_score(completion: Completion) -> ParsedJudgment:
    """Return the expected score of a completion that is a score alone, or why there is none.

    Reasons are the completion's own where it holds no text; ``no_scores``, the model wrote something else.

    Args:
        completion: the one token behind the beginning of a judgment, and the probabilities that the engine reported.
    """
    if completion.finish_reason in UNANSWERED:
        return ParsedJudgment(None, None, completion.finish_reason)
    if completion.text.strip() not in SCORES:
        return ParsedJudgment(None, None, "no_scores")
    if not completion.choices:
        return ParsedJudgment(None, None, "no_probabilities")
    probabilities = completion.choices[0].probabilities
    return ParsedJudgment(_mean(probabilities), None, levels=_levels(probabilities))


def _mixed(score: float, exchanged: float, certainty: float) -> float:
    """Return a score mixed with the other response's, which it would be if the other letter had come."""
    return round(certainty * score + (1.0 - certainty) * exchanged, 6)


def _certainty(before: str, probabilities: Mapping[int, tuple[float, ...]], better: str) -> float:
    """Return the probability, 0 to 1, of the letter that names the better response before the scores.

    It is 1 where no letter does, or another one than the scores, and where the engine reported nothing of it.

    Args:
        before: the text before the first score.
        probabilities: of the scores and letters, by their place in the text.
        better: the letter of the response with the higher score.
    """
    match = _BETTER.search(before)
    if match is None or match["side"] != better:
        return 1.0
    # Behind the digits' probabilities stand those of the letters.
    letters = probabilities.get(match.start(), ())[len(SCORES) :]
    total = math.fsum(letters)
    if total <= 0.0:
        return 1.0
    return letters[SIDES.index(better)] / total


def _levels(probabilities: tuple[float, ...]) -> tuple[float, ...]:
    """Return the probabilities of the digits among each other, which sum to 1."""
    digits = probabilities[: len(SCORES)]
    total = math.fsum(digits)
    return tuple(round(chance / total, 6) for chance in digits)


def _mean(probabilities: tuple[float, ...]) -> float:
    """Return the mean score by the probabilities of the digits, which come before those of the letters."""
    digits = probabilities[: len(SCORES)]
    weighted = math.fsum(int(score) * chance for score, chance in zip(SCORES, digits, strict=True))
    return round(weighted / math.fsum(digits), 6)
