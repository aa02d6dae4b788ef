"""What the held-out comparisons tell of a round's judge, and by which checks it is stopped.

Changes are held against the Initial judge or the best round. A judge that begins badly falls no further: what is a
collapse whatever came before (one verdict for everything, nothing that can be read, length alone) has caps.
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

# The limits let pass what chance does on 100 comparisons (a standard error of up to 5 points of agreement) and what
# training on its own trees usually moves, and stop every collapse that was seen (docs/training.md).
FALL = 0.1
"""How far agreement may fall below the best round so far."""
RISES = {"position_bias": 0.2, "unreadable": 0.05, "length_bias": 0.2}
"""How much larger than the Initial judge's each may be, whichever way it goes."""
CAPS = {"alike": 0.9, "unreadable": 0.5, "length_bias": 0.4}
"""The most of each, whatever came before."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """A judge on the ``n`` held-out comparisons: shares from 0 to 1.

    ``position_bias``: comparisons in which the response shown first wins in both orders, less those in which the
    second does; ``unreadable``: of the verdicts, two a comparison; ``alike``: of them, the most that are the same as
    shown (the first, the second, a tie); ``tie_labels``: labels that are ties, which is also what a judge that always
    says so agrees with; ``length_bias``: how much more often verdicts go to the longer response than labels do
    (:func:`judgetrain.evaluate.metrics.verdicts.length_bias`).
    """

    n: int
    agreement: float
    consistency: float
    position_bias: float
    unreadable: float
    alike: float
    tie_labels: float
    length_bias: float

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], comparisons: Sequence[Comparison]) -> Self:
        """The figures of ``verdict_ab`` and ``verdict_ba``, in the held-out comparisons' order."""
        ab, ba = ([row[f"verdict_{order.lower()}"] for row in rows] for order in ORDERS)
        labels = [str(c.label) for c in comparisons]
        first = [(a == "A" and b == "B") - (a == "B" and b == "A") for a, b in zip(ab, ba, strict=True)]
        shown = Counter((*(v for v in ab if v), *(mirror(v) for v in ba if v)))
        return cls(
            n=len(comparisons),
            agreement=float(np.mean(verdicts.agreement(ab, ba, labels))),
            consistency=float(np.mean(verdicts.consistency(ab, ba))),
            position_bias=fmean(first),
            unreadable=fmean(verdict is None for verdict in (*ab, *ba)),
            alike=max(shown.values(), default=0) / (2 * len(comparisons)),
            tie_labels=fmean(label == "tie" for label in labels),
            length_bias=verdicts.length_bias(ab, ba, [c.longer for c in comparisons], labels) or 0.0,
        )


@dataclass(frozen=True, kw_only=True)
class Round:
    """A round's result: ``judge`` is its artifact, as ``dpo/FINGERPRINT``; ``stopped`` says which checks it failed."""

    round: int
    judge: str
    figures: Figures
    stopped: Sequence[str] = ()


def failures(found: Figures, before: Sequence[Round]) -> Iterator[str]:
    """The checks that a judge fails, in words; ``before``: the rounds so far, of which the first is the Initial judge.

    Agreement is held against the best of them, all else against the Initial judge, so that a drift in small steps is
    seen. A constant verdict agrees, asked in both orders, with the labels that are ties, if it is a tie, and else with
    none: a judge that is no better has learned nothing from what it is shown. Where nearly all labels are ties, nearly
    all verdicts may be.
    """
    start, best = before[0].figures, before[best_of(before)].figures
    if best.agreement - found.agreement > FALL + 1e-9:
        yield f"agreement {found.agreement:.2f} after {best.agreement:.2f} (allowed: {FALL:g})"
    for name, limit in RISES.items():
        value, was = getattr(found, name), getattr(start, name)
        if abs(value) > abs(was) and abs(value - was) > limit + 1e-9:
            yield f"{name} {value:.2f} after {was:.2f} (allowed: {limit:g})"
    for name, limit in CAPS.items():
        cap, value = max(limit, found.tie_labels) if name == "alike" else limit, getattr(found, name)
        if abs(value) > cap + 1e-9:
            yield f"{name} {value:.2f}, more than {cap:.2f}"
    if found.agreement <= found.tie_labels + 1e-9:
        yield f"agreement {found.agreement:.2f}, where one verdict for all has {found.tie_labels:.2f}"


def best_of(rounds: Sequence[Round]) -> int:
    """The round of the best agreement among those that passed every check; of equal ones the first."""
    passed = [r for r in rounds if not r.stopped]
    return max(passed, key=lambda r: r.figures.agreement).round
