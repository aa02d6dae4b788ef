"""What every request passes before anything reads it: token, shutdown, length of the body."""

from __future__ import annotations

import base64
import binascii
import hmac

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from judgetrain.extras.server.service import Service

OPEN = ("/health", "/openapi.json", "/docs")
"""Paths that need no token."""
DISCARDED = 8
"""So many times the allowed length is read of a body that is too long, so that its sender gets to read the answer."""


def error(status: int, message: str, field: str | None = None, headers: dict[str, str] | None = None) -> Response:
    """The answer to a request that is not fulfilled; ``field``: of the request, as in ``comparisons[0].response_a``."""
    return JSONResponse({"error": {"message": message, "field": field}}, status, headers)


class Admission:
    """ASGI middleware.

    Args:
        app: what answers.
        service: says whether it is shutting down, and is told of open requests.
        token: what clients must send; None: nothing.
    """

    def __init__(self, app: ASGIApp, service: Service, token: str | None) -> None:
        self._app, self._service = app, service
        self._token = None if token is None else token.encode()
        self._longest = service.limits.body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or one connection of another kind, which passes."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, body, refusal = dict(scope["headers"]), None, self._late(scope)
        if scope["path"] not in OPEN and not self._admits(headers.get(b"authorization", b"")):
            wanted = "a token is needed: Authorization: Bearer TOKEN"
            refusal = error(401, wanted, headers={"www-authenticate": "Bearer"})
        elif refusal is None:
            body = await self._body(headers, receive)
            too_long = error(413, f"the request is longer than {self._longest} bytes")
            refusal = too_long if body is None else self._late(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        parts = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def again() -> Message:
            return next(parts, None) or await receive()

        # Accepted is what has come whole: the server's end does not wait for a client that sends no further.
        self._service.open_requests += 1
        try:
            await self._app(scope, again, send)
        finally:
            self._service.open_requests -= 1

    def _late(self, scope: Scope) -> Response | None:
        """What a request is told that comes after the signal to end."""
        if not self._service.draining or scope["method"] != "POST":
            return None
        return error(503, "the server is shutting down", headers={"retry-after": "5", "connection": "close"})

    def _admits(self, header: bytes) -> bool:
        """Whether a request may pass: its token is the bearer's, or the password of a URL's ``user:TOKEN@``."""
        if self._token is None:
            return True
        kind, _, given = header.partition(b" ")
        if kind.lower() == b"basic":
            try:
                given = base64.b64decode(given.strip(), validate=True).partition(b":")[2]
            except (binascii.Error, ValueError):
                return False
        elif kind.lower() != b"bearer":
            return False
        return hmac.compare_digest(given.strip(), self._token)

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes | None:
        """The whole body, or None where it is too long."""
        length = headers.get(b"content-length", b"")
        body, read, fits = bytearray(), 0, not (length.isdigit() and int(length) > self._longest)
        while read <= DISCARDED * self._longest:
            message = await receive()
            if message["type"] != "http.request":
                break
            part = message.get("body", b"")
            read += len(part)
            fits = fits and read <= self._longest
            if fits:
                body += part
            if not message.get("more_body"):
                break
        return bytes(body) if fits else None
