"""What stages ``stress`` and ``label_queue`` found of the judges of evaluations that are put together in a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from judgetrain.artifacts.files import read_json
from judgetrain.artifacts.integrity import MANIFEST, checked
from judgetrain.evaluate.report.provenance import lineage
from judgetrain.serving.queue.stages import LABEL_QUEUE
from judgetrain.serving.stress.stages import STRESS

Row = dict[str, Any]


def stressed(runs: Mapping[Path, str]) -> list[Row]:
    """The lines of every ``stress.json`` of evaluations, of one proxy and gold standard the last.

    Args:
        runs: what evaluations are called in the report, by their directories.
    """
    rows: dict[tuple[str, ...], Row] = {}
    for directory, run, _ in _of(STRESS.name, runs):
        found = read_json(directory / "stress.json")
        for line in found["summary"]:
            facts = {"run": run, "gold": found["gold"], "prompts": found["prompts"], "artifact": _name(directory)}
            rows.setdefault((run, line["proxy"], found["gold"]), {**line, **facts})
    return list(rows.values())


def queues(runs: Mapping[Path, str]) -> list[Row]:
    """What every queue of comparisons to label says of itself in its manifest; ``runs`` as of :func:`stressed`."""
    rows = []
    for directory, run, manifest in _of(LABEL_QUEUE.name, runs):
        if facts := manifest.get("notes", {}).get(LABEL_QUEUE.name):
            rows.append({**facts, "run": run, "artifact": _name(directory)})
    return rows


def _of(stage: str, runs: Mapping[Path, str]) -> Iterator[tuple[Path, str, Mapping[str, Any]]]:
    """The finished artifacts of a stage that belong to evaluations, the last first, with the names of those.

    They lie under the same ``output_dir``, have the same seed, and what both were made from is the same.

    Raises:
        DataError: one is damaged; says how to make it again.
    """
    roots = {run: run.resolve().parents[1] for run in runs}
    beside = {path.parent for root in roots.values() for path in root.glob(f"{stage}/*/{MANIFEST}")}
    known = {run: _origin(run.resolve()) for run in runs} if beside else {}
    for directory in sorted(beside, key=lambda d: ((d / MANIFEST).stat().st_mtime, d), reverse=True):
        manifest = checked(directory) or {}
        origin = _origin(directory)
        of = [run for run, root in roots.items() if root == directory.parents[1] and _agree(origin, known[run])]
        if of:
            yield directory, "; ".join(runs[run] for run in of if runs[run]), manifest


def _origin(directory: Path) -> tuple[Any, dict[str, str]]:
    """An artifact's seed, and by stage the artifact that was used, the last where there are several rounds."""
    rows = lineage([directory])
    return rows[-1]["seed"], {stage: mark for row in rows for stage, mark in (row["upstream"] or {}).items()}


def _agree(first: tuple[Any, dict[str, str]], second: tuple[Any, dict[str, str]]) -> bool:
    (seed, made), (other, known) = first, second
    return bool(seed == other) and all(known.get(name, mark) == mark for name, mark in made.items())


def _name(directory: Path) -> str:
    return f"{directory.parent.name}/{directory.name}"
