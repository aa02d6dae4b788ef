"""What the anchors tell of a round's judge, and by which gates it is stopped.

Most gates hold a judge against the Initial judge or the best round. A judge that begins badly can fall no further: what
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
from judgetrain.judges.rounds import GatesConfig
from judgetrain.schema import ORDERS, Comparison, mirror


@dataclass(frozen=True, kw_only=True)
class Figures:
    """A judge on the ``n`` anchors: shares from 0 to 1, but for ``score``, the mean of all scores that were read.

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
    def of(cls, rows: Sequence[Mapping[str, Any]], anchors: Sequence[Comparison]) -> Self:
        """The figures of what :func:`row_of` kept of the predictions, in the anchors' order."""
        ab, ba = ([row[f"verdict_{order.lower()}"] for row in rows] for order in ORDERS)
        labels = [str(c.label) for c in anchors]
        scores = [row["score"] for row in rows if row["score"] is not None]
        first = [(a == "A" and b == "B") - (a == "B" and b == "A") for a, b in zip(ab, ba, strict=True)]
        shown = Counter((*(v for v in ab if v), *(mirror(v) for v in ba if v)))
        return cls(
            n=len(anchors),
            agreement=float(np.mean(verdicts.agreement(ab, ba, labels))),
            consistency=float(np.mean(verdicts.consistency(ab, ba))),
            position_bias=fmean(first),
            unreadable=fmean(verdict is None for verdict in (*ab, *ba)),
            ties=shown["tie"] / (2 * len(anchors)),
            alike=max(shown.values(), default=0) / (2 * len(anchors)),
            tie_labels=fmean(label == "tie" for label in labels),
            score=fmean(scores) if scores else None,
            length_bias=verdicts.length_bias(ab, ba, [c.longer for c in anchors], labels) or 0.0,
        )


@dataclass(frozen=True, kw_only=True)
class Round:
    """A round's result: ``judge`` is its artifact, as ``dpo/FINGERPRINT``; ``stopped`` says which gates it failed."""

    round: int
    judge: str
    figures: Figures
    stopped: Sequence[str] = ()

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Read back what ``asdict`` gave."""
        return cls(**{**row, "figures": Figures(**row["figures"])})


def failures(found: Figures, before: Sequence[Round], limits: GatesConfig) -> Iterator[str]:
    """The gates that a judge fails, in words; ``before``: the rounds so far, of which the first is the Initial judge.

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
            key = "length" if name == "length_bias" else name
            yield f"{name} {getattr(found, name):.2f} after {was:.2f} (rounds.gates.{key}={limit:g})"
    yield from _collapsed(found, limits)


def _collapsed(found: Figures, limits: GatesConfig) -> Iterator[str]:
    """The caps that a judge exceeds.

    A constant verdict agrees, asked in both orders, with the labels that are ties, if it is a tie, and else with none.
    Where nearly all labels are ties, nearly all verdicts may be.
    """
    caps = [
        ("alike", "alike", max(limits.alike, found.tie_labels) if limits.alike is not None else None),
        ("unreadable", "most_unreadable", limits.most_unreadable),
        ("length_bias", "most_length", limits.most_length),
    ]
    for name, key, cap in caps:
        value = getattr(found, name)
        if cap is not None and abs(value) > cap + 1e-9:
            yield f"{name} {value:.2f}, more than {cap:.2f} (rounds.gates.{key}={getattr(limits, key):g})"
    over = found.agreement - found.tie_labels
    if limits.above_constant is not None and over <= limits.above_constant + 1e-9:
        yield (
            f"agreement {found.agreement:.2f}, where one verdict for all has {found.tie_labels:.2f} "
            f"(rounds.gates.above_constant={limits.above_constant:g})"
        )


def _rise(start: float, found: float) -> float:
    """How much larger a bias is, whichever way it goes."""
    return abs(found - start) if abs(found) > abs(start) else 0.0


def best_of(rounds: Sequence[Round]) -> int:
    """The round of the best agreement among those that passed every gate; of equal ones the first."""
    passed = [r for r in rounds if not r.stopped]
    return max(passed, key=lambda r: r.figures.agreement).round
