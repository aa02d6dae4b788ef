"""Ctrl-C while stages run: said at once, and what a second one does."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from judgetrain.artifacts.console import Console
from judgetrain.pipeline import EXIT_INTERRUPTED

os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))  # a child would tell this process what it hears


@contextmanager
def answered(console: Console) -> Iterator[None]:
    """Say at once that Ctrl-C was heard; a second one ends the process here and now.

    Python itself raises KeyboardInterrupt between two of its own steps, and a training step's backward pass is one.
    Only the main thread hears signals: in another this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ear, mouth = os.pipe()
    os.set_blocking(mouth, False)
    listener = threading.Thread(target=_listen, args=(ear, console), daemon=True)
    listener.start()
    before = signal.set_wakeup_fd(mouth, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(mouth)
        listener.join(1.0)


def _listen(ear: int, console: Console) -> None:
    with open(ear, "rb", buffering=0) as signals:
        heard = (byte for byte in iter(lambda: signals.read(1), b"") if byte[0] == signal.SIGINT)
        for number, _ in enumerate(heard):
            if number:
                os.write(1, b"\x1b[?25h" if console.terminal else b"")  # a progress bar has hidden the cursor
                os._exit(EXIT_INTERRUPTED)
            with suppress(BrokenPipeError):  # of tee, which hears Ctrl-C too
                console.line("stopping as soon as the computation under way ends; Ctrl-C again stops at once")
