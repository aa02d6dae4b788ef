"""``stage=clean``: artifacts that nothing refers to, listed, and with ``clean.yes=true`` removed."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from judgetrain.artifacts.locks import held_if_free
from judgetrain.artifacts.stage_run import MANIFEST
from judgetrain.pipeline.graph import STAGES
from judgetrain.pipeline.run import Pipeline
from judgetrain.pipeline.status import size_of
from judgetrain.pipeline.sweeps import JOB


@dataclass(frozen=True)
class Leftover:
    """An artifact's directory that nothing refers to, and why it is there."""

    directory: Path
    finished: bool


def clean(pipeline: Pipeline) -> None:
    """Print what nothing refers to; with ``clean.yes`` remove it.

    Kept is: whatever the present settings would use or resume, the evaluations (with ``clean.evaluations`` only those
    of the present settings, of sweeps and of merged reports), what the jobs of sweeps came to, and everything that
    these were made from. What another process is making at the moment is left alone.
    """
    settings, console = pipeline.config.clean, pipeline.console
    found = leftovers(pipeline, settings.evaluations)
    if not found:
        console.line(f"clean: nothing to remove: every artifact in {pipeline.root} is used")
        return
    console.plain([_table(found)])
    if not settings.yes:
        console.line(f"clean: {len(found)} artifacts would be removed; add clean.yes=true to remove them")
        return
    removed = [entry for entry in found if _remove(entry.directory)]
    console.line(f"clean: {len(removed)} of {len(found)} artifacts removed")


def leftovers(pipeline: Pipeline, evaluations: bool = False) -> list[Leftover]:
    """What nothing refers to; ``evaluations``: evaluations of other settings are no reason to keep anything."""
    kept = set(_used(pipeline, evaluations))
    found = []
    for stage in STAGES:
        for directory in sorted((pipeline.root / stage).glob("*/")):
            if directory.resolve() not in kept:
                found.append(Leftover(directory, (directory / MANIFEST).is_file()))
    return found


def _used(pipeline: Pipeline, evaluations: bool) -> Iterator[Path]:
    output, roots = Path(pipeline.config.output_dir), [pipeline.plan(name).directory for name in STAGES]
    if not evaluations:
        roots += [path.parent for path in (pipeline.root / "evaluate").glob(f"*/{MANIFEST}")]
    for job in output.glob(f"sweeps/*/*/*/{JOB}"):
        if directory := json.loads(job.read_text(encoding="utf-8")).get("directory"):
            roots.append(Path(directory))
    for summary in output.glob("reports/*/summary.json"):
        marks = [run["fingerprint"] for run in json.loads(summary.read_text(encoding="utf-8"))["runs"]]
        roots += [pipeline.root / "evaluate" / mark for mark in marks]
    seen: set[Path] = set()
    while roots:
        directory = roots.pop().resolve()
        if directory in seen:
            continue
        seen.add(directory)
        yield directory
        if (directory / MANIFEST).is_file():
            upstream = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))["upstream"]
            roots += [directory.parent.parent / stage / mark for stage, mark in upstream.items()]


def _remove(directory: Path) -> bool:
    """Remove an artifact unless another process holds it; the manifest goes first, so that no half looks whole."""
    with held_if_free(directory) as free:
        if free:
            (directory / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(directory)
    return free


def _table(found: list[Leftover]) -> object:
    from rich import box
    from rich.table import Table

    table = Table(title="nothing refers to", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("directory", "state", "size", "last change"):
        table.add_column(column, overflow="fold")
    for entry in found:
        changed = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.directory.stat().st_mtime))
        state = "finished" if entry.finished else "unfinished"
        table.add_row(str(entry.directory), state, size_of(entry.directory), changed)
    return table
