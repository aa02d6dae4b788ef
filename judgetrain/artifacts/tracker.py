"""Experiment tracking: a run for every stage, with its numbers, tables and artifacts, in any tracker (``track``)."""

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
from judgetrain.artifacts.fingerprint import check_package
from judgetrain.keys import key

TRACKERS = {name: code for room in rooms.rooms() for name, code in room.trackers.items()}
"""Trackers that are told everything, and what makes their runs (``module:function``): the first is the usual one."""
REPORTED = ("tensorboard", "comet_ml", "clearml", "swanlab", "neptune", "dvclive")
"""Trackers, by the names of their packages, to which Transformers' trainers report the curves of training."""


@dataclass
class TrackConfig:
    """Experiment tracking; where to is the tracker's to say (WANDB_MODE, TRACKIO_DIR, MLFLOW_TRACKING_URI)."""

    tracker: Any = key(
        next(iter(TRACKERS), "none"),
        "one, or a list; wandb is offline without a key (docs/tracking.md)",
        choices=(*TRACKERS, "none", *REPORTED),
    )

    @property
    def names(self) -> list[str]:
        """The trackers."""
        return [name for name in ([self.tracker] if isinstance(self.tracker, str) else self.tracker) if name != "none"]

    def check_here(self) -> None:
        """Refuse trackers whose packages are not installed (``ConfigError``)."""
        for name in self.names:
            check_package(_package_of(name), f"track.tracker={name}")


def _package_of(tracker: str) -> str:
    """Return the package that a tracker needs: of its own name, but for one that an installed package brings."""
    package = TRACKERS.get(tracker, "judgetrain").partition(".")[0]
    return tracker if package == "judgetrain" else package


ATTACHED = ("manifest.json", "metrics.json", "paired.json", "yield.json")
"""Files that are sent with an artifact; they hold settings and counts, no text of the data."""
UNLISTED = ("checkpoints", "view")
"""Directories inside an artifact that trackers are not told of."""

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL")


def without_secrets(value: Any) -> Any:
    """A copy of JSON-like ``value`` that can be sent.

    The values of environment variables that are named like secrets (``..._KEY``, ``..._TOKEN``) become ``***``.
    """
    if isinstance(value, Mapping):
        return {key: without_secrets(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_secrets(part) for part in value]
    if isinstance(value, str):
        for name, secret in os.environ.items():
            if len(secret) >= 8 and _SECRET_NAME.search(name.upper()):
                value = value.replace(secret, "***")
    return value


def reason(error: Exception) -> str:
    """What an error says, in a line that can be shown."""
    return str(without_secrets(" ".join(str(error).split()) or type(error).__name__))[:200]


@dataclass(frozen=True, kw_only=True)
class StageFacts:
    """What trackers are told of a stage when its run begins.

    ``settings`` hold names of environment variables, never keys; ``directory`` is ``output_dir``; ``asked`` says that
    the command names the stage, and not one that needs it. The run's ``id`` is the same after a restart: it goes on.
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
        """The run's; the same after a restart, so that it goes on."""
        return f"{self.stage}-{self.fingerprint}"

    @property
    def project(self) -> str:
        """Where runs are kept together."""
        return os.environ.get("WANDB_PROJECT") or "judgetrain"

    @property
    def group(self) -> str:
        """What the runs of several stages have in common."""
        return os.environ.get("WANDB_RUN_GROUP") or os.environ.get("WANDB_SWEEP_ID") or self.recipe


class Run:
    """A stage's run in a tracker: the interface of all of them. By itself, it does nothing.

    ``report_to``: further trackers, to which trainers report by themselves.
    """

    name = ""
    report_to: Sequence[str] = ()

    def log(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Log numbers; anything that is no number is left out."""

    def summary(self, values: Mapping[str, Any]) -> None:
        """Say what the run came to."""

    def alert(self, title: str, text: str) -> None:
        """Raise an alert with whoever follows the project (e-mail, Slack)."""

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Log a table; ``rows`` of plain values, one a column."""

    def uses(self, directory: Path, manifest: Mapping[str, Any]) -> None:
        """Name a finished artifact as an input of this run."""

    def makes(self, directory: Path, manifest: Mapping[str, Any]) -> None:
        """Log a finished artifact as this run's output: small files, and references to the others."""


class Runs(Run):
    """A stage's run in several trackers. What one of them cannot take is said once, and stops nothing."""

    def __init__(self, runs: Sequence[Run], console: Console, report_to: Sequence[str] = ()) -> None:
        self._runs, self._console, self._told, self.report_to = runs, console, set[str](), report_to

    def log(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        numbers = {k: v for k, v in metrics.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
        if numbers:
            self._each("log", numbers, step)

    def summary(self, values: Mapping[str, Any]) -> None:
        self._each("summary", values)

    def alert(self, title: str, text: str) -> None:
        self._each("alert", title, text)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self._each("table", name, list(columns), without_secrets(rows))

    def uses(self, directory: Path, manifest: Mapping[str, Any]) -> None:
        self._each("uses", directory, manifest)

    def makes(self, directory: Path, manifest: Mapping[str, Any]) -> None:
        self._each("makes", directory, manifest)

    def _each(self, method: str, *arguments: Any) -> None:
        for run in self._runs:
            try:
                getattr(run, method)(*arguments)
            except Exception as error:
                if run.name not in self._told:
                    self._console.line(f"{run.name} did not take something ({reason(error)}): the stage goes on")
                self._told.add(run.name)


def artifact_name(manifest: Mapping[str, Any]) -> str:
    """What trackers call a stage's artifact."""
    return re.sub(r"[^\w.-]", "-", f"{manifest['recipe']}-{manifest['stage']}")


def files_of(directory: Path) -> Iterator[tuple[str, Path, str | None]]:
    """The files of an artifact that trackers are told of: each with its name there and, if it is sent, its content."""
    for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        place = path.relative_to(directory)
        if place.parts[0] not in UNLISTED and not any(part.startswith(".") for part in place.parts):
            sent = json.dumps(without_secrets(json.loads(path.read_bytes()))) if str(place) in ATTACHED else None
            yield str(place), path, sent


@contextmanager
def tracked(config: TrackConfig, facts: StageFacts) -> Iterator[Run]:
    """A run for one stage in every tracker, always finished, and marked failed when the stage raises."""
    reported = [name for name in config.names if name not in TRACKERS]
    with ExitStack() as stack:
        stack.enter_context(unless_set(TENSORBOARD_LOGGING_DIR=facts.directory / "tensorboard" / facts.id))
        runs = [stack.enter_context(_unstopped(name, facts)) for name in config.names if name in TRACKERS]
        yield Runs(runs, facts.console, reported)


@contextmanager
def _unstopped(name: str, facts: StageFacts) -> Iterator[Run]:
    """A tracker's run; one that cannot be begun, or ended, is said, and the stage goes on (or fails with its own)."""
    try:
        around = resolve_name(TRACKERS[name])(facts)
        run = around.__enter__()
    except Exception as error:
        facts.console.line(f"{name} cannot be used ({reason(error)}): the stage goes on without it")
        yield Run()
        return
    failed: Any = (None, None, None)
    try:
        yield run
    except BaseException:
        failed = sys.exc_info()
        raise
    finally:
        try:
            around.__exit__(*failed)
        except Exception as error:
            facts.console.line(f"{name} did not end its run ({reason(error)}): the stage goes on")


@contextmanager
def unless_set(**variables: object) -> Iterator[None]:
    """Environment variables for a while, where the user has not set them."""
    own = {name: str(value) for name, value in variables.items() if name not in os.environ}
    os.environ.update(own)
    try:
        yield
    finally:
        for name in own:
            del os.environ[name]
