"""A server's address, apart from the password and the tokens that it may hold, which nobody is shown."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

from judgetrain.errors import ConfigError

DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, kw_only=True)
class Address:
    """``engine.base_url`` in its parts.

    ``shown`` is the address without secrets, written in one way: it stands in messages and identifies the server.
    ``user`` and ``password`` are sent as HTTP's basic authentication, ``query`` (``?key=…``) with every request.
    """

    shown: str
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    query: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """What must not be shown: as it is written in the address, as it is meant, and as it is sent."""

    @classmethod
    def parse(cls, text: str, key: str = "engine.base_url") -> Self:
        """The parts of an address; ``key`` is where it stands.

        Raises:
            ConfigError: it is none that a server can have.
        """
        try:
            parts = urlsplit(text.strip())
            host, port = parts.hostname, parts.port
        except ValueError:
            host, parts, port = None, urlsplit(""), None
        if parts.scheme not in DEFAULT_PORTS or not host:
            raise ConfigError(f"{key} is no server's address: give one that begins with http:// or https:// and a host")
        host = f"[{host}]" if ":" in host else host
        place = host if port in (None, DEFAULT_PORTS[parts.scheme]) else f"{host}:{port}"
        query = tuple(parse_qsl(parts.query, keep_blank_values=True))
        written = [parts.username or "" if parts.password is None else "", parts.password or ""]
        written += [part.partition("=")[2] for part in parts.query.split("&")]
        written += [form(value) for _, value in query for form in (str, quote, quote_plus)]
        secrets = {form for text in written for form in (text, unquote(text)) if len(text) > 2}
        return cls(
            shown=f"{parts.scheme}://{place}{parts.path.rstrip('/')}",
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            query=query,
            secrets=tuple(sorted(secrets, key=len, reverse=True)),
        )


_SECRETS: set[str] = set()
"""What no log line of the libraries that carry requests may hold; those lines have whole addresses."""


def redact_logs(secrets: Iterable[str]) -> None:
    """Keep secrets out of the log lines of the libraries that carry requests."""
    _SECRETS.update(secrets)
    for name in ("httpx2", "openai._base_client", "openai"):
        logging.getLogger(name).addFilter(_redacted)


def _redacted(record: logging.LogRecord) -> bool:
    record.msg, record.args = redact(record.getMessage(), _SECRETS), ()
    return True


def redact(text: str, secrets: Iterable[str]) -> str:
    """The text with ``[key]`` in place of every secret."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "[key]")
    return text
