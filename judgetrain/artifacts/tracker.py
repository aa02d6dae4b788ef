"""Weights & Biases: a run for every stage, with its numbers, tables and artifacts; offline without a key."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.fingerprint import check_package
from judgetrain.keys import key

REPORTED = ("trackio", "mlflow", "tensorboard", "comet_ml", "clearml", "swanlab", "neptune", "dvclive")
"""Trackers, by the names of their packages, to which Transformers' trainers report the curves of training."""


@dataclass
class TrackConfig:
    """Experiment tracking; W&B itself reads WANDB_MODE, WANDB_PROJECT and WANDB_RUN_GROUP."""

    tracker: Any = key(
        "wandb",
        "one, or a list; wandb is offline without a key; the others get training curves alone (docs/tracking.md)",
        choices=("wandb", "none", *REPORTED),
    )

    @property
    def names(self) -> list[str]:
        """The trackers."""
        return [name for name in ([self.tracker] if isinstance(self.tracker, str) else self.tracker) if name != "none"]

    def check_here(self) -> None:
        """Refuse trackers whose packages are not installed (``ConfigError``)."""
        for name in self.names:
            check_package(name, f"track.tracker={name}")


HOST = "https://api.wandb.ai"
INIT_TIMEOUT = 30.0
"""Seconds to wait for the W&B server before the run becomes an offline one."""

ATTACHED = ("manifest.json", "metrics.json", "paired.json", "yield.json")
"""Files that are sent with an artifact; they hold settings and counts, no text of the data."""
AGENT = ("WANDB_SWEEP_ID", "WANDB_RUN_ID", "WANDB_SWEEP_PARAM_PATH")
"""What ``wandb agent`` tells the command that it starts."""
UNLISTED = ("checkpoints", "view")
"""Directories inside an artifact that W&B is not told of."""

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


class Run:
    """One tracked run; does nothing when tracking is off. What W&B cannot take is said once and stops nothing.

    ``report_to``: further trackers, to which the trainers report themselves.
    """

    def __init__(self, run: Any = None, console: Console | None = None, report_to: Sequence[str] = ()) -> None:
        self._run, self._console, self._told, self.report_to = run, console, False, [*report_to]

    def log(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Log numbers; anything that is no number is left out."""
        numbers = {k: v for k, v in metrics.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
        if numbers:
            self._attempt(lambda run: run.log(numbers, step=step))

    def summary(self, values: Mapping[str, Any]) -> None:
        """Set the run's summary."""
        self._attempt(lambda run: run.summary.update(dict(values)))

    def alert(self, title: str, text: str) -> None:
        """Raise an alert, which W&B sends to whoever follows the project (e-mail, Slack)."""
        self._attempt(lambda run: run.alert(title=title, text=text, level="ERROR"))

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Log a table; ``rows`` of plain values, one a column."""

        def send(run: Any) -> None:
            import wandb

            data = [without_secrets(row) for row in rows]
            run.log({name: wandb.Table(columns=list(columns), data=data, allow_mixed_types=True)})

        self._attempt(send)

    def uses(self, directory: Path, manifest: Mapping[str, Any]) -> None:
        """Name a finished artifact as an input of this run."""

        def send(run: Any) -> None:
            artifact = _artifact(directory, manifest)
            if run.offline:
                # use_artifact refuses offline runs; this is what it does with an artifact that is not logged yet.
                run._log_artifact(artifact, is_user_created=True, use_after_commit=True)
            else:
                run.use_artifact(artifact)

        self._attempt(send)

    def makes(self, directory: Path, manifest: Mapping[str, Any]) -> None:
        """Log a finished artifact as this run's output: small files, and references to the others."""

        def send(run: Any) -> None:
            run.log_artifact(_artifact(directory, manifest), aliases=["latest", manifest["fingerprint"]])

        self._attempt(send)

    def _attempt(self, send: Callable[[Any], None]) -> None:
        if self._run is None:
            return
        try:
            send(self._run)
        except Exception as error:
            if self._console is not None and not self._told:
                self._console.line(f"W&B did not take something ({_reason(error)}): the stage goes on")
            self._told = True


def _artifact(directory: Path, manifest: Mapping[str, Any]) -> Any:
    """A stage's result as a W&B artifact: the same content is the same version, whichever run logs it.

    Files other than :data:`ATTACHED` are references to where they lie.
    """
    import wandb

    stage = manifest["stage"]
    facts = {name: manifest[name] for name in ("fingerprint", "upstream", "counts", "tokens", "seconds")}
    name = re.sub(r"[^\w.-]", "-", f"{manifest['recipe']}-{stage}")
    artifact = wandb.Artifact(name, manifest.get("artifact", "dataset"), metadata=facts)
    for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        place = path.relative_to(directory)
        if place.parts[0] in UNLISTED or any(part.startswith(".") for part in place.parts):
            continue
        if str(place) in ATTACHED:
            with artifact.new_file(str(place)) as file:
                json.dump(without_secrets(json.loads(path.read_text(encoding="utf-8"))), file)
        else:
            artifact.add_reference(path.resolve().as_uri(), str(place), checksum=False)
    return artifact


def mode_of(config: TrackConfig) -> str:
    """``online``, ``offline`` or ``disabled``: what the tracker setting means on this machine.

    ``WANDB_MODE`` decides where it is set; otherwise a key does (``WANDB_API_KEY``, or netrc after ``wandb login``).
    """
    if "wandb" not in config.names:
        return "disabled"
    if (wanted := os.environ.get("WANDB_MODE")) in ("online", "offline", "disabled"):
        return str(wanted)
    host = urlsplit(os.environ.get("WANDB_BASE_URL") or HOST).hostname or ""
    try:
        known = netrc(os.environ.get("NETRC")).authenticators(host)
    except (OSError, NetrcParseError):
        known = None
    return "online" if os.environ.get("WANDB_API_KEY") or known else "offline"


@contextmanager
def tracked(
    config: TrackConfig,
    *,
    stage: str,
    fingerprint: str,
    recipe: str,
    settings: Mapping[str, Any],
    directory: Path,
    console: Console,
    asked: bool = True,
) -> Iterator[Run]:
    """A W&B run for one stage, always finished, and marked failed when the stage raises.

    The id comes from the fingerprint, so that a restart continues its run. ``settings`` is the configuration
    slice; it holds names of environment variables, never keys. ``asked``: the command names this stage. A server that
    cannot be reached makes the run an offline one: tracking never stops a stage.
    """
    mode, others, name = mode_of(config), [n for n in config.names if n != "wandb"], f"{stage}-{fingerprint}"
    group = os.environ.get("WANDB_RUN_GROUP") or os.environ.get("WANDB_SWEEP_ID") or recipe
    with ExitStack() as around:
        around.enter_context(unless_set(TENSORBOARD_LOGGING_DIR=directory / "tensorboard" / name))
        if mode == "disabled":
            yield Run(report_to=others)
            return
        directory.mkdir(parents=True, exist_ok=True)
        # The small files of artifacts wait for the upload beside the runs, not in the user's home.
        around.enter_context(unless_set(WANDB_DATA_DIR=(directory / "wandb" / "data").resolve()))
        swept = around.enter_context(_beside_agent(asked))
        options = {
            "project": os.environ.get("WANDB_PROJECT") or "judgetrain",
            "group": group,
            # W&B reads tags once a process.
            "tags": [tag for tag in os.environ.get("WANDB_TAGS", "").split(",") if tag],
            "job_type": stage,
            "name": name[: len(stage) + 7],
            "id": name,
            "dir": str(directory),
            "config": without_secrets({**settings, **swept}),
        }
        run = _start(mode, options, console)
        exit_code = 1
        try:
            yield Run(run, console, others)
            exit_code = 0
        finally:
            run.finish(exit_code=exit_code)


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


@contextmanager
def _beside_agent(asked: bool) -> Iterator[dict[str, Any]]:
    """Under ``wandb agent`` the stage asked for is the sweep's run, which it searches by; each other has its own.

    Gives the values that the sweep chose. W&B reads the agent's variables once a process, and then puts all runs of the
    process into one: it begins anew for every stage.
    """
    if "WANDB_SWEEP_ID" not in os.environ:
        yield {}
        return
    import wandb
    from wandb.sdk.lib.config_util import dict_from_config_file

    swept = dict_from_config_file(os.environ.get("WANDB_SWEEP_PARAM_PATH", "")) or {}
    hidden = {} if asked else {name: os.environ.pop(name) for name in AGENT if name in os.environ}
    wandb.teardown()
    try:
        yield swept
    finally:
        os.environ.update(hidden)


def _reason(error: Exception) -> str:
    return str(without_secrets(" ".join(str(error).split()) or type(error).__name__))[:200]


def _start(mode: str, options: dict[str, Any], console: Console) -> Any:
    import wandb

    settings = wandb.Settings(
        silent=True,
        console="off",
        x_disable_stats=True,
        x_disable_meta=True,  # the command line and the machine's name
        disable_git=True,
        save_code=False,
        disable_code=True,
        init_timeout=INIT_TIMEOUT,
    )
    options |= {"reinit": "finish_previous", "settings": settings}
    if mode == "online":
        try:
            return wandb.init(mode="online", resume="allow", **options)
        except Exception as error:
            console.line(
                f"W&B cannot be used ({_reason(error)}): this run is tracked offline; `wandb sync` uploads it later"
            )
            wandb.teardown()
            # The stages to come need not try again.
            os.environ["WANDB_MODE"] = "offline"
    return wandb.init(mode="offline", **options)
