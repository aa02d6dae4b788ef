"""Experiment tracking: every stage is a run with numbers, tables and artifacts, in any tracker (``track``)."""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from judgetrain import rooms
from judgetrain.artifacts.console import Console
from judgetrain.artifacts.environment import unresolved
from judgetrain.artifacts.fingerprint import check_package
from judgetrain.keys import key

TRACKERS: dict[str, str] = {}
for _room in rooms.rooms():
    TRACKERS |= _room.trackers
"""``module:function`` that begins a run, by tracker. These trackers get everything; the first is the default."""
REPORTED = ("tensorboard", "comet_ml", "clearml", "swanlab", "neptune", "dvclive")
"""Trackers (by their packages) that get only the curves of training, which Transformers' trainers report."""


@dataclass
class TrackConfig:
    """Experiment tracking; the trackers' variables say where runs go: WANDB_MODE, TRACKIO_DIR, MLFLOW_TRACKING_URI."""

    tracker: Any = key(
        next(iter(TRACKERS), "none"),
        "one, or a list; wandb is offline without a key (docs/tracking.md)",
        choices=(*TRACKERS, "none", *REPORTED),
    )

    @property
    def names(self) -> list[str]:
        """Return the names of the chosen trackers."""
        names = self.tracker
        if isinstance(names, str):
            names = [names]
        return [name for name in names if name != "none"]

    def check_here(self) -> None:
        """Raise ConfigError where a chosen tracker's package is not installed."""
        for name in self.names:
            check_package(_package_of(name), f"track.tracker={name}")


def _package_of(tracker: str) -> str:
    """Return the package that a tracker needs.

    A tracker of this project has the name of the package it needs. One that an installed package brings needs that
    package.
    """
    # As in PACKAGE.MODULE:FUNCTION: the package stands before the first dot.
    package = TRACKERS.get(tracker, "judgetrain").partition(".")[0]
    return tracker if package == "judgetrain" else package


ATTACHED = ("manifest.json", "metrics.json", "paired.json", "yield.json")
"""Files of an artifact whose content is sent to trackers; they hold settings and counts, no text of the data."""
UNLISTED = ("checkpoints", "view")
"""Directories inside an artifact that trackers do not get."""

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL")


def without_secrets(value: Any) -> Any:
    """Return a copy of JSON values without secrets.

    A secret is the value of an environment variable that is named like one (``..._KEY``, ``..._TOKEN``). ``***`` takes
    its place in every text. What the configuration took from any variable is named as there.
    """
    return _without_secrets(unresolved(value))


def _without_secrets(value: Any) -> Any:
    """Return JSON values without the values of variables that are named like secrets."""
    if isinstance(value, Mapping):
        return {key: _without_secrets(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_secrets(part) for part in value]
    if not isinstance(value, str):
        return value

    text = value
    for name, secret in os.environ.items():
        # Short values stand in texts by chance.
        if len(secret) >= 8 and _SECRET_NAME.search(name.upper()):
            text = text.replace(secret, "***")
    return text


def reason(error: Exception) -> str:
    """Return an error's message in one line of 200 characters at most, without secrets."""
    # A tracker's server may answer with a whole page of HTML.
    message = " ".join(str(error).split()) or type(error).__name__
    return str(without_secrets(message))[:200]


@dataclass(frozen=True, kw_only=True)
class StageFacts:
    """The facts about a stage that trackers get when its run begins.

    Args:
        stage: the stage's name.
        fingerprint: the artifact's.
        recipe: the recipe's name.
        settings: the stage's settings; they hold names of environment variables, never keys.
        directory: ``output_dir``.
        console: prints lines.
        asked: the command names this stage, and not only one that needs it.
    """

    stage: str
    fingerprint: str
    recipe: str
    settings: Mapping[str, Any]
    directory: Path
    console: Console
    asked: bool = True

    @property
    def id(self) -> str:
        """Return the run's identifier; it is the same after a restart, so that the run goes on."""
        return f"{self.stage}-{self.fingerprint}"

    @property
    def project(self) -> str:
        """Return the tracker's project that holds the runs."""
        return os.environ.get("WANDB_PROJECT") or "judgetrain"

    @property
    def group(self) -> str:
        """Return the group that the runs of one pipeline share."""
        return os.environ.get("WANDB_RUN_GROUP") or os.environ.get("WANDB_SWEEP_ID") or self.recipe


class Run:
    """A stage's run in a tracker. This base class does nothing; trackers override its methods.

    Attributes:
        name: the tracker's, for messages.
        report_to: further trackers, to which Transformers' trainers report by themselves.
    """

    name = ""
    report_to: Sequence[str] = ()

    def log(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Log numbers, at a step of training if there is one; anything that is no number is left out."""

    def summary(self, values: Mapping[str, Any]) -> None:
        """Log the run's final results."""

    def alert(self, title: str, text: str) -> None:
        """Send an alert to the people who follow the project (e-mail, Slack)."""

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Log a table; a row has one plain value for every column."""

    def uses(self, directory: Path, manifest: Mapping[str, Any]) -> None:
        """Name a finished artifact as an input of this run."""

    def makes(self, directory: Path, manifest: Mapping[str, Any]) -> None:
        """Log a finished artifact as this run's output: small files, and references to the others."""


class Runs(Run):
    """A stage's run in several trackers at once.

    A tracker's error stops nothing; the first one of each tracker is printed.

    Args:
        runs: the stage's runs, one for each tracker.
        console: prints errors.
        report_to: further trackers, to which Transformers' trainers report by themselves.
    """

    def __init__(self, runs: Sequence[Run], console: Console, report_to: Sequence[str] = ()) -> None:
        self.report_to = report_to
        self._runs = runs
        self._console = console
        self._failed: set[str] = set()

    def log(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        numbers = {}
        for name, value in metrics.items():
            # In Python, true and false are whole numbers, too.
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                numbers[name] = value
        if numbers:
            self._call_all("log", numbers, step)

    def summary(self, values: Mapping[str, Any]) -> None:
        self._call_all("summary", values)

    def alert(self, title: str, text: str) -> None:
        self._call_all("alert", title, text)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self._call_all("table", name, list(columns), without_secrets(rows))

    def uses(self, directory: Path, manifest: Mapping[str, Any]) -> None:
        self._call_all("uses", directory, manifest)

    def makes(self, directory: Path, manifest: Mapping[str, Any]) -> None:
        self._call_all("makes", directory, manifest)

    def _call_all(self, method: str, *arguments: Any) -> None:
        """Call a method of every tracker's run, and print the first error of each tracker."""
        for run in self._runs:
            try:
                getattr(run, method)(*arguments)
            except Exception as error:
                if run.name not in self._failed:
                    self._console.line(f"{run.name} did not take something ({reason(error)}): the stage goes on")
                self._failed.add(run.name)


def artifact_name(manifest: Mapping[str, Any]) -> str:
    """Return the name of a stage's artifact in trackers, ``RECIPE-STAGE``."""
    # Trackers take no other characters in the name of an artifact.
    return re.sub(r"[^\w.-]", "-", f"{manifest['recipe']}-{manifest['stage']}")


def files_of(directory: Path) -> Iterator[tuple[str, Path, str | None]]:
    """Yield the files of an artifact that trackers list: relative name, path, and the content if it is sent.

    The content is JSON text without secrets. It is None for files that are only listed.
    """
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        place = path.relative_to(directory)

        # Hidden files are for runs that go on after a kill.
        is_hidden = any(part.startswith(".") for part in place.parts)
        if is_hidden or place.parts[0] in UNLISTED:
            continue

        # Small files of figures are sent; texts, weights and rows stay on this machine and are listed by name.
        content = None
        if str(place) in ATTACHED:
            content = json.dumps(without_secrets(json.loads(path.read_bytes())))
        yield str(place), path, content


@contextmanager
def tracked(config: TrackConfig, facts: StageFacts) -> Iterator[Run]:
    """Begin a stage's run in every chosen tracker; end it whatever happens, as failed if the stage raises."""
    reported = [name for name in config.names if name not in TRACKERS]
    with ExitStack() as stack:
        # Transformers' reporter to TensorBoard reads this variable.
        stack.enter_context(unless_set(TENSORBOARD_LOGGING_DIR=facts.directory / "tensorboard" / facts.id))
        runs = []
        for name in config.names:
            if name in TRACKERS:
                runs.append(stack.enter_context(_unstopped(name, facts)))
        yield Runs(runs, facts.console, reported)


@contextmanager
def _unstopped(name: str, facts: StageFacts) -> Iterator[Run]:
    """Begin and end a stage's run in one tracker; print the tracker's errors, so that the stage goes on.

    An error of the stage passes through.
    """
    try:
        context = resolve_name(TRACKERS[name])(facts)
        run = context.__enter__()
    except Exception as error:
        facts.console.line(f"{name} cannot be used ({reason(error)}): the stage goes on without it")
        # The base class takes every call and does nothing, so that stages need not ask whether there is a tracker.
        yield Run()
        return

    stage_error: Any = (None, None, None)
    try:
        yield run
    except BaseException:
        stage_error = sys.exc_info()
        raise
    finally:
        # ``with`` would let the tracker's error on ending replace the stage's.
        try:
            context.__exit__(*stage_error)
        except Exception as error:
            facts.console.line(f"{name} did not end its run ({reason(error)}): the stage goes on")


@contextmanager
def unless_set(**variables: object) -> Iterator[None]:
    """Set environment variables for a while, except those that the user has set."""
    new_variables = {name: str(value) for name, value in variables.items() if name not in os.environ}
    os.environ.update(new_variables)
    try:
        yield
    finally:
        for name in new_variables:
            del os.environ[name]
