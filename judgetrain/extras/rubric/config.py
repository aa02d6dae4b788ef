"""Stage rubric."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.keys import beside, key


@dataclass
class RubricConfig:
    """Stage rubric: the criteria that decide, by kind of query."""

    files: list[str] = key(
        [],
        "files or globs of what is judged by criteria: verdicts of stage judge, or evaluations (docs/dialogues.md); "
        "empty: the verdicts of verdicts.judge, or without one this run's trees and the labels that stage label knows",
        content=beside(lambda path, owner: path),
    )
    kinds: int | None = key(
        None, "kinds of query; None: as many as foresee held-out labels, or judgments, best", low=1, high=32
    )
    most: int = key(6, "criteria of a kind at most", low=1, high=20)
    queries: int = key(40, "typical queries of each kind, by which the kind of another query is found", low=3)
