"""How well a score tells good from bad: the area under the ROC curve."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def auc(scores: ArrayLike, positive: ArrayLike) -> float | None:
    """The area under the ROC curve (Mann-Whitney U): ``scores`` float [n], ``positive`` bool [n].

    None without items of both kinds.
    """
    from scipy.stats import rankdata

    right, ranks = np.asarray(positive, dtype=bool), rankdata(np.asarray(scores, dtype=float))
    good, bad = int(right.sum()), int((~right).sum())
    return float((ranks[right].sum() - good * (good + 1) / 2) / (good * bad)) if good and bad else None
