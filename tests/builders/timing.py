"""How the time of a function grows with what it is given."""

from __future__ import annotations

import time
from collections.abc import Callable


def growth(do: Callable[[str], object], unit: str, n: int) -> float:
    """CPU time of this process on ``4 * n`` characters of a repeated unit over that on ``n``, each the least of 3 runs.

    About 4 where time is linear and 16 where it is quadratic; neither the machine's speed nor its load matters.
    """

    def least(characters: int) -> float:
        text = (unit * characters)[:characters]
        spent = []
        for _ in range(3):
            begun = time.process_time()
            do(text)
            spent.append(time.process_time() - begun)
        return min(spent)

    return least(4 * n) / least(n)
