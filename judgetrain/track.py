"""What a run tells: console lines and progress bars, and Weights & Biases runs."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from judgetrain.config import TrackConfig


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
    """``online``, ``offline`` or ``disabled``: what the tracker setting means on this machine."""
    if config.tracker == "none":
        return "disabled"
    if config.tracker == "wandb":
        return "online"
    return "online" if config.tracker == "auto" and os.environ.get("WANDB_API_KEY") else "offline"


@contextmanager
def tracked(
    config: TrackConfig, *, stage: str, fingerprint: str, recipe: str, settings: Mapping[str, Any], directory: Path
) -> Iterator[Run]:
    """A W&B run for one stage, always finished, and marked failed when the stage raises.

    The id comes from the fingerprint, so that a restart continues its run. ``settings`` is the configuration
    slice; it holds names of environment variables, never keys.
    """
    mode = mode_of(config)
    if mode == "disabled":
        with nullcontext():
            yield Run()
        return
    import wandb

    directory.mkdir(parents=True, exist_ok=True)
    run = wandb.init(
        project=config.project,
        group=config.group or recipe,
        job_type=stage,
        name=f"{stage}-{fingerprint[:6]}",
        id=f"{stage}-{fingerprint}",
        resume="allow" if mode == "online" else None,
        dir=str(directory),
        mode="online" if mode == "online" else "offline",
        config=dict(settings),
        reinit="finish_previous",
        settings=wandb.Settings(
            silent=True, console="off", x_disable_stats=True, disable_git=True, save_code=False, disable_code=True
        ),
    )
    exit_code = 1
    try:
        yield Run(run)
        exit_code = 0
    finally:
        run.finish(exit_code=exit_code)
