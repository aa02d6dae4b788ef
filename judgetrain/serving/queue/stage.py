"""Stage ``label_queue``: rows of verdicts in, a queue for people out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from judgetrain.artifacts.files import write_json_atomic, write_text_atomic
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.rows import RowError
from judgetrain.data.sources import read
from judgetrain.errors import DataError
from judgetrain.serving.leaderboard.battles import file_of, source_of
from judgetrain.serving.queue.formats import INTERFACE, argilla, label_studio
from judgetrain.serving.queue.ranking import CHANCE, left_out, ranked
from judgetrain.serving.queue.stages import LabelQueueSettings

KEY = "label_queue.files"
NEEDED = ("id", "messages", "response_a", "response_b", "verdict_ab", "verdict_ba")


def run(settings: LabelQueueSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``queue.jsonl``, ``label_studio.json`` with ``label_studio.xml``, and ``argilla.json``.

    Raises:
        DataError: rows that stage judge did not write, or none that somebody may label.
    """
    config = settings.label_queue
    rows = read_rows_of([*config.files] or [str(inputs["judge"])])
    queue = ranked(rows, config, out.seed)
    gone = Counter(reason for row in rows if (reason := left_out(row)))
    if not queue:
        raise DataError(f"none of the {len(rows)} rows is left to label: {dict(gone) or 'there is no row'}")
    out.write_rows("queue", queue)
    write_json_atomic(out.path("label_studio.json"), label_studio(queue))
    write_text_atomic(out.path("label_studio.xml"), INTERFACE)
    write_json_atomic(out.path("argilla.json"), argilla(queue))
    out.count(in_=len(rows), out=len(queue), dropped=gone)
    out.tell(_told(queue, rows, gone))
    for name in ("queue.jsonl", "label_studio.json", "label_studio.xml", "argilla.json"):
        out.log(f"label_queue: {out.path(name)}")


def read_rows_of(files: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of stage judge in files, globs and directories, each id once.

    Raises:
        ConfigError: no such file.
        DataError: a row that stage judge did not write, or one id for two comparisons; names its place.
    """
    found: dict[str, dict[str, Any]] = {}
    for i, name in enumerate(files):
        path = file_of(Path(name).expanduser(), KEY)
        for row in read(source_of(path), f"{KEY}[{i}]", _row):
            known = found.setdefault(row["id"], row)
            if any(known[name] != row[name] for name in ("messages", "response_a", "response_b")):
                raise DataError(
                    f"{path}: id {row['id']!r} is another comparison's in a file before it; make ids differ"
                )
    return list(found.values())


def _row(row: Any, number: int) -> dict[str, Any]:
    if not isinstance(row, Mapping) or any(name not in row for name in NEEDED):
        raise RowError("no_verdict", f"expected a row of stage judge, with {', '.join(NEEDED)}")
    return dict(row)


def _told(queue: Sequence[Mapping[str, Any]], rows: Sequence[Any], gone: Mapping[str, int]) -> Iterator[str]:
    chance = sum(row["chosen_by"] == CHANCE for row in queue)
    mean = sum(row["information"] for row in queue) / len(queue)
    reasons = "".join(f"; {n} {reason} left out" for reason, n in sorted(gone.items()))
    yield f"{len(queue)} of {len(rows)} comparisons to label, {chance} of them drawn by chance{reasons}"
    yield f"mean information {mean:.2f}, of the first tenth {_first(queue):.2f} (0: the judge is sure)"
    yield "labels that are to measure something (agreement, win rates): use those with chosen_by=chance alone"


def _first(queue: Sequence[Mapping[str, Any]]) -> float:
    first = queue[: max(1, len(queue) // 10)]
    return sum(float(row["information"]) for row in first) / len(first)
