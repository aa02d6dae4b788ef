"""What is known of how far a method can be relied on, a part of its row of ``metrics.json``."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.extras.guarantees.annotators import Replacement
from judgetrain.extras.guarantees.cascade import Selective
from judgetrain.extras.guarantees.corrected import Corrected


@dataclass(frozen=True, kw_only=True)
class Guarantees:
    """How far a method can be relied on; None or empty where there is nothing to say it by.

    ``selective``: where it answers, with a guarantee. ``corrected``: shares of a partly labelled benchmark, by labels
    and verdicts. ``annotators``: may it replace one of several people?
    """

    selective: Selective | None = None
    corrected: tuple[Corrected, ...] = ()
    annotators: Replacement | None = None
