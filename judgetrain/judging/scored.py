"""Rows of ``scores.jsonl``: one a response that was scored by itself, with its reasons and its rank among its row's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from statistics import fmean
from typing import Any

from judgetrain.judges.base import Score
from judgetrain.schema import Candidates

SCORES = "scores"
"""The name of the rows."""


def score_rows(
    group: Candidates, scores: list[Score], judge: str, failure: str | None = None
) -> Iterator[dict[str, Any]]:
    """A row for each response of a group.

    ``score`` is 0 to 1, None where nothing could be read; ``rank`` counts from 1 among the group's responses, the best
    first, equal scores alike. ``failure``: why the group was not judged.
    """
    known = [score.value for score in scores if score.value is not None]
    for place, response in enumerate(group.responses):
        score = scores[place] if scores else Score(value=None)
        yield {
            "id": group.id,
            "dialogue_id": group.dialogue.id,
            "messages": [asdict(message) for message in group.dialogue.messages],
            "place": place,
            "response": response,
            "score": score.value,
            "rank": None if score.value is None else 1 + sum(other > score.value for other in known),
            "reasons": [
                {
                    **{name: getattr(reason, name) for name in ("name", "criterion", "weight", "source", "guideline")},
                    "score": reason.score_a,
                    "text": reason.text,
                    "failure": reason.failure,
                }
                for reason in score.reasons
            ],
            "failures": dict(sorted(score.failures.items())),
            "judge": judge,
            "cost": asdict(score.cost),
            "failure": failure,
        }


def told(rows: Iterable[Mapping[str, Any]], judge: str) -> Iterator[Any]:
    """The table and the lines at the stage's end: the scores by criterion, and what could not be read."""
    from rich import box
    from rich.table import Table

    scores: list[float] = []
    by_criterion: dict[str, list[float]] = {}
    unreadable, failures, total = Counter[str](), Counter[str](), 0
    for row in rows:
        total += 1
        unreadable.update(row["failures"])
        failures.update([str(row["failure"]).partition(":")[0]] if row["failure"] else [])
        scores += [] if row["score"] is None else [row["score"]]
        for reason in row["reasons"]:
            if reason["score"] is not None and reason["source"] == "given":
                by_criterion.setdefault(reason["name"] or reason["criterion"], []).append(reason["score"])
    table = Table(title=f"Scores of {judge}", box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
    for name in ("criterion", "responses", "mean"):
        table.add_column(name, justify="left" if name == "criterion" else "right")
    for name, found in by_criterion.items():
        table.add_row(name, str(len(found)), f"{fmean(found):.2f} of 5")
    if scores:
        table.add_row("all, weighted", str(len(scores)), f"{fmean(scores):.2f} of 1")
    for name, number in failures.items():
        table.add_row(f"not judged: {name}", str(number), "")
    yield table
    if len(scores) < total:
        yield f"{total - len(scores)} of {total} responses have no score"
    if unreadable:
        yield f"judgments not read: {', '.join(f'{n} {reason}' for reason, n in unreadable.items())}"
