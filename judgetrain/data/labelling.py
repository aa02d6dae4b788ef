"""What people labelled, in Label Studio's, Argilla's or TRL's form, as rows of comparisons."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.data.cells import RowError, majority
from judgetrain.messages import replied

QUESTION = "label"
"""The question that is asked of every comparison (stage label_queue)."""
UNSENT = ("draft", "discarded")
"""States of an Argilla response that its author has not stood by."""


def label_studio(row: Any) -> dict[str, Any]:
    """A task of Label Studio's JSON export: its data, and as ``label`` what most people chose.

    Of several annotations by one person the last counts; those that were skipped count for nothing. Without a majority,
    or without any, the label is None.
    """
    if not isinstance(row, Mapping) or not isinstance(row.get("data"), Mapping):
        raise RowError("no_task", "expected a task of Label Studio's JSON export, with data and annotations")
    return {**row["data"], "label": _majority_of_people(_chosen(row.get("annotations") or ()))}


def whole_tasks(rows: Iterable[tuple[str, Any, str]]) -> Iterator[tuple[str, Any, str]]:
    """Label Studio's tasks with their places; one that stands several times (two exports, a copy) with all votes."""
    tasks: dict[str, tuple[str, Any, str]] = {}
    for place, row, raw in rows:
        votes = row.get("annotations") if isinstance(row, Mapping) else None
        whole = isinstance(votes, list) and all(isinstance(vote, Mapping) for vote in votes)
        found = tasks.setdefault(json.dumps(row.get("data"), sort_keys=True) if whole else place, (place, row, raw))[1]
        if found is not row:
            known = {vote["id"] for vote in found["annotations"] if vote.get("id") is not None}
            found["annotations"] = found["annotations"] + [v for v in row["annotations"] if v.get("id") not in known]
    yield from tasks.values()


def _majority_of_people(votes: Iterable[tuple[Any, str]]) -> str | None:
    """What most people say, each by their last vote; a vote of nobody known is one person's."""
    last = {number if who is None else str(who): vote for number, (who, vote) in enumerate(votes)}
    return majority(last.values())


def _chosen(annotations: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Any, str]]:
    for annotation in annotations:
        for result in () if annotation.get("was_cancelled") else annotation.get("result") or ():
            if result.get("from_name") == QUESTION and result.get("type") == "choices":
                yield from ((annotation.get("completed_by"), choice) for choice in result["value"]["choices"][:1])


def argilla(row: Any) -> dict[str, Any]:
    """A record of Argilla's ``records.to_json``: its fields and metadata, and as ``label`` what most people answer."""
    if not isinstance(row, Mapping) or not isinstance(row.get("fields"), Mapping):
        raise RowError("no_record", "expected a record of Argilla's export, with fields and responses")
    answers = (row.get("responses") or {}).get(QUESTION) or ()
    label = _majority_of_people((a.get("user_id"), str(a["value"])) for a in answers if a.get("status") not in UNSENT)
    return {"id": row.get("id"), **(row.get("metadata") or {}), **row["fields"], "label": label}


def preference(row: Any) -> Any:
    """A row of TRL's preference format (``prompt``, ``chosen``, ``rejected``; texts or messages) as a comparison.

    Which side is the better one follows from the texts, so that neither always is. Any other row is left as it is.
    """
    if not isinstance(row, Mapping) or row.get("response_a") is not None:
        return row
    prompt, sides = row.get("prompt"), [row.get("chosen"), row.get("rejected")]
    if prompt is None and isinstance(sides[0], list):
        prompt = sides[0][:-1]
    texts = [replied(side) for side in sides]
    if not all(isinstance(text, str) for text in texts):
        return row
    swapped = bool(derive_seed("side", *texts) % 2)
    pair = dict(zip(("response_a", "response_b"), sides[::-1] if swapped else sides, strict=True))
    rest = {name: value for name, value in row.items() if name not in ("chosen", "rejected")}
    return rest | {"prompt": prompt} | pair | {"label": "B" if swapped else "A"}


SHAPES: Mapping[str, Callable[[Any], Any]] = {"label_studio": label_studio, "argilla": argilla, "auto": preference}
"""By a source's format, what makes a row of comparisons of what stands in its file."""
