"""What a run tells: console lines and progress bars, and Weights & Biases runs."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from judgetrain.config import TrackConfig

WANDB_HOSTS = ("api.wandb.ai", "api.forge.coreweave.com")
INIT_TIMEOUT = 30.0
"""Seconds to wait for the W&B server before the run becomes an offline one."""


def duration(seconds: float) -> str:
    """Seconds as a reader wants them."""
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.1f} min"


class Console:
    """Lines on standard output, and progress bars where that is a terminal."""

    def __init__(self) -> None:
        self.terminal = sys.stdout.isatty()

    def line(self, message: str) -> None:
        """Print one line with the time of day."""
        print(f"{time.strftime('%H:%M:%S')}  {message}", flush=True)

    def plain(self, parts: Iterable[Any]) -> None:
        """Print Rich renderables (tables) and text, wide enough for a table where output is no terminal."""
        from rich.console import Console as RichConsole

        console = RichConsole(width=None if self.terminal else 140)
        for part in parts:
            console.print(part)

    @contextmanager
    def progress(self, title: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        """A progress bar over ``total`` units; gives a function that advances it. Silent off a terminal."""
        if not self.terminal:
            yield lambda _: None
            return
        from tqdm.auto import tqdm

        with tqdm(total=total, desc=title, unit=f" {unit}", leave=False) as bar:
            yield lambda n: _advance(bar, n)


def quiet_libraries(terminal: bool) -> None:
    """Keep the libraries' own progress bars and notices out of the run's output; call before importing them.

    Bars stay where there is a terminal to draw them on. A variable that the user has set is left as it is.
    """
    defaults = {
        "TRANSFORMERS_VERBOSITY": "error",
        "TOKENIZERS_PARALLELISM": "false",
        "WANDB_SILENT": "true",
    }
    if not terminal:
        defaults |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "TQDM_DISABLE": "1"}
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers\..*")


def _advance(bar: Any, n: int) -> None:
    bar.update(n)


class Run:
    """One tracked run; does nothing when tracking is off."""

    def __init__(self, run: Any = None) -> None:
        self._run = run

    def log(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Log numbers; anything that is no number is left out."""
        numbers = {k: v for k, v in metrics.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
        if self._run is not None and numbers:
            self._run.log(numbers, step=step)

    def summary(self, values: Mapping[str, Any]) -> None:
        """Set the run's summary."""
        if self._run is not None:
            self._run.summary.update(dict(values))


def mode_of(config: TrackConfig) -> str:
    """``online``, ``offline`` or ``disabled``: what the tracker setting means on this machine.

    With ``auto``, ``WANDB_MODE`` decides where it is set; otherwise a key does (``WANDB_API_KEY`` or netrc).
    """
    fixed = {"none": "disabled", "wandb": "online", "wandb_offline": "offline"}
    if config.tracker in fixed:
        return fixed[config.tracker]
    wanted = os.environ.get("WANDB_MODE", "")
    if wanted in fixed.values():
        return wanted
    return "online" if os.environ.get("WANDB_API_KEY") or _in_netrc() else "offline"


def _in_netrc() -> bool:
    """Whether ``wandb login`` has been done on this machine (it keeps the key in the netrc file)."""
    import netrc
    from urllib.parse import urlsplit

    host = urlsplit(os.environ.get("WANDB_BASE_URL", "")).hostname
    try:
        hosts = netrc.netrc(os.environ.get("NETRC")).hosts
    except (OSError, netrc.NetrcParseError):
        return False
    return any(name in hosts for name in (host, *WANDB_HOSTS) if name)


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
) -> Iterator[Run]:
    """A W&B run for one stage, always finished, and marked failed when the stage raises.

    The id comes from the fingerprint, so that a restart continues its run. ``settings`` is the configuration
    slice; it holds names of environment variables, never keys. A server that cannot be reached makes the run an
    offline one: tracking never stops a stage.
    """
    mode = mode_of(config)
    if mode == "disabled":
        yield Run()
        return
    directory.mkdir(parents=True, exist_ok=True)
    options = {
        "project": config.project,
        "group": config.group or recipe,
        "job_type": stage,
        "name": f"{stage}-{fingerprint[:6]}",
        "id": f"{stage}-{fingerprint}",
        "dir": str(directory),
        "config": dict(settings),
    }
    run = _start(mode, options, console)
    exit_code = 1
    try:
        yield Run(run)
        exit_code = 0
    finally:
        run.finish(exit_code=exit_code)


def _start(mode: str, options: dict[str, Any], console: Console) -> Any:
    import wandb

    settings = wandb.Settings(
        silent=True,
        console="off",
        x_disable_stats=True,
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
            reason = (" ".join(str(error).split()) or type(error).__name__)[:200]
            console.line(f"W&B cannot be used ({reason}): this run is tracked offline; `wandb sync` uploads it later")
            wandb.teardown()
            # The stages to come need not try again.
            os.environ["WANDB_MODE"] = "offline"
    return wandb.init(mode="offline", **options)
