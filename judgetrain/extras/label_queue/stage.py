"""Stage ``label_queue``: rows of verdicts in, a queue for people out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from judgetrain.artifacts.files import write_json_atomic, write_text_atomic
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.errors import DataError
from judgetrain.extras.label_queue.formats import INTERFACE, argilla, label_studio
from judgetrain.extras.label_queue.ranking import CHANCE, left_out, ranked, read_rows_of
from judgetrain.extras.label_queue.stages import LabelQueueSettings


def run(settings: LabelQueueSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``queue.jsonl``, ``label_studio.json`` with ``label_studio.xml``, and ``argilla.json``.

    Raises:
        DataError: rows that stage judge did not write, or none that somebody may label.
    """
    config = settings.label_queue
    rows = read_rows_of([*config.files] or [str(inputs["judge"])])
    queue = ranked(rows, config, out.seed)
    gone = Counter(reason for row in rows if (reason := left_out(row, config.relabel)))
    if not queue:
        again = "; label_queue.relabel=true ranks those that have a label too" if gone["labelled"] else ""
        why = ", ".join(f"{n} {reason}" for reason, n in sorted(gone.items())) or "there is no row"
        raise DataError(f"none of the {len(rows)} rows is left to label: {why}{again}")
    out.write_rows("queue", queue)
    write_json_atomic(out.path("label_studio.json"), label_studio(queue))
    write_text_atomic(out.path("label_studio.xml"), INTERFACE)
    write_json_atomic(out.path("argilla.json"), argilla(queue))
    out.count(in_=len(rows), out=len(queue), dropped=gone)
    facts = _facts(queue, rows)
    out.note("label_queue", facts)
    out.tell(_told(facts, gone))
    for name in ("queue.jsonl", "label_studio.json", "label_studio.xml", "argilla.json"):
        out.log(f"label_queue: {out.path(name)}")


def _facts(queue: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How many are to be labelled, and what a label of them would tell; for the manifest, and reports."""
    first = queue[: max(1, len(queue) // 10)]
    return {
        "judges": sorted({str(row["judge"]) for row in rows if row.get("judge")}),
        "verdicts": len(rows),
        "to_label": len(queue),
        "by_chance": sum(row["chosen_by"] == CHANCE for row in queue),
        "information": round(fmean(row["information"] for row in queue), 6),
        "information_of_first_tenth": round(fmean(row["information"] for row in first), 6),
    }


def _told(facts: Mapping[str, Any], gone: Mapping[str, int]) -> Iterator[str]:
    reasons = "".join(f"; {n} {reason} left out" for reason, n in sorted(gone.items()))
    told = f"{facts['to_label']} of {facts['verdicts']} comparisons to label"
    yield f"{told}, {facts['by_chance']} of them drawn by chance{reasons}"
    mean, first = facts["information"], facts["information_of_first_tenth"]
    yield f"mean information {mean:.2f}, of the first tenth {first:.2f} (0: the judge is sure)"
    yield "labels that are to measure something (agreement, win rates): use those with chosen_by=chance alone"
