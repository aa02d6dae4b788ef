"""Weights & Biases: offline without a key; artifacts with their lineage; under ``wandb agent`` a run for each stage."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.tracker import Run, StageFacts, artifact_name, files_of, reason, unless_set, without_secrets

HOST = "https://api.wandb.ai"
INIT_TIMEOUT = 30.0
"""Seconds to wait for the W&B server before the run becomes an offline one."""
AGENT = ("WANDB_SWEEP_ID", "WANDB_RUN_ID", "WANDB_SWEEP_PARAM_PATH")
"""Variables by which ``wandb agent`` tells a command that it is a sweep's run."""


class WandbRun(Run):
    """A W&B run."""

    name = "W&B"

    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        self._run.log(dict(metrics), step=step)

    def summary(self, values: Mapping[str, Any]) -> None:
        self._run.summary.update(dict(values))

    def alert(self, title: str, text: str) -> None:
        self._run.alert(title=title, text=text, level="ERROR")

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        import wandb

        self._run.log({name: wandb.Table(columns=list(columns), data=list(rows), allow_mixed_types=True)})

    def uses(self, directory: Path, manifest: Mapping[str, Any]) -> None:
        artifact = _artifact(directory, manifest)
        if self._run.offline:
            # use_artifact refuses offline runs; this is what it does with an artifact that is not logged yet.
            self._run._log_artifact(artifact, is_user_created=True, use_after_commit=True)
        else:
            self._run.use_artifact(artifact)

    def makes(self, directory: Path, manifest: Mapping[str, Any]) -> None:
        self._run.log_artifact(_artifact(directory, manifest), aliases=["latest", manifest["fingerprint"]])


def _artifact(directory: Path, manifest: Mapping[str, Any]) -> Any:
    """Return a stage's result as a W&B artifact: the same content is the same version, whichever run logs it.

    Small files are in it, others are references to where they lie.
    """
    import wandb

    facts = {name: manifest[name] for name in ("fingerprint", "upstream", "counts", "tokens", "seconds")}
    artifact = wandb.Artifact(artifact_name(manifest), manifest.get("artifact", "dataset"), metadata=facts)
    for place, path, sent in files_of(directory):
        if sent is None:
            artifact.add_reference(path.resolve().as_uri(), place, checksum=False)
        else:
            with artifact.new_file(place) as file:
                file.write(sent)
    return artifact


def mode() -> str:
    """Return what W&B is on this machine: ``online``, ``offline`` or ``disabled``.

    ``WANDB_MODE`` decides where it is set; otherwise a key does (``WANDB_API_KEY``, or netrc after ``wandb login``).
    """
    configured = os.environ.get("WANDB_MODE")
    if configured in ("online", "offline", "disabled"):
        return configured
    host = urlsplit(os.environ.get("WANDB_BASE_URL") or HOST).hostname or ""
    if os.environ.get("WANDB_API_KEY"):
        return "online"
    try:
        # Looked up here and not by W&B, which would ask at the terminal where it finds no key.
        login = netrc(os.environ.get("NETRC")).authenticators(host)
    except (OSError, NetrcParseError):
        login = None
    if login:
        return "online"
    return "offline"


@contextmanager
def wandb_run(facts: StageFacts) -> Iterator[Run]:
    """Yield the stage's run, an offline one where the server cannot be reached: tracking never stops a stage."""
    chosen_mode = mode()
    # A run that notes nothing, so that stages need not ask whether there is one.
    if chosen_mode == "disabled":
        yield Run()
        return
    facts.directory.mkdir(parents=True, exist_ok=True)
    # Read here, since the variables of the sweep are hidden below.
    group = facts.group
    # The small files of artifacts wait for the upload beside the runs, not in the user's home.
    kept = unless_set(WANDB_DATA_DIR=(facts.directory / "wandb" / "data").resolve())
    with kept, _beside_agent(facts.asked) as swept:
        options = {
            "project": facts.project,
            "group": group,
            # W&B itself reads the variable once a process.
            "tags": [tag for tag in os.environ.get("WANDB_TAGS", "").split(",") if tag],
            "job_type": facts.stage,
            "name": f"{facts.stage}-{facts.fingerprint[:6]}",
            "id": facts.id,
            "dir": str(facts.directory),
            "config": without_secrets({**facts.settings, **swept}),
        }
        run = _start(chosen_mode, options, facts.console)
        # Whatever ends the block but its own end is a failure, Ctrl-C too.
        exit_code = 1
        try:
            yield WandbRun(run)
            exit_code = 0
        finally:
            run.finish(exit_code=exit_code)


@contextmanager
def _beside_agent(is_sweep_stage: bool) -> Iterator[dict[str, Any]]:
    """Have, under ``wandb agent``, the stage asked for be the sweep's run, by which it searches; others have their own.

    Yields the values that the sweep chose. W&B reads the agent's variables once a process and then puts all runs of the
    process into one, so it begins anew for every stage.
    """
    if "WANDB_SWEEP_ID" not in os.environ:
        yield {}
        return
    import wandb
    from wandb.sdk.lib.config_util import dict_from_config_file

    swept = dict_from_config_file(os.environ.get("WANDB_SWEEP_PARAM_PATH", "")) or {}
    hidden = {}
    # Stages upstream are made for the sweep's stage, and must not report in its place.
    if not is_sweep_stage:
        for name in AGENT:
            if name in os.environ:
                hidden[name] = os.environ.pop(name)
    # Also where nothing is hidden: an earlier stage of this process may have read the variables.
    wandb.teardown()
    try:
        yield swept
    finally:
        os.environ.update(hidden)


def _start(chosen_mode: str, options: dict[str, Any], console: Console) -> Any:
    """Return a W&B run, an offline one where the server cannot be reached."""
    import wandb

    settings = wandb.Settings(
        # The console belongs to the stages' own lines.
        silent=True,
        console="off",
        x_disable_stats=True,
        # The command line and the machine's name are nobody's business.
        x_disable_meta=True,
        disable_git=True,
        save_code=False,
        disable_code=True,
        init_timeout=INIT_TIMEOUT,
    )
    options |= {"reinit": "finish_previous", "settings": settings}
    if chosen_mode == "online":
        try:
            return wandb.init(mode="online", resume="allow", **options)
        except Exception as error:
            console.line(f"W&B cannot be used ({reason(error)}): the run is tracked offline; `wandb sync` uploads it")
            wandb.teardown()
            # The stages to come need not try again.
            os.environ["WANDB_MODE"] = "offline"
    return wandb.init(mode="offline", **options)
