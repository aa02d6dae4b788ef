"""Signals that end a run: Ctrl-C (SIGINT), and those that clusters and containers send before they kill.

They send SIGTERM, and SLURM SIGUSR1 where a job asks for it some time before its limit (``sbatch --signal=USR1@300``).
"""

import signal
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
