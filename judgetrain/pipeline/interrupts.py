"""Ctrl-C, SIGTERM and SIGUSR1 while stages run: the first is answered at once, a second ends the process."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.signals import ENDING, TERMINATING, terminate
from judgetrain.train.distributed import started_by_launcher


def _forget_signals() -> None:
    """Give a forked child signals of its own: it would write them into its parent's pipe, and must end by SIGTERM."""
    signal.set_wakeup_fd(-1)
    if threading.current_thread() is not threading.main_thread():
        # Python sets handlers in the main thread alone.
        return
    for number in TERMINATING:
        if signal.getsignal(number) is terminate:
            signal.signal(number, signal.SIG_DFL)


os.register_at_fork(after_in_child=_forget_signals)


@contextmanager
def answered(console: Console) -> Iterator[None]:
    """Print at once that a signal has come which ends the run; a second one ends the process here and now.

    Python itself raises KeyboardInterrupt between two of its own steps, and a training step's backward pass is one.
    SIGTERM and SIGUSR1 raise a TerminatedError there, which is one too. Only the main thread hears signals: in another
    this does nothing.

    Of several processes that a launcher started none is ended by a second signal: the launcher and SLURM may both send
    the first one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    # A handler in Python would wait for the step under way. What C writes into a pipe, another thread reads at once.
    read_end, write_end = os.pipe()
    # Python refuses a wakeup descriptor that could block.
    os.set_blocking(write_end, False)
    listener = threading.Thread(target=_listen, args=(read_end, console), daemon=True)
    listener.start()
    before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    heard = []
    # Of several processes one may wait for another in code that hears no signal; SIGTERM ends each of these at once.
    if not started_by_launcher():
        heard = [number for number in TERMINATING if signal.getsignal(number) is signal.SIG_DFL]
    for number in heard:
        signal.signal(number, terminate)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(before)
        # The listener ends with the pipe.
        os.close(write_end)
        listener.join(1.0)


def _listen(read_end: int, console: Console) -> None:
    """Answer each signal that ends a run and whose number Python writes into a pipe, until the pipe is closed."""
    was_answered = False
    ends_at_once = False
    with open(read_end, "rb", buffering=0) as signals:
        for byte in iter(lambda: signals.read(1), b""):
            number = byte[0]
            if number not in ENDING:
                continue
            # SIGUSR1 is a notice: SIGTERM follows it at a job's time limit, while the step may still be under way.
            is_notice = number == signal.SIGUSR1
            if ends_at_once and not is_notice:
                if console.terminal:
                    # A progress bar has hidden the cursor.
                    os.write(1, b"\x1b[?25h")
                os._exit(128 + number)
            ends_at_once = not is_notice and not started_by_launcher()
            if was_answered:
                continue
            was_answered = True
            line = "stopping as soon as the computation under way ends"
            if ends_at_once:
                again = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
                line = f"{line}; {again} again stops at once"
            # The other end of a pipe, as tee, gets Ctrl-C as well and may be gone.
            with suppress(BrokenPipeError):
                console.line(line)
