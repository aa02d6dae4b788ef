"""The command line: ``python -m judgetrain stage=... recipe=... key=value ...``. Imports no room."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable

from judgetrain import __version__
from judgetrain.pipeline.help import usage

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130
TIME_TO_END = 30.0
"""Seconds that an interrupted process has to end by itself."""


def main() -> int:
    """Run the command line; the exit code is 0, 2 for an expected error or no arguments, 130 when interrupted."""
    given = sys.argv[1:]
    if not given:
        print(usage(), file=sys.stderr)
        return EXIT_ERROR
    if "--version" in given:
        print(f"judgetrain {__version__}")
        return 0
    if {"--help", "-h"}.intersection(given):
        _show(lambda: print(usage()))
        return 0
    from judgetrain.pipeline import job

    if given[0] == "keys":
        return job.guarded(lambda: _show(lambda: job.show_keys(given[1:])))
    return job.guarded(lambda: job.hydra_jobs(given))


def _show(page: Callable[[], None]) -> None:
    """Print a page; whoever reads it through a pipe may stop early, as ``head`` does."""
    try:
        page()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the rest fails once more at exit


def command() -> int:
    """:func:`main` for a process of its own, which ends when it is interrupted."""
    code = main()
    if code == EXIT_INTERRUPTED:
        threading.Thread(target=_end, args=(TIME_TO_END,), daemon=True).start()
    return code


def _end(seconds: float) -> None:
    """Leave, whoever still waits: libraries join their threads and processes, and an interrupt may cost them one."""
    time.sleep(seconds)
    print(f"judgetrain: did not end within {seconds:g} s of the interrupt; left while it was here:", file=sys.stderr)
    faulthandler.dump_traceback()
    os._exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    sys.exit(command())
