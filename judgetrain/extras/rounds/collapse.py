"""What the held-out comparisons tell of a round's judge, and by which checks it is stopped.

Most checks hold a judge against the Initial judge or the best round. A judge that begins badly falls no further: what
is a collapse whatever came before (one verdict for everything, nothing that can be read, length alone) has caps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Self

import numpy as np

from judgetrain.evaluate.metrics import verdicts
from judgetrain.schema import ORDERS, Comparison, mirror


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How far a round's judge may be from those before it, and caps that hold whatever came before; None: no limit.

    They let pass what chance does on 100 comparisons (a standard error of up to 5 points of agreement) and what
    training on its own trees usually moves, and stop every collapse that was seen (docs/training.md).
    """

    agreement: float | None = 0.1
    """How far agreement with the held-out comparisons' labels may fall below the best round so far."""
    position_bias: float | None = 0.2
    """Rise over the Initial judge in the share of comparisons that go by what is shown first (or second)."""
    unreadable: float | None = 0.05
    """Rise over the Initial judge in the share of verdicts that cannot be read."""
    ties: float | None = 0.3
    """Rise in the share of ties, over the Initial judge's or, where they have more of them, the labels'."""
    score: float | None = 1.5
    """Change against the Initial judge of the mean score, points: at 1 it stopped a judge that was fine."""
    length: float | None = 0.2
    """Change against the Initial judge in how much more often verdicts go to the longer response than labels do."""
    alike: float | None = 0.9
    """The most verdicts that may be one and the same as shown; where more labels are ties, as many."""
    most_unreadable: float | None = 0.5
    """The most verdicts that may be unreadable."""
    most_length: float | None = 0.4
    """The most by which verdicts may go to the longer (or shorter) response more often than labels."""
    above_constant: float | None = 0.0
    """How far agreement must be above that of one verdict for everything, which in both orders is right where labels
    are ties: a judge that is no better has learned nothing from what it is shown."""


LIMITS = Limits()


@dataclass(frozen=True, kw_only=True)
class Figures:
    """A judge on the ``n`` held-out comparisons: shares from 0 to 1, but ``score`` is the mean of all scores.

    ``position_bias``: comparisons in which the response shown first wins in both orders, less those in which the
    second does; ``unreadable`` and ``ties``: of the verdicts, two a comparison; ``alike``: of them, the most that are
    the same as shown (the first, the second, a tie); ``tie_labels``: labels that are ties, which is also what a judge
    that always says so agrees with; ``length_bias``: how much more often verdicts go to the longer response than
    labels do (:func:`judgetrain.evaluate.metrics.verdicts.length_bias`).
    """

    n: int
    agreement: float
    consistency: float
    position_bias: float
    unreadable: float
    ties: float
    alike: float
    tie_labels: float
    score: float | None
    length_bias: float

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], comparisons: Sequence[Comparison]) -> Self:
        """The figures of what :func:`row_of` kept of the predictions, in the held-out comparisons' order."""
        ab, ba = ([row[f"verdict_{order.lower()}"] for row in rows] for order in ORDERS)
        labels = [str(c.label) for c in comparisons]
        scores = [row["score"] for row in rows if row["score"] is not None]
        first = [(a == "A" and b == "B") - (a == "B" and b == "A") for a, b in zip(ab, ba, strict=True)]
        shown = Counter((*(v for v in ab if v), *(mirror(v) for v in ba if v)))
        return cls(
            n=len(comparisons),
            agreement=float(np.mean(verdicts.agreement(ab, ba, labels))),
            consistency=float(np.mean(verdicts.consistency(ab, ba))),
            position_bias=fmean(first),
            unreadable=fmean(verdict is None for verdict in (*ab, *ba)),
            ties=shown["tie"] / (2 * len(comparisons)),
            alike=max(shown.values(), default=0) / (2 * len(comparisons)),
            tie_labels=fmean(label == "tie" for label in labels),
            score=fmean(scores) if scores else None,
            length_bias=verdicts.length_bias(ab, ba, [c.longer for c in comparisons], labels) or 0.0,
        )


@dataclass(frozen=True, kw_only=True)
class Round:
    """A round's result: ``judge`` is its artifact, as ``dpo/FINGERPRINT``; ``stopped`` says which checks it failed."""

    round: int
    judge: str
    figures: Figures
    stopped: Sequence[str] = ()


def failures(found: Figures, before: Sequence[Round], limits: Limits = LIMITS) -> Iterator[str]:
    """The checks that a judge fails, in words; ``before``: the rounds so far, of which the first is the Initial judge.

    Agreement is held against the best of them. All else is held against the Initial judge, so that a drift in small
    steps is seen (ties, where the labels have more of them, against these); how often a verdict goes by position or
    length is only held against a judge that does so more. What a cap forbids is forbidden whatever came before.
    """
    start, best = before[0].figures, before[best_of(before)].figures
    ties = max(start.ties, start.tie_labels)
    checks: list[tuple[str, float | None, float, float]] = [
        ("agreement", limits.agreement, best.agreement, best.agreement - found.agreement),
        ("position_bias", limits.position_bias, start.position_bias, _rise(start.position_bias, found.position_bias)),
        ("unreadable", limits.unreadable, start.unreadable, found.unreadable - start.unreadable),
        ("ties", limits.ties, ties, found.ties - ties),
        ("length_bias", limits.length, start.length_bias, _rise(start.length_bias, found.length_bias)),
    ]
    if start.score is not None and found.score is not None:
        checks.append(("score", limits.score, start.score, abs(found.score - start.score)))
    for name, limit, was, change in checks:
        if limit is not None and change > limit + 1e-9:
            yield f"{name} {getattr(found, name):.2f} after {was:.2f} (allowed: {limit:g})"
    yield from _collapsed(found, limits)


def _collapsed(found: Figures, limits: Limits) -> Iterator[str]:
    """The caps that a judge exceeds.

    A constant verdict agrees, asked in both orders, with the labels that are ties, if it is a tie, and else with none.
    Where nearly all labels are ties, nearly all verdicts may be.
    """
    caps = [
        ("alike", max(limits.alike, found.tie_labels) if limits.alike is not None else None),
        ("unreadable", limits.most_unreadable),
        ("length_bias", limits.most_length),
    ]
    for name, cap in caps:
        value = getattr(found, name)
        if cap is not None and abs(value) > cap + 1e-9:
            yield f"{name} {value:.2f}, more than {cap:.2f}"
    over = found.agreement - found.tie_labels
    if limits.above_constant is not None and over <= limits.above_constant + 1e-9:
        yield f"agreement {found.agreement:.2f}, where one verdict for all has {found.tie_labels:.2f}"


def _rise(start: float, found: float) -> float:
    """How much larger a bias is, whichever way it goes."""
    return abs(found - start) if abs(found) > abs(start) else 0.0


def best_of(rounds: Sequence[Round]) -> int:
    """The round of the best agreement among those that passed every check; of equal ones the first."""
    passed = [r for r in rounds if not r.stopped]
    return max(passed, key=lambda r: r.figures.agreement).round
