"""``stage=clean``: artifacts that nothing refers to, or that are damaged, are listed, and on request removed."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from judgetrain import rooms
from judgetrain.artifacts.fingerprint import ContentHashes
from judgetrain.artifacts.integrity import MANIFEST, damage, made_from
from judgetrain.artifacts.locks import cleaning, held_if_free, in_use, needed_by_others
from judgetrain.engines.answers import ANSWERS, broken_answers
from judgetrain.errors import ConfigError, DataError
from judgetrain.pipeline.graph import STAGES
from judgetrain.pipeline.run import Pipeline
from judgetrain.pipeline.sweeps import JOB


@dataclass(frozen=True)
class Leftover:
    """An artifact's directory (or a kept answer's file) that can go, and what it is, in words."""

    directory: Path
    state: str


def clean(pipeline: Pipeline) -> None:
    """Print what nothing refers to, or with ``clean.damaged`` what is damaged; with ``clean.yes`` remove it.

    Kept is: whatever the present settings would use or resume, results (with ``clean.evaluations``
    only those of the present settings, of sweeps and of merged reports), what the jobs of sweeps came to, what other
    processes make or need at the moment, and everything that these were made from. Links to elsewhere are left alone.
    """
    settings, console = pipeline.config.clean, pipeline.console
    if not Path(pipeline.config.output_dir).is_dir():
        raise ConfigError(
            f"output_dir={pipeline.config.output_dir!r}: there is no such directory, so nothing to remove"
        )
    what = "damaged artifacts and answers" if settings.damaged else "artifacts"
    with cleaning(Path(pipeline.config.output_dir)):  # no process begins to need what is looked at
        found = broken(pipeline) if settings.damaged else leftovers(pipeline, settings.evaluations)
        if not found:
            used = f"nothing in {pipeline.config.output_dir} is damaged"
            used = used if settings.damaged else f"every artifact in {pipeline.root} is used"
            console.line(f"clean: nothing to remove: {used}")
            return
        for entry in found:
            changed = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.directory.stat().st_mtime))
            console.line(f"{entry.directory}: {entry.state}, {_size(entry.directory)}, changed {changed}")
        if not settings.yes:
            console.line(f"clean: {len(found)} {what} would be removed; add clean.yes=true to remove them")
            return
        removed = [entry for entry in found if _remove(entry.directory)]
        console.line(f"clean: {len(removed)} of {len(found)} {what} removed")


def leftovers(pipeline: Pipeline, evaluations: bool = False) -> list[Leftover]:
    """What nothing refers to; ``evaluations``: results of other settings are no reason to keep anything."""
    kept = set(_used(pipeline, evaluations))
    return [
        Leftover(directory, "finished" if (directory / MANIFEST).is_file() else "unfinished")
        for directory in _artifacts(pipeline)
        if directory.resolve() not in kept
    ]


def broken(pipeline: Pipeline) -> list[Leftover]:
    """Finished artifacts, and kept answers of paid models, that are not what was written; every file is read."""
    home = Path(pipeline.config.output_dir)
    hashes, found = ContentHashes.of_run(home), []
    kept = set(_made_from(_in_use(pipeline)))
    for directory in _artifacts(pipeline):
        try:
            what = damage(directory, hashes, large=True)
        except DataError:
            what = f"{MANIFEST} is damaged"
        if what and directory.resolve() not in kept:
            found.append(Leftover(directory, what))
    answers = [Leftover(path, "broken answer") for path in broken_answers(home / ANSWERS)]
    return [*found, *answers]


def _artifacts(pipeline: Pipeline) -> Iterator[Path]:
    """The directories of artifacts that lie in ``output_dir`` themselves, and are no links to elsewhere."""
    for stage in STAGES:
        for directory in sorted((pipeline.root / stage).glob("*/")):
            if directory.resolve() == pipeline.root.resolve() / stage / directory.name:
                yield directory


def _used(pipeline: Pipeline, evaluations: bool) -> Iterator[Path]:
    output = Path(pipeline.config.output_dir)
    roots = [pipeline.plan(name).directory for name in STAGES]
    results = [name for name, stage in rooms.stages().items() if stage.result]
    if not evaluations:
        roots += [path.parent for stage in results for path in (pipeline.root / stage).glob(f"*/{MANIFEST}")]
    for job in output.glob(f"sweeps/*/*/*/{JOB}"):
        if directory := json.loads(job.read_text(encoding="utf-8")).get("directory"):
            roots.append(Path(directory))
    for summary in output.glob("reports/*/summary.json"):
        marks = [run["fingerprint"] for run in json.loads(summary.read_text(encoding="utf-8"))["runs"]]
        roots += [pipeline.root / "evaluate" / mark for mark in marks]
    return _made_from([*roots, *_in_use(pipeline)])


def _in_use(pipeline: Pipeline) -> list[Path]:
    """What other processes make, and what they have said that they need."""
    made = [directory for directory in _artifacts(pipeline) if in_use(directory)]
    return [*made, *needed_by_others(Path(pipeline.config.output_dir))]


def _made_from(roots: list[Path]) -> Iterator[Path]:
    """These artifacts and all that they were made from, as far as their manifests tell."""
    seen, waiting = set[Path](), list(roots)
    while waiting:
        directory = waiting.pop().resolve()
        if directory in seen:
            continue
        seen.add(directory)
        yield directory
        with suppress(DataError):
            waiting += made_from(directory).values()


def _remove(place: Path) -> bool:
    """Remove an artifact unless another process holds it; the manifest goes first, so that no half looks whole."""
    if place.is_file():
        place.unlink()
        return True
    with held_if_free(place) as free:
        if free:
            (place / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(place)
    return free


def _size(directory: Path) -> str:
    """What a directory (or a file) takes on the disk, as a reader wants it."""
    size = float(sum(p.stat().st_size for p in [directory, *directory.rglob("*")] if p.is_file()))
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
