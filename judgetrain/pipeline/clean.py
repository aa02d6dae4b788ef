"""``stage=clean``: artifacts that nothing refers to are listed, and on request removed."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from judgetrain import rooms
from judgetrain.artifacts.integrity import MANIFEST, lineage
from judgetrain.artifacts.locks import cleaning
from judgetrain.errors import ConfigError
from judgetrain.pipeline.graph import STAGES
from judgetrain.pipeline.run import Pipeline
from judgetrain.pipeline.sweeps import JOB


def clean(pipeline: Pipeline) -> None:
    """Print what nothing refers to; with ``yes`` remove it.

    Kept is: whatever the present settings would use or resume, every result, what the jobs of sweeps came to, and
    everything that these were made from. Links to elsewhere are left alone.

    Raises:
        ConfigError: ``output_dir`` is not there, or another process makes or reads artifacts in it.
    """
    home, console = Path(pipeline.config.output_dir), pipeline.console
    if not home.is_dir():
        raise ConfigError(f"output_dir={str(home)!r}: there is no such directory, so nothing to remove")
    with cleaning(home) as alone:
        if not alone:
            raise ConfigError(f"output_dir={str(home)!r}: another process is at work there; clean when it has ended")
        found = leftovers(pipeline)
        if not found:
            console.line(f"clean: nothing to remove: every artifact in {pipeline.root} is used")
            return
        for directory in found:
            state = "finished" if (directory / MANIFEST).is_file() else "unfinished"
            changed = time.strftime("%Y-%m-%d %H:%M", time.localtime(directory.stat().st_mtime))
            console.line(f"{directory}: {state}, {_size(directory)}, changed {changed}")
        if not pipeline.config.yes:
            console.line(f"clean: {len(found)} artifacts would be removed; add yes=true to remove them")
            return
        for directory in found:
            (directory / MANIFEST).unlink(missing_ok=True)  # first, so that no half looks whole
            shutil.rmtree(directory)
        console.line(f"clean: {len(found)} artifacts removed")


def leftovers(pipeline: Pipeline) -> list[Path]:
    """The directories of artifacts that nothing refers to."""
    kept = set(_used(pipeline))
    return [directory for directory in _artifacts(pipeline) if directory.resolve() not in kept]


def _artifacts(pipeline: Pipeline) -> Iterator[Path]:
    """The directories of artifacts that lie in ``output_dir`` themselves, and are no links to elsewhere."""
    for stage in STAGES:
        for directory in sorted((pipeline.root / stage).glob("*/")):
            if directory.resolve() == pipeline.root.resolve() / stage / directory.name:
                yield directory


def _used(pipeline: Pipeline) -> Iterator[Path]:
    output = Path(pipeline.config.output_dir)
    roots = [pipeline.plan(name).directory for name in STAGES]
    results = [name for name, stage in rooms.stages().items() if stage.result]
    roots += [path.parent for stage in results for path in (pipeline.root / stage).glob(f"*/{MANIFEST}")]
    for job in output.glob(f"sweeps/*/*/*/{JOB}"):
        if directory := json.loads(job.read_text(encoding="utf-8")).get("directory"):
            roots.append(Path(directory))
    return lineage(*roots)


def _size(directory: Path) -> str:
    """What a directory takes on the disk, as a reader wants it."""
    size = float(sum(p.stat().st_size for p in directory.rglob("*") if p.is_file()))
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
