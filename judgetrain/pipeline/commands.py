"""The commands status (what a run would do), dry run (what it would cost) and clean (what nothing uses)."""

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from rich.table import Table
from rich.text import Text

from judgetrain import rooms
from judgetrain.amounts import amount
from judgetrain.artifacts.files import cleaning, in_use, read_json
from judgetrain.artifacts.integrity import MANIFEST, lineage
from judgetrain.artifacts.shards import TOLD
from judgetrain.artifacts.stage_run import NOTES
from judgetrain.engines.config import engines_in
from judgetrain.errors import ConfigError, DataError
from judgetrain.evaluate.report.naming import flat
from judgetrain.pipeline.config import STAGES
from judgetrain.pipeline.run import Pipeline, Plan
from judgetrain.pipeline.sweeps import JOB

TARGETS = ("dpo", "evaluate")
"""The stages whose runs status foresees."""
ACTIONS = {"done": "reuse", "running": "wait", "partial": "resume", "missing": "make", "damaged": "stop"}
"""The part of a run in a stage, by the state of its artifact."""
DIFFERENCES = 4
"""The most settings that status names of an artifact that lies in the place of another."""
UNREAD = "unread"
"""The part of a run in a damaged artifact that it needs no more: it goes on, and says so."""


def rows(pipeline: Pipeline, lacking: list[str] | None = None) -> list[dict[str, str]]:
    """Return one row a stage: its state, its progress, and what a run of each of :data:`TARGETS` would do with it.

    Args:
        pipeline: the configuration.
        lacking: gets the messages of missing input files. A stage that lacks one has no fingerprint; its row names the
            key of the file.
    """
    parts = {target: _part_of_run(pipeline, target) for target in TARGETS}
    messages: list[str] = []
    if lacking is not None:
        messages = lacking
    return [{"stage": name} | _row(pipeline, name, parts, messages) for name in STAGES]


@dataclass(frozen=True)
class _Part:
    """The stages that take part in a run.

    Args:
        stages: those that it would make or reuse.
        read: those of them whose artifacts it would read or go on with.
    """

    stages: set[str]
    read: set[str]


def _part_of_run(pipeline: Pipeline, target: str) -> _Part:
    """Return the stages that take part in a run of a stage."""
    needed = set(pipeline.needed(target))
    try:
        missing = set(pipeline.missing(target))
        read = set(pipeline.read_by(target))
    except ConfigError:
        # An input file is missing: the run would stop before its first stage.
        return _Part(needed, set())
    # A stage that is neither missing nor finished stands before a finished one, which needs it no more.
    return _Part(missing | {name for name in needed if pipeline.plan(name).finished}, read)


def show(pipeline: Pipeline) -> None:
    """Print a line a stage, at 80 columns.

    Raises:
        ConfigError: a run would stop, since input files are missing or an artifact is damaged; names all of them.
    """
    lacking: list[str] = []
    table_rows = rows(pipeline, lacking)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for column in table_rows[0]:
        # Only the last column may be folded, so that names and fingerprints can be copied.
        table.add_column(column.removeprefix("stage="), overflow="fold", no_wrap=column != "detail")
    for row in table_rows:
        actions = {row[f"stage={target}"] for target in TARGETS}
        # A stage of an extra that nobody runs would only fill the table.
        if row["state"] != "missing" or actions != {"-"}:
            table.add_row(*row.values())
    title = f"recipe {pipeline.config.recipe_name}, seed {pipeline.config.seed}: {pipeline.root}/STAGE/FINGERPRINT"
    note = f"{', '.join(TARGETS)}: what a run would do (models unchecked)"
    pipeline.console.plain([Text(title), table, Text(note)])
    if lacking:
        raise ConfigError("\n".join(dict.fromkeys(lacking)))
    for line in instead(pipeline):
        pipeline.console.plain([Text(line)])


def instead(pipeline: Pipeline) -> Iterator[str]:
    """Yield what status looked for and did not find, and what lies there under other settings.

    Nothing where the first stage that is missing was never made under any: then it is simply to be made.
    """
    home = Path(pipeline.config.output_dir)
    if not any(pipeline.root.glob(f"*/*/{MANIFEST}")):
        yield (
            f"nothing is there: looked for {pipeline.root.resolve()}/STAGE/FINGERPRINT; a run in another directory is "
            f"seen from there, or with output_dir=DIR (now {home})"
        )
        return
    for name in dict.fromkeys(stage for target in TARGETS for stage in pipeline.missing(target)):
        plan = pipeline.plan(name)
        nearest = _nearest(plan)
        if nearest is None:
            continue
        directory, manifest, differences = nearest
        settings = ", ".join(differences[:DIFFERENCES]) or "files of other content, or stages before it that differ"
        if len(differences) > DIFFERENCES:
            settings += f" and {len(differences) - DIFFERENCES} more settings"
        yield (
            f"{name}: looked for {plan.directory}; there is {directory.name} of recipe {manifest.get('recipe')}, seed "
            f"{manifest.get('seed')}: {settings}"
        )
        yield "status with the recipe and the overrides of that run shows it"
        return


def _nearest(plan: Plan) -> tuple[Path, Mapping[str, Any], list[str]] | None:
    """Return the finished artifact of a stage whose settings differ least from a plan's, and how they differ.

    None where there is no other artifact of the stage. Of several the newest is taken.
    """
    own = flat(plan.shown)
    nearest: tuple[Path, Mapping[str, Any], list[str]] | None = None
    manifests = sorted(plan.directory.parent.glob(f"*/{MANIFEST}"), key=lambda path: -path.stat().st_mtime)
    for path in manifests:
        manifest = read_json(path)
        if not isinstance(manifest, dict):
            continue
        others = flat(manifest.get("config") or {})
        differences = []
        for key in sorted(own.keys() | others.keys()):
            if own.get(key) != others.get(key):
                differences.append(f"{key}={others.get(key, 'unset')} (here {own.get(key, 'unset')})")
        if nearest is None or len(differences) < len(nearest[2]):
            nearest = (path.parent, manifest, differences)
    return nearest


def _row(pipeline: Pipeline, name: str, parts: dict[str, _Part], lacking: list[str]) -> dict[str, str]:
    """Return the row of a stage without its name.

    Args:
        pipeline: the configuration.
        name: of the stage.
        parts: the stages that take part in a run of each target.
        lacking: gets the messages by which a run would stop: of missing input files and damaged artifacts.
    """
    try:
        plan = pipeline.plan(name)
    except ConfigError as error:
        # A stage that neither run takes may lack files without harm.
        if any(name in part.stages for part in parts.values()):
            lacking += str(error).splitlines()
        key, _, _ = str(error).partition("=")
        return {"fingerprint": "-", "state": "no input", **_actions("stop", name, parts), "detail": key}

    is_read = any(name in part.read for part in parts.values())
    refusal = None
    if is_read:
        refusal = pipeline.refusal(name)
    if refusal:
        lacking.append(str(refusal))
    state, detail = _state(pipeline, plan, refusal)
    actions = _actions(ACTIONS[state], name, parts)
    return {"fingerprint": plan.fingerprint, "state": state, **actions, "detail": detail}


def _state(pipeline: Pipeline, plan: Plan, refusal: DataError | None) -> tuple[str, str]:
    """Return the state of a stage's artifact, one of :data:`ACTIONS`, and its counts, progress or damage in words.

    Args:
        pipeline: the configuration.
        plan: of the stage.
        refusal: the error of a run that reads the artifact or goes on with it.
    """
    # Large files only where a run would read them too: status then says what the run says.
    damage = pipeline.damage(plan.stage.name, large=refusal is not None)
    if damage:
        return "damaged", damage
    if refusal:
        return "damaged", f"{NOTES} is damaged"
    if plan.finished:
        counts = (plan.manifest or {})["counts"]
        return "done", TOLD.format(**counts)
    if not plan.directory.exists():
        return "missing", ""
    if in_use(plan.directory):
        return "running", plan.progress
    return "partial", plan.progress


def _actions(action: str, name: str, parts: dict[str, _Part]) -> dict[str, str]:
    """Return the columns of the targets: the action where a run takes the stage, else a dash."""
    columns = {}
    for target, part in parts.items():
        column = "-"
        if name in part.stages:
            column = action
            # What is missing is missed by every run; what is damaged stops those that read it.
            if action == ACTIONS["damaged"] and part.read and name not in part.read:
                column = UNREAD
        columns[f"stage={target}"] = column
    return columns


def show_cost(pipeline: Pipeline) -> None:
    """Print the estimate of the first stage to be made that asks a paid model.

    Raises:
        ConfigError: the stage has no estimate.
    """
    target = pipeline.config.stage
    pipeline.check(target)
    missing = list(pipeline.missing(target))
    # A wrong file or model is to be reported before it costs anything.
    for stage in missing:
        STAGES[stage].check_here(pipeline.settings(stage))

    for stage in missing:
        settings = pipeline.plan(stage).settings
        paid_models = [engine.model_name for engine in engines_in(settings) if engine.paid]
        if paid_models:
            break
    else:
        pipeline.console.line(f"{target}: dry run: 0 calls, since no model that is paid for is asked")
        return

    estimate = STAGES[stage].estimate
    if not estimate:
        models = ", ".join(dict.fromkeys(paid_models))
        alternative = ""
        if stage != target:
            alternative = f"; or run stage={stage}, then this"
        raise ConfigError(
            f"dry_run=true: stage {stage} asks {models}, and has no estimate; "
            f"its max_requests and max_tokens limit what is sent{alternative}"
        )
    inputs = STAGES[stage].inputs(settings)
    # The inputs cost nothing, and the estimate counts their rows.
    for line in resolve_name(estimate)(settings, lambda: {name: pipeline.run(name) for name in inputs}):
        pipeline.console.line(line)


def clean(pipeline: Pipeline) -> None:
    """Print the artifacts that nothing refers to; with ``yes`` remove them.

    These are kept: the artifacts that the present settings would use or resume, every result, the results of sweeps'
    jobs, and everything that these were made from. Links to elsewhere are left alone.

    Raises:
        ConfigError: there is no such directory, or another process is at work there.
    """
    home = Path(pipeline.config.output_dir)
    console = pipeline.console
    if not home.is_dir():
        raise ConfigError(f"output_dir={str(home)!r}: there is no such directory, so nothing to remove")
    # A run in another process may have planned to reuse what looks unused from here.
    with cleaning(home) as is_alone:
        if not is_alone:
            raise ConfigError(f"output_dir={str(home)!r}: another process is at work there; clean when it has ended")
        unused = leftovers(pipeline)
        if not unused:
            console.line(f"clean: nothing to remove: every artifact in {pipeline.root} is used")
            return
        for directory in unused:
            console.line(_described(directory))
        if not pipeline.config.yes:
            console.line(f"clean: {amount(len(unused), 'artifact')} would be removed; add yes=true to remove them")
            return
        for directory in unused:
            # The manifest goes first, so that half a directory does not look whole.
            (directory / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(directory)
        console.line(f"clean: {amount(len(unused), 'artifact')} removed")


def _described(directory: Path) -> str:
    """Return an artifact's state, size and date in one line."""
    state = "unfinished"
    if (directory / MANIFEST).is_file():
        state = "finished"
    changed = time.strftime("%Y-%m-%d %H:%M", time.localtime(directory.stat().st_mtime))
    megabytes = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) / 1e6
    return f"{directory}: {state}, {megabytes:,.1f} MB, changed {changed}"


def leftovers(pipeline: Pipeline) -> list[Path]:
    """Return the directories of artifacts that nothing refers to, without links to elsewhere."""
    used = set(_used(pipeline))
    root = pipeline.root.resolve()
    unused = []
    for stage in STAGES:
        for directory in sorted((pipeline.root / stage).glob("*/")):
            # A stage's folder, or an artifact, may be a link to a directory that other runs share.
            place = directory.resolve()
            is_link = place != root / stage / directory.name
            if not is_link and place not in used:
                unused.append(directory)
    return unused


def _used(pipeline: Pipeline) -> Iterator[Path]:
    """Return the directories of artifacts that the settings, results and sweeps refer to, and of their inputs."""
    roots = [pipeline.plan(name).directory for name in STAGES]
    for name, stage in rooms.stages().items():
        if stage.result:
            roots += [path.parent for path in (pipeline.root / name).glob(f"*/{MANIFEST}")]
    # A sweep's jobs had other settings than those at hand, and users compare their results.
    for job in Path(pipeline.config.output_dir).glob(f"sweeps/*/*/*/{JOB}"):
        directory = json.loads(job.read_text(encoding="utf-8")).get("directory")
        if directory:
            roots.append(Path(directory))
    return lineage(*roots)
