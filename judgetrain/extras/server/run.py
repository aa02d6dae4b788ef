"""The process: a socket, uvicorn, and an end that finishes what was accepted."""

import asyncio
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
from judgetrain.extras.server.app import create_app
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
        if self._service.draining:
            self.should_exit = self.force_exit = True
        self._service.draining = True

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second; gives whether to end."""
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
        """Begin to wait."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Some came."""
        super().data_received(data)
        self._watch()

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            if self._deadline:
                self._deadline.cancel()
            self._deadline = None
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self._patience, self.transport.close)


def bound(config: ServeConfig) -> socket.socket:
    """Return a socket at the address; nobody is answered before the judge is loaded (ConfigError: no such address)."""
    try:
        family, *_, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except OSError as error:
        told = f"serve.host={config.host!r}, serve.port={config.port}: cannot listen there ({error.strerror})"
        raise ConfigError(f"{told}; choose another, or serve.port=0 for a free one") from error
    return found


def names_of(config: ServeConfig) -> frozenset[str]:
    """Return the names by which this server is reached, in lower case: its own, this machine's, and what is allowed."""
    names = ["localhost", config.host, socket.gethostname(), socket.getfqdn(), *config.allowed_hosts]
    return frozenset(name.lower() for name in names if name)


def run(service: Service, listener: socket.socket, token: str | None, console: Console) -> None:
    """Answer until a signal ends it."""
    settings = uvicorn.Config(
        create_app(service, token, None if token else names_of(service.config)),
        http=partial(Patient, service.limits.patience),  # type: ignore[arg-type]
        log_level="warning",
        access_log=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=GRACE,
        lifespan="off",
    )
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    secured = "" if token else ", without a token"
    if token is None and urlsplit(f"//{shown}").hostname not in ("127.0.0.1", "::1"):
        console.line("serve: everybody who reaches this address may ask: set a token in JUDGETRAIN_TOKEN")
    listener.listen(settings.backlog)  # so that who reads this line can connect
    console.line(f"serve: {service.judge.name} answers at http://{shown}:{port}{secured} (a page, and POST /v1/judge)")
    server = Server(settings, service)
    server.run([listener])
    if server.force_exit:
        console.line("serve: ended at once; who waited asks again")
        return
    service.close()
    console.line("serve: ended; everything that was accepted is answered")
