"""Ctrl-C and SIGTERM while stages run: the first one is answered at once, a second one ends the process."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.signals import ENDING, terminate
from judgetrain.train.distributed import started_by_launcher


def _forget_signals() -> None:
    """Give a forked child signals of its own: it would write them into its parent's pipe, and must end by SIGTERM."""
    signal.set_wakeup_fd(-1)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread and signal.getsignal(signal.SIGTERM) is terminate:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


os.register_at_fork(after_in_child=_forget_signals)


@contextmanager
def answered(console: Console) -> Iterator[None]:
    """Print at once that Ctrl-C or SIGTERM has come; a second one ends the process here and now.

    Python itself raises KeyboardInterrupt between two of its own steps, and a training step's backward pass is one.
    SIGTERM raises a TerminatedError there, which is one too. Only the main thread hears signals: in another this does
    nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    read_end, write_end = os.pipe()
    # Python refuses a wakeup descriptor that could block.
    os.set_blocking(write_end, False)
    listener = threading.Thread(target=_listen, args=(read_end, console), daemon=True)
    listener.start()
    before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    # Of several processes one may wait for another in code that hears no signal; SIGTERM ends each of these at once.
    hears_sigterm = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and not started_by_launcher()
    if hears_sigterm:
        signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        if hears_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.set_wakeup_fd(before)
        os.close(write_end)
        listener.join(1.0)


def _listen(read_end: int, console: Console) -> None:
    """Answer each signal that ends a run and whose number Python writes into a pipe, until the pipe is closed."""
    has_come = False
    with open(read_end, "rb", buffering=0) as signals:
        for byte in iter(lambda: signals.read(1), b""):
            number = byte[0]
            if number not in ENDING:
                continue
            if has_come:
                if console.terminal:
                    # A progress bar has hidden the cursor.
                    os.write(1, b"\x1b[?25h")
                os._exit(128 + number)
            has_come = True
            again = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
            # The other end of a pipe, as tee, gets Ctrl-C as well and may be gone.
            with suppress(BrokenPipeError):
                console.line(f"stopping as soon as the computation under way ends; {again} again stops at once")
