"""What log-probability discrepancies say about a model: its confidence, and what length has to do with it (ProbDiff).

Sign convention, everywhere: d = log p(revised) - log p(response), equation 2, in nats per token. Equations 3 and 4
count d >= delta as confident, so a higher d is better; a weak model's revisions fall, and its d is far below zero.
(Where the paper says that a larger discrepancy is worse, it means the size of that fall.) Missing values are None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Values = Sequence[float | None]

DELTA = -0.05
"""The paper's threshold (appendix B)."""
SWEEP = (0.0, -0.05, -0.1)
"""The thresholds that the paper compares (appendix B, table 7)."""
LENGTH_CHANGE = 0.2
"""A revision whose length differs by more than this share of the response's has changed in length."""


def confidence(d: Values, delta: float = DELTA, missing: float | None = None) -> float | None:
    """Share of items ``[n]`` with d >= ``delta`` (equations 3 and 4); None without items.

    ``missing`` stands for the d of items that have none; None leaves them out, the paper's released code takes -1.
    """
    values = [missing if x is None else x for x in d]
    found = [x >= delta for x in values if x is not None]
    return sum(found) / len(found) if found else None


def confidence_sweep(
    d: Values, deltas: Sequence[float] = SWEEP, missing: float | None = None
) -> dict[float, float | None]:
    """The confidence at each threshold."""
    return {delta: confidence(d, delta, missing) for delta in deltas}


def mean(d: Values) -> float | None:
    """The mean d of a set (section 3.2), over the items that have one; None if none has."""
    found = [x for x in d if x is not None]
    return float(np.mean(found)) if found else None


@dataclass(frozen=True, kw_only=True)
class LengthReport:
    """How far lengths changed, and what that has to do with d.

    ``changed``: share of items whose length changed by more than 20%. ``mean_change``: mean of revised length / length
    - 1. ``slope``: d per unit of log(revised length / length), least squares. ``kept_mean`` and ``kept_confidence``:
    over the items that did not change so much; None if there are none. ``controlled``: each item's d minus the part
    that the slope explains (what d would be at equal length); ``controlled_mean`` and ``controlled_confidence`` of it.
    """

    n: int
    changed: float
    mean_change: float
    slope: float
    kept_mean: float | None
    kept_confidence: float | None
    controlled: list[float | None]
    controlled_mean: float
    controlled_confidence: float


def length_report(d: Values, ratios: Values, delta: float = DELTA) -> LengthReport | None:
    """Length diagnostics and the length-controlled variant; None without items (the paper's Limitations).

    ``ratios``: revised length / length in tokens, ``[n]``, None where d is None. With fewer than three items, or no
    spread of lengths, there is no slope and nothing is controlled.

    Raises:
        ValueError: lists of unequal length, or a ratio that is not positive.
    """
    both = [(x, r) for x, r in zip(d, ratios, strict=True) if x is not None and r is not None]
    if not both:
        return None
    values, ratio = (np.array(column, dtype=np.float64) for column in zip(*both, strict=True))
    if (ratio <= 0).any():
        raise ValueError("a length ratio must be positive")
    x = np.log(ratio)
    spread = float(((x - x.mean()) ** 2).sum())
    slope = float(((x - x.mean()) * (values - values.mean())).sum() / spread) if len(x) > 2 and spread > 1e-12 else 0.0
    controlled = values - slope * x
    small = np.abs(ratio - 1) <= LENGTH_CHANGE
    kept = values[small].tolist()
    rest = iter(controlled.tolist())
    return LengthReport(
        n=len(values),
        changed=float(1 - small.mean()),
        mean_change=float((ratio - 1).mean()),
        slope=slope,
        kept_mean=mean(kept),
        kept_confidence=confidence(kept, delta),
        controlled=[None if a is None or r is None else next(rest) for a, r in zip(d, ratios, strict=True)],
        controlled_mean=float(controlled.mean()),
        controlled_confidence=float((controlled >= delta).mean()),
    )
