"""Criteria that a judge scores by, with weights, scales and guidelines; people give them or a model writes them."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from itertools import pairwise
from typing import Any, Literal

from judgetrain.errors import DataError

Source = Literal["given", "judge", "teacher"]
"""Who wrote a criterion: people, the judge itself, or a teacher model."""

# The range of the scores that a judge writes, whatever a criterion's own scale (branching paper, table 10).
LOWEST = 1.0
HIGHEST = 5.0

EQUAL = 1e-12
"""Weighted means are equal where they differ by at most this share of the scale.

Weights such as 0.1 are no binary fractions, so that sums that are equal in decimals differ in their last bits. Those
differences are below 1e-14, and differences that weights and scores can make are far above 1e-12.
"""


@dataclass(frozen=True)
class Level:
    """A level of a criterion's scale: its score, and how a response at this level looks (empty: not described)."""

    score: float
    text: str = ""


SCALE = tuple(Level(float(score)) for score in range(int(LOWEST), int(HIGHEST) + 1))
"""The default scale, 1 to 5."""


@dataclass(frozen=True)
class Criterion:
    """One thing that a response is scored on.

    Args:
        text: what to look for, in a sentence or two.
        name: a short name, unique in its rubric; empty where there is none.
        weight: its weight in a mean; negative for what a response must not do.
        scale: its levels, the worst first. A judge writes scores from 1 to 5 whatever the scale: 1 stands for the first
            level, 5 for the last, and the others are spread evenly between them.
        guideline: how a response at each score looks, beside the levels' texts. None: these describe it, or the judge
            writes one.
        source: who wrote it.

    Raises:
        DataError: there is no text, or what is given is none, the weight is 0 or not finite, or there are not two
            rising levels at least.
    """

    text: str
    _: KW_ONLY
    name: str = ""
    weight: float = 1.0
    scale: tuple[Level, ...] = SCALE
    guideline: str | None = None
    source: Source = "given"

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise DataError(f"text: expected a text, found {type(self.text).__name__} {self.text!r:.60}")
        if not self.text.strip():
            raise DataError("text: expected what to look for, found nothing")
        if not math.isfinite(self.weight) or self.weight == 0:
            raise DataError(f"weight: expected a number other than 0, found {self.weight}")

        scores = [level.score for level in self.scale]
        if len(scores) < 2 or any(not math.isfinite(score) for score in scores):
            raise DataError(f"scale: expected two levels or more, each with a number; found {scores}")
        if any(after <= before for before, after in pairwise(scores)):
            raise DataError(f"scale: expected levels from the lowest to the highest; found {scores}")

    @property
    def line(self) -> str:
        """Return the criterion in one line, as judges list it: its name, a colon and its text."""
        line = self.text
        # The text may open with the name already, as a judge itself lists criteria.
        if self.name and not self.text.startswith(f"{self.name}:"):
            line = f"{self.name}: {self.text}"
        return " ".join(line.split())

    @property
    def stated_guideline(self) -> str | None:
        """Return the scoring guideline, and below it the levels' texts; None where neither says anything.

        A level has a line, the best first, with the level's score on a judge's scale. Lines that the guideline has
        already are not said again.
        """
        step = (HIGHEST - LOWEST) / (len(self.scale) - 1)
        lines = []
        for index, level in enumerate(self.scale):
            text = level.text.strip()
            if text:
                lines.append(f"{LOWEST + index * step:.2g}: {text}")
        stated = []
        if self.guideline and self.guideline.strip():
            stated.append(self.guideline)
            lines = [line for line in lines if line not in self.guideline]
        stated += reversed(lines)
        if not stated:
            return None
        return "\n".join(stated)

    def share(self, score: float) -> float:
        """Return where a judge's score (1 to 5) lies between the worst level (0) and the best level (1).

        The levels' own scores count: on a scale of 0, 1 and 10, a judge's 3 is the second level and gives 0.1.
        """
        return share_on(self.scores, score)

    def level(self, score: float) -> float:
        """Return a judge's score (1 to 5) on the criterion's own scale, interpolated between its levels."""
        return level_on(self.scores, score)

    @property
    def scores(self) -> tuple[float, ...]:
        """Return the scores of the levels, the worst first."""
        return tuple(level.score for level in self.scale)

    @property
    def is_even(self) -> bool:
        """Return whether levels are evenly spread, so that where a score lies does not depend on the scale."""
        return all(abs(self.share(level.score) - share(level.score)) <= EQUAL for level in SCALE)


@dataclass(frozen=True)
class Rubric:
    """An ordered list of criteria, the most important first.

    Raises:
        DataError: there is no criterion, one is no :class:`Criterion`, or two have the same name (the same text, where
            they have no names).
    """

    criteria: tuple[Criterion, ...]

    def __post_init__(self) -> None:
        if not self.criteria:
            raise DataError("a rubric needs a criterion at least, found none")

        for criterion in self.criteria:
            if not isinstance(criterion, Criterion):
                raise DataError(
                    "criteria: expected records of Criterion, as Criterion('is right'), found "
                    f"{type(criterion).__name__} {criterion!r:.60}"
                )
        # A list would make a rubric that cannot be a key, as rewards need it.
        object.__setattr__(self, "criteria", tuple(self.criteria))

        earlier_names: set[str] = set()
        for criterion in self.criteria:
            label = criterion.name or criterion.text
            name = " ".join(label.split()).casefold()
            if name in earlier_names:
                raise DataError(f"two criteria are called {label!r}")
            earlier_names.add(name)

    def for_query(self, query: str) -> "Rubric":
        """Return the criteria that responses to a query are judged by: these, whatever it asks."""
        return self

    def to_row(self) -> list[dict[str, Any]]:
        """Return a list for JSON; the inverse of :meth:`from_row`."""
        return [asdict(criterion) for criterion in self.criteria]

    @property
    def content(self) -> list[dict[str, Any]]:
        """Return all that decides by what responses are judged, as JSON values."""
        return self.to_row()

    @classmethod
    def from_row(cls, rows: Sequence[Mapping[str, Any]]) -> "Rubric":
        """Return the rubric that :meth:`to_row` wrote."""
        return cls(tuple(map(criterion_of, rows)))


def criterion_of(row: Mapping[str, Any]) -> Criterion:
    """Return a criterion from a row of :meth:`Rubric.to_row`."""
    scale = tuple(Level(**level) for level in row["scale"])
    return Criterion(**{**row, "scale": scale})


def criterion_key(name: str) -> str:
    """Return a criterion's name as labels are found by it: without case, and with single blanks."""
    return " ".join(name.split()).casefold()


def label_of_line(line: str, labels: Iterable[str]) -> str | None:
    """Return which of some labels is of a criterion, given its line; the longest of several, None where none is.

    A label's name is the whole line, or what stands before one of its colons: the criterion's name ends at one of
    them, and may hold others.

    Args:
        line: of the criterion.
        labels: their names, as :func:`criterion_key` has them.
    """
    whole = criterion_key(line)
    matching = []
    for label in labels:
        is_beginning = bool(label) and whole.startswith(label)
        if whole == label or (is_beginning and whole[len(label) :].lstrip().startswith(":")):
            matching.append(label)
    return max(matching, key=len, default=None)


def label_of_criterion(name: str, text: str, labels: Collection[str]) -> str | None:
    """Return which of some labels is of a given criterion: that of its name, or of its text where it has no name.

    Args:
        name: of the criterion; empty where it has none.
        text: of the criterion, which people may begin with a name and a colon.
        labels: as of :func:`label_of_line`.
    """
    if not name:
        return label_of_line(text, labels)
    key = criterion_key(name)
    return key if key in labels else None


def level_on(scale: Sequence[float], score: float) -> float:
    """Return a judge's score (1 to 5) on a scale, interpolated between its levels.

    Args:
        scale: the levels' scores, the worst first.
        score: as the judge wrote it.
    """
    place = share(score) * (len(scale) - 1)
    # At the highest score the last two levels are the ones around it.
    below = min(int(place), len(scale) - 2)
    low = scale[below]
    return low + (scale[below + 1] - low) * (place - below)


def share_on(scale: Sequence[float], score: float) -> float:
    """Return where a judge's score (1 to 5) lies between the worst level of a scale (0) and the best (1)."""
    return (level_on(scale, score) - scale[0]) / (scale[-1] - scale[0])


def share(score: float) -> float:
    """Return where a judge's score (1 to 5) lies on the scale, from 0 to 1."""
    return (score - LOWEST) / (HIGHEST - LOWEST)


def weighted(shares: Sequence[tuple[float, float]]) -> float | None:
    """Return the weighted mean of ``(weight, share)`` pairs, from 0 to 1; None where there are none.

    Points that negative weights take off are measured against the points that the other criteria can give, as
    HealthBench does (arXiv 2505.08775, section 3). A mean below 0 is 0 here, for every response; HealthBench cuts only
    the mean over all responses. Where all weights are negative, a response starts at 1. Means that differ by rounding
    alone come out as one number.

    Args:
        shares: each criterion's weight (negative for what a response must not do) and the response's share, 0 to 1.
    """
    if not shares:
        return None

    points = math.fsum(weight * value for weight, value in shares)
    possible_points = math.fsum(weight for weight, _ in shares if weight > 0)
    if possible_points:
        mean = points / possible_points
    else:
        penalties = -math.fsum(weight for weight, _ in shares)
        mean = 1.0 + points / penalties
    return without_rounding(min(max(mean, 0.0), 1.0))


def without_rounding(number: float) -> float:
    """Return a mean without the digits that rounding may have changed, and never as -0."""
    # Adding 0 turns -0.0 into 0.0.
    return round(number, 12) + 0.0


def is_above(first: float, second: float) -> bool:
    """Return whether a mean is larger than another one by more than rounding (:data:`EQUAL`)."""
    return first - second > EQUAL
