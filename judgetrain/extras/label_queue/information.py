"""How much a person's label of a comparison would tell, by what a judge said of it: pure functions on verdict rows.

The entropy of a committee's votes (Dagan and Engelson, Committee-based sampling, ICML 1995): the branches of a judge,
in both orders, are the committee; and how little its margin decides. It is what the judge does not know, which is not
all that a label may teach: a judge that is wrong and sure is not found this way.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from judgetrain.judges.base import logistic

PARTS = ("branches", "orders", "margin")
VERDICTS = ("A", "tie", "B")


@dataclass(frozen=True)
class Information:
    """From 0 (all is said) to 1; None: the row does not tell.

    ``branches``: the entropy of the branches' verdicts, 1 where A, tie and B are equally many. ``orders``: 1 where the
    orders say different things, or one cannot be read. ``margin``: the entropy of the favoured side, in bits, if the
    logistic function of the margin is its chance.
    """

    branches: float | None
    orders: float | None
    margin: float | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Information:
        """That of a row of stage judge."""
        votes = Counter(r["verdict"] for r in row.get("reasons") or () if r["verdict"] in VERDICTS)
        orders = row.get("verdict_ab"), row.get("verdict_ba")
        margin = row.get("margin")
        known = float(margin) if isinstance(margin, (int, float)) and margin == margin else None
        return cls(
            branches=entropy(votes) / math.log(len(VERDICTS)) if votes else None,
            orders=float(orders[0] is None or orders[1] is None or orders[0] != orders[1]),
            margin=None if known is None else _binary(logistic(abs(known))),
        )

    def total(self, parts: Collection[str] = PARTS) -> float:
        """The mean of some parts, of those that are known; 1 where none is: nothing at all was read."""
        found = [value for name in parts if (value := getattr(self, name)) is not None]
        return sum(found) / len(found) if found else 1.0


def entropy(counts: Mapping[str, int]) -> float:
    """Of shares by their counts, in nats."""
    total = sum(counts.values())
    return -math.fsum(n / total * math.log(n / total) for n in counts.values() if n)


def _binary(p: float) -> float:
    return -sum(q * math.log2(q) for q in (p, 1 - p) if q > 0)
