"""What a judge's margins owe to the position in which a response is shown, measured without labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Margins = Sequence[float | None]


def position_offset(margins_ab: Margins, margins_ba: Margins) -> float | None:
    """By how much the response shown first is ahead: the median of its margins over both orders of all comparisons.

    Each comparison is there in both orders, so that a judge without a preference for a position would put the first one
    ahead as often as behind, whichever responses are better: the median would be 0, and no label is needed. Less this
    number, margins give either position half of the judgments. (Zheng et al. 2024, arXiv 2309.03882, and Zhou et al.
    2024, arXiv 2309.17249, take such a prior off the log-probabilities of options.)

    Args:
        margins_ab: score of A minus that of B where A was shown first, one for each comparison.
        margins_ba: the same where B was shown first.

    Returns:
        The offset on the margins' scale; above 0 the first position is preferred. None where no comparison has a
        margin in both orders.

    Raises:
        ValueError: not one margin a comparison in each order.
    """
    pairs = [(ab, ba) for ab, ba in zip(margins_ab, margins_ba, strict=True) if ab is not None and ba is not None]
    return float(np.median([m for ab, ba in pairs for m in (ab, -ba)])) if pairs else None
