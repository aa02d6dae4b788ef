"""The process: a socket, uvicorn, and an end that finishes what was accepted."""

import asyncio
import gc
import socket
from functools import partial
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from judgetrain.artifacts.console import Console
from judgetrain.errors import ConfigError
from judgetrain.extras.server.app import create_app, host_name
from judgetrain.extras.server.config import ServeConfig
from judgetrain.extras.server.service import Service

GRACE = 5
"""Seconds, after all that was accepted is answered, for which connections may stay open."""


class Server(uvicorn.Server):
    """Uvicorn, which on SIGTERM or SIGINT answers 503 to what is new and ends when what was accepted is answered.

    A second signal ends it at once.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note a signal. It is not raised again at the end, as uvicorn does: the end that it asks for is a good one."""
        is_second = self._service.draining
        self._service.draining = True
        # The first signal waits for what was accepted; who sends another one does not want to wait.
        if is_second:
            self.should_exit = True
            self.force_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Return whether to end; uvicorn asks ten times a second."""
        # Draining alone is not enough: a request that is being judged would lose its answer.
        if self._service.draining and not self._service.open_requests:
            self.should_exit = True
        return await super().on_tick(counter)


class Patient(H11Protocol):
    """A connection that is closed when its next request's headers are not there in time; uvicorn would wait for ever.

    Between two requests uvicorn's own limit holds (``timeout_keep_alive``).
    """

    def __init__(self, patience: float, **options: Any) -> None:
        super().__init__(**options)
        self._patience = patience
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Read what came, and wait no longer once it begins a request that uvicorn answers."""
        super().data_received(data)
        self._watch()

    def _watch(self) -> None:
        """Set the deadline while a request's headers are not there, and lift it when they are."""
        # h11 leaves IDLE once it has read a request's headers whole.
        if self.conn.their_state is not h11.IDLE:
            if self._deadline:
                self._deadline.cancel()
            self._deadline = None
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self._patience, self.transport.close)


def bound(config: ServeConfig) -> socket.socket:
    """Return a socket at the address; nobody is answered before the judge is loaded.

    Raises:
        ConfigError: no such address, or it is in use.
    """
    try:
        # Resolved here, so that names and addresses of IPv6 work as well.
        family, *_, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family)
        # Else the port of a server that has just ended is not free for a minute.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise ConfigError(
            f"serve.host={config.host!r}, serve.port={config.port}: cannot listen there ({error.strerror}); choose "
            "another, or serve.port=0 for a free one"
        ) from error
    return listener


def names_of(config: ServeConfig) -> frozenset[str]:
    """Return the names by which this server is reached, in lower case: its own, this machine's, and what is allowed.

    Raises:
        ConfigError: an allowed host is none, as a pattern.
    """
    names = ["localhost", config.host, socket.gethostname(), socket.getfqdn()]
    for allowed in config.allowed_hosts:
        # With a port or as an address of the web it is the same host: requests are compared without these.
        name = host_name(allowed.rpartition("://")[2])
        if not name or "*" in name:
            raise ConfigError(
                f"serve.allowed_hosts: {allowed!r} is no name of a host; write each name out, as judge.example"
            )
        names.append(name)
    return frozenset(name.lower() for name in names if name)


def run(service: Service, listener: socket.socket, token: str | None, console: Console) -> None:
    """Answer until a signal ends it.

    Args:
        service: judges what is asked.
        listener: as :func:`bound` gives it.
        token: that clients have to send; None: none, and the server then answers under its own names alone.
        console: for messages.
    """
    host, port = listener.getsockname()[:2]
    url_host = host
    if ":" in host:
        # The address of IPv6 stands in brackets in a URL.
        url_host = f"[{host}]"

    # A token keeps strangers out. Without one the names do: a page of another site must not ask by way of a browser.
    secured = ""
    allowed_names = None
    if not token:
        secured = ", without a token"
        allowed_names = names_of(service.config)
    is_local = urlsplit(f"//{url_host}").hostname in ("127.0.0.1", "::1")
    if token is None and not is_local:
        console.line("serve: everybody who reaches this address may ask: set a token in JUDGETRAIN_TOKEN")
    settings = uvicorn.Config(
        create_app(service, token, allowed_names),
        http=partial(Patient, service.limits.patience),  # type: ignore[arg-type]
        log_level="warning",
        access_log=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=GRACE,
        lifespan="off",
    )
    # Who reads the line below can connect.
    listener.listen(settings.backlog)
    console.line(
        f"serve: {service.judge.name} answers at http://{url_host}:{port}{secured} (a page, and POST /v1/judge)"
    )
    # What is loaded by now stays: requests of many parts would have it looked through again and again, which keeps
    # everybody waiting.
    gc.collect()
    gc.freeze()
    server = Server(settings, service)
    server.run([listener])
    if server.force_exit:
        console.line("serve: ended at once; who waited asks again")
        return
    service.close()
    console.line("serve: ended; everything that was accepted is answered")
