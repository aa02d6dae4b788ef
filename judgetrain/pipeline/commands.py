"""Commands: what a run would do or cost (status, dry run), and removing what nothing uses."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

from rich.table import Table
from rich.text import Text

from judgetrain import rooms
from judgetrain.artifacts.files import cleaning, in_use
from judgetrain.artifacts.integrity import MANIFEST, lineage
from judgetrain.artifacts.shards import TOLD
from judgetrain.engines.config import engines_in
from judgetrain.errors import ConfigError
from judgetrain.pipeline.config import STAGES
from judgetrain.pipeline.run import Pipeline
from judgetrain.pipeline.sweeps import JOB

TARGETS = ("dpo", "evaluate")


def rows(pipeline: Pipeline, lacking: list[str] | None = None) -> list[dict[str, str]]:
    """One row a stage: its state, how far it is, and what a run of each of :data:`TARGETS` would do with it.

    A stage that lacks an input file has no fingerprint: its row names the file's key, and ``lacking`` gets the message.
    """
    wanted = {target: _wanted(pipeline, target) for target in TARGETS}
    return [{"stage": name} | _row(pipeline, name, wanted, [] if lacking is None else lacking) for name in STAGES]


def _wanted(pipeline: Pipeline, target: str) -> set[str]:
    try:
        missing = {*pipeline.missing(target)}
    except ConfigError:  # a run would stop before its first stage
        return {*pipeline.needed(target)}
    return {*missing, *(name for name in pipeline.needed(target) if pipeline.plan(name).finished)}


def show(pipeline: Pipeline) -> None:
    """Print a line a stage at 80 columns, then what input files are missing (ConfigError)."""
    lacking: list[str] = []
    console, found = pipeline.console, rows(pipeline, lacking)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for column in found[0]:
        table.add_column(column.removeprefix("stage="), overflow="fold", no_wrap=column != "detail")
    for row in found:
        if {row["state"], *(row[f"stage={target}"] for target in TARGETS)} != {"missing", "-"}:  # nobody asks for it
            table.add_row(*row.values())
    title = f"recipe {pipeline.config.recipe_name}, seed {pipeline.config.seed}: {pipeline.root}/STAGE/FINGERPRINT"
    console.plain([Text(title), table, Text(f"{', '.join(TARGETS)}: what a run would do (models unchecked)")])
    if lacking:
        raise ConfigError("\n".join(dict.fromkeys(lacking)))


def _row(pipeline: Pipeline, name: str, wanted: dict[str, set[str]], lacking: list[str]) -> dict[str, str]:
    try:
        plan = pipeline.plan(name)
    except ConfigError as error:
        if any(name in stages for stages in wanted.values()):
            lacking += str(error).splitlines()
        stop = {f"stage={target}": "stop" if name in stages else "-" for target, stages in wanted.items()}
        return {"fingerprint": "-", "state": "no input", **stop, "detail": str(error).partition("=")[0]}
    damage = pipeline.damage(name)
    state = "damaged" if damage else "done" if plan.finished else "missing"
    if state == "missing" and plan.directory.exists():
        state = "running" if in_use(plan.directory) else "partial"
    action = {"done": "reuse", "running": "wait", "partial": "resume", "missing": "make", "damaged": "stop"}[state]
    actions = {f"stage={target}": action if name in stages else "-" for target, stages in wanted.items()}
    found = damage or ("" if state == "missing" else plan.progress)
    if state == "done":
        found = TOLD.format(**(plan.manifest or {})["counts"])
    return {"fingerprint": plan.fingerprint, "state": state, **actions, "detail": found}


def show_cost(pipeline: Pipeline) -> None:
    """Print the estimate of the first stage to be made that asks a paid model (ConfigError: it has no estimate)."""
    wanted = pipeline.config.stage
    pipeline.check(wanted)
    missing = [*pipeline.missing(wanted)]
    for stage in missing:  # what is wrong with what a run would read is said before it costs
        STAGES[stage].check_here(pipeline.settings(stage))
    asked = ((s, [each.model_name for each in engines_in(pipeline.plan(s).settings) if each.paid]) for s in missing)
    stage, paid = next((found for found in asked if found[1]), ("", []))
    if not stage:
        pipeline.console.line(f"{wanted}: dry run: 0 calls, since no model that is paid for is asked")
        return
    settings, estimate = pipeline.plan(stage).settings, STAGES[stage].estimate
    if not estimate:
        told = f"dry_run=true: stage {stage} asks {', '.join(dict.fromkeys(paid))}, and has no estimate"
        first = "" if stage == wanted else f"; or run stage={stage}, then this"
        raise ConfigError(f"{told}; its max_requests and max_tokens limit what is sent{first}")
    inputs = STAGES[stage].inputs(settings)
    for line in resolve_name(estimate)(settings, lambda: {name: pipeline.run(name) for name in inputs}):
        pipeline.console.line(line)


def clean(pipeline: Pipeline) -> None:
    """Print what nothing refers to; with ``yes`` remove it (ConfigError: another process is at work there).

    Kept is: whatever the present settings would use or resume, every result, what the jobs of sweeps came to, and
    everything that these were made from. Links to elsewhere are left alone.
    """
    home, console = Path(pipeline.config.output_dir), pipeline.console
    if not home.is_dir():
        raise ConfigError(f"output_dir={str(home)!r}: there is no such directory, so nothing to remove")
    with cleaning(home) as alone:
        if not alone:
            raise ConfigError(f"output_dir={str(home)!r}: another process is at work there; clean when it has ended")
        if not (found := leftovers(pipeline)):
            console.line(f"clean: nothing to remove: every artifact in {pipeline.root} is used")
            return
        for directory in found:
            state = "finished" if (directory / MANIFEST).is_file() else "unfinished"
            changed = time.strftime("%Y-%m-%d %H:%M", time.localtime(directory.stat().st_mtime))
            size = sum(p.stat().st_size for p in directory.rglob("*") if p.is_file()) / 1e6
            console.line(f"{directory}: {state}, {size:,.1f} MB, changed {changed}")
        if not pipeline.config.yes:
            console.line(f"clean: {len(found)} artifacts would be removed; add yes=true to remove them")
            return
        for directory in found:
            (directory / MANIFEST).unlink(missing_ok=True)  # first, so that no half looks whole
            shutil.rmtree(directory)
        console.line(f"clean: {len(found)} artifacts removed")


def leftovers(pipeline: Pipeline) -> list[Path]:
    """The directories of artifacts that nothing refers to, and that are no links to elsewhere."""
    kept, root = set(_used(pipeline)), pipeline.root.resolve()
    found = (directory for stage in STAGES for directory in sorted((pipeline.root / stage).glob("*/")))
    own = (d for d in found if d.resolve() == root / d.parent.name / d.name)
    return [directory for directory in own if directory.resolve() not in kept]


def _used(pipeline: Pipeline) -> Iterator[Path]:
    output = Path(pipeline.config.output_dir)
    roots = [pipeline.plan(name).directory for name in STAGES]
    results = [name for name, stage in rooms.stages().items() if stage.result]
    roots += [path.parent for stage in results for path in (pipeline.root / stage).glob(f"*/{MANIFEST}")]
    for job in output.glob(f"sweeps/*/*/*/{JOB}"):
        if directory := json.loads(job.read_text(encoding="utf-8")).get("directory"):
            roots.append(Path(directory))
    return lineage(*roots)
