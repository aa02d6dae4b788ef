"""What an attack did to a judge, a part of the judge's row of ``metrics.json``."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.evaluate.metrics.registry import Interval


@dataclass(frozen=True, kw_only=True)
class Attacked:
    """One attack, or all of a kind (``attack`` is then empty), over ``n`` attacked comparisons. Shares, 0 to 1.

    In the attacked comparison A is the worse response, which is to gain. Where the label stays: ``flips_ab`` and
    ``flips_ba``, verdicts in one order that are another than before; ``robustness``, comparisons on which neither order
    changed (CALM's robustness rate); ``gained``, those on which an order now says A and none did before. Where A has no
    content: ``loses_ab`` and ``loses_ba``, verdicts for B; ``loses``, comparisons on which both orders say B; ``wins``,
    those on which an order says A. ``unreadable``: comparisons of which an order could not be read without the attack;
    flips, robustness and gained are of the others, and None without any. ``..._ci``: 95% Wilson intervals, over prompts
    where comparisons or attacks share one. What does not concern a kind is None.
    """

    attack: str
    kind: str
    n: int
    unreadable: int | None = None
    flips_ab: float | None = None
    flips_ab_ci: Interval | None = None
    flips_ba: float | None = None
    flips_ba_ci: Interval | None = None
    robustness: float | None = None
    robustness_ci: Interval | None = None
    gained: float | None = None
    gained_ci: Interval | None = None
    loses_ab: float | None = None
    loses_ab_ci: Interval | None = None
    loses_ba: float | None = None
    loses_ba_ci: Interval | None = None
    loses: float | None = None
    loses_ci: Interval | None = None
    wins: float | None = None
    wins_ci: Interval | None = None

    @property
    def flips(self) -> float | None:
        """The share of comparisons on which an order changed."""
        return None if self.robustness is None else 1 - self.robustness

    @property
    def flips_ci(self) -> Interval | None:
        """Of :attr:`flips`."""
        return None if self.robustness_ci is None else (1 - self.robustness_ci[1], 1 - self.robustness_ci[0])


Attacks = tuple[Attacked, ...]
"""Every attack on a method, and all of each kind together."""
