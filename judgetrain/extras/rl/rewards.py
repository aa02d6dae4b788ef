"""What a branch is rewarded for: small named functions of what it said in both orders and of the label.

Rewards are sums of these by weight (``rl.rewards``). None of them looks at length. A branch that cannot be read
gets a number, never None: what TRL leaves out of a group cannot be unlearned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean

from judgetrain.judges.base import verdict_of
from judgetrain.schema import Verdict

TEMPERATURE = 1.0
"""Of sampling branches: they are the policy's own, which is what TRL's loss takes them for."""


@dataclass(frozen=True)
class Outcome:
    """What one branch said, in the comparison's own order: the margins (score of A minus that of B) of both orders.

    None is an order that cannot be read, also because the criterion or the guideline before it could not be had.
    ``tie``: margins at most so large are ties.
    """

    label: Verdict
    margin_ab: float | None
    margin_ba: float | None
    tie: float = 0.0

    @property
    def verdicts(self) -> tuple[Verdict | None, Verdict | None]:
        """Both verdicts."""
        return verdict_of(self.margin_ab, self.tie), verdict_of(self.margin_ba, self.tie)


def both_orders(outcome: Outcome) -> float:
    """1 where both orders give the label, else 0 (J1, arXiv 2505.10320). Who always prefers what is shown first gets 0.

    A label that is a tie is given by two ties.
    """
    return float(all(verdict == outcome.label for verdict in outcome.verdicts))


def unreadable(outcome: Outcome) -> float:
    """Minus the share of the orders that cannot be read: 0, -0.5 or -1."""
    return -fmean(verdict is None for verdict in outcome.verdicts)


def consistent(outcome: Outcome) -> float:
    """1 where both orders can be read and say the same, else 0."""
    first, second = outcome.verdicts
    return float(first is not None and first == second)


Reward = Callable[[Outcome], float]

REWARDS: Mapping[str, Reward] = {f.__name__: f for f in (both_orders, unreadable, consistent)}
"""Every reward by its name, which is the key of its weight."""

OF_READING = frozenset({"unreadable", "consistent"})
"""What a judgment can be held to by itself: whether its criterion tells the responses apart is not in its hands."""
