"""``stage=status``: what there is, what is partial, and what a run would do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

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
    return [_row(pipeline.plan(name), wanted, pipeline.damage(name)) for name in STAGES]


def _finished(pipeline: Pipeline, target: str) -> Iterator[str]:
    return (name for name in pipeline.needed(target) if pipeline.plan(name).finished)


def show(pipeline: Pipeline) -> None:
    """Print the table for the pipeline's configuration."""
    title = f"recipe {pipeline.config.recipe_name}, seed {pipeline.config.seed}: {pipeline.root}/STAGE/FINGERPRINT"
    table = Table(title=title, title_justify="left")
    found = rows(pipeline)
    for column in found[0]:
        table.add_column(column, no_wrap=column != "detail")
    for row in found:
        table.add_row(*row.values())
    console = Console()
    # Off a terminal nothing is cut or wrapped to a width that nobody has.
    (console if console.is_terminal else Console(width=160)).print(table)


def _row(plan: Plan, wanted: dict[str, set[str]], damage: str | None) -> dict[str, str]:
    name = plan.stage.name
    state = "damaged" if damage else "done" if plan.finished else "missing"
    if state == "missing" and plan.directory.exists():
        state = "running" if in_use(plan.directory) else "partial"
    action = {"done": "reuse", "running": "wait", "partial": "resume", "missing": "make", "damaged": "stop"}[state]
    details = {"done": _done, "partial": _partial, "running": _partial}
    detail = damage or (details[state](plan) if state in details else "")
    row = {"stage": name, "fingerprint": plan.fingerprint, "state": state, "detail": detail}
    return row | {f"stage={target}": action if name in stages else "-" for target, stages in wanted.items()}


def _done(plan: Plan) -> str:
    manifest = plan.manifest or {}
    counts = manifest["counts"]
    parts = [f"{counts['in']} in, {counts['out']} out"]
    if counts["dropped"]:
        parts.append(f"{sum(counts['dropped'].values())} dropped")
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
