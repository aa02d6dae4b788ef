"""A server's address, written in one way. It holds no secret: keys stand in the environment."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

from judgetrain.errors import ConfigError

DEFAULT_PORTS = {"http": 80, "https": 443}
_SECRET = re.compile(r"key|token|secret|password|sig(?:nature)?", re.IGNORECASE)


def server_address(text: str, key: str = "engine.base_url") -> tuple[str, dict[str, str]]:
    """A server's address, which identifies it and stands in messages, and the query that goes with every request.

    ``key`` is where the address stands, for messages.

    Raises:
        ConfigError: it is none that a server can have, or it holds a password; the message does not repeat it.
    """
    try:
        parts = urlsplit(text.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        host, parts, port = None, urlsplit(""), None
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    if "@" in parts.netloc or any(_SECRET.search(name) for name in query):
        raise ConfigError(
            f"{key}: the address holds a password or a key, which everyone on this machine can see: put it into an "
            "environment variable, and name that where the key is asked for (engine.api_key_env)"
        )
    if parts.scheme not in DEFAULT_PORTS or not host:
        raise ConfigError(f"{key} is no server's address: give one that begins with http:// or https:// and a host")
    host = f"[{host}]" if ":" in host else host
    place = host if port in (None, DEFAULT_PORTS[parts.scheme]) else f"{host}:{port}"
    return f"{parts.scheme}://{place}{parts.path.rstrip('/')}", query
