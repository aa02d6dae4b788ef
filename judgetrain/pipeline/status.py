"""``stage=status``: what there is, what is partial, and what a run would do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from judgetrain.artifacts.console import duration
from judgetrain.artifacts.locks import in_use
from judgetrain.artifacts.shards import seconds_so_far, shard_progress
from judgetrain.artifacts.stage_run import MANIFEST
from judgetrain.pipeline.graph import STAGES
from judgetrain.pipeline.run import Pipeline, Plan

TARGETS = ("dpo", "evaluate")


def rows(pipeline: Pipeline) -> list[dict[str, str]]:
    """One row a stage: its state, how far it is, and what a run of each of :data:`TARGETS` would do with it."""
    wanted = {target: {*pipeline.missing(target), *_finished(pipeline, target)} for target in TARGETS}
    detail = pipeline.config.status.detail
    return [_row(pipeline.plan(name), wanted, pipeline.damage(name), detail) for name in STAGES]


def _finished(pipeline: Pipeline, target: str) -> Iterator[str]:
    return (name for name in pipeline.needed(target) if pipeline.plan(name).finished)


def show(pipeline: Pipeline) -> None:
    """Print the table for the pipeline's configuration: a line a stage at 80 columns, unless ``status.detail``."""
    console, found = pipeline.console, rows(pipeline)
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    for column in found[0]:
        table.add_column(column.removeprefix("stage="), overflow="fold", no_wrap=column != "detail")
    for row in found:
        table.add_row(*row.values())
    title = f"recipe {pipeline.config.recipe_name}, seed {pipeline.config.seed}: {pipeline.root}/STAGE/FINGERPRINT"
    more = "" if pipeline.config.status.detail else "; status.detail=true adds times and sizes"
    console.plain([Text(title), table, Text(f"{', '.join(TARGETS)}: what a run of that stage would do{more}")])


def _row(plan: Plan, wanted: dict[str, set[str]], damage: str | None, detail: bool) -> dict[str, str]:
    name = plan.stage.name
    state = "damaged" if damage else "done" if plan.finished else "missing"
    if state == "missing" and plan.directory.exists():
        state = "running" if in_use(plan.directory) else "partial"
    action = {"done": "reuse", "running": "wait", "partial": "resume", "missing": "make", "damaged": "stop"}[state]
    actions = {f"stage={target}": action if name in stages else "-" for target, stages in wanted.items()}
    found = damage or (_done(plan, detail) if state == "done" else _partial(plan) if state != "missing" else "")
    return {"stage": name, "fingerprint": plan.fingerprint, "state": state, **actions, "detail": found}


def _done(plan: Plan, detail: bool) -> str:
    manifest = plan.manifest or {}
    counts = manifest["counts"]
    parts = [f"{counts['in']} in, {counts['out']} out"]
    if counts["dropped"]:
        parts.append(f"{sum(counts['dropped'].values())} dropped")
    if not detail:
        return ", ".join(parts)
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime((plan.directory / MANIFEST).stat().st_mtime))
    return ", ".join([*parts, duration(manifest["seconds"]), size_of(plan.directory), when])


def _partial(plan: Plan) -> str:
    directory, parts = plan.directory, []
    shards = shard_progress(directory)
    if shards:
        parts.append(f"{shards[0]} of {shards[1]} shards")
    steps = [p.name.rsplit("-", 1)[1] for p in directory.glob("checkpoints/checkpoint-*") if p.is_dir()]
    if steps:
        parts.append(f"training step {max(map(int, filter(str.isdigit, steps)), default=0)}")
    if spent := seconds_so_far(directory):
        parts.append(f"{duration(spent)} so far")
    return ", ".join(parts or ["started"])


def size_of(directory: Path) -> str:
    """What a directory (or a file) takes on the disk, as a reader wants it."""
    size = float(sum(p.stat().st_size for p in [directory, *directory.rglob("*")] if p.is_file()))
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
