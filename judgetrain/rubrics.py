"""What a judge scores by: criteria with their weights, scales and guidelines, given by people or written by a model."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal

from judgetrain.errors import DataError

Source = Literal["given", "judge", "teacher"]

LOWEST, HIGHEST = 1.0, 5.0
"""The range of the scores that a judge writes, whatever a criterion's own scale (branching paper, table 10)."""


@dataclass(frozen=True)
class Level:
    """A level of a criterion's scale: what it counts, and what a response at this level is like where that is said."""

    score: float
    text: str = ""


SCALE = tuple(Level(float(score)) for score in range(int(LOWEST), int(HIGHEST) + 1))
"""The scale of a criterion that names none: 1 to 5."""


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """One thing that a response is scored on.

    Args:
        text: what to look for, in a sentence or two.
        name: a short name, unique in its rubric; empty where there is none.
        weight: how much it counts in a weighted mean; below 0 for what a response must not do.
        scale: its levels, the worst first. A judge writes scores from 1 to 5 whatever the scale: the first level is its
            1, the last its 5, the others stand evenly between them.
        guideline: what a response at each score is like. None: the levels' texts say it, or the judge writes one.
        source: who wrote it.

    Raises:
        DataError: no text, a weight that is 0 or no number, or levels that are fewer than two or do not rise.
    """

    text: str
    name: str = ""
    weight: float = 1.0
    scale: tuple[Level, ...] = SCALE
    guideline: str | None = None
    source: Source = "given"

    def __post_init__(self) -> None:
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
        """The criterion as a judge lists one, in one line: its name, a colon and its text."""
        line = f"{self.name}: {self.text}" if self.name and not self.text.startswith(f"{self.name}:") else self.text
        return " ".join(line.split())

    @property
    def stated_guideline(self) -> str | None:
        """Its guideline, or one that its levels' texts make; None where neither says anything."""
        if self.guideline and self.guideline.strip():
            return self.guideline
        step = (HIGHEST - LOWEST) / (len(self.scale) - 1)
        told = [(LOWEST + i * step, level.text.strip()) for i, level in enumerate(self.scale) if level.text.strip()]
        return "\n".join(f"{score:.2g}: {text}" for score, text in told[::-1]) or None

    def share(self, score: float) -> float:
        """How much of the criterion's own scale a judge's score is, 0 to 1: levels count what they say."""
        first, last = self.scale[0].score, self.scale[-1].score
        return (self.level(score) - first) / (last - first)

    def level(self, score: float) -> float:
        """A judge's score on this criterion's own scale: between its levels, as far as the score is between 1 and 5."""
        place = share(score) * (len(self.scale) - 1)
        below = min(int(place), len(self.scale) - 2)
        low, high = self.scale[below].score, self.scale[below + 1].score
        return low + (high - low) * (place - below)


@dataclass(frozen=True)
class Rubric:
    """An ordered list of criteria, what matters most first.

    Raises:
        DataError: no criteria, or two of one name (of one text, where they have no names).
    """

    criteria: tuple[Criterion, ...]

    def __post_init__(self) -> None:
        if not self.criteria:
            raise DataError("a rubric needs a criterion at least, found none")
        seen: set[str] = set()
        for each in self.criteria:
            name = " ".join((each.name or each.text).split()).casefold()
            if name in seen:
                raise DataError(f"two criteria are called {each.name or each.text!r}")
            seen.add(name)

    def to_row(self) -> list[dict[str, Any]]:
        """A JSON-ready list; the inverse of :meth:`from_row`."""
        return [asdict(each) for each in self.criteria]

    @classmethod
    def from_row(cls, rows: Sequence[Mapping[str, Any]]) -> "Rubric":
        """Read back what :meth:`to_row` wrote."""
        return cls(tuple(map(criterion_of, rows)))


def criterion_of(row: Mapping[str, Any]) -> Criterion:
    """A criterion as :meth:`Rubric.to_row` writes it."""
    return Criterion(**{**row, "scale": tuple(Level(**level) for level in row["scale"])})


def share(score: float) -> float:
    """How much of the scale a judge's score (1 to 5) is: 0 to 1."""
    return (score - LOWEST) / (HIGHEST - LOWEST)


def weighted(shares: Sequence[tuple[float, float]]) -> float | None:
    """The weighted mean of ``(weight, share)``, 0 to 1; None of nothing.

    What weights below 0 take off is measured against what the others can give, as HealthBench scores a response
    (arXiv 2505.08775, section 3), and a mean below 0 is 0. Where all weights are below 0 a response starts at 1.
    """
    if not shares:
        return None
    most = math.fsum(weight for weight, _ in shares if weight > 0)
    found = math.fsum(weight * each for weight, each in shares)
    found = found / most if most else 1.0 + found / -math.fsum(weight for weight, _ in shares)
    return min(max(found, 0.0), 1.0)
