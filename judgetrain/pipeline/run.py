"""Plans of stages, with their fingerprints and places, and the runs of those that are missing."""

import glob
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from judgetrain import rooms
from judgetrain.amounts import agree, amount
from judgetrain.artifacts.console import VERBOSE, Console, duration, quiet_libraries
from judgetrain.artifacts.executor import executor_type
from judgetrain.artifacts.files import full_disk_explained, locked, read_json, using, write_json_atomic
from judgetrain.artifacts.fingerprint import Content, ContentHashes, checks_of, fingerprint, plain, versions
from judgetrain.artifacts.heartbeat import beating, doing
from judgetrain.artifacts.integrity import MANIFEST, damage, damaged, read_manifest, sealed
from judgetrain.artifacts.shards import SECONDS, TOLD, seconds_so_far, shard_progress
from judgetrain.artifacts.stage_run import PRINTED, StageRun, earlier_notes
from judgetrain.artifacts.stages import Stage, StageSettings
from judgetrain.artifacts.tracker import StageFacts, TrackConfig, tracked
from judgetrain.errors import ConfigError, DataError, JudgetrainError, NothingToLearnError, printable
from judgetrain.pipeline.config import STAGES, Config
from judgetrain.pipeline.environment import FromEnvironment
from judgetrain.pipeline.processes import Task, call, launch, run_stage, stage_run
from judgetrain.train import distributed
from judgetrain.train.complete import complete_checkpoints


@dataclass(frozen=True)
class Plan:
    """A stage's place on disk for one configuration.

    Args:
        stage: the stage.
        settings: the part of the configuration that it reads.
        fingerprint: of the settings, the inputs and the content of files.
        directory: of the artifact.
        content: hashes of the files that settings name, by configuration key.
        inputs: the plans of its input stages, by name.
        environment: what the configuration took from the environment.
    """

    stage: Stage[Any]
    settings: StageSettings
    fingerprint: str
    directory: Path
    content: dict[str, dict[str, str]]
    inputs: "dict[str, Plan]"
    environment: FromEnvironment

    @cached_property
    def upstream(self) -> dict[str, str]:
        """Return the fingerprints of the inputs."""
        return {name: plan.fingerprint for name, plan in self.inputs.items()}

    @cached_property
    def shown(self) -> dict[str, Any]:
        """Return the settings by their configuration keys, as manifests and the tracker have them."""
        return self.environment.shown(self.settings)

    @cached_property
    def lineage(self) -> dict[str, Any]:
        """Return the settings of the stage and of all that it is made from, so that they hold what a sweep changed."""
        lineage: dict[str, Any] = {}
        for settings in (*(plan.lineage for plan in self.inputs.values()), self.shown):
            for key, value in settings.items():
                # Two stages may read different keys of one section.
                if isinstance(value, dict):
                    value = {**lineage.get(key, {}), **value}
                lineage[key] = value
        return lineage

    @property
    def manifest(self) -> dict[str, Any] | None:
        """Return the manifest of the finished artifact, or None.

        Raises:
            DataError: it is damaged.
        """
        return read_manifest(self.directory)

    @property
    def finished(self) -> bool:
        """Return whether there is a manifest, be it damaged."""
        return (self.directory / MANIFEST).is_file()

    @property
    def progress(self) -> str:
        """Return the unfinished work that the directory holds, in words; a run goes on from there."""
        parts = []
        shards = shard_progress(self.directory)
        if shards:
            finished, total = shards
            parts.append(f"{finished} of {amount(total, 'shard')}")
        checkpoints = self.directory / "checkpoints"
        if checkpoints.is_dir():
            # A checkpoint that a kill cut short is none to go on from.
            last_step = max((step for step, _ in complete_checkpoints(checkpoints)), default=0)
            parts.append(f"training step {last_step}")
        seconds, _ = seconds_so_far(self.directory)
        if seconds:
            parts.append(f"{duration(seconds)} so far")
        return ", ".join(parts or ["started"])


class _Checks:
    """Runs checks and keeps the errors of those that fail, so that a user sees all of them at once."""

    def __init__(self) -> None:
        self.errors: list[JudgetrainError] = []

    def passes(self, check: Callable[..., object], *arguments: Any) -> bool:
        """Run one check, and return whether it raised no expected error."""
        try:
            check(*arguments)
        except JudgetrainError as error:
            self.errors.append(error)
            return False
        return True

    def raise_errors(self) -> None:
        """Raise the error that was kept, or a ConfigError with a line for each of several; nothing without any."""
        if not self.errors:
            return
        if len(self.errors) == 1:
            raise self.errors[0]
        # Several stages may read one key: it is named once.
        line_of_key: dict[str, str] = {}
        for error in self.errors:
            for line in str(error).splitlines():
                key, _, _ = line.partition(": ")
                line_of_key[key] = line
        raise ConfigError("\n".join(line_of_key.values()))


class Pipeline:
    """Runs stages for one validated configuration.

    Args:
        config: the configuration.
        console: prints lines.

    Attributes:
        root: the directory of all artifacts.
        made: the names of the stages that this object has made.

    Raises:
        ConfigError: ``output_dir`` is a file.
    """

    def __init__(self, config: Config, console: Console | None = None) -> None:
        output_dir = Path(config.output_dir)
        if output_dir.exists() and not output_dir.is_dir():
            raise ConfigError(f"output_dir={config.output_dir!r} is a file; give a directory, or the name of a new one")
        # In a worker, which got the configuration ready-made.
        config.environment.adopt()
        self.config = config
        self.console = console or Console()
        self.root = output_dir / "artifacts"
        self.made: list[str] = []
        self._hashes = ContentHashes.of_run(output_dir)
        self._plans: dict[str, Plan] = {}

    def settings(self, name: str) -> StageSettings:
        """Return the part of the configuration that a stage reads."""
        settings: StageSettings = STAGES[name].settings.of(self.config)
        return settings

    def plan(self, name: str) -> Plan:
        """Return the plan of a stage.

        Raises:
            ConfigError: input files are missing; names all of them, a line each.
        """
        if name not in self._plans:
            self._plans[name] = self._planned_anew(name)
        return self._plans[name]

    def _planned_anew(self, name: str) -> Plan:
        """Return the plan of a stage that has none yet; raises as :meth:`plan`."""
        stage = STAGES[name]
        settings = self.settings(name)
        inputs = {input_name: self.plan(input_name) for input_name in stage.inputs(settings)}
        content: dict[str, dict[str, str]] = {}
        missing: list[str] = []

        # The fingerprint asks for each file's content here. What it got goes into the manifest, by key.
        def hashes(key: str, path: str) -> dict[str, str]:
            try:
                content[key] = self._content(key, path)
            except ConfigError as error:
                # A user is to see all files that are missing, not the first alone.
                missing.append(str(error))
            return content.get(key, {})

        try:
            # Even with files missing: that finds the other files that are.
            mark = self._fingerprint(stage, settings, inputs, hashes)
        except ConfigError as error:
            missing.extend(str(error).splitlines())
        if missing:
            raise ConfigError("\n".join(map(self._with_place, missing)))
        return Plan(stage, settings, mark, self.root / name / mark, content, inputs, self.config.environment)

    def _with_place(self, message: str) -> str:
        """Return a message on a missing file with where it is published, if the recipe says so (``data_files``)."""
        for file, place in self.config.data_files.items():
            if f"{str(Path(self.config.data_dir, file))!r}" in message:
                return f"{message}; it is published as {place}"
        return message

    def _fingerprint(
        self, stage: Stage[Any], settings: StageSettings, inputs: Mapping[str, Plan], content: Content
    ) -> str:
        """Return the fingerprint of a stage.

        Args:
            stage: the stage.
            settings: the settings that count.
            inputs: the plans of its inputs.
            content: returns the hashes of a file that settings name, by its key and path.
        """
        upstream: dict[str, Any] = {name: plan.fingerprint for name, plan in inputs.items()}
        for name, part in stage.input_parts.items():
            # A partly read input counts by that part's settings: whatever else changes makes nothing anew.
            plan = inputs[name]
            settings_of_part = plan.stage.parts[part](plan.settings)
            upstream[name] = self._fingerprint(plan.stage, settings_of_part, plan.inputs, self._content)
        # Users may put files beside an input, as labels that they corrected; the result depends on them.
        for name, file in product(inputs, settings.beside_inputs):
            path = inputs[name].directory / file
            if path.exists():
                upstream[f"{name}/{file}"] = self._content(f"{name}/{file}", str(path))
        return fingerprint(
            {"stage": stage.name, "format": stage.format, "upstream": upstream, "settings": plain(settings, content)}
        )

    def _content(self, key: str, path: str) -> dict[str, str]:
        """Return the hashes of a file or directory; ``key`` is the configuration key that names it.

        Raises:
            ConfigError: it is not there, or cannot be read.
        """
        try:
            hashes = self._hashes.of(path)
        except OSError as error:
            matches = glob.glob(path) if glob.has_magic(path) else []
            if len(matches) > 1:
                raise ConfigError(
                    f"{key}={path!r}: matches {len(matches)} directories, as {matches[0]} and {matches[1]}: name one"
                ) from error
            raise ConfigError(f"{key}={path!r}: cannot be read ({error.strerror})") from error
        except DataError as error:
            raise ConfigError(f"{key}={error}") from error
        if hashes:
            return hashes

        advice = "give an existing path"
        data_dir = self.config.data_dir
        if data_dir and Path(path).is_relative_to(data_dir):
            advice = f"{advice}; or set data_dir (now {data_dir}) to the directory that holds it"
        if Path(path).expanduser().is_dir():
            raise ConfigError(f"{key}={path!r}: an empty directory; {advice}")
        raise ConfigError(f"{key}={path!r}: no such file; {advice}")

    def needed(self, name: str) -> Iterator[str]:
        """Return the stage and everything that it needs, inputs first."""
        return self._inputs_first(name, lambda stage: False)

    def missing(self, name: str) -> Iterator[str]:
        """Return the stages that have to be made for a stage, inputs first; a finished stage needs its inputs no more.

        Raises:
            ConfigError: input files are missing.
        """
        return self._inputs_first(name, lambda stage: self.plan(stage).finished)

    def _inputs_first(self, name: str, is_finished: Callable[[str], bool]) -> Iterator[str]:
        """Return a stage and its inputs, inputs first, without stages that are finished and the inputs of these."""
        order: dict[str, None] = {}

        def visit(stage: str) -> None:
            if stage in order or is_finished(stage):
                return
            for upstream in STAGES[stage].inputs(self.settings(stage)):
                visit(upstream)
            order[stage] = None

        visit(name)
        return iter(order)

    def run(self, name: str) -> Path:
        """Make a stage's artifact and whatever it needs that is missing, and return its directory.

        Raises:
            JudgetrainError: settings, files, models or the network are not as a stage needs them. All of this is
                checked before the first stage runs.
        """
        with beating(self.console.line):
            return self._run(name)

    def _run(self, name: str) -> Path:
        """Make a stage's artifact as :meth:`run` does, which says now and then what is done."""
        with doing(f"{name}: looking at settings, files and models"):
            if not self._is_made(name):
                self.console.line(f"{name}: looking at settings, files and models first")
                if self.config.auto_engine.told:
                    # Before the checks, which may refuse the engine.
                    self.console.line(f"{name}: {self.config.auto_engine.told}")
            self.check_all(name)
        started = time.time()
        made_before = len(self.made)
        plan = self.plan(name)
        # A finished artifact is only read, also in a directory where nothing may be written.
        at_work: AbstractContextManager[None] = nullcontext()
        if not plan.finished:
            at_work = using(Path(self.config.output_dir))
        with at_work:
            if not plan.finished:
                self.config.auto_engine.keep()
            self.verify(name)
            lost_stage = self._make_missing(name)
            if lost_stage is not None:
                self.console.line(lost_stage)
                # Once more, by the configuration from which the lost stage has been taken out.
                directory = self.run(name)
                # At the end as well: the lines of other stages come between.
                self.console.line(lost_stage)
                return directory
        if len(self.made) > made_before:
            self.console.line(f"{name}: done in {duration(time.time() - started)}: {plan.directory}")
        else:
            self._show_finished(plan)
        return plan.directory

    def _make_missing(self, name: str) -> str | None:
        """Make the missing stages of a stage, inputs first.

        Returns:
            None, or the message of a stage that came to nothing and that ``name`` can do without.
        """
        chain = list(self.needed(name))
        missing = set(self.missing(name))
        # Numbered among all stages, so that a run that goes on counts from where the last one stopped.
        headings = {
            stage: f"stage {number} of {len(chain)}: {stage}"
            for number, stage in enumerate(chain, start=1)
            if stage in missing
        }
        if 0 < len(headings) < len(chain):
            self.console.line(
                f"{name}: {len(headings)} of {amount(len(chain), 'stage')} {agree(len(headings), 'are')} to be "
                "made; the rest is reused"
            )

        remaining = list(headings)
        while remaining:
            stage = remaining[0]
            announcement = f"{headings[stage]}: {rooms.stages()[stage].does}{self._expected(remaining)}"
            try:
                self._make(self.plan(stage), announcement)
            except KeyboardInterrupt:
                progress = self.plan(stage).progress
                # Whatever reads the lines, as tee, may have been interrupted, too.
                with suppress(BrokenPipeError):
                    self.console.line(
                        f"{name}: interrupted in {headings[stage]}; the same command goes on there ({progress})"
                    )
                raise
            except NothingToLearnError as error:
                if not self._do_without(stage, name):
                    raise
                return f"{name}: stage {stage} came to nothing, so its judges are not in the table: {error}"
            remaining.pop(0)
        return None

    def _show_finished(self, plan: Plan) -> None:
        """Print what the stage printed when it was made, and that there is nothing to do."""
        name = plan.stage.name
        printed = plan.directory / PRINTED
        if printed.is_file():
            print(printable(printed.read_text(encoding="utf-8").rstrip("\n")), flush=True)
        if plan.manifest:
            self.console.line(f"{name}: {_summary(plan.manifest)}")
        self.console.line(f"{name}: nothing to do, everything is there: {plan.directory}")

    def _expected(self, stages: Sequence[str]) -> str:
        """Return how long this recipe's stages took here last, in words: the first and all of them.

        Empty where one of them was never made.
        """
        seconds = [self._last_seconds(stage) for stage in stages]
        if not all(seconds):
            return ""
        return f" (last time {duration(seconds[0])}; all that is left {duration(sum(seconds))})"

    def _last_seconds(self, stage: str) -> float:
        """Return the seconds that a stage of this recipe took last, under any settings; 0 where it was never made."""
        last = 0.0
        manifests = self.plan(stage).directory.parent.glob(f"*/{MANIFEST}")
        # By time, so that the last one that counts is the newest.
        for path in sorted(manifests, key=os.path.getmtime):
            manifest = read_json(path)
            if not isinstance(manifest, dict) or manifest.get("recipe") != self.config.recipe_name:
                continue
            seconds = manifest.get("seconds")
            if isinstance(seconds, (int, float)):
                last = seconds
        return last

    def _do_without(self, lost: str, name: str) -> bool:
        """Change the configuration so that a stage needs another no more, and return whether that can be done.

        Args:
            lost: the stage that came to nothing.
            name: the stage that is to go on without it.
        """
        without = STAGES[name].without
        if not without:
            return False
        # The stage itself knows which of its settings name the lost one.
        config = resolve_name(without)(self.config, lost, lambda config: Pipeline(config).needed(name))
        if not config:
            return False
        self.config = config
        # Plans hold settings of the old configuration.
        self._plans = {}
        return True

    def check(self, name: str) -> None:
        """Refuse (ConfigError) settings of a stage, or of one that it needs and that has to be made."""
        for stage in self._inputs_first(name, self._is_made):
            STAGES[stage].check(self.settings(stage))

    def verify(self, name: str) -> None:
        """Check the artifacts that a run of a stage reads, and the unfinished ones that it goes on with.

        Damage of finished artifacts that it needs, but does not read now, is only printed.

        Raises:
            DataError: an artifact that is read or gone on with is not what was written.
        """
        read = self.read_by(name)
        for stage in read:
            refusal = self.refusal(stage)
            if refusal:
                raise refusal

        for stage in self.needed(name):
            if stage in read:
                continue
            problem = self.damage(stage, large=False)
            if problem:
                self.console.line(f"{stage}: {problem}; no stage reads it now")

    def read_by(self, name: str) -> list[str]:
        """Return the stages whose artifacts a run of a stage reads or goes on with.

        These are the stages to be made and their inputs; the stage itself, if there is nothing to make.

        Raises:
            ConfigError: input files are missing.
        """
        missing = list(self.missing(name))
        if not missing:
            return [name]
        # Inputs first: an input that is damaged is reported before work that builds on it.
        inputs = [stage for unmade in missing for stage in self.plan(unmade).inputs]
        return list(dict.fromkeys([*inputs, *missing]))

    def refusal(self, name: str) -> DataError | None:
        """Return the error by which a run stops that reads a stage's artifact or goes on with it; None: it is whole."""
        directory = self.plan(name).directory
        problem = self.damage(name, large=True)
        if problem:
            return damaged(directory, problem)
        if self.plan(name).finished:
            return None
        try:
            earlier_notes(directory)
        except DataError as error:
            return error
        return None

    def damage(self, name: str, large: bool) -> str | None:
        """Return how a finished stage's artifact differs from what was written, or None.

        Args:
            name: of the stage.
            large: whether large files are read too, unless their hashes are remembered. A run takes seconds to minutes
                for them where they were copied or touched since.
        """
        return damage(self.plan(name).directory, self._hashes, large=large)

    def _is_made(self, name: str) -> bool:
        """Return whether a stage is finished. One whose files cannot be read is not: its check says more of them."""
        return self._can_be_planned(name) and self.plan(name).finished

    def check_all(self, name: str) -> None:
        """Check all that the stages which have to be made will read: settings, files, models, keys and the network.

        Raises:
            JudgetrainError: one thing is wrong.
            ConfigError: several things are wrong; has a line for each.
        """
        checks = _Checks()
        stages = list(self._inputs_first(name, self._is_made))
        allowed = [stage for stage in stages if checks.passes(STAGES[stage].check, self.settings(stage))]
        with_files = {stage for stage in allowed if self._can_be_planned(stage)}
        checks.passes(self.plan, name)
        # A run that makes nothing needs no executor and no tracker.
        if stages:
            checks.passes(executor_type(self.config.executor).check, self.config.executor)
            if any(STAGES[stage].tracked for stage in stages):
                checks.passes(self.config.track.check_here)

        # Two stages may read one model, which is looked at once.
        checked: set[str] = set()
        for stage in allowed:
            settings = self.settings(stage)
            # A stage's own check opens its files, so these must be there.
            if stage in with_files and not checks.passes(STAGES[stage].check_here, settings):
                continue
            for check in checks_of(settings, stage, checked):
                checks.passes(check)
        checks.raise_errors()

    def _can_be_planned(self, name: str) -> bool:
        """Return whether every file that a stage and those before it name is there."""
        try:
            self.plan(name)
        except JudgetrainError:
            return False
        return True

    def _make(self, plan: Plan, announcement: str) -> None:
        """Make a stage under its lock, in this process or in several that it starts."""
        with locked(plan.directory, self.console):
            if plan.finished:
                # Another process has made it while this one waited for the lock.
                return
            self.console.line(announcement)
            # Under torchrun the other processes are there already, and wait to be called.
            is_alone = distributed.current().group is None
            with doing(f"{plan.stage.name}: at work"):
                if plan.stage.trains and is_alone and self.config.train.distributed != "none":
                    launch(self.config, plan.stage.name, _execute)
                else:
                    self.execute(plan)
        self.made.append(plan.stage.name)

    def execute(self, plan: Plan) -> None:
        """Run a stage here and now, whatever its directory holds, and write its manifest; its lock must be held."""
        name = plan.stage.name
        # These two stand in every directory, also where a run stopped before it had done anything.
        if any(path.name not in (".lock", SECONDS) for path in plan.directory.iterdir()):
            self.console.line(f"{name}: resuming what an earlier run left")
        quiet_libraries()
        inputs = {input_name: input_plan.directory for input_name, input_plan in plan.inputs.items()}
        task = Task(inputs, name, plan.settings, str(plan.directory))
        seconds_before, _ = seconds_so_far(plan.directory)
        out = stage_run(self.config, task, self.console)
        if plan.stage.trains:
            # The helpers make the same run of the stage, which waits for all of them.
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
        track_config = self.config.track
        if not plan.stage.tracked:
            # Asking a judge for verdicts is no experiment, and nobody wants to wait for a tracker there.
            track_config = TrackConfig("none")
        with out.timed(), tracked(track_config, facts) as track:
            out.track = track
            for input_name, directory in inputs.items():
                track.uses(directory, plan.inputs[input_name].manifest or {})
            with full_disk_explained(plan.directory):
                run_stage(task, out)
            # The manifest comes last: an artifact with one is finished.
            manifest = sealed(plan.directory, self._manifest(plan, out), self._hashes)
            write_json_atomic(plan.directory / MANIFEST, manifest)
            track.summary({"seconds": manifest["seconds"], **_numbers(manifest)})
            track.makes(plan.directory, manifest)

        summary = _summary(manifest)
        if seconds_before:
            summary = f"{summary}, {duration(seconds_before)} of them before"
        self.console.line(f"{name}: {summary}")

    def _manifest(self, plan: Plan, out: StageRun) -> dict[str, Any]:
        """Return the manifest of a stage that has run; the sizes and hashes of its files are still missing."""
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
    """Return the counts and tokens of a manifest for a tracker's summary."""
    counts = manifest["counts"]
    numbers = {"in": counts["in"], "out": counts["out"]}
    for reason, number in counts["dropped"].items():
        numbers[f"dropped/{reason}"] = number
    for kind, number in manifest["tokens"].items():
        numbers[f"tokens/{kind}"] = number
    return numbers


def _summary(manifest: dict[str, Any]) -> str:
    """Return a stage's counts and seconds in one line; with -v the reasons why rows were left out, too."""
    counts = manifest["counts"]
    dropped = counts["dropped"]
    generated = manifest["tokens"]["generated"]
    parts = [TOLD.format(**counts)]
    if VERBOSE in os.environ:
        parts += [f"{number} {reason}" for reason, number in sorted(dropped.items())]
    elif dropped:
        what = "left out"
        # Answers that cannot be read are asked for again, where a stage asks at all.
        if generated:
            what = "left out or asked again"
        parts.append(f"{sum(dropped.values()):,} {what} (-v says why)")
    if generated:
        parts.append(f"{amount(generated, 'token')} generated")
    return f"{', '.join(parts)}, {duration(manifest['seconds'])}"
