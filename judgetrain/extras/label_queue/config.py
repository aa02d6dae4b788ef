"""Stage label_queue."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.keys import beside, key


@dataclass
class LabelQueueConfig:
    """Stage label_queue: the comparisons that people should label first, as files for label tools."""

    files: list[str] = key(
        [],
        "files or globs of stage judge's rows; empty: the verdicts of stage judge",
        content=beside(lambda path, owner: path),
    )
    labels: int | None = key(None, "how many comparisons people will label; null: all of them, ranked", low=1)
    relabel: bool = key(False, "rank comparisons that have a label too")
