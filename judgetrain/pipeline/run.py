"""Fingerprints of stages, and running whatever is missing."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from judgetrain import rooms
from judgetrain.artifacts.console import VERBOSE, Console, duration, quiet_libraries
from judgetrain.artifacts.executor import executor_type
from judgetrain.artifacts.files import full_disk_explained, locked, read_json, using, write_json_atomic
from judgetrain.artifacts.fingerprint import Content, ContentHashes, by_key, checks_of, fingerprint, plain, versions
from judgetrain.artifacts.integrity import MANIFEST, damage, damaged, read_manifest, sealed
from judgetrain.artifacts.shards import SECONDS, TOLD, seconds_so_far, shard_progress
from judgetrain.artifacts.stage_run import PRINTED, StageRun
from judgetrain.artifacts.stages import Stage, StageSettings
from judgetrain.artifacts.tracker import StageFacts, TrackConfig, tracked
from judgetrain.errors import ConfigError, DataError, JudgetrainError, NothingToLearnError
from judgetrain.pipeline.config import STAGES, Config
from judgetrain.pipeline.processes import Task, call, launch, run_stage, stage_run
from judgetrain.train import distributed
from judgetrain.train.config import complete


@dataclass(frozen=True)
class Plan:
    """A stage's place on disk for one configuration."""

    stage: Stage[Any]
    settings: StageSettings
    fingerprint: str
    directory: Path
    content: dict[str, dict[str, str]]
    inputs: "dict[str, Plan]"

    @cached_property
    def upstream(self) -> dict[str, str]:
        """The fingerprints of the inputs."""
        return {name: plan.fingerprint for name, plan in self.inputs.items()}

    @cached_property
    def shown(self) -> dict[str, Any]:
        """The settings by their configuration keys, as manifests and the tracker have them."""
        return by_key(self.settings)

    @cached_property
    def lineage(self) -> dict[str, Any]:
        """The settings of the stage and of all that it is made from: whatever a sweep changed is among them."""
        found: dict[str, Any] = {}
        for shown in (*(plan.lineage for plan in self.inputs.values()), self.shown):
            for key, value in shown.items():
                found[key] = {**found.get(key, {}), **value} if isinstance(value, dict) else value
        return found

    @property
    def manifest(self) -> dict[str, Any] | None:
        """The manifest of the finished artifact, or None (DataError: it is damaged)."""
        return read_manifest(self.directory)

    @property
    def finished(self) -> bool:
        """Whether there is a manifest, whole or not."""
        return (self.directory / MANIFEST).is_file()

    @property
    def progress(self) -> str:
        """How far the unfinished work is that the directory holds, from where a run goes on."""
        parts = []
        if shards := shard_progress(self.directory):
            parts.append(f"{shards[0]} of {shards[1]} shards")
        if (self.directory / "checkpoints").is_dir():
            *_, (step, _) = [(0, None), *complete(self.directory / "checkpoints")]
            parts.append(f"training step {step}")
        if spent := seconds_so_far(self.directory)[0]:
            parts.append(f"{duration(spent)} so far")
        return ", ".join(parts or ["started"])


class Pipeline:
    """Runs stages for one validated configuration; ``made`` names those that were not there before."""

    def __init__(self, config: Config, console: Console | None = None) -> None:
        if Path(config.output_dir).exists() and not Path(config.output_dir).is_dir():
            raise ConfigError(f"output_dir={config.output_dir!r} is a file; give a directory, or the name of a new one")
        self.config = config
        self.console = console or Console()
        self.root = Path(config.output_dir) / "artifacts"
        self._hashes = ContentHashes.of_run(Path(config.output_dir))
        self._plans: dict[str, Plan] = {}
        self.made: list[str] = []

    def settings(self, name: str) -> StageSettings:
        """What a stage reads of the configuration."""
        settings: StageSettings = STAGES[name].settings.of(self.config)
        return settings

    def plan(self, name: str) -> Plan:
        """The plan of a stage (ConfigError: the keys of all input files that are missing, a line each)."""
        if name not in self._plans:
            stage = STAGES[name]
            settings, content, missing = self.settings(name), dict[str, dict[str, str]](), list[str]()
            inputs = {i: self.plan(i) for i in stage.inputs(settings)}

            def hashed(key: str, path: str) -> dict[str, str]:
                try:
                    content[key] = self._content(key, path)
                except ConfigError as error:  # all files that are missing are named, not the first alone
                    missing.append(str(error))
                return content.get(key, {})

            try:
                mark = self._fingerprint(stage, settings, inputs, hashed)
            except ConfigError as error:
                missing.append(str(error))
            if missing:
                raise ConfigError("\n".join(missing))
            self._plans[name] = Plan(stage, settings, mark, self.root / name / mark, content, inputs)
        return self._plans[name]

    def _fingerprint(
        self, stage: Stage[Any], settings: StageSettings, inputs: Mapping[str, Plan], content: Content
    ) -> str:
        """Of an input that the stage reads in part, what decides that part stands for it."""
        upstream: dict[str, Any] = {i: plan.fingerprint for i, plan in inputs.items()}
        for i, part in stage.reads.items():
            plan = inputs[i]
            decides = plan.stage.parts[part](plan.settings)
            upstream[i] = self._fingerprint(plan.stage, decides, plan.inputs, self._content)
        for i, name in product(inputs, settings.beside_inputs):
            if (path := inputs[i].directory / name).exists():
                upstream[f"{i}/{name}"] = self._content(f"{i}/{name}", str(path))
        return fingerprint(
            {"stage": stage.name, "format": stage.format, "upstream": upstream, "settings": plain(settings, content)}
        )

    def _content(self, key: str, path: str) -> dict[str, str]:
        try:
            found = self._hashes.of(path)
        except OSError as error:
            raise ConfigError(f"{key}={path!r}: cannot be read ({error.strerror})") from error
        except DataError as error:
            raise ConfigError(f"{key}={error}") from error
        if not found:
            inside, place = "", self.config.data_dir
            if place and Path(path).is_relative_to(place):
                inside = f"; or set data_dir (now {place}) to the directory that holds it"
            what = "an empty directory" if Path(path).expanduser().is_dir() else "no such file"
            raise ConfigError(f"{key}={path!r}: {what}; give an existing path{inside}")
        return found

    def needed(self, name: str) -> Iterator[str]:
        """The stage and everything that it needs, inputs first."""
        return self._inputs_first(name, lambda stage: False)

    def missing(self, name: str) -> Iterator[str]:
        """What has to be made for a stage, inputs first; a finished stage needs its inputs no more."""
        return self._inputs_first(name, lambda stage: self.plan(stage).finished)

    def _inputs_first(self, name: str, finished: Callable[[str], bool]) -> Iterator[str]:
        seen: dict[str, None] = {}

        def visit(stage: str) -> None:
            if stage in seen or finished(stage):
                return
            for upstream in STAGES[stage].inputs(self.settings(stage)):
                visit(upstream)
            seen[stage] = None

        visit(name)
        return iter(seen)

    def run(self, name: str) -> Path:
        """Make a stage's artifact and whatever it needs that is missing; returns its directory."""
        # Whatever is wrong with what any stage is about to read is reported before the first one runs.
        if not self._made(name):
            self.console.line(f"{name}: looking at settings, files and models first")
        self.check_all(name)
        started, made, plan = time.time(), len(self.made), self.plan(name)
        with nullcontext() if plan.finished else using(Path(self.config.output_dir)):
            self.verify(name)
            chain, missing = [*self.needed(name)], {*self.missing(name)}
            places = {s: f"stage {i} of {len(chain)}: {s}" for i, s in enumerate(chain, 1) if s in missing}
            if 0 < len(places) < len(chain):
                self.console.line(f"{name}: {len(places)} of {len(chain)} stages are to be made; the others are reused")
            for number, (stage, place) in enumerate(places.items()):
                expected = self._expected([*places][number:])
                try:
                    self._make(self.plan(stage), f"{place}: {rooms.stages()[stage].does}{expected}")
                except KeyboardInterrupt:
                    kept = self.plan(stage).progress
                    with suppress(BrokenPipeError):
                        self.console.line(f"{name}: interrupted in {place}; the same command goes on there ({kept})")
                    raise
                except NothingToLearnError as error:
                    if not self._do_without(stage, name):
                        raise
                    short = f"{name}: stage {stage} came to nothing, so its judges are not in the table: {error}"
                    self.console.line(short)
                    directory = self.run(name)
                    self.console.line(short)
                    return directory
        if len(self.made) > made:
            self.console.line(f"{name}: done in {duration(time.time() - started)}: {plan.directory}")
            return plan.directory
        if (printed := plan.directory / PRINTED).is_file():
            print(printed.read_text(encoding="utf-8").rstrip("\n"), flush=True)
        if plan.manifest:
            self.console.line(f"{name}: {_summary(plan.manifest)}")
        self.console.line(f"{name}: nothing to do, everything is there: {plan.directory}")
        return plan.directory

    def _expected(self, stages: Sequence[str]) -> str:
        """How long this recipe took to make these stages here last, the first and all of them, where that is known."""
        seconds = []
        for stage in stages:
            made = sorted(self.plan(stage).directory.parent.glob(f"*/{MANIFEST}"), key=os.path.getmtime)
            told = [manifest for manifest in map(read_json, made) if isinstance(manifest, dict)]
            own = (m.get("seconds") for m in told if m.get("recipe") == self.config.recipe_name)
            seconds.append([0.0, *(each for each in own if isinstance(each, (int, float)))][-1])
        if not all(seconds):
            return ""
        return f" (last time {duration(seconds[0])}; all that is left {duration(sum(seconds))})"

    def _do_without(self, lost: str, name: str) -> bool:
        """Go on without a stage that came to nothing, where the stage asked for can."""
        without = STAGES[name].without
        config = without and resolve_name(without)(self.config, lost, lambda config: Pipeline(config).needed(name))
        if config:
            self.config, self._plans = config, {}
        return bool(config)

    def check(self, name: str) -> None:
        """Refuse (ConfigError) settings of a stage, or of one that it needs and that has to be made."""
        for stage in self._inputs_first(name, self._made):
            STAGES[stage].check(self.settings(stage))

    def verify(self, name: str) -> None:
        """Look whether the artifacts that a run of the stage reads are what was written (DataError: one is not).

        Of finished artifacts that it needs, but does not read now, damage is only said.
        """
        missing = set(self.missing(name))
        read = [plan for stage in missing for plan in self.plan(stage).inputs.values()] or [self.plan(name)]
        directories = dict.fromkeys(plan.directory for plan in read if plan.finished)
        for directory in directories:
            if what := damage(directory, self._hashes, large=True):
                raise damaged(directory, what)
        for stage in self.needed(name):
            unread = self.plan(stage).finished and self.plan(stage).directory not in directories
            if unread and (what := self.damage(stage)):
                self.console.line(f"{stage}: {what}; no stage reads it now")

    def damage(self, name: str) -> str | None:
        """What is wrong with a finished stage's artifact, as far as sizes and small files tell; None: nothing."""
        try:
            return damage(self.plan(name).directory, self._hashes, large=False)
        except DataError as error:
            return str(error)

    def _made(self, name: str) -> bool:
        """Whether a stage is finished; one whose files cannot be read is not, and its check says more of them."""
        return self._planned(name) and self.plan(name).finished

    def check_all(self, name: str) -> None:
        """Check all that the stages which have to be made will read: settings, files, models, keys and the network
        (JudgetrainError: what is wrong; of several things a ConfigError with a line for each)."""
        wrong: list[JudgetrainError] = []

        def fine(look: Callable[..., object], *given: Any) -> bool:
            try:
                look(*given)
            except JudgetrainError as error:
                wrong.append(error)
                return False
            return True

        stages = [*self._inputs_first(name, self._made)]
        checked = set[str]()
        allowed = [stage for stage in stages if fine(STAGES[stage].check, self.settings(stage))]
        there = {stage for stage in allowed if self._planned(stage)}
        fine(self.plan, name)
        if stages:
            fine(executor_type(self.config.executor).check, self.config.executor)
            if any(STAGES[stage].tracked for stage in stages):
                fine(self.config.track.check_here)
        for stage in allowed:
            settings = self.settings(stage)
            if stage not in there or fine(STAGES[stage].check_here, settings):
                for check in checks_of(settings, stage, checked):
                    fine(check)
        if len(wrong) > 1:
            lines = (line for each in wrong for line in str(each).splitlines())
            raise ConfigError("\n".join({line.partition(": ")[0]: line for line in lines}.values()))  # once a key
        if wrong:
            raise wrong[0]

    def _planned(self, name: str) -> bool:
        """Whether every file that a stage and those before it name is there."""
        try:
            return bool(self.plan(name))
        except JudgetrainError:
            return False

    def _make(self, plan: Plan, announced: str) -> None:
        with locked(plan.directory, self.console):
            if plan.finished:  # by another process
                return
            self.console.line(announced)
            alone = distributed.current().group is None
            if plan.stage.trains and alone and self.config.train.distributed != "none":
                launch(self.config, plan.stage.name, _execute)
            else:
                self.execute(plan)
        self.made.append(plan.stage.name)

    def execute(self, plan: Plan) -> None:
        """Run a stage here and now, whatever its directory holds, and write its manifest; its lock must be held."""
        name = plan.stage.name
        if any(p.name not in (".lock", SECONDS) for p in plan.directory.iterdir()):
            self.console.line(f"{name}: resuming what an earlier run left")
        quiet_libraries()
        inputs = {i: each.directory for i, each in plan.inputs.items()}
        task, before = Task(inputs, name, plan.settings, str(plan.directory)), seconds_so_far(plan.directory)[0]
        out = stage_run(self.config, task, self.console)
        if plan.stage.trains:
            call(task)
        facts = StageFacts(
            stage=name,
            fingerprint=plan.fingerprint,
            recipe=self.config.recipe_name,
            settings=plan.lineage | {"upstream": plan.upstream},
            directory=Path(self.config.output_dir),
            console=self.console,
            asked=name == self.config.stage,
        )
        config = self.config.track if plan.stage.tracked else TrackConfig("none")
        with out.timed(), tracked(config, facts) as track:
            out.track = track
            for i, directory in task.inputs.items():
                track.uses(directory, plan.inputs[i].manifest or {})
            with full_disk_explained(plan.directory):
                run_stage(task, out)
            manifest = sealed(plan.directory, self._manifest(plan, out), self._hashes)
            write_json_atomic(plan.directory / MANIFEST, manifest)
            track.summary({"seconds": manifest["seconds"], **_numbers(manifest)})
            track.makes(plan.directory, manifest)
        self.console.line(f"{name}: {_summary(manifest)}" + (f", {duration(before)} of them before" if before else ""))

    def _manifest(self, plan: Plan, out: StageRun) -> dict[str, Any]:
        return {
            "stage": plan.stage.name,
            "fingerprint": plan.fingerprint,
            "status": "complete",
            "recipe": self.config.recipe_name,
            "seed": self.config.seed,
            "artifact": plan.stage.artifact,
            "config": plan.shown,
            "upstream": plan.upstream,
            "content": plan.content,
            "versions": versions(),
            **out.totals(),
            "seconds": round(out.seconds, 2),
            "cpu_seconds": round(out.cpu_seconds, 2),
            "notes": out.notes,
        }


def _execute(config: Config, stage: str) -> None:
    """Make a stage in a worker, whose parent holds its lock."""
    pipeline = Pipeline(config)
    pipeline.execute(pipeline.plan(stage))


def _numbers(manifest: dict[str, Any]) -> dict[str, Any]:
    counts, tokens = manifest["counts"], manifest["tokens"]
    dropped = {f"dropped/{reason}": number for reason, number in counts["dropped"].items()}
    return {"in": counts["in"], "out": counts["out"], **dropped, **{f"tokens/{k}": n for k, n in tokens.items()}}


def _summary(manifest: dict[str, Any]) -> str:
    counts, tokens = manifest["counts"], manifest["tokens"]
    parts = [TOLD.format(**counts)]
    if VERBOSE in os.environ:
        parts += [f"{number} {reason}" for reason, number in sorted(counts["dropped"].items())]
    elif counts["dropped"]:
        parts.append(f"{sum(counts['dropped'].values()):,} left out or asked again (-v says why)")
    if tokens["generated"]:
        parts.append(f"{tokens['generated']:,} tokens generated")
    return f"{', '.join(parts)}, {duration(manifest['seconds'])}"
