"""Stage ``label_queue``: rows of verdicts in, a queue for people out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from judgetrain.artifacts.files import write_json_atomic, write_text_atomic
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.errors import DataError
from judgetrain.extras.label_queue.formats import INTERFACE, argilla, label_studio
from judgetrain.extras.label_queue.ranking import CHANCE, left_out, ranked, read_rows_of
from judgetrain.extras.label_queue.stages import LabelQueueSettings


def run(settings: LabelQueueSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``queue.jsonl``, ``label_studio.json`` with ``label_studio.xml``, and ``argilla.json``."""
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
    chance, first = sum(row["chosen_by"] == CHANCE for row in queue), queue[: max(1, len(queue) // 10)]
    mean, of_first = (fmean(row["information"] for row in part) for part in (queue, first))
    reasons = "".join(f"; {n} {reason} left out" for reason, n in sorted(gone.items()))
    out.note("label_queue", {"by_chance": chance, "information": mean, "information_of_first_tenth": of_first})
    told = [f"{len(queue)} of {len(rows)} comparisons to label, {chance} of them drawn by chance{reasons}"]
    told.append(f"mean information {mean:.2f}, of the first tenth {of_first:.2f} (0: the judge is sure)")
    told.append("labels that are to measure something (agreement, win rates): use those with chosen_by=chance alone")
    out.tell(told)
    for name in ("queue.jsonl", "label_studio.json", "label_studio.xml", "argilla.json"):
        out.log(f"label_queue: {out.path(name)}")
