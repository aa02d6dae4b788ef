"""What a run tells on the console: lines and progress bars."""

import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

VERBOSE = "JUDGETRAIN_VERBOSE"
"""The variable by which ``-v`` reaches every process."""
EVERY = 30.0
"""Seconds between two lines that say how far some work is, where output is no terminal."""


def duration(seconds: float) -> str:
    """Seconds as text: ``12.3 s``, from 100 s on in minutes."""
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.1f} min"


class Console:
    """Lines on standard output, and progress bars where that is a terminal; nothing where it is ``silent``."""

    def __init__(self, silent: bool = False) -> None:
        self.silent, self.terminal = silent, not silent and sys.stdout.isatty()

    def line(self, message: str) -> None:
        """Print one line with the time of day."""
        if not self.silent:
            print(f"{time.strftime('%H:%M:%S')}  {message}", flush=True)

    def plain(self, parts: Iterable[Any]) -> str:
        """Print Rich renderables (tables) and text, wide enough for a table where output is no terminal.

        Returns what was printed, without colours.
        """
        from rich.console import Console as RichConsole

        console = RichConsole(width=None if self.terminal else 140, record=True)
        for part in parts:
            console.print(part)
        return console.export_text()

    @contextmanager
    def progress(self, title: str, total: int, unit: str, initial: int = 0) -> Iterator[Callable[[int], None]]:
        """A progress bar over ``total`` units, ``initial`` of them done before; gives a function that advances it.

        Off a terminal, as in a SLURM job's log, it is a line now and then, with the time that is left at this pace.
        """
        if not self.terminal:
            yield self._lines(title, total, unit, initial)
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
        with Progress(
            *columns, TimeRemainingColumn(elapsed_when_finished=True), transient=True, refresh_per_second=2
        ) as bar:
            task = bar.add_task(title, total=total, completed=initial)
            yield lambda number: bar.advance(task, number)

    def _lines(self, title: str, total: int, unit: str, initial: int) -> Callable[[int], None]:
        """Says at most every :data:`EVERY` seconds how far some work is, and how long the rest takes at this pace."""
        done, started = initial, time.monotonic()
        told = started

        def advance(number: int) -> None:
            nonlocal done, told
            done, now = done + number, time.monotonic()
            if now - told >= EVERY and initial < done < total:
                told = now
                left = (now - started) / (done - initial) * (total - done)
                self.line(f"{title}: {done} of {total} {unit}, about {duration(left)} left")

        return advance


class LogLines(logging.Handler):
    """Prints what the package logs as lines of the run."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one."""
        Console().line(record.getMessage())


def quiet_libraries() -> None:
    """Keep the libraries' own progress bars and notices out of the run's output; call before importing them.

    A variable that the user has set is left as it is.
    """
    bars = ("HF_HUB_DISABLE_PROGRESS_BARS", "HF_DATASETS_DISABLE_PROGRESS_BARS", "TQDM_DISABLE")
    notices = {"TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false", "WANDB_SILENT": "true"}
    for name, value in {**dict.fromkeys(bars, "1"), **notices}.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers\..*")
    # It misses 4-bit kernels for CPUs, which nothing here uses.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    logging.getLogger("DeepSpeed").addFilter(_errors)  # it sets its own level when it is imported


def _errors(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR
