"""Signals that end a run: Ctrl-C (SIGINT), and those that clusters and containers send before they kill.

They send SIGTERM, and SLURM SIGUSR1 where a job asks for it some time before its limit (``sbatch --signal=USR1@300``).
"""

import signal
from multiprocessing import resource_tracker
from typing import Any, NoReturn

from judgetrain.errors import TerminatedError

TERMINATING = (signal.SIGTERM, signal.SIGUSR1)
"""The signals that a program sends, not a person."""


def terminate(number: int, frame: Any) -> NoReturn:
    """Handle such a signal by raising TerminatedError, as Python handles SIGINT by raising KeyboardInterrupt."""
    raise TerminatedError


ENDING: dict[signal.Signals, tuple[Any, ...]] = {
    signal.SIGINT: (signal.SIG_DFL, signal.default_int_handler),
    **dict.fromkeys(TERMINATING, (signal.SIG_DFL, terminate)),
}
"""The signals that end a run, with the handlers that Python and this package give them.

Any other handler is somebody else's, as submitit's for jobs that are to be queued again.
"""


def error_of(number: int) -> KeyboardInterrupt:
    """Return the error by which a signal ends the run."""
    return TerminatedError() if number in TERMINATING else KeyboardInterrupt()


def start_resource_tracker() -> None:
    """Start multiprocessing's resource tracker, if it does not run yet, so that signals which end a run do not end it.

    Clusters send them to all processes of a job. The tracker ignores SIGINT and SIGTERM by itself. Ended by SIGUSR1 it
    would be started anew without what was registered before, and print an error for each thing that is freed later.
    """
    # What is blocked here stays blocked in the process that begins now.
    blocked_before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        resource_tracker.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked_before)
