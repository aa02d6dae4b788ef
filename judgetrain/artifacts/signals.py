"""Signals that end a run: Ctrl-C (SIGINT) and SIGTERM, which clusters and containers send before they kill."""

import signal
from typing import Any, NoReturn

from judgetrain.errors import TerminatedError


def terminate(number: int, frame: Any) -> NoReturn:
    """Handle SIGTERM by raising TerminatedError, as Python handles SIGINT by raising KeyboardInterrupt."""
    raise TerminatedError


ENDING: dict[signal.Signals, tuple[Any, ...]] = {
    signal.SIGINT: (signal.default_int_handler,),
    signal.SIGTERM: (signal.SIG_DFL, terminate),
}
"""The signals that end a run, with the handlers that Python and this package give them.

Any other handler is somebody else's, as submitit's for jobs that are to be queued again.
"""


def error_of(number: int) -> KeyboardInterrupt:
    """Return the error by which a signal ends the run."""
    return TerminatedError() if number == signal.SIGTERM else KeyboardInterrupt()
