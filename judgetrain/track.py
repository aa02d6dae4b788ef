"""What a run tells on the console: lines and progress bars."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


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
