"""What a run would do (``stage=status``), and what its first paid model is expected to cost (``dry_run=true``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from pkgutil import resolve_name

from rich.table import Table
from rich.text import Text

from judgetrain.artifacts.console import duration
from judgetrain.artifacts.locks import in_use
from judgetrain.artifacts.shards import seconds_so_far, shard_progress
from judgetrain.engines.config import engines_in
from judgetrain.errors import ConfigError
from judgetrain.pipeline.graph import STAGES
from judgetrain.pipeline.run import Pipeline, Plan

TARGETS = ("dpo", "evaluate")
NO_INPUT = "no input"
"""The state of a stage that reads a file which is not there, or needs one that does."""


def rows(pipeline: Pipeline) -> list[dict[str, str]]:
    """One row a stage: its state, how far it is, and what a run of each of :data:`TARGETS` would do with it.

    A stage that lacks an input file has no fingerprint: its row names the file's key.
    """
    wanted = {target: _wanted(pipeline, target) for target in TARGETS}
    return [{"stage": name} | _row(pipeline, name, wanted) for name in STAGES]


def _wanted(pipeline: Pipeline, target: str) -> set[str]:
    """The stages that a run of the target would make or reuse."""
    try:
        missing = {*pipeline.missing(target)}
    except ConfigError:  # a run would stop before its first stage
        return {*pipeline.needed(target)}
    return {*missing, *(name for name in pipeline.needed(target) if pipeline.plan(name).finished)}


def show(pipeline: Pipeline) -> None:
    """Print the table for the pipeline's configuration: a line a stage at 80 columns.

    Raises:
        ConfigError: input files are missing; said of each once, after the table.
    """
    console, found = pipeline.console, rows(pipeline)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for column in found[0]:
        table.add_column(column.removeprefix("stage="), overflow="fold", no_wrap=column != "detail")
    for row in found:
        table.add_row(*row.values())
    title = f"recipe {pipeline.config.recipe_name}, seed {pipeline.config.seed}: {pipeline.root}/STAGE/FINGERPRINT"
    parts = [Text(title), table, Text(f"{', '.join(TARGETS)}: what a run would do (models unchecked)")]
    console.plain(parts)
    if any(row["state"] == NO_INPUT for row in found):
        raise ConfigError("\n".join(dict.fromkeys(_lacking(pipeline))))


def _lacking(pipeline: Pipeline) -> Iterator[str]:
    """What is said of each stage that has no plan, since a file of its own or of a stage before it is missing."""
    for name in STAGES:
        try:
            pipeline.plan(name)
        except ConfigError as error:
            yield from str(error).splitlines()


def _row(pipeline: Pipeline, name: str, wanted: dict[str, set[str]]) -> dict[str, str]:
    try:
        plan = pipeline.plan(name)
    except ConfigError as error:
        stop = {f"stage={target}": "stop" if name in stages else "-" for target, stages in wanted.items()}
        return {"fingerprint": "-", "state": NO_INPUT, **stop, "detail": str(error).partition("=")[0]}
    damage = pipeline.damage(name)
    state = "damaged" if damage else "done" if plan.finished else "missing"
    if state == "missing" and plan.directory.exists():
        state = "running" if in_use(plan.directory) else "partial"
    action = {"done": "reuse", "running": "wait", "partial": "resume", "missing": "make", "damaged": "stop"}[state]
    actions = {f"stage={target}": action if name in stages else "-" for target, stages in wanted.items()}
    found = damage or (_done(plan) if state == "done" else _partial(plan) if state != "missing" else "")
    return {"fingerprint": plan.fingerprint, "state": state, **actions, "detail": found}


def _done(plan: Plan) -> str:
    counts = (plan.manifest or {})["counts"]
    return f"{counts['in']} in, {counts['out']} out"


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


def show_cost(pipeline: Pipeline) -> None:
    """Print the estimate of the first stage to be made that asks a paid model.

    Raises:
        ConfigError: that stage asks one, and has no estimate.
    """
    wanted = pipeline.config.stage
    pipeline.check(wanted)
    missing = [*pipeline.missing(wanted)]
    for stage in missing:  # what is wrong with what a run would read is said before it costs
        STAGES[stage].check_here(pipeline.settings(stage))
    for stage in missing:
        settings, estimate = pipeline.plan(stage).settings, STAGES[stage].estimate
        paid = {engine.model_name: None for engine in engines_in(settings) if engine.paid}
        if not paid:
            continue
        if not estimate:
            raise ConfigError(
                f"dry_run=true: stage {stage} asks the external models {', '.join(paid)} first, and has no estimate; "
                f"run stage={stage}, then this"
            )
        for line in resolve_name(estimate)(settings, partial(_inputs, pipeline, stage)):
            pipeline.console.line(line)
        return
    pipeline.console.line(f"{wanted}: dry run: 0 calls, since no model that is paid for is asked")


def _inputs(pipeline: Pipeline, stage: str) -> Mapping[str, Path]:
    """Make what a stage needs; gives its directories."""
    return {name: pipeline.run(name) for name in STAGES[stage].inputs(pipeline.settings(stage))}
