"""Stage label_queue."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.extras.label_queue.information import PARTS
from judgetrain.keys import beside, key


@dataclass
class LabelQueueConfig:
    """Stage label_queue: the comparisons that people should label first, as files for label tools."""

    files: list[str] = key(
        [],
        "files or globs of stage judge's rows, and directories of stage judge; empty: the verdicts of stage judge",
        content=beside(lambda path, owner: path),
    )
    labels: int | None = key(None, "how many comparisons people will label; null: all of them, ranked", low=1)
    random: float = key(
        0.2,
        "share of them that is drawn by chance, and marked so: what measures (agreement, win rates) must not be chosen",
        low=0.0,
        high=1.0,
    )
    by: list[str] = key(
        list(PARTS),
        "what information is the mean of: branches (their votes differ), orders (they differ), margin (it is small)",
        choices=PARTS,
    )
    relabel: bool = key(
        False, "rank comparisons that have a label too: for a second opinion on it, or to try the queue on a benchmark"
    )
