"""An address that opens no connection: what a firewall that drops packets does, and a server that takes no more."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

WAITING = 8
"""Connections that wait for a server which never takes one: more than fit into its queue."""


@contextmanager
def unopening() -> Iterator[str]:
    """Yield the address, with its port, of a socket whose queue is full, so that the kernel answers no further one."""
    with ExitStack() as opened, socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(WAITING):
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            with suppress(BlockingIOError):
                waiting.connect(listening.getsockname())
        deadline = time.monotonic() + 30
        while _opens(listening.getsockname()):
            assert time.monotonic() < deadline, "the queue never fills"
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def _opens(address: tuple[str, int]) -> bool:
    """Return whether a further connection opens at once."""
    with socket.socket() as tried:
        tried.settimeout(0.3)
        try:
            tried.connect(address)
        except TimeoutError:
            return False
        return True
