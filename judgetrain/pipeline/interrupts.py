"""Ctrl-C while stages run: the first one is answered at once, a second one ends the process."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from judgetrain.artifacts.console import Console
from judgetrain.pipeline import EXIT_INTERRUPTED

# A forked child would write its own signals into this process's pipe.
os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))


@contextmanager
def answered(console: Console) -> Iterator[None]:
    """Print at once that Ctrl-C was pressed; a second one ends the process here and now.

    Python itself raises KeyboardInterrupt between two of its own steps, and a training step's backward pass is one.
    Only the main thread hears signals: in another this does nothing.
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
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(write_end)
        listener.join(1.0)


def _listen(read_end: int, console: Console) -> None:
    """Answer each Ctrl-C whose number Python writes into a pipe, until the pipe is closed."""
    presses = 0
    with open(read_end, "rb", buffering=0) as signals:
        for byte in iter(lambda: signals.read(1), b""):
            if byte[0] != signal.SIGINT:
                continue
            presses += 1
            if presses > 1:
                if console.terminal:
                    # A progress bar has hidden the cursor.
                    os.write(1, b"\x1b[?25h")
                os._exit(EXIT_INTERRUPTED)
            # The other end of a pipe, as tee, gets Ctrl-C as well and may be gone.
            with suppress(BrokenPipeError):
                console.line("stopping as soon as the computation under way ends; Ctrl-C again stops at once")
