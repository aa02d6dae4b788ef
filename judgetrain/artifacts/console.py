"""Lines and progress bars of a run on the console."""

import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from judgetrain.artifacts.environment import unresolved
from judgetrain.artifacts.heartbeat import doing, duration, noticed
from judgetrain.errors import printable

VERBOSE = "JUDGETRAIN_VERBOSE"
"""The environment variable that carries ``-v`` to every process."""
LINE_END = "\n"
CONTINUED = "\n          "
"""The end of a line within a message, and the place below the message's first word."""

__all__ = ["VERBOSE", "Console", "LogLines", "duration", "quiet_libraries"]


class Console:
    """Lines on standard output, and progress bars where that is a terminal; nothing where it is ``silent``.

    Args:
        silent: print nothing.
        stream: where lines go, though standard output may be turned elsewhere meanwhile; None: to standard output.
    """

    def __init__(self, silent: bool = False, stream: TextIO | None = None) -> None:
        self.silent = silent
        self._stream = stream
        self.terminal = not silent and sys.stdout.isatty()

    def line(self, message: str) -> None:
        """Print one line with the time of day."""
        if not self.silent:
            text = printable(unresolved(message))
            # A name may hold ends of lines: what follows one is no line of its own.
            print(f"{time.strftime('%H:%M:%S')}  {text.replace(LINE_END, CONTINUED)}", file=self._stream, flush=True)
            noticed()

    def plain(self, parts: Iterable[Any]) -> str:
        """Print Rich renderables (tables) and text, and return what was printed, without colours.

        Where output is no terminal, lines are wide enough for a table.
        """
        from rich.console import Console as RichConsole
        from rich.console import ConsoleOptions, RenderableType
        from rich.segment import Segment
        from rich.text import Text

        class Shown(RichConsole):
            """A console whose escape sequences and markup are its own, whatever stands in the texts."""

            def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
                """Yield the segments of a renderable with printable texts, without values of the environment."""
                if isinstance(renderable, str):
                    renderable = unresolved(renderable)
                elif isinstance(renderable, Text):
                    # Before it is folded, which would part a value. Only a text that changes loses its styles.
                    named = unresolved(renderable.plain)
                    if named != renderable.plain:
                        renderable = renderable.blank_copy(named)
                for segment in super().render(renderable, options):
                    yield segment if segment.control else Segment(printable(segment.text), segment.style)

            def on_broken_pipe(self) -> None:
                """Raise the error that is being handled; Rich would end the process without a word."""
                raise

        # Rich takes 80 columns for a file or pipe, in which the tables of results would be folded.
        width = None if self.terminal else 140
        # Names in brackets or between colons are neither markup nor a smile.
        console = Shown(width=width, record=True, markup=False, emoji=False)
        for part in parts:
            console.print(part)
        noticed()
        return console.export_text()

    @contextmanager
    def progress(self, title: str, total: int, unit: str, initial: int = 0) -> Iterator[Callable[[int], None]]:
        """Show progress, and yield a function that adds a number of finished units.

        A terminal shows a bar. Elsewhere, as in a SLURM job's log, there is a line after ten seconds without one, with
        the time left (:mod:`~judgetrain.artifacts.heartbeat`).

        Args:
            title: stands before the bar.
            total: how many units there are.
            unit: the units' name in the plural.
            initial: how many units an earlier run finished.
        """
        with doing(title, total, unit, initial, shown=self.terminal) as activity:
            if not self.terminal:
                yield activity.advance
                return
            with self._bar(title, total, unit, initial) as advance:
                yield advance

    @contextmanager
    def _bar(self, title: str, total: int, unit: str, initial: int) -> Iterator[Callable[[int], None]]:
        """Show a bar on a terminal. Arguments as of :meth:`progress`."""
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}", markup=False),
            # The clock shows that something is done before the first unit is.
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            transient=True,
            refresh_per_second=2,
        )
        with bar:
            task = bar.add_task(printable(unresolved(title)), total=total, completed=initial, unit=printable(unit))
            yield lambda number: bar.advance(task, number)


class LogLines(logging.Handler):
    """A logging handler that prints what the package logs as lines of the run."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the message of one record."""
        Console().line(record.getMessage())


def quiet_libraries() -> None:
    """Keep the libraries' progress bars and notices out of the run's output.

    Call it before importing them; ``datasets`` is also told where it was imported before. An environment variable that
    the user has set stays as it is.
    """
    # Trainers, the Hub and data sets each have bars of their own, which would be mixed with this run's lines.
    defaults = {
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "TQDM_DISABLE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "TOKENIZERS_PARALLELISM": "false",
        "WANDB_SILENT": "true",
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    # It reads the variable when it is imported, and trainers map their rows with it.
    if "datasets" in sys.modules:
        sys.modules["datasets"].disable_progress_bars()
    # Deprecations inside Transformers are not the user's to mend.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers\..*")

    # bitsandbytes warns that 4-bit kernels for CPUs are missing, which nothing here uses.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    # DeepSpeed sets its logger's level when it is imported, so a level set here would not last.
    logging.getLogger("DeepSpeed").addFilter(_is_error)


def _is_error(record: logging.LogRecord) -> bool:
    """Return whether a record is an error or worse."""
    return record.levelno >= logging.ERROR
