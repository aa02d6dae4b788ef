"""End a fork server whose parent ends while it imports.

It notices the end of its parent once it serves. Its imports come before, and take minutes on a busy machine. The server
imports this module first; the watch ends with ``preloaded``, the last import, since processes are forked afterwards and
no thread may be left then.
"""

import os
import sys
import threading

LOOKS = 0.5
"""Seconds between two looks."""
_is_done = threading.Event()
_parent = os.getppid()


def _watch() -> None:
    """End this process if its parent ends before the imports do."""
    while not _is_done.wait(LOOKS):
        if os.getppid() != _parent:
            os._exit(1)


_watching = threading.Thread(target=_watch, daemon=True)
# The other processes that import this have nothing to watch.
if any("multiprocessing.forkserver" in word for word in sys.orig_argv):
    _watching.start()


def stop() -> None:
    """End the watch, and wait until its thread is gone."""
    if _watching.is_alive():
        _is_done.set()
        _watching.join()
